"""The door to the GPUs, through NVML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its memory in bytes, and who computes on it now."""

    index: int
    name: str
    memory: int
    memory_used: int
    processes: tuple[int, ...]
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class NoGpus:
    """NVML could not be asked, and why."""

    reason: str


def gpus(nvml: Any = None) -> tuple[Gpu, ...] | NoGpus:
    """Return the GPUs of this box, or why NVML cannot tell. `nvml` is pynvml, if it is not given.

    A process of another container is seen, by an id that means nothing here.
    """
    if nvml is None:
        import pynvml

        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return NoGpus(reason(str(error)))
    try:
        return tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return NoGpus(reason(str(error)))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:  # not supported in some virtual machines
        running = []
    return Gpu(
        index,
        _text(nvml.nvmlDeviceGetName(handle)),
        int(memory.total),
        int(memory.used),
        tuple(sorted({int(process.pid) for process in running})),
        _text(nvml.nvmlDeviceGetUUID(handle)),
    )


def reason(words: str) -> str:
    """Given NVML's words, return why there are no GPUs, and what helps."""
    lower = words.lower()
    if "version mismatch" in lower:
        return f"{words}: the driver was upgraded under a loaded module; reboot, or reload nvidia"
    if "shared library not found" in lower:
        return "there is no NVIDIA driver on this box (libnvidia-ml is not installed)"
    if "driver not loaded" in lower:
        return f"{words}: load it with modprobe nvidia, or see dmesg for why it does not load"
    if "gpu is lost" in lower:
        return f"{words}: a GPU fell off the bus; see dmesg for Xid 79, and reboot"
    return words


def _text(value: str | bytes) -> str:
    """Older pynvml gives bytes."""
    return value.decode() if isinstance(value, bytes) else value
