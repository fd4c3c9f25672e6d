"""The door to the GPUs, through NVML."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its memory in bytes, and who computes on it now."""

    index: int
    name: str
    memory: int
    memory_used: int
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoGpus:
    """NVML could not be asked, and why."""

    reason: str


def gpus() -> tuple[Gpu, ...] | NoGpus:
    """Return the GPUs of this box, or why NVML cannot tell."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NoGpus(_reason(str(error)))
    try:
        return tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        return NoGpus(_reason(str(error)))
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return Gpu(
        index,
        name.decode() if isinstance(name, bytes) else str(name),
        int(memory.total),
        int(memory.used),
        tuple(int(process.pid) for process in processes),
    )


def _reason(words: str) -> str:
    if "version mismatch" in words.lower():
        return f"{words}: the driver was upgraded under a loaded module; reboot, or reload nvidia"
    if "not found" in words.lower():
        return "there is no NVIDIA driver on this box (libnvidia-ml is not installed)"
    return words
