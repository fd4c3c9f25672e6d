"""Compares installed units with those wanted: what has to be written, and what has to restart. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.render.deadlines import READY_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records.units import UnitFile

SETTINGS = "# settings:"
"""Begins the line of a gate that stands for all that the gate asks."""
_FOR_SYSTEMD = frozenset(
    [
        "Description",
        "Documentation",
        "Wants",
        "After",
        "BindsTo",
        "PartOf",
        "OnFailure",
        "RequiresMountsFor",
        "StartLimitIntervalSec",
        "StartLimitBurst",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "SuccessExitStatus",
        "TimeoutStartSec",
        "TimeoutStopSec",
        "KillMode",
        "WantedBy",
    ]
)
"""Settings for systemd's own conduct: in force with the next daemon-reload, process or not."""


class Change(Enum):
    """What becomes of one unit.

    COSMETIC: only comments differ. RELOADED: what differs is in force as soon
    as systemd reads the unit; nothing that runs has to be restarted for it.
    GONE: it is ours and not wanted any more.
    """

    SAME = "same"
    COSMETIC = "comments only"
    RELOADED = "in force without a restart"
    CHANGED = "changed"
    NEW = "new"
    GONE = "removed"


@dataclass(frozen=True, slots=True)
class UnitComparison:
    """One unit: what becomes of it, and the difference as a unified diff."""

    name: str
    change: Change
    diff: str


def compare(
    installed: Mapping[str, str | None], wanted: Sequence[UnitFile]
) -> tuple[UnitComparison, ...]:
    """Given the installed texts (None: not there) and the units wanted, compare each."""
    return tuple(
        UnitComparison(
            unit.name,
            _change(installed.get(unit.name), unit.text),
            unified(installed.get(unit.name) or "", unit.text, f"{unit.name} now", unit.name),
        )
        for unit in wanted
    )


def effective(text: str) -> str:
    """Given a unit's text, return what systemd acts on: neither comments nor blank lines.

    The settings line of a gate is a comment to systemd, but it stands for what
    the gate will ask, so it counts.
    """
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(
        line
        for line in lines
        if line.startswith(SETTINGS) or (not line.startswith(("#", ";")) and line)
    )


def unified(old: str, new: str, old_name: str, new_name: str) -> str:
    """Given two texts and their names, return a unified diff."""
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), old_name, new_name, lineterm=""
    )
    return "\n".join(lines)


def _change(old: str | None, new: str) -> Change:
    if old is None:
        return Change.NEW
    if old == new:
        return Change.SAME
    before, after = effective(old), effective(new)
    if before == after:
        return Change.COSMETIC
    return Change.RELOADED if _of_process(before) == _of_process(after) else Change.CHANGED


def _of_process(effective_text: str) -> list[str]:
    """What the processes of a unit were started with.

    vLLM's readiness timeout, which follows `load_timeout`, matters only while
    it loads: a model that is loaded is not loaded again for it.
    """
    return [
        line
        for line in effective_text.splitlines()
        if line.partition("=")[0] not in _FOR_SYSTEMD
        and not line.startswith(f'Environment="{READY_TIMEOUT}=')
    ]
