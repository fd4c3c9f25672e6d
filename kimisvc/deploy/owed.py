"""A restart that is owed: written before units are switched, cleared once the restart is queued.

Were apply or rollback to die in between (a kill, systemd too busy), the units
on disk would not be those of the process that runs. What is owed is done by
the next apply, and nothing is accepted until then. It lies in /run: after a
boot every process was started from the units on disk, and nothing is owed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kimisvc.deploy.plan import Action
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.layout import Layout


def owe(layout: Layout, action: Action, generation: int) -> None:
    """Given what is about to be done and the generation it is for, write it down."""
    note = json.dumps({"action": action.name, "generation": generation})
    files.write_atomic(_note(layout), note, mode=0o644)


def settle_debt(layout: Layout) -> None:
    """Clear what was owed: its restart is queued."""
    files.remove(_note(layout))


def owed(layout: Layout, current: int | None) -> Action | None:
    """Given the number of the current generation, return what is owed; None if nothing is.

    A switch that ended before its generation became the current one owes
    nothing: whether units were written is seen by comparing them.
    """
    path = _note(layout)
    try:
        note = json.loads(files.read_text(path))
        return Action[note["action"]] if note["generation"] == current else None
    except KimisvcError:
        return Action.RESTART if files.exists(path) else None
    except (ValueError, KeyError, TypeError):
        return Action.RESTART  # half a note: something was begun, so the safe thing is owed


def _note(layout: Layout) -> Path:
    return layout.runtime / "owed.json"
