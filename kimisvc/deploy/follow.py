"""Watches what systemd and the gate do, until it has ended.

Only looks: a watcher who is lost changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kimisvc.deploy.at_rest import Left, ending_at_rest, ending_unkept
from kimisvc.deploy.gate.record import progress_from_json
from kimisvc.deploy.outcome import AT_WORK, Applied, Evidence, Outcome, at_rest, awaits_room, judge
from kimisvc.deploy.plan import Action
from kimisvc.deploy.redacting import last_words
from kimisvc.deploy.unkept import latest_judgement, records_in_order, waiting_records
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.history import RollbackRow, VerdictRow
    from kimisvc.deploy.layout import Layout
    from kimisvc.deploy.outcome import Ending
    from kimisvc.records.progress import Progress
    from kimisvc.records.proof import Verdict

TICK = 0.2
REST = 5.0
"""How long all must be at rest before an end without a verdict is believed (s)."""


class Reporter(Protocol):
    """Where progress goes: a live line on a terminal, plain lines elsewhere, nowhere in tests."""

    def step(self, text: str) -> None:
        """Given what begins now, tell it."""

    def progress(self, progress: Progress) -> None:
        """Given where the gate stands, show it."""


@dataclass
class _Told:
    """What the reporter was told already, so that it hears only news."""

    progress: Progress | None = None
    rollbacks: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """What was begun: a generation, the sequence before it, and the start that was ended for it.

    `since` None: history could not be read then. `before` are the gates that ran before it, whose
    verdicts are on what was there before; None for who began nothing and only watches, to
    whom the last verdict on what runs is the news.
    """

    generation: int
    since: int | None
    ended: str = ""
    before: frozenset[str] | None = None


def gates_before(box: Box, action: Action) -> frozenset[str]:
    """Given what is about to be done, return the gates that ran before it: they do not speak for it.

    They are named by the invocations of their unit, as their records are. A gate that is at
    work already and is to be followed is none of them.
    """
    gate = box.systemd.state(box.layout.units.gate).invocation_id
    waiting = frozenset(record.record for record in waiting_records(box.layout))
    return waiting - {gate} if action is Action.FOLLOW else waiting | {gate}


def follow(box: Box, begun: Begun, reporter: Reporter) -> Ending:
    """Given what was begun, wait until it has ended; return how.

    Bounded by the deadlines of the units themselves: each of them ends in a
    verdict, a rollback or a stop.
    """
    told = _Told()
    resting_since: float | None = None
    while True:
        begun = _placed(box, begun)
        seen = _looked(box, begun)
        _tell(box, seen, told, reporter)
        ending = judge(seen)
        if ending is not None and ending.outcome is not Outcome.NOT_RESTORED:
            return ending
        if ending is not None:
            return ending_unkept(seen, _left(box, seen, begun)) or ending
        now = box.clock()
        if not (at_rest(seen) or awaits_room(seen)):
            resting_since = None
        elif resting_since is None:
            resting_since = now
        elif now - resting_since > REST:
            left = _left(box, seen, begun)
            ending = ending_unkept(seen, left)
            if at_rest(seen):
                return ending or ending_at_rest(seen, left)
            if ending is not None and left.newest == seen.gate.invocation_id:
                return ending  # not that of a gate before it, which a rollback may be about to run
        box.sleep(TICK)


def _placed(box: Box, begun: Begun) -> Begun:
    """Given what was begun while history could not be read, find its place there once it can be.

    A verdict of the gate that runs now is of what was begun, and so is all after it; what else
    is there by then may be as old as history is.
    """
    if begun.since is not None:
        return begun
    gate = box.systemd.state(box.layout.units.gate).invocation_id
    try:
        newest = box.history.sequence()
        ours = [row.sequence for row in box.history.verdicts() if row.record == gate]
    except KimisvcError:
        return begun
    began_anew = not ours or gate in (begun.before or ())
    return replace(begun, since=newest if began_anew else min(ours) - 1)


def _looked(box: Box, begun: Begun) -> Evidence:
    """Look; a watcher who can see no more says that what he watched goes on."""
    try:
        return look(box, begun)
    except KimisvcError as error:
        instance = box.layout.instance
        raise KimisvcError(
            error.code, error.message,
            hint="what was begun goes on without a watcher; kimisvc status --follow"
            f" --instance {instance} shows it",
        ) from error  # fmt: skip


def resume(box: Box, reporter: Reporter) -> Applied | None:
    """Given a box, follow what is at work on it to its end; None when nothing is."""
    since = box.history.sequence()  # first: what is decided while we look is not missed
    current = box.generations.current()
    if current is None:
        return None
    names = box.layout.units
    units = [box.systemd.state(name) for name in (names.service, names.gate, names.rollback)]
    if not any(unit.job or unit.active_state in AT_WORK for unit in units):
        return None
    generation = current.number
    newest = next(iter(box.history.applies(1)), None)
    rollback = next(iter(box.history.rollbacks(limit=1)), None)
    verdict = next(iter(box.history.verdicts(limit=1)), None)
    open_still = (
        newest is not None
        and newest.ended_at is None
        # One that was cut off before its generation became the current one has nothing to say.
        and newest.generation in (generation, rollback.from_generation if rollback else None)
    )
    if newest is not None and open_still and (not verdict or verdict.sequence < newest.sequence):
        generation, since = newest.generation, newest.sequence
    elif (
        rollback is not None
        and rollback.to_generation == generation
        and (verdict is None or verdict.sequence < rollback.sequence)
    ):
        generation, since = rollback.from_generation, rollback.sequence - 1
    return Applied(follow(box, Begun(generation, since), reporter), generation)


def look(box: Box, begun: Begun) -> Evidence:
    """Given what was begun, return all that is known about it now.

    Units first, history after: what a unit did before it came to rest is
    then never missed. Where history could not be read when it began, it is
    not needed either.
    """
    names = box.layout.units
    service, gate, rollback = (
        box.systemd.state(name) for name in (names.service, names.gate, names.rollback)
    )
    verdicts: tuple[VerdictRow, ...] = ()
    rollbacks: tuple[RollbackRow, ...] = ()
    if begun.since is not None:
        # Where history was taken away meanwhile, it began anew.
        since = begun.since if box.history.sequence() >= begun.since else 0
        verdicts = tuple(
            row for row in box.history.verdicts(since) if row.record not in (begun.before or ())
        )
        rollbacks = box.history.rollbacks(since)
    return Evidence(begun.generation, verdicts, rollbacks, service, gate, rollback, begun.ended)


def read_progress(layout: Layout) -> Progress | None:
    """Given an instance, return what its gate is doing; None when it has said nothing."""
    try:
        return progress_from_json(files.read_untrusted(layout.progress))
    except KimisvcError:
        return None


def _tell(box: Box, seen: Evidence, told: _Told, reporter: Reporter) -> None:
    if len(seen.rollbacks) > told.rollbacks:
        told.rollbacks = len(seen.rollbacks)
        newest = seen.rollbacks[0]
        if newest.to_generation is not None:
            reporter.step(f"rolling back to generation {newest.to_generation}: {newest.reason}")
    progress = read_progress(box.layout) if seen.gate.active_state == "activating" else None
    ours = progress is not None and progress.invocation == seen.service.invocation_id
    if progress is not None and ours and progress != told.progress:
        told.progress = progress
        reporter.progress(progress)


def _left(box: Box, seen: Evidence, begun: Begun) -> Left:
    """Look at what is left on the box where history does not say how it ended."""
    accepted = box.generations.sound_accepted()
    current = box.generations.current_number()
    records = [r for r in records_in_order(box) if r.record not in (begun.before or ())]
    return Left(
        current=current,
        accepted=accepted.number if accepted else None,
        unkept={r.generation: r.proof.verdict for r in records if r.proof},
        judged=_judged(box, seen, begun, records),
        last_words=last_words(box, seen.gate) if seen.service.active_state == "active" else "",
        newest=next((r.record for r in reversed(records) if r.generation == current), ""),
    )


def _judged(
    box: Box, seen: Evidence, begun: Begun, records: Sequence[GateRecord]
) -> Verdict | None:
    """The newest verdict on the start that runs: for who began something, of a gate that came after."""
    start = seen.generation, seen.service.invocation_id
    if begun.before is None:
        return latest_judgement(box, *start)
    waiting = [r for r in records if (r.generation, r.invocation) == start]
    kept = [v for v in seen.verdicts if (v.generation, v.invocation) == start]
    found = [*(r.proof.verdict for r in reversed(waiting) if r.proof), *(v.verdict for v in kept)]
    return found[0] if found else None
