"""Waits until the server is ready, and tells apart why it is not.

Readiness is what systemd and HTTP say. The journal only adds how far a load
has come: its text never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kimisvc.records.proof import Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.records.units import UnitState

FIRST_TICK = 0.1
LAST_TICK = 1.0


class Ended(Enum):
    """How the wait ended. READY and DEADLINE are the gate's to judge, the rest is systemd's."""

    READY = "ready"
    DEADLINE = "deadline"
    UNIT_FAILED = "unit failed"
    START_LIMIT = "start limit hit"
    STOPPED = "stopped"
    REPLACED = "started anew"


@dataclass(frozen=True, slots=True)
class Waited:
    """How the wait ended, with one sentence of what was last seen, and what was seen first."""

    ended: Ended
    reason: str
    first: Health | None = None


class LoadView(Protocol):
    """What shows how far a load has come."""

    def tell(self, seen: Health) -> None:
        """Given what /health said, look once and tell."""


@dataclass(frozen=True, slots=True)
class Eyes:
    """What is looked at, and the clock."""

    unit: Callable[[], UnitState]
    health: Callable[[], Health]
    load: LoadView
    clock: Callable[[], float]
    sleep: Callable[[float], None]


def wait_ready(eyes: Eyes, invocation: str, deadline: float) -> Waited:
    """Given a start and a moment on the clock, wait until the server answers or cannot any more."""
    tick = FIRST_TICK
    first: Health | None = None
    while True:
        unit = eyes.unit()
        gone = unit_verdict(unit, invocation)
        if gone is not None:
            return gone
        seen = eyes.health()
        first = first or seen
        if seen is Health.READY:
            return Waited(Ended.READY, "the server answers", first)
        if eyes.clock() >= deadline:
            return Waited(Ended.DEADLINE, last_seen(seen), first)
        eyes.load.tell(seen)
        eyes.sleep(tick)
        tick = min(LAST_TICK, tick * 1.2)


def unit_verdict(unit: UnitState, invocation: str) -> Waited | None:
    """Given the unit now and the start that is watched, say how it ended; None if it lives."""
    if unit.result == "start-limit-hit":
        return Waited(Ended.START_LIMIT, "systemd gave up: too many starts ended within the limit")
    if unit.active_state == "failed":
        how = f"{unit.result}, exit status {unit.exec_main_status}"
        return Waited(Ended.UNIT_FAILED, f"the service failed ({how})")
    if unit.active_state in ("inactive", "deactivating"):
        return Waited(Ended.STOPPED, "the service was stopped")
    if unit.sub_state == "auto-restart" or unit.invocation_id != invocation:
        return Waited(Ended.REPLACED, "the service ended and is being started anew")
    return None


def last_seen(seen: Health) -> str:
    """Given what a look at a server that is not ready said, return it in words."""
    return {
        Health.REFUSED: "nothing listens on its port (connection refused)",
        Health.UNAVAILABLE: "it answers 503: the engine is dead or not up",
        Health.SERVER_ERROR: "it answers with a server error (5xx)",
        Health.NO_ANSWER: "it accepts connections and does not answer",
        Health.UNEXPECTED: "something answers on its port that is not vLLM",
    }.get(seen, seen.value)
