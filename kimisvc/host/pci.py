"""The door to PCI: what /sys tells of the NVIDIA cards of a box, with or without their driver.

Peer-to-peer copies go wrong, or the long way, where an IOMMU translates them
or a bridge redirects them (Access Control Services, PCIe Base Specification
7.7.8); that is read here too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

SYS, PROC = Path("/sys"), Path("/proc")
NVIDIA = "0x10de"
DISPLAY, BRIDGE = "0x03", "0x0604"
"""Classes of devices: 3D and display controllers; PCI-to-PCI bridges (ports and switches)."""
IOMMU_OPTIONS = ("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "pcie_acs_override")
"""Options of the kernel's command line that decide what an IOMMU does."""
IDENTITY = "identity"
_EXTENDED, _ACS = 0x100, 0x000D
_STATUS, _LISTS_CAPABILITIES, _FIRST, _EXPRESS = 0x06, 0x10, 0x34, 0x10
"""Where a bridge lists what it can, and the number of PCI Express there (PCI Local Bus 3.0, 6.7)."""
_REDIRECT = 0x04 | 0x08
"""P2P Request Redirect and P2P Completion Redirect of the ACS control register."""


@dataclass(frozen=True, slots=True)
class PciGpu:
    """One NVIDIA card. `driver` "": none has it; `width` in lanes; None: not told."""

    bus: str
    driver: str
    numa: int | None
    width: int | None
    width_max: int | None
    speed: str
    speed_max: str


@dataclass(frozen=True, slots=True)
class Iommu:
    """What the IOMMU does: options it was given, groups it made, those that it translates.

    `untold` groups do not say what is done with them.
    """

    options: tuple[str, ...]
    groups: int
    translated: int
    untold: int = 0


@dataclass(frozen=True, slots=True)
class Bridges:
    """The PCI bridges of a box: those seen whole, those whose ACS is hidden, those that redirect."""

    seen: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    redirecting: tuple[str, ...] = ()


def gpus(sys: Path = SYS) -> tuple[PciGpu, ...]:
    """Return the NVIDIA cards on the bus, in the order of their addresses."""
    return tuple(
        PciGpu(
            device.name,
            (device / "driver").resolve().name if (device / "driver").exists() else "",
            _number(device / "numa_node"),
            _number(device / "current_link_width"),
            _number(device / "max_link_width"),
            _word(device / "current_link_speed"),
            _word(device / "max_link_speed"),
        )
        for device in _devices(sys)
        if _word(device / "vendor") == NVIDIA and _word(device / "class").startswith(DISPLAY)
    )


def numa_nodes(sys: Path = SYS) -> dict[str, int]:
    """Return the NUMA node of each NVIDIA card by its address; none for one without (-1)."""
    return {gpu.bus: gpu.numa for gpu in gpus(sys) if gpu.numa is not None and gpu.numa >= 0}


def iommu(sys: Path = SYS, proc: Path = PROC) -> Iommu:
    """Return what the IOMMU of this box does."""
    words = _word(proc / "cmdline").split()
    options = tuple(word for word in words if word.partition("=")[0] in IOMMU_OPTIONS)
    try:
        groups = list((sys / "kernel" / "iommu_groups").iterdir())
    except OSError:
        groups = []
    types = [_word(group / "type") for group in groups]
    untold = types.count("")
    return Iommu(options, len(groups), len(groups) - untold - types.count(IDENTITY), untold)


def bridges(sys: Path = SYS) -> Bridges:
    """Return the bridges of this box; `redirecting` ones send peer-to-peer traffic upwards.

    Who is not root reads the first 64 bytes of a configuration space, and a
    kernel without the memory-mapped one has 256: of ACS neither tells.
    """
    seen, hidden, redirecting = [], [], []
    for device in _devices(sys):
        if not _word(device / "class").startswith(BRIDGE):
            continue
        config = _config(device)
        if _hides_acs(config):
            hidden.append(device.name)
            continue
        seen.append(device.name)
        if redirects(config):
            redirecting.append(device.name)
    return Bridges(tuple(seen), tuple(hidden), tuple(redirecting))


def _hides_acs(config: bytes) -> bool:
    """Whether ACS may be beyond what was read; only conventional PCI ends at 256 bytes."""
    if len(config) < _EXTENDED:
        return True
    return len(config) == _EXTENDED and _is_express(config)


def _is_express(config: bytes) -> bool:
    """Whether its list of capabilities has PCI Express; `config` holds 256 bytes at least."""
    if not config[_STATUS] & _LISTS_CAPABILITIES:
        return False
    at, seen = config[_FIRST] & ~3, set()
    while at and at not in seen:
        seen.add(at)  # a broken bridge's list may lead in a circle
        if config[at] == _EXPRESS:
            return True
        at = config[at + 1] & ~3
    return False


def redirects(config: bytes) -> bool:
    """Given the configuration space of a device, say whether its ACS redirects peers' traffic."""
    at, seen = _EXTENDED, set()
    while at >= _EXTENDED and at not in seen and at + 8 <= len(config):
        seen.add(at)  # a broken card's list may lead in a circle
        (head,) = struct.unpack_from("<I", config, at)
        if head & 0xFFFF == _ACS:
            (control,) = struct.unpack_from("<H", config, at + 6)
            return bool(control & _REDIRECT)
        at = head >> 20
    return False


def _devices(sys: Path) -> list[Path]:
    try:
        return sorted((sys / "bus" / "pci" / "devices").iterdir())
    except OSError:
        return []


def _config(device: Path) -> bytes:
    try:
        return (device / "config").read_bytes()
    except OSError:
        return b""


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_word(path))
    except ValueError:
        return None
