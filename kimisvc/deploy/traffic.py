"""Whether somebody uses the server that would be restarted: its own counters say so."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.box import Box
    from kimisvc.records.profile import Profile
    from kimisvc.records.proof import EngineCounters

LOOK = 3.0
"""How far two looks at the counters are apart (s): live traffic moves them meanwhile."""
TICK = 1.0
QUIET_LOOKS = 3
"""So many looks in a row without a request, and the server is taken for drained."""


class Counting(Protocol):
    """A server that may show its counters."""

    def counters(self) -> EngineCounters | None:
        """Return the engine's counters now; None where it shows none."""


def in_use(box: Box, wanted: Profile) -> Profile | None:
    """Given a box and the profile that is to run, return the one whose server may be in use now.

    None where nothing is in force. What is in force may go on serving though its settings cannot be
    read any more: then it is looked for where the wanted one will be, which is seldom another port.
    """
    if box.generations.current_number() is None:
        return None
    current = box.generations.sound_current()
    try:
        return wanted if current is None else current.settings()
    except KimisvcError:
        return wanted


class Traffic(Enum):
    """What the counters say of others."""

    NONE = "nobody uses the server"
    LIVE = "the server is in use"
    UNKNOWN = "the server shows no counters, so whether it is in use is not known"


def traffic(api: Counting, sleep: Callable[[float], None]) -> Traffic:
    """Given a server, look twice and say whether somebody uses it. One that is down is not used."""
    try:
        first = api.counters()
        if first is not None and _busy(first):
            return Traffic.LIVE
        sleep(LOOK)
        second = api.counters()
    except KimisvcError as error:
        return Traffic.NONE if error.code == "connection-refused" else Traffic.UNKNOWN
    if first is None or second is None:
        return Traffic.UNKNOWN
    moved = (
        second.requests_finished != first.requests_finished
        or second.generation_tokens != first.generation_tokens
    )
    return Traffic.LIVE if moved or _busy(second) else Traffic.NONE


def drain(
    api: Counting, patience: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> bool:
    """Given a server, wait until no request runs or waits; False when patience (s) ended first.

    Only counters can show that: one that does not show them is not known to be idle.
    """
    deadline = clock() + patience
    quiet = 0
    while quiet < QUIET_LOOKS:
        try:
            now = api.counters()
        except KimisvcError as error:
            if error.code == "connection-refused":
                return True  # no server: nothing runs on it
            now = None  # a busy server answers late
        quiet = quiet + 1 if now is not None and not _busy(now) else 0
        if quiet >= QUIET_LOOKS:
            break
        if clock() >= deadline:
            return False
        sleep(TICK)
    return True


def _busy(counters: EngineCounters) -> bool:
    return counters.running > 0 or counters.waiting > 0
