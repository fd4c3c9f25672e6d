"""The variables of CUDA, and of what else runs in vLLM's processes."""

from __future__ import annotations

import pytest

from kimisvc.profile.knowledge.variables.check import variable_findings
from kimisvc.profile.knowledge.variables.conflicts import conflicts
from kimisvc.profile.knowledge.variables.cuda import CUDA
from kimisvc.profile.knowledge.variables.other_libraries import OTHER_LIBRARIES
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, HardwareSettings, Profile, VllmSettings


def told(env: dict[str, str], **args: ArgValue) -> list[str]:
    profile = Profile(name="p", vllm=VllmSettings("/v/bin/vllm", "/m"), args=args, env=env)
    return [
        f"{finding.severity.value}: {finding.path[-1]}: {finding.message}"
        for finding in variable_findings(profile)
    ]


def test_no_variable_has_two_rows() -> None:
    rows = [row.name for row in (*CUDA, *OTHER_LIBRARIES)]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("name", "value", "end"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "64", "CUDA takes 1 to 32. Write a whole number"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "0", "CUDA takes 1 to 32"),
        ("CUDA_DEVICE_ORDER", "pci_bus_id", "Write PCI_BUS_ID"),
        ("CUDA_VISIBLE_DEVICES", "all", "hides all after it"),
        ("CUDA_LAUNCH_BLOCKING", "true", "Write 1"),
        ("CUDA_MODULE_LOADING", "LAZZY", "Write LAZY"),
        ("CUDA_SCALE_LAUNCH_QUEUES", "3x", "Write 0.25x, 0.5x, 2x or 4x"),
        ("CUDA_CACHE_PATH", "cache", "Write an absolute path"),
        ("OMP_NUM_THREADS", "4,x", '"x" is not a plain whole number'),
        ("OMP_NUM_THREADS", "4,0", "out of range"),
        ("OMP_PROC_BIND", "spread,clsoe", "Write close"),
        ("CUDA_VISIBLE_DEVICES", "0,-1,1", "hides all after it"),
        ("CUDA_VISIBLE_DEVICES", "-2", "hides all after it"),
        ("OMP_NUM_THREADS", "", "is not a plain whole number"),
        ("LD_PRELOAD", "lib/libjemalloc.so.2", "Write an absolute path"),
        ("LD_PRELOAD", "/a.so:~/b.so", "no shell reads it"),
        ("VLLM_NCCL_SO_PATH", "./libnccl.so.2", "Write an absolute path"),
        ("HF_HOME", "~/hf", "no shell reads it"),
        ("HF_HUB_OFFLINE", "enabled", "it would count as off"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true", "expandable_segments:True"),
    ],
)
def test_illegal_values_are_refused(name: str, value: str, end: str) -> None:
    (message,) = told({name: value})
    assert message.startswith(f"error: {name}: ")
    assert end in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("CUDA_MODULE_LOADING", "LAZY"),
        ("OMP_NUM_THREADS", "8"),
        ("OMP_NUM_THREADS", "4,2"),
        ("OMP_NUM_THREADS", "4, 2,1"),
        ("OMP_PROC_BIND", "CLOSE"),
        ("OMP_PROC_BIND", "spread,close"),
        ("CUDA_VISIBLE_DEVICES", "-1"),
        ("LD_PRELOAD", "libjemalloc.so.2"),
        ("LD_PRELOAD", "/a.so:libtcmalloc.so.4 /b.so"),
        ("VLLM_NCCL_SO_PATH", "libnccl.so.2"),
        ("NCCL_DEBUG", "NONE"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/opt/lib"),
    ],
)
def test_legal_values_are_silent(name: str, value: str) -> None:
    assert told({name: value}) == []


def test_more_gpus_than_are_seen_are_refused() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert told(env, **{"tensor-parallel-size": 4}) == []
    assert told(env, tensor_parallel_size=8) == [
        (
            'error: CUDA_VISIBLE_DEVICES: "0,1,2,3" lets vLLM see 4 GPUs, and [args] spread the model '
            "over 8 here. List 8, or lower tensor-parallel-size"
        )
    ]
    assert told(env, tp="2", pp=4)
    assert told(env, **{"data-parallel-size": 4, "data-parallel-size-local": 8})
    assert told(env, **{"tensor-parallel-size": "many"}) == []


@pytest.mark.parametrize(
    "args",
    [
        {"data-parallel-size": 16, "data-parallel-size-local": 8},
        {"tensor-parallel-size": 16, "nnodes": 2},
        {"tensor-parallel-size": 16, "distributed-executor-backend": "ray"},
        {"tensor-parallel-size": 8, "data-parallel-size": 2, "data-parallel-rank": 1},
    ],
)
def test_gpus_of_other_boxes_are_not_to_be_seen_here(args: dict[str, ArgValue]) -> None:
    assert told({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, **args) == []


def test_an_empty_list_hides_the_gpus_that_are_asked_for() -> None:
    for empty, gpus, faults in (("", 8, 1), (" ", 1, 1), ("", 0, 0), ("-1", 8, 0)):
        asked = HardwareSettings(gpus=gpus)
        env = {"CUDA_VISIBLE_DEVICES": empty}
        profile = Profile("p", VllmSettings("/v", "m"), hardware=asked, env=env)
        found = [f.message for f in conflicts(profile)]
        assert len(found) == faults
        assert all("hides every GPU" in message for message in found)


def test_no_gpu_at_all_is_a_wish() -> None:
    for none in ("", "-1", " -1 "):
        assert told({"CUDA_VISIBLE_DEVICES": none}, **{"tensor-parallel-size": 4}) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE"),
    ],
)
def test_old_names_are_told_with_the_new(old: str, new: str) -> None:
    messages = told({old: "1"})
    assert all(message.startswith(Severity.WARNING.value) for message in messages)
    assert any(message.endswith(f"Use {new}") for message in messages)


def test_two_names_of_one_setting_are_told() -> None:
    (message,) = told(
        {
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
            "PYTORCH_ALLOC_CONF": "max_split_size_mb:128",
        }
    )
    assert message.startswith("warning: PYTORCH_CUDA_ALLOC_CONF: ")
