"""What history could not take when it happened (a full disk): it waits in /run, and is kept later.

Records of gates wait in the gate's own folder, and rollbacks in a note here. The
next settle takes both; until one succeeds, the rollback unit is tried again.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from kimisvc.deploy.gate.record import GateRecord, record_from_json
from kimisvc.deploy.history import RollbackRow
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.layout import Layout


def keep_rollback(box: Box, row: RollbackRow) -> str:
    """Given a rollback, keep it in history, or until history can be written; return why it is not yet."""
    try:
        box.history.mend(box.now())
        box.history.add_rollback(row)
    except KimisvcError as error:
        waiting = [*waiting_rollbacks(box.layout), row]
        note = json.dumps([dataclasses.asdict(one) for one in waiting])
        files.write_atomic(_note(box.layout), note, mode=0o644)
        return error.message
    return ""


def waiting_rollbacks(layout: Layout) -> tuple[RollbackRow, ...]:
    """Return the rollbacks that history has not taken yet, oldest first."""
    try:
        return tuple(RollbackRow(**row) for row in json.loads(files.read_text(_note(layout))))
    except (KimisvcError, ValueError, TypeError):
        return ()  # there is none, or half of one: a row less


def take_rollbacks(box: Box) -> None:
    """Put the rollbacks that wait into history. Raise KimisvcError where it cannot be written."""
    for row in waiting_rollbacks(box.layout):
        box.history.add_rollback(row)
    files.remove(_note(box.layout))


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


def _note(layout: Layout) -> Path:
    return layout.runtime / "rollbacks.json"
