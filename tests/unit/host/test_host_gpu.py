"""GPUs as NVML tells of them, and a box without them. NVML itself cannot be had everywhere,
so what it answers on a box with two GPUs is played back here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kimisvc.host.gpu import Gpu, NoGpus, gpus, reason


class Nvml:
    """Answers as pynvml does; `broken` names the one call that fails, and how."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken: str = "", words: str = "") -> None:
        self.broken, self.words = broken, words
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": lambda: self._opened(1),
            "nvmlShutdown": lambda: self._opened(-1),
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda handle: (b"NVIDIA H200", "NVIDIA H200")[handle],
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=100 + handle, used=7),
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                SimpleNamespace(pid=9), SimpleNamespace(pid=8), SimpleNamespace(pid=9),
            ],
        }  # fmt: skip
        if name == self.broken:
            return self._fail
        return answers[name]

    def _opened(self, change: int) -> None:
        self.open += change

    def _fail(self, *_: object) -> None:
        raise self.NVMLError(self.words)


def test_the_gpus_of_a_box() -> None:
    nvml = Nvml()
    assert gpus(nvml) == (
        Gpu(0, "NVIDIA H200", 100, 7, (8, 9), "GPU-0"),
        Gpu(1, "NVIDIA H200", 101, 7, (8, 9), "GPU-1"),
    )
    assert nvml.open == 0


def test_processes_that_cannot_be_told_are_none() -> None:
    found = gpus(Nvml("nvmlDeviceGetComputeRunningProcesses", "Not Supported"))
    assert isinstance(found, tuple)
    assert [gpu.processes for gpu in found] == [(), ()]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_call_that_fails_leaves_nvml_closed(call: str) -> None:
    nvml = Nvml(call, "GPU is lost")
    assert gpus(nvml) == NoGpus(
        "GPU is lost: a GPU fell off the bus; see dmesg for Xid 79, and reboot"
    )
    assert nvml.open == 0


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
