"""Compares installed units with those wanted: what has to be written, and what has to restart. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records import UnitFile


class Change(Enum):
    """What becomes of one unit. COSMETIC: only comments differ, and nothing restarts for them."""

    SAME = "same"
    COSMETIC = "comments only"
    CHANGED = "changed"
    NEW = "new"


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
        if line.startswith("# settings:") or (not line.startswith(("#", ";")) and line)
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
    return Change.COSMETIC if effective(old) == effective(new) else Change.CHANGED
