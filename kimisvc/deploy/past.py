"""What is known of the start that runs by what came before: history, and what waits for room in it.

Where history cannot tell, that is said: a start of which nothing is known is not one
that was never ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.gaps import Memory, lost
from kimisvc.deploy.history.rows import StartRow, VerdictRow
from kimisvc.deploy.redacting import of_box, redacted_record
from kimisvc.deploy.unkept import rollbacks_after, waiting_records
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.history import CanaryRow, RollbackRow
    from kimisvc.records.units import UnitState

RESTS = ("inactive", "failed")
"""States of a gate that has ended, and whose record settle has had in its hands."""
UNKEPT = 0
"""The sequence of a row that history has not taken yet; those of history begin at 1."""


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of the start that runs, the newest rollback and canary, and what is odd about that."""

    memory: Memory = Memory.READ
    start: StartRow | None = None
    verdict: VerdictRow | None = None
    last_rollback: RollbackRow | None = None
    canary: CanaryRow | None = None
    troubles: tuple[str, ...] = ()


def read_past(box: Box, service: UnitState, gate: UnitState) -> Past:
    """Given a box and its units, return what is known of the start that runs.

    A verdict that waits for room on the disk is newer than what history has taken.
    """
    runs = service.invocation_id
    # By their links: what was judged stays so, though the generation was damaged since.
    number, stands = box.generations.current_number(), box.generations.accepted_number()
    waiting = settled(records_that_wait(box), gate)
    unkept = [verdict_that_waits(record, stands) for record in waiting]
    memory, troubles, kept = Memory.READ, [], Past()
    try:
        if why := lost(box.layout, box.history):
            memory = Memory.MISSING
            troubles.append(f"{why}: what was found out about the start that runs is lost")
        kept = _kept(box, service)
        verdicts = box.history.verdicts(limit=20)
    except KimisvcError as error:
        memory, verdicts = Memory.UNREADABLE, ()
        troubles.append(f"the history cannot be read: {error.message}")
    told = verdict_on(runs, (*unkept, *verdicts), current=number, accepted=stands)
    starts = (*((kept.start,) if kept.start else ()), *map(start_that_waits, waiting))
    return Past(
        memory=memory,
        start=start_of(runs, starts),
        verdict=told if service.lives else None,
        last_rollback=kept.last_rollback,
        canary=kept.canary,
        troubles=tuple(troubles),
    )


def _kept(box: Box, service: UnitState) -> Past:
    """What history has of it but its verdicts. Raise KimisvcError where it cannot be read."""
    has_canary = files.exists(box.layout.installed(box.layout.units.canary_timer))
    return Past(
        start=box.history.start(service.invocation_id),
        last_rollback=next(
            iter((*rollbacks_after(box, None), *box.history.rollbacks(limit=1))), None
        ),
        canary=next(iter(box.history.canaries(limit=1)), None) if has_canary else None,
    )


def records_that_wait(box: Box) -> tuple[GateRecord, ...]:
    """Given a box, return the records that history has not taken yet, oldest first, without secrets.

    None where they may not be read.
    """
    try:
        records = waiting_records(box.layout)
    except KimisvcError:
        return ()
    redact = of_box(box) if records else None
    return tuple(redacted_record(record, redact) for record in records if redact)


def settled(records: Iterable[GateRecord], gate: UnitState) -> tuple[GateRecord, ...]:
    """Given records that wait, oldest first, and their gate, return those to go by, newest first.

    That of the newest gate is the newest, whatever the clock said; and none while that gate has
    not ended: what settle has not had in its hands may be judged otherwise by it.
    """
    own = gate.invocation_id
    ordered = sorted(records, key=lambda record: record.record == own)
    at_rest = gate.active_state in RESTS
    return tuple(record for record in reversed(ordered) if at_rest or record.record != own)


def verdict_that_waits(record: GateRecord, accepted: int | None) -> VerdictRow:
    """Given a record with a proof and the accepted generation, return the row history will have of it."""
    proof = record.proof
    if proof is None:
        raise ValueError("a record without a proof has no verdict")
    return VerdictRow(
        record.record, UNKEPT, record.invocation, record.generation, record.profile,
        record.ended_at, proof.verdict, proof.decode_tok_s, proof.ttft_s,
        proof.engine_decode_tok_s, record.floor, record.goal, proof.notes,
        accepted=proof.verdict.kind.accepted and record.generation == accepted,
    )  # fmt: skip


def start_that_waits(record: GateRecord) -> StartRow:
    """Given a record, return the row that history will have of its start."""
    return StartRow(
        record.invocation, record.generation, record.profile, record.model,
        record.service_started_at, record.ready_at or None, record.load_s,
        record.vllm_version or None, sequence=UNKEPT,
    )  # fmt: skip


def start_of(invocation: str, rows: Iterable[StartRow]) -> StartRow | None:
    """Given a start and rows of starts, return what tells most of it: one that saw it ready, else the first.

    A gate that was cut off before that is in history, where that of its next run may wait.
    """
    own = [row for row in rows if row.invocation == invocation]
    return next((row for row in own if row.ready_at is not None), next(iter(own), None))


def verdict_on(
    start: str, verdicts: Iterable[VerdictRow], *, current: int | None, accepted: int | None
) -> VerdictRow | None:
    """Given a start, verdicts (newest first) and two generations, return what speaks for the current one.

    None: nothing does. A change of the gate alone keeps the start, and the verdict
    on the generation before says nothing of the one that runs now; unless that was
    accepted, and this one rests on it, as nothing that runs depended on what changed.
    """
    rests = current is not None and current == accepted
    of_start = (row for row in verdicts if row.invocation == start)
    return next(
        (row for row in of_start if row.generation == current or (rests and row.accepted)), None
    )
