"""A legal value that changes nothing here is told of, once, and only then."""

from __future__ import annotations

import pytest

from kimisvc.profile.knowledge.parallelism import gpus_here, gpus_used, several_boxes
from kimisvc.profile.knowledge.variables.check import variable_findings
from kimisvc.profile.knowledge.variables.effects import effect_findings
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, HardwareSettings, Link, Profile, VllmSettings

TP8: dict[str, ArgValue] = {"tensor-parallel-size": 8}
ALL_REDUCE = "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"


def profile(
    env: dict[str, str],
    args: dict[str, ArgValue] = TP8,
    link: Link = Link.PCIE,
    gpus: int = 8,
) -> Profile:
    return Profile(
        name="p",
        vllm=VllmSettings("/v/bin/vllm", "/m"),
        args=args,
        env=env,
        hardware=HardwareSettings(gpus=gpus, link=link),
    )


def told(draft: Profile) -> dict[str, str]:
    findings = list(effect_findings(draft))
    assert all(finding.severity is Severity.WARNING for finding in findings)
    paths = [path for finding in findings for path in (finding.path, *finding.or_at)]
    assert len(paths) == len(set(paths))
    return {str(finding.path[1]): finding.message for finding in findings}


@pytest.mark.parametrize(
    ("env", "idle", "reason"),
    [
        ({"NCCL_PROTO": "LL", "NCCL_BUFFSIZE": "8192"}, "NCCL_BUFFSIZE", "allows LL only"),
        ({"NCCL_PROTO": "Simple", "NCCL_LL_BUFFSIZE": "8192"}, "NCCL_LL_BUFFSIZE", "Simple only"),
        ({"NCCL_LL128_BUFFSIZE": "8192"}, "NCCL_LL128_BUFFSIZE", "alone over PCIe"),
        ({"NCCL_PROTO": "^LL128"}, "NCCL_PROTO", "NCCL uses LL and Simple"),
        ({"NCCL_PROTO": "Simple,LL"}, "NCCL_PROTO", "chooses between them"),
        ({"NCCL_MAX_NCHANNELS": "16"}, "NCCL_MAX_NCHANNELS", "NCCL finds 2 to 4 channels"),
        ({"NCCL_MAX_CTAS": "8"}, "NCCL_MAX_CTAS", "it is a cap"),
        ({"NCCL_NVLS_ENABLE": "1"}, "NCCL_NVLS_ENABLE", "without NVLink"),
        ({"NCCL_CROSS_NIC": "1"}, "NCCL_CROSS_NIC", "between boxes"),
        ({"NCCL_SOCKET_NTHREADS": "4"}, "NCCL_SOCKET_NTHREADS", "between boxes"),
        ({"NCCL_IB_TIMEOUT": "22"}, "NCCL_IB_TIMEOUT", "between boxes"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, "NCCL_P2P_LEVEL", "turns P2P off"),
        ({"NCCL_DEBUG": "WARN", "NCCL_DEBUG_SUBSYS": "ALL"}, "NCCL_DEBUG_SUBSYS", "=INFO"),
        ({"NCCL_DEBUG_FILE": "/x"}, "NCCL_DEBUG_FILE", "without NCCL_DEBUG"),
        (
            {"NCCL_DEBUG": "none", "NCCL_DEBUG_FILE": "/x"},
            "NCCL_DEBUG_FILE",
            "without NCCL_DEBUG",
        ),
        (
            {"VLLM_BATCH_INVARIANT": "1", "NCCL_ALGO": "Ring"},
            "NCCL_ALGO",
            "set anew by vLLM itself",
        ),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, "NCCL_ASYNC_ERROR_HANDLING", "taken away by vLLM"),
        ({"PYTORCH_NVML_BASED_CUDA_CHECK": "0"}, "PYTORCH_NVML_BASED_CUDA_CHECK", "set to 1"),
    ],
)
def test_idle_values_are_told_on_eight_gpus_over_pcie(
    env: dict[str, str], idle: str, reason: str
) -> None:
    found = told(profile(env))
    assert list(found) == [idle]
    assert reason in found[idle]


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"NCCL_PROTO": "LL;allgather:simple", "NCCL_BUFFSIZE": "8388608"},
        {"NCCL_PROTO": "allreduce:LL", "NCCL_BUFFSIZE": "8388608"},
        {"NCCL_BUFFSIZE": "8388608"},
        {"NCCL_MAX_NCHANNELS": "2"},
        {"NCCL_MAX_CTAS": "16", "NCCL_MIN_CTAS": "16"},
        {"NCCL_SOCKET_IFNAME": "lo"},
        {"NCCL_IB_DISABLE": "1"},
        {"NCCL_SOCKET_NTHREADS": "4", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
        {"NCCL_P2P_LEVEL": "PHB"},
        {"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "ENV", "NCCL_DEBUG_FILE": "/x"},
        {ALL_REDUCE: "0", "NCCL_PROTO": "LL"},
        {"NCCL_NVLS_ENABLE": ""},
    ],
)
def test_values_that_act_are_not_told(env: dict[str, str]) -> None:
    assert told(profile(env)) == {}


