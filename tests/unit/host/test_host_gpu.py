"""GPUs as NVML tells of them, and a box without them. NVML itself cannot be had everywhere,
so what it answers on a box with two GPUs is played back here."""

from __future__ import annotations

import threading

import pynvml
import pytest
from staged_host import CALLS, Card, Nvml, NvmlError

from kimisvc.host.gpu import Gpu, NoGpus, Survey, clocks, gpus, reason, survey

LOST = NvmlError("GPU is lost")


def test_every_call_that_is_played_back_is_one_of_nvmls() -> None:
    assert [name for name in CALLS if not callable(getattr(pynvml, name, None))] == []


def test_the_gpus_of_a_box() -> None:
    nvml = Nvml(Card(100, 7, (9, 8, 9)), Card(101, 7))
    assert gpus(nvml) == (
        Gpu(0, "NVIDIA H200", 100, 7, (8, 9), "GPU-05220b1e", "0000:0a:00.0", 0),
        Gpu(1, "NVIDIA H200", 101, 7, (), "GPU-15220b1e", "0000:0b:00.0", 1),
    )
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("nvmlDeviceGetComputeRunningProcesses", {"processes": ()}),
        ("nvmlDeviceGetUUID", {"uuid": ""}),
        ("nvmlDeviceGetPciInfo", {"bus": ""}),
        ("nvmlDeviceGetMinorNumber", {"minor": None}),
        ("nvmlDeviceGetName", {"name": "unknown"}),
    ],
)
def test_what_is_not_supported_is_unknown_and_hides_nothing_else(
    call: str, lost: dict[str, object]
) -> None:
    (whole,) = _tuple(gpus(Nvml(Card(pids=(8,)))))
    (found,) = _tuple(gpus(Nvml(Card(pids=(8,), says={call: NvmlError("Not Supported")}))))
    differing = {
        name: getattr(found, name)
        for name in Gpu.__slots__
        if getattr(found, name) != getattr(whole, name)
    }
    assert differing == lost


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"])
def test_a_gpu_that_is_lost_is_named_and_does_not_hide_the_others(call: str) -> None:
    nvml = Nvml(Card(), Card(says={call: LOST}), Card())
    found = _tuple(gpus(nvml))
    assert [one.fault for one in found] == [
        "", "GPU is lost: a GPU fell off the bus; see dmesg for Xid 79, and reboot", "",
    ]  # fmt: skip
    assert nvml.open == 0


def test_a_call_for_the_whole_box_that_fails_leaves_nvml_closed() -> None:
    nvml = Nvml(Card(), says={"nvmlDeviceGetCount": LOST})
    assert gpus(nvml) == NoGpus(
        "GPU is lost: a GPU fell off the bus; see dmesg for Xid 79, and reboot"
    )
    assert nvml.open == 0


def test_nvml_that_cannot_be_opened_is_not_closed() -> None:
    nvml = Nvml(says={"nvmlInit": NvmlError("Driver/library version mismatch")})
    found = survey(nvml)
    assert isinstance(found, NoGpus)
    assert "reboot, or reload nvidia" in found.reason
    assert nvml.open == 0


def test_a_survey_has_the_driver_and_all_pairs() -> None:
    found = survey(Nvml(Card(), Card(), Card(), says={"nvmlSystemGetDriverVersion": b"580.1"}))
    assert isinstance(found, Survey)
    assert found.driver == "580.1"
    assert [one.index for one in found.conditions] == [0, 1, 2]
    assert [(pair.first, pair.second) for pair in found.pairs] == [(0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("Driver/library version mismatch", "reboot, or reload nvidia"),
        ("NVML Shared Library Not Found", "no NVIDIA driver on this box"),
        ("Driver Not Loaded", "modprobe nvidia"),
        ("Unknown Error", "Unknown Error"),
    ],
)
def test_why_there_are_none(words: str, helps: str) -> None:
    assert helps in reason(words)


def test_on_this_box_whatever_it_has() -> None:
    found = gpus()
    assert found.reason if isinstance(found, NoGpus) else all(gpu.memory > 0 for gpu in found)


def _tuple(found: tuple[Gpu, ...] | NoGpus) -> tuple[Gpu, ...]:
    assert isinstance(found, tuple)
    return found


def test_the_clocks_of_all_gpus_and_none_of_one_that_is_lost() -> None:
    nvml = Nvml(Card(), Card(says={"nvmlDeviceGetHandleByIndex": LOST}), Card())
    assert [one.sm for one in clocks(nvml)] == [1965, 1965]
    assert nvml.open == 0
    silent = Card(says=dict.fromkeys(("nvmlDeviceGetClockInfo",), NvmlError("Not Supported")))
    assert clocks(Nvml(silent)) == ()


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_where_nvml_does_not_speak_no_clock_is_known(call: str) -> None:
    assert clocks(Nvml(Card(), says={call: NvmlError("Driver Not Loaded")})) == ()


def test_a_card_that_hangs_keeps_nobody_who_asks_for_its_clocks() -> None:
    over = threading.Event()

    class Hangs(Nvml):
        def nvmlInit(self) -> None:  # noqa: N802 - pynvml's name
            over.wait(60)

    try:
        assert clocks(Hangs(Card()), within=0.01) == ()
    finally:
        over.set()
