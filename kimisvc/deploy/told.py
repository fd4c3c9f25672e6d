"""Which failure a rollback has told already: it is tried again, and each failure is told once.

A failure is known by the starts of service and gate that it is one of, and by
what failed, and not by moments: clocks are set back. A service that was kept
though its gate said FAIL can give up later, with no start in between. The note
lies in /run, as the invocations of systemd are those of one boot.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from kimisvc.deploy.failure import gave_up
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.history import RollbackRow
    from kimisvc.deploy.layout import Layout


def is_told(box: Box, row: RollbackRow) -> bool:
    """Given a rollback that is due, say whether it was told before, of the very starts that failed."""
    try:
        note = files.read_text(_note(box.layout))
    except KimisvcError:
        return False  # none was told since boot
    return note == _failure(box, row)


def note_told(box: Box, row: RollbackRow) -> None:
    """Given a rollback that is told, note of which starts; where that fails, it may be told once more."""
    with contextlib.suppress(KimisvcError):
        files.write_atomic(_note(box.layout), _failure(box, row), mode=0o644)


def _failure(box: Box, row: RollbackRow) -> str:
    names = box.layout.units
    service, gate = box.systemd.state(names.service), box.systemd.state(names.gate)
    known = {
        "service": service.invocation_id,
        "gate": gate.invocation_id,
        "gave_up": gave_up(service),
        "from": row.from_generation,
        "to": row.to_generation,
    }
    return json.dumps(known)


def _note(layout: Layout) -> Path:
    return layout.runtime / "told.json"