def test_another_all_reduce_over_pcie_leaves_nccl_the_prefill() -> None:
    env = {ALL_REDUCE: "1", "NCCL_PROTO": "LL", "NCCL_MIN_CTAS": "8", "NCCL_DEBUG": "WARN"}
    (finding,) = effect_findings(profile(env))
    assert finding.message.startswith("NCCL_PROTO, NCCL_MIN_CTAS hardly act on decode: ")
    assert finding.or_at == (("env", "NCCL_MIN_CTAS"),)
    for gpus in (2, 4):
        assert "NCCL_PROTO" in told(profile(env, {"tensor-parallel-size": gpus}))
    for gpus in (3, 6):
        assert told(profile(env, {"tensor-parallel-size": gpus})) == {}


def test_the_all_reduce_of_vllm_over_nvlink_leaves_nccl_the_prefill() -> None:
    env = {"NCCL_PROTO": "LL"}
    assert "disable-custom-all-reduce" in told(profile(env, link=Link.NVLINK))["NCCL_PROTO"]
    off: dict[str, ArgValue] = TP8 | {"disable_custom_all_reduce": True}
    assert told(profile(env, off, Link.NVLINK)) == {}
    assert told(profile(env, link=Link.ANY)) == {}


@pytest.mark.parametrize("link", [Link.PCIE, Link.ANY])
def test_the_all_reduce_of_vllm_joins_two_gpus_over_pcie_too(link: Link) -> None:
    env = {"NCCL_MIN_CTAS": "8"}
    two: dict[str, ArgValue] = {"tensor-parallel-size": 2}
    assert told(profile(env, two, link))["NCCL_MIN_CTAS"] == (
        "hardly acts on decode: vLLM's own all-reduce, where P2P works between the two GPUs (and "
        "unless disable-custom-all-reduce = true), carries the all-reduce of small batches there, "
        "and NCCL only the large ones of prefill"
    )
    assert told(profile(env, {**two, "disable-custom-all-reduce": True}, link)) == {}


@pytest.mark.parametrize(
    "args",
    [
        {"tensor-parallel-size": 1, "data-parallel-size": 8, "enable-expert-parallel": True},
        {"tensor-parallel-size": 4, "data-parallel-size": 2, "enable-expert-parallel": True},
        {"tensor-parallel-size": 4, "dp": "2"},
        {"tensor-parallel-size": 4, "pipeline-parallel-size": 2},
        {"tensor-parallel-size": 8, "decode-context-parallel-size": 8},
        {"tensor-parallel-size": 4, "prefill_context_parallel_size": 2},
        {"tensor-parallel-size": 8, "nnodes": 2},
        {"tensor-parallel-size": 8, "data-parallel-size": "some"},
    ],
)
@pytest.mark.parametrize("env", [{}, {ALL_REDUCE: "1"}], ids=["own", "FlashInfer"])
def test_nccl_acts_on_decode_where_more_than_one_group_of_tensors_works(
    args: dict[str, ArgValue], env: dict[str, str]
) -> None:
    draft = profile({"NCCL_MIN_CTAS": "32", **env}, args, Link.NVLINK)
    assert told(draft) == {}
    one_group = profile({"NCCL_MIN_CTAS": "32", **env}, TP8, Link.NVLINK)
    assert "hardly acts on decode" in told(one_group)["NCCL_MIN_CTAS"]


@pytest.mark.parametrize(
    ("args", "gpus"),
    [({}, 8), ({"tensor-parallel-size": 1}, 8), ({"tp": "1"}, 0), (TP8, 1)],
)
def test_one_gpu_leaves_nothing_to_do(args: dict[str, ArgValue], gpus: int) -> None:
    env = {"NCCL_PROTO": "LL", "NCCL_BUFFSIZE": "8192", "NCCL_IB_TIMEOUT": "3"}
    found = told(profile(env, args, Link.ANY, gpus))
    assert list(found) == ["NCCL_PROTO"]
    assert found["NCCL_PROTO"].startswith("NCCL_PROTO, NCCL_BUFFSIZE, NCCL_IB_TIMEOUT have no")


