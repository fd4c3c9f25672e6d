"""Finds the instances of a box: whoever lists them passes by whatever else lies beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.layout import Layout
from kimisvc.errors import HostError
from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.records.units import Installation


def installed(place: Installation) -> tuple[str, ...]:
    """Given a place, return the instances of which a generation was installed, sorted.

    Raise HostError where the folder of all instances cannot be listed.
    """
    return tuple(name for name in _names(place) if _is_there(Layout(place, name).current))


def begun(place: Installation) -> tuple[str, ...]:
    """Given a place, return the instances that were at least applied once, sorted. Raise as `installed`."""
    layouts = (Layout(place, name) for name in _names(place))
    return tuple(
        one.instance for one in layouts if _is_there(one.current) or _is_there(one.generations)
    )


def _names(place: Installation) -> tuple[str, ...]:
    return tuple(path.name for path in files.entries(place.state))


def _is_there(path: Path) -> bool:
    """Not there is also what lies in no folder (a backup, say), or in one that is closed (lost+found)."""
    try:
        return files.exists(path)
    except HostError:
        return False
