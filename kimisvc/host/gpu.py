"""The door to the GPUs, through NVML."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kimisvc.host import gpu_condition
from kimisvc.host.gpu_condition import Condition, Pair, condition, pairs, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.host.gpu_condition import Clocks

CLOCKS_WITHIN = 5.0
"""How long the clocks are waited for (s); NVML answers within milliseconds, or not at all."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its memory in bytes, and who computes on it now.

    `bus` is its PCI address as /sys has it, `minor` the number of its
    /dev/nvidiaN. `fault`: NVML cannot tell more than this of it.
    """

    index: int
    name: str
    memory: int
    memory_used: int
    processes: tuple[int, ...]
    uuid: str = ""
    bus: str = ""
    minor: int | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class NoGpus:
    """NVML could not be asked, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All that NVML tells of this box."""

    driver: str
    gpus: tuple[Gpu, ...]
    conditions: tuple[Condition, ...] = ()
    pairs: tuple[Pair, ...] = ()


def gpus(nvml: Any = None) -> tuple[Gpu, ...] | NoGpus:
    """Return the GPUs of this box, or why NVML cannot tell. `nvml` is pynvml, if it is not given.

    A process of another container is seen, by an id that means nothing here.
    """
    found = survey(nvml)
    return found if isinstance(found, NoGpus) else found.gpus


def survey(nvml: Any = None) -> Survey | NoGpus:
    """Return all that NVML tells of this box, or why it cannot. `nvml` as in `gpus`.

    A GPU that is lost is named as such, and does not hide the others.
    """
    if nvml is None:
        import pynvml

        nvml = pynvml
    try:
        with _opened(nvml):
            count = nvml.nvmlDeviceGetCount()
            handles = [(i, told(nvml, "nvmlDeviceGetHandleByIndex", i)) for i in range(count)]
            there = [(index, handle) for index, handle in handles if handle is not None]
            return Survey(
                text(told(nvml, "nvmlSystemGetDriverVersion") or ""),
                tuple(_gpu(nvml, index) for index in range(count)),
                tuple(condition(nvml, index, handle) for index, handle in there),
                pairs(nvml, there),
            )
    except nvml.NVMLError as error:
        return NoGpus(reason(str(error)))


def clocks(nvml: Any = None, within: float = CLOCKS_WITHIN) -> tuple[Clocks, ...]:
    """Return the clocks of each GPU as they are now; none that is not known. `nvml` as in `gpus`.

    NVML has no deadline of its own, and a card that hangs may keep who asks for ever. Whoever asks
    here has a verdict to keep and may hold a lock, so that after `within` s nothing is known.
    """
    found: list[Clocks] = []
    asking = threading.Thread(target=_read_clocks, args=(nvml, found), daemon=True)
    asking.start()
    asking.join(within)
    return () if asking.is_alive() else tuple(one for one in found if one.words)


def _read_clocks(nvml: Any, found: list[Clocks]) -> None:
    if nvml is None:
        import pynvml

        nvml = pynvml
    with contextlib.suppress(nvml.NVMLError), _opened(nvml):
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = told(nvml, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                found.append(gpu_condition.clocks(nvml, handle))


@contextlib.contextmanager
def _opened(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        return Gpu(index, "unknown", 0, 0, (), fault=reason(str(error)))
    # Not supported in some virtual machines.
    running = told(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
    pci = told(nvml, "nvmlDeviceGetPciInfo", handle)
    return Gpu(
        index,
        text(told(nvml, "nvmlDeviceGetName", handle) or "unknown"),
        int(memory.total),
        int(memory.used),
        tuple(sorted({int(process.pid) for process in running})),
        text(told(nvml, "nvmlDeviceGetUUID", handle) or ""),
        _address(text(pci.busId)) if pci is not None else "",
        told(nvml, "nvmlDeviceGetMinorNumber", handle),
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


def _address(bus: str) -> str:
    """NVML writes the domain with eight digits and in capitals, /sys with four and small."""
    domain, _, rest = bus.partition(":")
    return f"{domain[-4:]}:{rest}".lower() if rest else ""


def text(value: str | bytes) -> str:
    """Given a text of pynvml, return it as one: older ones give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