@pytest.mark.parametrize(
    "args",
    [
        {"tensor-parallel-size": 16, "nnodes": 2},
        {"tensor-parallel-size": 16, "distributed-executor-backend": "ray"},
        {"tensor-parallel-size": 8, "data-parallel-size": 2, "data-parallel-size-local": 1},
        {"tensor-parallel-size": 8, "data-parallel-rank": 0},
        {"tensor-parallel-size": 8, "data-parallel-address": "10.0.0.1"},
    ],
)
def test_the_network_counts_where_other_boxes_work_too(args: dict[str, ArgValue]) -> None:
    env = {"NCCL_IB_TIMEOUT": "22", "NCCL_SOCKET_NTHREADS": "4"}
    assert told(profile(env, args)) == {}
    assert told(profile(env, {"tensor-parallel-size": 2, "nnodes": 2}, gpus=1)) == {}
    assert len(told(profile(env, {"tensor-parallel-size": 8, "nnodes": 1}))) == 2


def test_what_vllm_sets_itself_is_told_where_it_does() -> None:
    env = {"NCCL_GRAPH_REGISTER": "1", "NCCL_MAX_CTAS": "4"}
    assert told(profile(env)) == {}
    asked: dict[str, ArgValue] = TP8 | {"enable-sleep-mode": True, "enable-eplb": True}
    found = told(profile(env, asked))
    assert "pinned while the model sleeps" in found["NCCL_GRAPH_REGISTER"]
    assert "cap of 8" in found["NCCL_MAX_CTAS"]


def test_nothing_is_said_of_the_effect_of_an_illegal_value() -> None:
    env = {"NCCL_PROTO": "LL64", "NCCL_NVLS_ENABLE": "true", "NCCL_IB_TIMEOUT": "22"}
    found = list(variable_findings(profile(env)))
    names = [finding.path[-1] for finding in found]
    assert names == ["NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_IB_TIMEOUT"]


@pytest.mark.parametrize(
    ("args", "used"),
    [
        ({}, 1),
        (TP8, 8),
        ({"tensor_parallel_size": "4", "dp": 2}, 8),
        ({"tensor-parallel-size": True}, None),
        ({"tensor-parallel-size": "auto"}, None),
        ({"tensor-parallel-size": -1}, None),
    ],
)
def test_gpus_are_counted_from_the_options(args: dict[str, ArgValue], used: int | None) -> None:
    assert gpus_used(args) == used
    assert gpus_here(args) == used
    assert not several_boxes(args)


@pytest.mark.parametrize(
    ("args", "here"),
    [
        ({"dp": 16, "data-parallel-size-local": 8}, 8),
        ({"tensor-parallel-size": 2, "data-parallel-size": 8, "data_parallel_size_local": "4"}, 8),
        ({"data-parallel-size": 8, "data-parallel-size-local": 0}, 0),
        ({"data-parallel-size": 8, "data-parallel-size-local": "some"}, None),
        ({"tensor-parallel-size": "16", "nnodes": "2"}, 8),
        ({"tensor-parallel-size": 8, "nnodes": 3}, 3),
        ({"tensor-parallel-size": 4, "data-parallel-size": 4, "nnodes": 2}, 8),
        ({"tensor-parallel-size": 8, "pipeline-parallel-size": 3, "nnodes": 3}, 8),
        ({"tensor-parallel-size": 4, "data-parallel-size": 4, "data-parallel-rank": 0}, 4),
        (
            {"tensor-parallel-size": 8, "data-parallel-size": 4, "nnodes": 2,
             "data-parallel-external-lb": True},
            8,
        ),
        ({"tensor-parallel-size": 16, "data-parallel-size": 2, "nnodes": 4,
          "data-parallel-rank": 1}, 8),
        ({"tensor-parallel-size": 16, "distributed-executor-backend": "ray"}, None),
        ({"tensor-parallel-size": 16, "distributed-executor-backend": "external_launcher"}, None),
        ({"data-parallel-size": 16, "data-parallel-backend": "ray"}, None),
        ({"data-parallel-size": 16, "headless": True}, None),
        ({"data-parallel-size": 16, "data-parallel-address": "10.0.0.1"}, None),
    ],
)  # fmt: skip
def test_gpus_of_this_box_are_not_those_of_all(args: dict[str, ArgValue], here: int | None) -> None:
    assert gpus_here(args) == here
    assert several_boxes(args)


def test_what_stays_on_this_box() -> None:
    for args in (
        {"tensor-parallel-size": 8, "distributed-executor-backend": "mp", "nnodes": 1},
        {"tensor-parallel-size": 2, "data-parallel-size": 4, "data-parallel-size-local": 4},
        {"tensor-parallel-size": 8, "headless": False, "prefill-context-parallel-size": 1},
    ):
        assert gpus_here(args) == 8
        assert not several_boxes(args)
    assert gpus_here({"tensor-parallel-size": 4, "prefill-context-parallel-size": 2}) == 8


def test_a_protocol_that_leaves_nothing_makes_no_buffer_idle() -> None:
    env = {"NCCL_PROTO": "^LL128,LL,Simple", "NCCL_BUFFSIZE": "4194304"}
    assert "NCCL_BUFFSIZE" not in told(profile(env))
