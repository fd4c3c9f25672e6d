"""What history could not take when it happened (a full disk): it waits in /run, and is kept later.

Records of gates wait in the gate's own folder, and rollbacks in a note here. The
next settle takes both, in the order in which they came; until one succeeds, the
rollback unit is tried again.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.gate.record import GateRecord, record_from_json
from kimisvc.deploy.history import RollbackRow
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.layout import Layout
    from kimisvc.records.proof import Verdict


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A rollback that waits, and the files of the records that waited before it: it comes after them.

    By their names, and not by moments: clocks are set back.
    """

    row: RollbackRow
    after: tuple[str, ...] = ()


def keep_rollback(box: Box, row: RollbackRow) -> str:
    """Given a rollback, keep it in history, or until history can be written; return why it is not yet."""
    try:
        damaged = box.history.mend(box.now())
        aside = f"; the history was damaged, and is kept as {damaged}" if damaged else ""
        take_rollbacks(box)  # they came first
        box.history.add_rollback(replace(row, reason=row.reason + aside))
    except KimisvcError as error:
        after = tuple(path.name for path in record_files(box.layout))
        _wait(box.layout, (*_waiting(box.layout), _Waiting(row, after)))
        return error.message
    return ""


def waiting_rollbacks(layout: Layout) -> tuple[RollbackRow, ...]:
    """Return the rollbacks that history has not taken yet, oldest first."""
    return tuple(one.row for one in _waiting(layout))


def _waiting(layout: Layout) -> tuple[_Waiting, ...]:
    try:
        rows = [dict(row) for row in json.loads(files.read_text(_note(layout)))]
        # A note of an earlier kimisvc does not say after what.
        afters = [tuple(row.pop("after", ())) for row in rows]
        return tuple(map(_Waiting, [RollbackRow(**row) for row in rows], afters))
    except (KimisvcError, ValueError, TypeError):
        return ()  # there is none, or half of one: a row less


def rollbacks_after(box: Box, since: int | None) -> tuple[RollbackRow, ...]:
    """Given a sequence, return all rollbacks after it, newest first; None: those that wait alone.

    What waits is newer than all that history has, and numbered so.
    Raise KimisvcError where history cannot be read.
    """
    waiting = waiting_rollbacks(box.layout)  # first: what is taken meanwhile is not missed
    kept = box.history.rollbacks(since) if since is not None else ()
    newest = box.history.sequence() if since is not None else 0
    taken = {as_it_waits(row) for row in kept}
    left = [row for row in waiting if row not in taken]
    numbered = [dataclasses.replace(row, sequence=newest + n) for n, row in enumerate(left, 1)]
    return (*reversed(numbered), *kept)


def as_it_waits(row: RollbackRow) -> RollbackRow:
    """Given a rollback, return it as it is while it waits: history has given it no number yet."""
    return dataclasses.replace(row, sequence=0)


def take_rollbacks(box: Box, left: Collection[str] = ()) -> None:
    """Given the files of the records that are still to be taken, put the rollbacks before them into history.

    Without any, all. Raise KimisvcError where it cannot be written.
    """
    while waiting := _waiting(box.layout):
        if not set(left).isdisjoint(waiting[0].after):
            return
        box.history.add_rollback(waiting[0].row)
        _wait(box.layout, waiting[1:])  # one by one: what is in history does not come twice
    files.remove(_note(box.layout))


def _wait(layout: Layout, rows: Sequence[_Waiting]) -> None:
    note = json.dumps([{**dataclasses.asdict(one.row), "after": one.after} for one in rows])
    files.write_atomic(_note(layout), note, mode=0o644)


def record_files(layout: Layout) -> tuple[Path, ...]:
    """Return the files of the records that gates have left and history has not taken."""
    return tuple(path for path in files.entries(layout.gate) if path.match("record-*.json"))


def waiting_records(layout: Layout) -> tuple[GateRecord, ...]:
    """Return the records of gates that have judged and were not settled yet, oldest first."""
    found = []
    for path in files.entries(layout.gate):
        try:
            record = record_from_json(files.read_untrusted(path))
        except KimisvcError:
            continue  # where the gate stands, or none of its records
        found += [record] if record.proof is not None else []
    return tuple(sorted(found, key=lambda record: record.ended_at or 0.0))


def records_in_order(box: Box) -> tuple[GateRecord, ...]:
    """Given a box, return the records that wait, that of its newest gate last, whatever the clock said."""
    gate = box.systemd.state(box.layout.units.gate).invocation_id
    return tuple(sorted(waiting_records(box.layout), key=lambda record: record.record == gate))


def has_judged(box: Box, gate: str) -> bool:
    """Given the invocation of a gate, say whether that very run came to a verdict: its record is named so."""
    if any(record.record == gate for record in waiting_records(box.layout)):
        return True
    try:
        return any(row.record == gate for row in box.history.verdicts(limit=20))
    except KimisvcError:
        return False


def latest_judgement(box: Box, generation: int, invocation: str) -> Verdict | None:
    """Given a generation and one of its starts, return what its newest gate decided; None: nothing.

    What waits is newer than what history has taken.
    """
    for record in reversed(records_in_order(box)):
        if (record.generation, record.invocation) == (generation, invocation) and record.proof:
            return record.proof.verdict
    try:
        rows = box.history.verdicts(limit=20)
    except KimisvcError:
        return None
    found = (row for row in rows if (row.generation, row.invocation) == (generation, invocation))
    return next((row.verdict for row in found), None)


def _note(layout: Layout) -> Path:
    return layout.runtime / "rollbacks.json"
