"""What NVML tells of the condition of a GPU: its link, clocks, power and errors, and its peers.

What NVML does not tell of one card ("Not Supported", a GPU that is lost, a
driver that is older than the question) is None, and hides nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Slowed(Enum):
    """Whether a reason for lower clocks is a fault, or how a card is meant to be."""

    FAULT = "fault"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class ClockReason:
    """One bit of NVML's reasons for clocks below their maximum."""

    bit: int
    words: str
    slowed: Slowed


CLOCK_REASONS = (
    ClockReason(0x001, "idle", Slowed.NORMAL),
    ClockReason(0x002, "clocks set by hand", Slowed.NORMAL),
    ClockReason(0x004, "power limit", Slowed.NORMAL),
    ClockReason(0x008, "hardware slowdown", Slowed.FAULT),
    ClockReason(0x010, "sync boost", Slowed.NORMAL),
    ClockReason(0x020, "too hot (software)", Slowed.FAULT),
    ClockReason(0x040, "too hot (hardware)", Slowed.FAULT),
    ClockReason(0x080, "power brake: the power supply asks for less", Slowed.FAULT),
    ClockReason(0x100, "display clocks", Slowed.NORMAL),
)
"""nvml.h, nvmlClocksEventReason*."""
IDLE = 0x001

P2P_STATES = {
    0: "ok",
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the way between their sockets does not support it",
    4: "disabled by a registry key of the driver",
    5: "not supported",
}
"""nvml.h, nvmlGpuP2PStatus_t; 6 is its word for unknown."""
OK = P2P_STATES[0]
P2P_READ, P2P_WRITE, P2P_NVLINK = 0, 1, 2
"""nvml.h, nvmlGpuP2PCapsIndex_t."""
ENABLED = 1
UNCORRECTED, SINCE_BOOT = 1, 0
"""nvml.h, nvmlMemoryErrorType_t and nvmlEccCounterType_t."""
CLOCK_SM, CLOCK_MEMORY = 1, 2
"""nvml.h, nvmlClockType_t."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one GPU. None: NVML does not tell. Power in W.

    `pcie_generation` falls while a card is idle, and that is no fault;
    `pcie_generation_max` is what card and slot reach together,
    `pcie_generation_card` what the card could reach in another slot.
    """

    index: int
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_generation_card: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    persistence: bool | None = None
    clock_reasons: int | None = None
    power_limit: float | None = None
    power_default: float | None = None
    ecc_uncorrected: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of one GPU at a moment, and the most it can reach (MHz). None: NVML does not tell."""

    sm: int | None = None
    sm_max: int | None = None
    memory: int | None = None
    memory_max: int | None = None

    @property
    def words(self) -> str:
        """They as text; "" where none is known."""
        known = (("SM", self.sm, self.sm_max), ("memory", self.memory, self.memory_max))
        return ", ".join(
            f"{name} {now} of {most or '?'} MHz" for name, now, most in known if now is not None
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two GPUs: whether NVLink joins them (None: unknown), and why they do not reach each other."""

    first: int
    second: int
    nvlink: bool | None
    read: str
    write: str


def told(nvml: Any, call: str, *arguments: Any) -> Any:
    """Given pynvml, a call and its arguments, return the answer; None where there is none."""
    function = getattr(nvml, call, None)  # an older pynvml lacks the newer calls
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def condition(nvml: Any, index: int, handle: Any) -> Condition:
    """Given an opened NVML and one of its GPUs, return its condition."""
    rows = told(
        nvml, "nvmlDeviceGetRemappedRows", handle
    )  # corrected, uncorrected, pending, failed
    persistence = told(nvml, "nvmlDeviceGetPersistenceMode", handle)
    reasons = told(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # its name until driver 535
        reasons = told(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Condition(
        index=index,
        pcie_generation=told(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        pcie_generation_max=told(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        pcie_generation_card=told(nvml, "nvmlDeviceGetGpuMaxPcieLinkGeneration", handle),
        pcie_width=told(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
        pcie_width_max=told(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        persistence=None if persistence is None else persistence == ENABLED,
        clock_reasons=reasons,
        power_limit=_watts(told(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle)),
        power_default=_watts(told(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        ecc_uncorrected=told(nvml, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, SINCE_BOOT),
        rows_pending=None if rows is None else bool(rows[2]),
        rows_failed=None if rows is None else bool(rows[3]),
    )


def clocks(nvml: Any, handle: Any) -> Clocks:
    """Given an opened NVML and one of its GPUs, return its clocks as they are now."""
    return Clocks(
        sm=told(nvml, "nvmlDeviceGetClockInfo", handle, CLOCK_SM),
        sm_max=told(nvml, "nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM),
        memory=told(nvml, "nvmlDeviceGetClockInfo", handle, CLOCK_MEMORY),
        memory_max=told(nvml, "nvmlDeviceGetMaxClockInfo", handle, CLOCK_MEMORY),
    )


def pairs(nvml: Any, handles: Sequence[tuple[int, Any]]) -> tuple[Pair, ...]:
    """Given an opened NVML and its GPUs with their handles, return how each two reach each other.

    NVLink is asked for as vLLM asks before it uses its own all-reduce: by the
    P2P state of the pair, not by links that may lead to a switch.
    """
    found = []
    for at, (first, one) in enumerate(handles):
        for second, other in handles[at + 1 :]:
            nvlink = told(nvml, "nvmlDeviceGetP2PStatus", one, other, P2P_NVLINK)
            found.append(
                Pair(
                    first,
                    second,
                    P2P_STATES[nvlink] == OK if nvlink in P2P_STATES else None,
                    _state(told(nvml, "nvmlDeviceGetP2PStatus", one, other, P2P_READ)),
                    _state(told(nvml, "nvmlDeviceGetP2PStatus", one, other, P2P_WRITE)),
                )
            )
    return tuple(found)


def clock_reasons(bits: int) -> tuple[ClockReason, ...]:
    """Given NVML's bits, return the reasons they stand for."""
    return tuple(reason for reason in CLOCK_REASONS if bits & reason.bit)


def _state(status: int | None) -> str:
    return "unknown" if status is None else P2P_STATES.get(status, "unknown")


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
