"""Finds the instances of a box: whoever lists them passes by whatever else lies beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kimisvc.deploy.layout import Layout
from kimisvc.deploy.numbering import MANIFEST
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import files
from kimisvc.records.names import INSTANCE

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.records.units import Installation


def installed(place: Installation) -> tuple[str, ...]:
    """Given a place, return the instances of which a generation was installed, sorted.

    Raise HostError where the folder of all instances cannot be listed.
    """
    return tuple(one.instance for one in _layouts(place) if _is_there(one.current))


def begun(place: Installation) -> tuple[str, ...]:
    """Given a place, return the instances that were at least applied once, sorted. Raise as `installed`.

    One whose generations were lost is among them for as long as its unit is installed.
    """
    return tuple(
        one.instance
        for one in _layouts(place)
        if any(map(_is_there, (one.current, one.generations, one.installed(one.units.service))))
    )


def _layouts(place: Installation) -> tuple[Layout, ...]:
    """What no instance can be called (kimi.bak, say, or what is no text) is none, nor is a copy of one."""
    there = (path.name for path in files.entries(place.state))
    layouts = (Layout(place, name) for name in there if INSTANCE.fullmatch(name))
    return tuple(one for one in layouts if not _is_copy(one))


def _is_copy(layout: Layout) -> bool:
    """Whether it is the folder of another instance (cp -a kimi kimi-old): its units are that one's.

    One that does not say whose they are is taken for what it is called.
    """
    try:
        units = json.loads(files.read_text(layout.current / MANIFEST))["units"]
        return bool(units) and layout.units.service not in units
    except (KimisvcError, ValueError, KeyError, TypeError):
        return False


def _is_there(path: Path) -> bool:
    """Not there is also what lies in no folder (a backup, say), or in one that is closed (lost+found)."""
    try:
        return files.exists(path)
    except HostError:
        return False
