"""The condition of the GPUs and of what connects them, for `doctor`: slower than need be, or worn.

Nothing here refuses a load. What NVML does not tell of one GPU is left out; of what
connects them it is said that it could not be seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import Finding, Looked, few, warning
from kimisvc.host import pci
from kimisvc.host.gpu_condition import IDLE, OK, Slowed, clock_reasons
from kimisvc.records.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kimisvc.host.gpu import Gpu, Survey
    from kimisvc.host.gpu_condition import Condition, Pair
    from kimisvc.records.problems import Problem

UNKNOWN = "unknown"
MOST_NAMED = 6


def conditions(survey: Survey, root: Path) -> Iterator[Finding]:
    """Given what NVML tells and the root folder, yield a finding a GPU, then one a connection."""
    numa = pci.numa_nodes(root / "sys")
    states = {one.index: one for one in survey.conditions}
    for gpu in survey.gpus:
        state = states.get(gpu.index)
        words = "" if gpu.fault else ", ".join(_described(gpu, state, numa))
        problems = [warning(gpu.fault)] if gpu.fault else []
        told = [rule(state) for rule in RULES] if state else []
        problems += [warning(f"GPU {gpu.index} {fault}") for fault in told if fault]
        yield Finding(f"GPU {gpu.index}", tuple(problems), words)
    if len(survey.gpus) > 1:
        yield _peers(survey.pairs)
        yield _iommu(root)
        yield _bridges(root)


def _described(gpu: Gpu, state: Condition | None, numa: Mapping[str, int]) -> Iterator[str]:
    yield gpu.name
    yield f"{gpu.memory / GIB:.1f} GiB"
    if gpu.bus in numa:
        yield f"NUMA node {numa[gpu.bus]}"
    if state is None:
        return
    if state.pcie_generation and state.pcie_width:
        most = f"{state.pcie_generation_max or '?'} x{state.pcie_width_max or '?'}"
        yield f"PCIe {state.pcie_generation} x{state.pcie_width} of {most}"
    if state.power_limit is not None:
        yield f"{state.power_limit:.0f} W"
    if state.persistence is not None:
        yield f"persistence {'on' if state.persistence else 'off'}"
    if state.clock_reasons:
        yield f"clocks: {' and '.join(r.words for r in clock_reasons(state.clock_reasons))}"


def narrow(state: Condition) -> str:
    """Lanes that do not work: a riser, a slot, dirt."""
    now, most = state.pcie_width, state.pcie_width_max
    if now is None or most is None or now >= most:
        return ""
    return f"runs over {now} PCIe lanes of {most}: reseat it, or see slot and riser"


def slow_slot(state: Condition) -> str:
    """A slot, or a setting of the firmware, below what the card reaches."""
    most, card = state.pcie_generation_max, state.pcie_generation_card
    if most is None or card is None or most >= card:
        return ""
    return f"could do PCIe generation {card}, its slot does {most}: see the firmware's settings"


def slow_link(state: Condition) -> str:
    """A link that stays slow at work; at rest it is slow to save power."""
    now, most = state.pcie_generation, state.pcie_generation_max
    if now is None or most is None or now >= most:
        return ""
    if state.clock_reasons is None or state.clock_reasons & IDLE:
        return ""
    return f"runs at PCIe generation {now} of {most} though it is not idle"


def forgets(state: Condition) -> str:
    """Without persistence the driver forgets the card whenever nobody uses it."""
    if state.persistence is not False:
        return ""
    return "has persistence mode off: every start waits for it; enable nvidia-persistenced.service"


def slowed(state: Condition) -> str:
    """Clocks that heat or the power supply hold down."""
    found = clock_reasons(state.clock_reasons or 0)
    faults = [reason.words for reason in found if reason.slowed is Slowed.FAULT]
    return f"is slowed down: {', '.join(faults)}" if faults else ""


def less_power(state: Condition) -> str:
    """A power limit below what the card comes with: figures compare only with the same."""
    limit, default = state.power_limit, state.power_default
    if limit is None or default is None or limit >= default:
        return ""
    return f"is limited to {limit:.0f} W of {default:.0f}"


def errors(state: Condition) -> str:
    """Memory errors that could not be corrected; the driver logs them as Xid 48, 63, 94, 95."""
    if not state.ecc_uncorrected:
        return ""
    xid = "journalctl -k --grep Xid"
    return f"had {state.ecc_uncorrected} uncorrected memory errors since boot; see {xid}"


def worn(state: Condition) -> str:
    """Rows of memory that wait for a reset to be replaced, or could not be."""
    if state.rows_failed:
        return "could not replace a bad row of its memory: have it exchanged"
    if state.rows_pending:
        return "replaces a bad row of its memory at its next reset: reboot"
    return ""


RULES: tuple[Callable[[Condition], str], ...] = (
    narrow,
    slow_slot,
    slow_link,
    forgets,
    slowed,
    less_power,
    errors,
    worn,
)
"""What is looked at in the condition of one GPU."""


def _peers(pairs: tuple[Pair, ...]) -> Finding:
    """How the GPUs reach each other; where they do not, NCCL goes through /dev/shm."""
    faults: dict[str, list[str]] = {}
    for pair in pairs:
        why = next((one for one in (pair.read, pair.write) if one not in (OK, UNKNOWN)), OK)
        if why != OK:
            faults.setdefault(why, []).append(f"{pair.first}-{pair.second}")
    problems = tuple(
        warning(f"GPUs {few(named, MOST_NAMED)} do not reach each other's memory: {why}")
        for why, named in faults.items()
    )
    reached = sum(1 for pair in pairs if pair.read == pair.write == OK)
    untold = len(pairs) - reached - sum(map(len, faults.values()))
    joined = sum(1 for pair in pairs if pair.nvlink)
    links = sum(1 for pair in pairs if pair.nvlink is None)
    said = f"{reached} of {len(pairs)} pairs"
    said += f" (NVML does not tell of {untold})" if untold else ""
    said += f", {joined} over NVLink" if links < len(pairs) else ""
    said += f" (NVML does not tell of {links})" if 0 < links < len(pairs) else ""
    said += ", NVML does not tell of NVLink" if links == len(pairs) else ""
    return _box("P2P", problems, said, hidden=untold + links)


def _iommu(root: Path) -> Finding:
    """An IOMMU that translates makes peers' copies slow, or hang (nccl#1999, nccl#2079)."""
    found = pci.iommu(root / "sys", root / "proc")
    said = f"{found.groups} groups, {found.translated} translated"
    said += f", {found.untold} do not tell" if found.untold else ""
    said = ", ".join((said, *found.options)) if found.groups else "off"
    if not found.translated:
        return _box("IOMMU", (), said, hidden=found.untold)
    words = (
        f"the IOMMU translates {found.translated} of {found.groups} groups: copies from GPU to GPU"
        " may be slow, or hang; boot with iommu=pt, or turn it off"
    )
    return Finding("IOMMU", (warning(words),), said)


def _bridges(root: Path) -> Finding:
    """PCIe bridges that send peers' copies up to the processor and back."""
    found = pci.bridges(root / "sys")
    bridges = len(found.seen) + len(found.hidden)
    hidden = f"{len(found.hidden)} of {bridges} bridges hide their ACS; root sees it on most boxes"
    if not found.redirecting:
        said = hidden if found.hidden else "no bridge redirects"
        if not found.seen and not found.hidden:
            said = "no bridges shown; those of a virtual machine's host are not"
        return _box("ACS", (), said, hidden=len(found.hidden) + (not found.seen))
    words = (
        f"ACS of the PCIe bridges {few(found.redirecting, MOST_NAMED)} redirects copies from GPU"
        " to GPU through the processor; turn ACS off in the firmware"
    )
    said = f"{len(found.redirecting)} bridges redirect"
    said += f", {hidden}" if found.hidden else ""
    return Finding("ACS", (warning(words),), said)


def _box(check: str, problems: tuple[Problem, ...], said: str, hidden: int) -> Finding:
    """What a check found; where something was hidden from it, nobody can call the rest in order."""
    return Finding(check, problems, said, Looked.NO if hidden else Looked.YES)
