"""Watches what systemd and the gate do, until it has ended. Only looks: a lost watcher changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kimisvc.deploy.outcome import Ending, Evidence, Outcome, at_rest, judge
from kimisvc.deploy.record import progress_from_json
from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from kimisvc.deploy.history import History
    from kimisvc.deploy.layout import Layout
    from kimisvc.host.systemd import Systemd
    from kimisvc.records import Progress

TICK = 0.1
REST = 5.0
"""How long all must be at rest before an end without a verdict is believed (s)."""


class Reporter(Protocol):
    """Where progress goes: a live line on a terminal, plain lines elsewhere, nowhere in tests."""

    def step(self, text: str) -> None:
        """Given what begins now, tell it."""

    def progress(self, progress: Progress) -> None:
        """Given where the gate stands, show it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched and with what."""

    layout: Layout
    systemd: Systemd
    history: History
    clock: Callable[[], float]
    sleep: Callable[[float], None]


def follow(watch: Watch, generation: int, since: float, reporter: Reporter) -> Ending:
    """Given what was begun and when, wait until it has ended and return how.

    Bounded by the deadlines of the units themselves: each of them ends in a
    verdict, a rollback or a stop.
    """
    resting_since: float | None = None
    told: object = None
    rollbacks_told = 0
    while True:
        seen = look(watch, generation, since)
        ending = judge(seen)
        if ending is not None:
            return ending
        if len(seen.rollbacks) > rollbacks_told:
            rollbacks_told = len(seen.rollbacks)
            newest = seen.rollbacks[0]
            reporter.step(f"rolling back to generation {newest.to_generation}: {newest.reason}")
        progress = read_progress(watch.layout)
        if progress is not None and progress != told and progress.updated_at >= since:
            told = progress
            reporter.progress(progress)
        now = watch.clock()
        if not at_rest(seen):
            resting_since = None
        elif resting_since is None:
            resting_since = now
        elif now - resting_since > REST:
            return Ending(Outcome.STOPPED, _rest_reason(seen))
        watch.sleep(TICK)


def look(watch: Watch, generation: int, since: float) -> Evidence:
    """Given what was begun and when, return all that is known about it now."""
    names = watch.layout.units
    return Evidence(
        generation,
        watch.history.verdicts(since),
        watch.history.rollbacks(since),
        watch.systemd.state(names.service),
        watch.systemd.state(names.gate),
        watch.systemd.state(names.rollback),
    )


def read_progress(layout: Layout) -> Progress | None:
    """Given an instance, return what its gate is doing; None when it has said nothing."""
    from kimisvc.host import files

    try:
        return progress_from_json(files.read_text(layout.progress))
    except KimisvcError:
        return None


def _rest_reason(seen: Evidence) -> str:
    service = seen.service
    if service.active_state == "active":
        return "the gate ended without a verdict; was it stopped by hand?"
    if service.result not in ("", "success"):
        return f"the service ended ({service.result}) and nothing came after it"
    return f"the service is {service.active_state}; was it stopped by hand?"
