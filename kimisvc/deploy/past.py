"""What is known of the start that runs by what came before: history, and what waits for room in it.

Where history cannot tell, that is said: a start of which nothing is known is not one
that was never ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.history.rows import StartRow, VerdictRow
from kimisvc.deploy.redacting import of_box, redacted_record
from kimisvc.deploy.unkept import records_in_order
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history import CanaryRow, RollbackRow
    from kimisvc.records.units import UnitState

RESTS = ("inactive", "failed")
"""States of a gate that has ended, and whose record settle has had in its hands."""
UNKEPT = 0
"""The sequence of a row that history has not taken yet; those of history begin at 1."""


class Memory(Enum):
    """Whether history could be asked; its words in JSON."""

    READ = "read"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of the start that runs, the newest rollback and canary, and what is odd about that."""

    memory: Memory = Memory.READ
    start: StartRow | None = None
    verdict: VerdictRow | None = None
    last_rollback: RollbackRow | None = None
    canary: CanaryRow | None = None
    troubles: tuple[str, ...] = ()


def read_past(box: Box, current: Generation | None, service: UnitState, gate: UnitState) -> Past:
    """Given a box, its current generation and its units, return what is known of the start that runs.

    A verdict that waits for room on the disk is newer than what history has taken.
    """
    runs = service.invocation_id
    number = current.number if current else None
    accepted = box.generations.sound_accepted()
    stands = accepted.number if accepted else None
    waiting = _waiting(box, gate)
    unkept = [verdict_that_waits(record, stands) for record in reversed(waiting)]
    start = next((start_that_waits(r) for r in reversed(waiting) if r.invocation == runs), None)
    # Until its restart a crashed service goes by the invocation of the start that died.
    goes_on = service.goes_on and service.sub_state != "auto-restart"
    memory, troubles, kept = Memory.READ, [], Past()
    try:
        if files.exists(box.layout.current) and not files.exists(box.layout.history):
            memory = Memory.MISSING
            lost = "what was found out about the start that runs is lost"
            troubles.append(f"{box.layout.history} is not there: {lost}")
        kept = _kept(box, service)
        verdicts = box.history.verdicts(limit=20)
    except KimisvcError as error:
        memory, verdicts = Memory.UNREADABLE, ()
        troubles.append(f"the history cannot be read: {error.message}")
    told = verdict_on(runs, (*unkept, *verdicts), current=number, accepted=stands)
    return Past(
        memory=memory,
        start=kept.start or start,
        verdict=told if goes_on else None,
        last_rollback=kept.last_rollback,
        canary=kept.canary,
        troubles=tuple(troubles),
    )


def _kept(box: Box, service: UnitState) -> Past:
    """What history has of it but its verdicts. Raise KimisvcError where it cannot be read."""
    has_canary = files.exists(box.layout.installed(box.layout.units.canary_timer))
    return Past(
        start=box.history.start(service.invocation_id),
        last_rollback=next(iter(box.history.rollbacks(limit=1)), None),
        canary=next(iter(box.history.canaries(limit=1)), None) if has_canary else None,
    )


def _waiting(box: Box, gate: UnitState) -> Sequence[GateRecord]:
    """The records that history has not taken yet, oldest first: none of a gate that has not ended.

    What settle has not had in its hands may be judged otherwise by it.
    """
    try:
        records = records_in_order(box)
    except KimisvcError:
        return ()
    own = "" if gate.active_state in RESTS else gate.invocation_id
    redact = of_box(box) if records else None
    return [redacted_record(r, redact) for r in records if redact and r.record != own]


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
