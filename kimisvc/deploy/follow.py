"""Watches what systemd and the gate do, until it has ended.

Only looks: a watcher who is lost changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kimisvc.deploy.at_rest import Left, ending_at_rest, ending_cut_off, ending_unkept
from kimisvc.deploy.gate.record import progress_from_json
from kimisvc.deploy.outcome import AT_WORK, Applied, Evidence, Outcome, at_rest, awaits_room, judge
from kimisvc.deploy.owed import owed
from kimisvc.deploy.plan import Action
from kimisvc.deploy.redacting import last_words
from kimisvc.deploy.unkept import (
    as_it_waits,
    latest_judgement,
    records_in_order,
    rollbacks_after,
    waiting_records,
    waiting_rollbacks,
)
from kimisvc.errors import KimisvcError
from kimisvc.host import files, locks
from kimisvc.records.proof import VerdictKind

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
    whom the last verdict on what runs is the news. `waited` are the rollbacks that history had not
    taken when it began: they are of what was there before, too.
    """

    generation: int
    since: int | None
    ended: str = ""
    before: frozenset[str] | None = None
    waited: frozenset[RollbackRow] = frozenset()


def gates_before(box: Box, action: Action) -> frozenset[str]:
    """Given what is about to be done, return the gates that ran before it: they do not speak for it.

    They are named by the invocations of their unit, as their records are. A gate that is at
    work already and is to be followed is none of them.
    """
    gate = box.systemd.state(box.layout.units.gate).invocation_id
    waiting = frozenset(record.record for record in waiting_records(box.layout))
    return waiting - {gate} if action is Action.FOLLOW else waiting | {gate}


def rollbacks_before(box: Box) -> frozenset[RollbackRow]:
    """Given a box on which something is about to be done, return the rollbacks that wait already."""
    return frozenset(waiting_rollbacks(box.layout))


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
            left = _left(box, seen, begun)
            return ending_unkept(seen, left) or ending_cut_off(seen, left) or ending
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
    """Given a box, follow what is at work on it to its end; None when nothing is.

    An apply that waits to begin is at work, too.
    """
    names = box.layout.units
    told = ""
    while True:
        since = box.history.sequence()  # first: what is decided while we look is not missed
        current = box.generations.current()
        if current is None:
            return None
        units = [box.systemd.state(name) for name in (names.service, names.gate, names.rollback)]
        if any(unit.job or unit.active_state in AT_WORK for unit in units):
            begun = _at_work(box, current.number, since)
            return Applied(follow(box, begun, reporter), begun.generation)
        holder = locks.holder(box.layout.operator_lock)
        if holder is None or not (holder.waits or told):
            return None
        if holder.waits and holder.words != told:
            reporter.step(holder.words)
            told = holder.words
        box.sleep(TICK)


def _at_work(box: Box, current: int, since: int) -> Begun:
    """What is at work on a box, given its current generation and the sequence of a moment ago."""
    unkept = waiting_rollbacks(box.layout)
    if unkept:
        return _at_work_unkept(box, current, since, unkept)
    newest = next(iter(box.history.applies(1)), None)
    rollback = next(iter(box.history.rollbacks(limit=1)), None)
    verdict = next(iter(box.history.verdicts(limit=1)), None)
    open_still = (
        newest is not None
        and newest.ended_at is None
        # One that was cut off before its generation became the current one has nothing to say.
        and newest.generation in (current, rollback.from_generation if rollback else None)
    )
    if newest is not None and open_still and (not verdict or verdict.sequence < newest.sequence):
        return Begun(newest.generation, newest.sequence)
    if (
        rollback is not None
        and rollback.to_generation == current
        and (verdict is None or verdict.sequence < rollback.sequence)
    ):
        return Begun(rollback.from_generation, rollback.sequence - 1)
    return Begun(current, since)


def _at_work_unkept(box: Box, current: int, since: int, unkept: Sequence[RollbackRow]) -> Begun:
    """What is at work where rollbacks wait for room: the newest of them, or what came after it.

    It has decided the applies of what it left, though history cannot say so yet. A verdict
    that waits on what it restored came after it.
    """
    newest = unkept[-1]
    judged = any(record.generation == current for record in waiting_records(box.layout))
    if newest.to_generation == current and not judged:
        return Begun(newest.from_generation, since, waited=frozenset(unkept[:-1]))
    return Begun(current, since, waited=frozenset(unkept))


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
    before, since = begun.before or (), begun.since
    verdicts: tuple[VerdictRow, ...] = ()
    if since is not None:
        # Where history was taken away meanwhile, it began anew.
        since = since if box.history.sequence() >= since else 0
        verdicts = tuple(row for row in box.history.verdicts(since) if row.record not in before)
    found = rollbacks_after(box, since)
    rollbacks = tuple(row for row in found if as_it_waits(row) not in begun.waited)
    records = [record for record in records_in_order(box) if record.record not in before]
    failed = _failed(records[-1]) if records else ""
    return Evidence(
        begun.generation, verdicts, rollbacks, service, gate, rollback, begun.ended, failed
    )


def _failed(record: GateRecord) -> str:
    """The start of which a record that waits says FAIL; "" where it says anything else."""
    proof = record.proof
    return record.invocation if proof and proof.verdict.kind is VerdictKind.FAIL else ""


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
        owed=owed(box.layout, current),
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
