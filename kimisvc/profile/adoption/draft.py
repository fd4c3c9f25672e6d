"""What an adoption gathers: the keys of the profile to be, and what became of all else."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Fate(Enum):
    """What became of a part of the original that is no key of the profile."""

    DROPPED = "not taken over"
    UNCLEAR = "not understood"


@dataclass(frozen=True, slots=True)
class Note:
    """One part of the original that did not become a key, and why. Never the value of a secret."""

    fate: Fate
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of the profile to be, and the comment beside it ("" for none)."""

    value: object
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Lookup:
    """What may be asked of the world while adopting.

    `read` returns the text of a file and raises KimisvcError where it cannot;
    `program` returns the path of a program by its name and a PATH, "" if it is
    not there.
    """

    read: Callable[[str], str]
    program: Callable[[str, str], str]


@dataclass(slots=True)
class Draft:
    """The profile to be: keys by table and name, notes in the order of the original.

    `secrets` holds the names of variables whose values belong into the secrets
    file, and where each stood.
    """

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)

    def put(self, table: str, key: str, value: object, comment: str = "") -> None:
        """Given a key and its value, hold it; the last one wins and stands last."""
        self.entries.pop((table, key), None)
        self.entries[table, key] = Entry(value, comment)

    def value(self, table: str, key: str) -> object:
        """Given a key, return its value; None if it is not set."""
        entry = self.entries.get((table, key))
        return entry.value if entry else None

    def drop(self, what: str, why: str) -> None:
        """Given a part that is left out on purpose, note it."""
        self._note(Note(Fate.DROPPED, what, why))

    def unclear(self, what: str, why: str) -> None:
        """Given a part that is not understood, note it: the operator has to look."""
        self._note(Note(Fate.UNCLEAR, what, why))

    def _note(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)
