"""What is to be told where the link `current` or `accepted` is missing, leads astray, or leads to damage.

Only looks. No more is said than the disk and the history show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.box import UNREAD, installed_units
from kimisvc.deploy.gaps import lost
from kimisvc.deploy.layout import going_back
from kimisvc.deploy.restorable import proven, proven_earlier
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation


def no_current(box: Box) -> tuple[str, ...]:
    """Given a box whose current generation is damaged or not named, say so and what mends it.

    () before the first apply. Raise HostError.
    """
    link, names = box.layout.current, box.layout.units
    number, count = box.generations.current_number(), len(box.generations.numbers())
    if number is not None:
        return (f"generation {number}, the current one, is damaged: {applying(box)}",)
    if link.is_symlink():
        where = f"{link} points at {link.readlink()}, which is no generation"
        return (f"{where}: {applying(box)}, or {_going_back(box)}",)
    if files.exists(link):
        return (f"{link} is no symlink: {applying(box)}, or {_going_back(box)}, replaces it",)
    beside = f"{count} generation{'s' if count > 1 else ''}"
    if not files.exists(box.layout.installed(names.service)):
        begun = f"{beside} written, and none put in force: {names.service} is not installed"
        return (f"{begun}: {applying(box)}",) if count else ()
    if count:
        unknown = f"{link} is missing beside {beside}, so which of them is in force is not known"
        return (f"{unknown}: {applying(box)}, or {_going_back(box)}",)
    nothing = f"no generation in {box.layout.generations} tells what it is"
    return (f"{names.service} is installed, and {nothing}: {applying(box)}",)


def _going_back(box: Box) -> str:
    """The command that puts a generation in force, and which: the last accepted one where that is known."""
    try:
        number = proven_earlier(box, None).number
    except KimisvcError:
        return going_back(box.layout)
    return f"{going_back(box.layout, number)} (the last accepted one)"


def applying(box: Box) -> str:
    """Given a box, return the command that mends it.

    A unit that no generation wrote is overwritten on request only.
    """
    unknown = any(
        text is not None
        and not text.startswith(UNREAD)
        and not box.generations.wrote(UnitFile(name, text))
        for name, text in installed_units(box.layout).items()
    )
    return f"kimisvc apply {'--overwrite ' if unknown else ''}PROFILE"


_PROVES = "kimisvc apply PROFILE proves what runs"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted generation; where none is named, why that is so, and what is odd about it."""

    generation: Generation | None = None
    why_none: str = ""
    troubles: tuple[str, ...] = ()


def accepted_of(box: Box) -> Accepted:
    """Given a box, return its accepted generation, or why there is none: none ever was, or it is lost."""
    link, number = box.layout.accepted, box.generations.accepted_number()
    try:
        found = box.generations.accepted()
    except KimisvcError as error:
        which = "whether it is accepted is not known"
        if number is not None:
            which = f"not accepted; generation {number}, the last accepted one, is damaged"
        return Accepted(
            None, which, (f"the accepted generation is damaged: {error.message}: {_PROVES}",)
        )
    if found is not None:
        return Accepted(found)
    unknown = "whether it is accepted is not known"
    try:
        known, forgotten = proven(box), lost(box.layout, box.history)
    except KimisvcError:
        return Accepted(None, f"{unknown}: the history cannot be read")
    if known:
        missing = f"{link} is missing, and history tells of accepted generations"
        return Accepted(None, unknown, (f"{missing}: {_PROVES}",))
    if forgotten:
        return Accepted(None, f"{unknown}: what history held is lost")
    return Accepted(None, "not accepted, and none ever was")
