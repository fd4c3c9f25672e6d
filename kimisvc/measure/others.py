"""Whose work a server did meanwhile: its counters tell our requests from those of others.

What others take from us is no fault of the server, so no slowness of a request
is judged before the counters were looked at: neither that of one that was
answered nor that of one that was given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.records.proof import IDLE_PATIENCE, EngineCounters

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.measure.stream import Api

SETTLE = 2.0
"""How long the counters may lag behind a stream that has ended (s)."""
TICK = 0.02
SLOWNESS = (Trouble.SILENT, Trouble.STALLED, Trouble.UNFINISHED)
"""Troubles that a sound server shows as well when others fill its queue."""


@dataclass(frozen=True, slots=True)
class World:
    """The server and the clock; `clock` is the one the API stamps chunks with."""

    api: Api
    clock: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Ours:
    """What we ask for between two looks at the counters: so many requests, of so many tokens in all."""

    requests: int
    tokens: int


class Traffic(Enum):
    """What the server's counters say ran during requests of ours."""

    OURS = "ours alone"
    OTHERS = "others too"
    UNKNOWN = "not known"


def counters_of(world: World) -> EngineCounters | None:
    """Return the server's counters now; None where they cannot be read: it can still be measured."""
    try:
        return world.api.counters()
    except KimisvcError:
        return None


def judge_traffic(
    before: EngineCounters | None, after: EngineCounters | None, ours: Ours
) -> Traffic:
    """Given the counters around requests that were answered whole, return whose work they show."""
    if before is None or after is None:
        return Traffic.UNKNOWN
    finished = after.requests_finished - before.requests_finished
    made = after.generation_tokens - before.generation_tokens
    if finished < 0 or made < 0:  # counted anew: the server was started again meanwhile
        return Traffic.OTHERS
    if finished > ours.requests or made > ours.tokens or in_work(after):
        return Traffic.OTHERS
    whole = finished == ours.requests and made == ours.tokens
    return Traffic.OURS if whole else Traffic.UNKNOWN


def blame(world: World, broken: Broken, before: EngineCounters | None, ours: Ours) -> Broken:
    """Given what broke requests of ours and the counters before them, return whose doing that was.

    Slowness is that of others where the server worked for them meanwhile. Where
    it made no token it hangs, however many wait in it; where its counters cannot
    be read, what was seen stands.
    """
    if broken.trouble not in SLOWNESS or before is None:
        return broken
    after = counters_of(world)
    if after is None:
        return broken
    alive = broken.trouble is Trouble.UNFINISHED  # its tokens went on coming
    among_others = alive and in_work(after) > ours.requests
    if not among_others and not _worked_for_others(before, after, ours):
        return broken
    made = after.generation_tokens - before.generation_tokens
    load = f"{made:g} tokens were made meanwhile, {in_work(after):g} requests are in work"
    return Broken(Trouble.DISTURBED, f"{load}; ours: {broken}")


def _worked_for_others(before: EngineCounters, after: EngineCounters, ours: Ours) -> bool:
    """Whether more was done than ours, of which given up ones may still be in work."""
    finished = after.requests_finished - before.requests_finished
    made = after.generation_tokens - before.generation_tokens
    beside = in_work(after) > ours.requests and made > 0
    return finished > ours.requests or made > ours.tokens or beside


def in_work(counters: EngineCounters) -> float:
    """Given counters, return how many requests run or wait."""
    return counters.running + counters.waiting


def idle(world: World) -> EngineCounters | None:
    """Return the counters of an idle server, or the last ones when patience ends."""
    deadline = world.clock() + IDLE_PATIENCE
    tick = TICK
    while True:
        now = counters_of(world)
        if now is None or not in_work(now) or world.clock() >= deadline:
            return now
        world.sleep(tick)
        tick = min(0.5, tick * 2)


def not_idle(counters: EngineCounters | None) -> Broken | None:
    """Given the counters before requests of ours, return why these are not sent; None if they may be."""
    if counters is None or not in_work(counters):
        return None
    busy = f"{counters.running:g} running and {counters.waiting:g} waiting before this request"
    return Broken(Trouble.DISTURBED, busy)


def settled(world: World, before: EngineCounters, ours: Ours) -> EngineCounters | None:
    """Given the counters before requests that have ended, return those that contain them.

    vLLM may count a request a moment after its stream ended; what is read when
    SETTLE is over stands as it is.
    """
    deadline = world.clock() + SETTLE
    while True:
        now = counters_of(world)
        if now is None or world.clock() >= deadline:
            return now
        counted = now.generation_tokens - before.generation_tokens >= ours.tokens
        finished = now.requests_finished - before.requests_finished >= ours.requests
        if counted and finished and not in_work(now):
            return now
        world.sleep(TICK)
