"""A restart that is owed: written before units are switched, cleared once the restart is queued.

Were apply or rollback to die in between (a kill, a power cut, systemd too
busy), the units on disk would not be those of the process that runs. What is
owed is done by the next apply, and nothing is accepted until then. After a
boot only the gate is owed: every process was then started from the units on disk.
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

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def owe(layout: Layout, action: Action, boot: str) -> None:
    """Given what is about to be done and this boot's id, write it down."""
    note = json.dumps({"action": action.name, "boot": boot})
    files.write_atomic(_note(layout), note, mode=0o644)


def settle_debt(layout: Layout) -> None:
    """Clear what was owed: its restart is queued."""
    files.remove(_note(layout))


def owed(layout: Layout, boot: str) -> Action | None:
    """Given this boot's id, return what is still owed; None if nothing is."""
    path = _note(layout)
    try:
        note = json.loads(files.read_text(path))
        # After a boot every process runs from the units on disk; only a proof can be owed.
        return Action[note["action"]] if note["boot"] == boot else Action.GATE
    except KimisvcError:
        return None  # no note, nothing owed
    except (ValueError, KeyError, TypeError):
        return Action.RESTART  # half a note: something was begun, so the safe thing is owed


def _note(layout: Layout) -> Path:
    return layout.state / "owed.json"
