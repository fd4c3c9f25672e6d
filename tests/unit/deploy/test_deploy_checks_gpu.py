"""Bad hosts: what can be wrong with GPUs, their driver, their nodes and who is on them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from staged_host import GIB, Card, Nvml, NvmlError, process

from kimisvc.records.profile import Link

if TYPE_CHECKING:
    from good_host import Host


def no_nvml(words: str) -> Nvml:
    return Nvml(says={"nvmlInit": NvmlError(words)})


def test_too_few_gpus(host: Host) -> None:
    host.hardware(gpus=16)
    assert host.error("GPUs") == "needs 16 GPUs, this box has 8"


def test_too_few_are_shown_to_cuda(host: Host) -> None:
    host.env(CUDA_VISIBLE_DEVICES="0,1")
    words = "needs 8 GPUs, this box has 8, and CUDA_VISIBLE_DEVICES=0,1 shows 2"
    assert host.error("GPUs") == words


def test_a_gpu_that_is_too_small(host: Host) -> None:
    host.card(5, memory=48 * GIB)
    assert host.error("GPUs") == "GPU 5 (NVIDIA H200) has 48.0 GiB, 95 GiB are needed"


def test_a_gpu_that_is_just_large_enough(host: Host) -> None:
    host.card(5, memory=95 * GIB)
    assert host.ask("GPUs") == []


def test_a_gpu_that_is_not_asked_for_may_be_small(host: Host) -> None:
    host.card(7, memory=48 * GIB)
    host.hardware(gpus=7)
    assert host.ask("GPUs") == []


def test_a_gpu_that_fell_off_the_bus(host: Host) -> None:
    host.card(3, says={"nvmlDeviceGetMemoryInfo": NvmlError("GPU is lost")})
    assert host.error("GPUs").startswith("GPU 3: GPU is lost: a GPU fell off the bus")


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("Driver/library version mismatch", "reboot, or reload nvidia"),
        ("NVML Shared Library Not Found", "no NVIDIA driver"),
        ("Driver Not Loaded", "modprobe nvidia"),
    ],
)
def test_no_nvml_and_why(host: Host, words: str, helps: str) -> None:
    host.nvml = no_nvml(words)
    said = host.error("GPUs")
    assert said.startswith("needs 8 GPUs: ")
    assert helps in said
    assert "8 NVIDIA cards are on the bus, driver nvidia" in said


def test_cards_that_another_driver_has(host: Host) -> None:
    host.nvml = no_nvml("Driver Not Loaded")
    for device in (host.root / "sys" / "bus" / "pci" / "devices").iterdir():
        (device / "driver").unlink()
    assert host.error("GPUs").endswith("(8 NVIDIA cards are on the bus, driver none)")


def test_a_profile_without_gpus_asks_for_none(host: Host) -> None:
    host.nvml = no_nvml("Driver Not Loaded")
    host.hardware(gpus=0)
    assert host.all() == ()


# ------------------------------------------------------------------ driver and nodes


@pytest.mark.parametrize("library", ["libnvidia-ml.so", "libcuda.so"])
def test_a_driver_that_was_upgraded_under_its_module(host: Host, library: str) -> None:
    link = host.root / "usr" / "lib" / "x86_64-linux-gnu" / f"{library}.1"
    link.unlink()
    link.symlink_to(f"{library}.580.95.05")
    said = host.error("driver")
    assert said.startswith(f"the NVIDIA kernel module is 580.159.04, {link} is 580.95.05: ")
    assert "reboot, or reload" in said


def test_nodes_that_are_not_there(host: Host) -> None:
    for node in ("nvidia-uvm", "nvidia6"):
        (host.root / "dev" / node).unlink()
    said = host.error("GPU nodes")
    assert f"{host.root}/dev/nvidia-uvm, {host.root}/dev/nvidia6 not there" in said
    assert "install nvidia-modprobe" in said


def test_nodes_that_the_unit_will_make(host: Host) -> None:
    (host.root / "dev" / "nvidia-uvm").unlink()
    helper = host.root / "usr" / "bin" / "nvidia-modprobe"
    helper.parent.mkdir(parents=True)
    helper.touch()
    assert host.ask("GPU nodes") == []


def test_nodes_are_named_by_their_minor_number(host: Host) -> None:
    host.card(2, says={"nvmlDeviceGetMinorNumber": 11})
    assert f"{host.root}/dev/nvidia11 not there" in host.error("GPU nodes")


def test_a_node_that_the_service_may_not_use(host: Host) -> None:
    (host.root / "dev" / "nvidia4").chmod(0o660)
    said = host.error("GPU nodes")
    assert said.startswith(f"{host.root}/dev/nvidia4 may not be read by others (mode 660)")


# ------------------------------------------------------------------ who is there


def test_a_process_on_a_gpu_is_named(host: Host) -> None:
    process(host.root / "proc", 4242, "ollama", "ollama.service")
    host.card(2, pids=(4242,), used=90 * GIB)
    assert host.error("GPU processes") == (
        "ollama (PID 4242, ollama.service) computes on GPU 2 and is not part of"
        " kimisvc-kimi.service"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="what root alone sees of other users")
def test_a_process_of_another_container_is_told_by_its_number(host: Host) -> None:
    host.card(0, pids=(31337,))
    assert host.error("GPU processes").startswith(
        "a process that cannot be seen from here (PID 31337) computes on GPU 0"
    )


def namespace(host: Host, name: str) -> None:
    link = host.root / "proc" / "self" / "ns" / "pid"
    link.parent.mkdir(parents=True)
    link.symlink_to(name)


def test_in_a_container_ids_mean_nothing_and_memory_alone_is_judged(host: Host) -> None:
    namespace(host, "pid:[4026532199]")
    process(host.root / "proc", 2861, "ollama", "ollama.service")  # the number, not the process
    host.card(0, pids=(2861,), used=90 * GIB)
    assert host.error("GPU processes").startswith("GPU 0: 90.0 GiB are held by a process that NVML")
    process(host.root / "proc", 9, "python3", "kimisvc-kimi.service")
    assert host.ask("GPU processes") == []


def test_on_the_box_itself_ids_are_believed(host: Host) -> None:
    namespace(host, "pid:[4026531836]")
    process(host.root / "proc", 4242, "ollama", "ollama.service")
    host.card(2, pids=(4242,))
    assert host.error("GPU processes").startswith("ollama (PID 4242, ollama.service) computes on")


def test_our_own_service_is_in_nobodys_way(host: Host) -> None:
    process(host.root / "proc", 9, "python3", "kimisvc-kimi.service", title="VLLM::Worker_TP0")
    host.card(0, pids=(9,), used=90 * GIB)
    assert host.all() == ()


def test_a_process_on_a_gpu_that_is_not_ours(host: Host) -> None:
    process(host.root / "proc", 4242, "ollama", "ollama.service")
    host.card(7, pids=(4242,))
    host.hardware(gpus=4)
    assert host.ask("GPU processes") == []


def test_memory_that_nobody_is_named_for(host: Host) -> None:
    host.card(1, used=30 * GIB)
    said = host.error("GPU processes")
    assert said.startswith("GPU 1: 30.0 GiB are held by a process that NVML does not name")
    assert "gpu-memory-utilization = 0.92 takes 87.9 GiB and 65.6 are free" in said


def test_memory_that_is_held_is_not_judged_where_the_profile_does_not_say_what_it_takes(
    host: Host,
) -> None:
    host.profile = replace(host.profile, args={})
    host.card(1, used=30 * GIB)
    assert host.ask("GPU processes") == []


def test_memory_of_our_own_service_where_nvml_names_no_process(host: Host) -> None:
    process(host.root / "proc", 9, "python3", "kimisvc-kimi.service")
    host.card(1, used=90 * GIB)
    assert host.ask("GPU processes") == []


def test_what_the_driver_holds_itself_is_no_process(host: Host) -> None:
    host.card(1, used=GIB // 2)
    host.args({"gpu-memory-utilization": 1.0})
    assert host.ask("GPU processes") == []


def test_what_a_killed_server_left(host: Host) -> None:
    process(host.root / "proc", 77, "python3", title="VLLM::EngineCore")
    process(host.root / "proc", 78, "python3", "session-3.scope", title="VLLM::Worker_TP0")
    problems = host.ask("other vLLMs")
    assert [problem.severity.value for problem in problems] == ["error", "error"]
    assert problems[0].message == (
        "VLLM::EngineCore (PID 77) is a vLLM that is not part of kimisvc-kimi.service;"
        " a server that was killed leaves such: kill 77, if it is one"
    )
    assert "(PID 78, session-3.scope)" in problems[1].message


def test_a_vllm_under_the_prefix_of_the_profile(host: Host) -> None:
    process(host.root / "proc", 77, "python3", title="MINE::Worker_TP1")
    assert host.ask("other vLLMs") == []
    host.env(VLLM_PROCESS_NAME_PREFIX="MINE")
    assert "MINE::Worker_TP1 (PID 77)" in host.error("other vLLMs")


def test_a_vllm_that_is_a_service_of_its_own_may_be_meant_so(host: Host) -> None:
    process(host.root / "proc", 77, "python3", "kimisvc-small.service", title="VLLM::EngineCore")
    assert "kimisvc-small.service" in host.warning("other vLLMs")


@pytest.mark.parametrize(
    "scope", ["docker-0123abcd.scope", "libpod-0123abcd.scope", "machine-gpu.scope"]
)
def test_a_vllm_of_a_container_is_not_called_a_leftover(host: Host, scope: str) -> None:
    process(host.root / "proc", 77, "python3", scope, title="VLLM::EngineCore")
    said = host.warning("other vLLMs")
    assert scope in said
    assert "kill" not in said


def test_another_vllm_does_not_hinder_a_profile_without_gpus(host: Host) -> None:
    process(host.root / "proc", 77, "python3", title="VLLM::EngineCore")
    host.hardware(gpus=0)
    assert "PID 77" in host.warning("other vLLMs")


# ------------------------------------------------------------------ link


def test_nvlink_is_needed_and_not_there(host: Host) -> None:
    host.hardware(link=Link.NVLINK, gpus=3)
    assert host.error("GPU link") == "needs NVLink; no NVLink joins GPUs 0-1, 0-2, 1-2"


def test_two_gpus_are_one_pair(host: Host) -> None:
    host.hardware(link=Link.NVLINK, gpus=2)
    assert host.error("GPU link") == "needs NVLink; no NVLink joins GPUs 0-1"


def test_a_profile_for_pcie_on_a_box_with_nvlink(host: Host) -> None:
    host.nvml.p2p = {}
    said = host.warning("GPU link")
    assert said == (
        "is tuned for GPUs over PCIe; NVLink joins GPUs 0-1, 0-2, 0-3, 0-4, 0-5, 0-6 and 22 more"
        " pairs"
    )


@pytest.mark.parametrize("link", [Link.ANY, Link.NVLINK])
def test_nvlink_where_it_is_needed_or_all_the_same(host: Host, link: Link) -> None:
    host.nvml.p2p = {}
    host.hardware(link=link)
    assert host.ask("GPU link") == []


def test_any_link_over_pcie(host: Host) -> None:
    host.hardware(link=Link.ANY)
    assert host.ask("GPU link") == []


@pytest.mark.parametrize("link", list(Link))
def test_a_link_that_nvml_does_not_tell_of_is_not_judged(host: Host, link: Link) -> None:
    host.nvml = Nvml(
        *(Card(97 * GIB) for _ in range(8)),
        says={"nvmlDeviceGetP2PStatus": NvmlError("Not Supported")},
    )
    host.hardware(link=link)
    assert host.ask("GPU link") == []


def test_a_pair_that_nvml_does_not_tell_of_is_not_called_in_order(host: Host) -> None:
    host.nvml.p2p |= {(0, 1, 2): 6}
    host.hardware(link=Link.PCIE)
    assert host.unseen("GPU link") == "NVML does not tell whether NVLink joins GPUs 0-1"
    host.hardware(link=Link.ANY)
    assert host.not_asked("GPU link") == "the profile takes any link between GPUs"
