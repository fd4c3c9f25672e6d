"""Checks of memory: of the box, and what is free in /dev/shm with what fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import Unseen, warning
from kimisvc.host import hidden, limits, processes, shared_memory
from kimisvc.records.problems import Problem
from kimisvc.records.sizes import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.host.shared_memory import Segment, SharedMemory

NOTEWORTHY = GIB
"""So much left behind is worth a warning though enough is free (bytes)."""
MOST_NAMED = 6


def memory(about: Inspection) -> Iterator[Problem]:
    """Yield less memory than the profile needs, of the box or of the slice of services."""
    needed = about.profile.hardware.ram_gib
    has = limits.memory_total(about.proc)
    if has and has / GIB < needed:
        yield Problem(
            f"needs {needed:g} GiB of memory, this box has {has / GIB:.1f}", key="hardware.ram_gib"
        )
    most = limits.slice_memory_max(about.root / "sys")
    if most and most / GIB < needed:
        yield Problem(
            f"needs {needed:g} GiB of memory, system.slice may take {most / GIB:.1f} (MemoryMax=)",
            key="hardware.ram_gib",
        )


def shm(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield a /dev/shm with too little free, and what a crash left there.

    What our own service has there is given back when it is stopped; what that is,
    and what nobody uses any more, others than root cannot see.
    """
    folder = about.root / "dev" / "shm"
    if not folder.is_dir():
        if about.profile.hardware.shm_gib:
            yield Problem(f"there is no {folder}", key="hardware.shm_gib")
        else:
            yield Unseen(f"there is no {folder}")
        return
    found = shared_memory.look(folder, about.proc)
    ours = [s for s in found.segments if s.users and all(map(about.is_ours, s.users))]
    free = found.free + sum(segment.size for segment in ours)
    others = [segment for segment in found.segments if segment not in ours]
    needed = about.profile.hardware.shm_gib
    left = [segment for segment in others if not segment.users]
    unused = sum(segment.size for segment in left)
    blind = found.unseen or hidden.hides_others(about.proc)
    may_be_ours = unused if blind and about.may_run else 0
    whose = Unseen(f"who uses {unused / MIB:.0f} MiB that lie in {folder} only root can see")
    if free / GIB < needed <= (free + may_be_ours) / GIB:
        yield whose
    elif free / GIB < needed:
        yield Problem(
            f"needs {needed:g} GiB free in {folder}, there are {free / GIB:.1f}"
            f"{_leftovers(about, found, others)}",
            key="hardware.shm_gib",
        )
    elif unused >= NOTEWORTHY:
        said = f"a crash left its files in {folder}{_leftovers(about, found, left)}"
        yield whose if blind else warning(said)


def _leftovers(about: Inspection, found: SharedMemory, segments: list[Segment]) -> str:
    """Say what lies there, whose it is, and what helps."""
    if not segments:
        return "; make it larger: mount -o remount,size=... /dev/shm"
    words = [_segment(about, segment) for segment in segments[:MOST_NAMED]]
    if len(segments) > MOST_NAMED:
        rest = sum(segment.size for segment in segments[MOST_NAMED:])
        words.append(f"{len(segments) - MOST_NAMED} more of {rest / MIB:.0f} MiB together")
    unused = [str(segment.name) for segment in segments if not segment.users]
    if not unused:
        helps = ""
    elif found.unseen:
        helps = "; run it with sudo to see who uses them"
    else:
        first = unused[0] if len(unused) == 1 else f"{unused[0]} and the others without one"
        helps = f"; no process maps them: remove {first}"
    return f": {', '.join(words)}{helps}"


def _segment(about: Inspection, segment: Segment) -> str:
    size, owner = f"{segment.size / MIB:.0f} MiB", f"user {segment.uid}"
    users = ", ".join(str(processes.process(pid, about.proc)) for pid in segment.users[:2])
    used = f", in use by {users}" if users else ""
    return f"{segment.name} ({segment.kind}, {size}, {owner}{used})"
