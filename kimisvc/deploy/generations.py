"""Numbered generations on disk: immutable folders, and the symlinks `current` and `accepted`.

A folder appears whole, by rename, or not at all. The symlinks are replaced
atomically. Only root writes here; what is read is checked, since `rollback`
acts on it as root.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.instances import begun
from kimisvc.deploy.layout import Layout, going_back
from kimisvc.deploy.numbering import (
    MANIFEST,
    folder_name,
    folders,
    number_in,
    numbers,
    staged,
    staged_name,
)
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.profile.loader import restore
from kimisvc.records.names import LAST_GENERATION
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.records.profile import Profile

PROFILE = "profile.toml"
RESOLVED = "resolved.toml"
UNITS = "units"


class FileNow(Enum):
    """What has become of the file that a generation was applied from; in words behind its name."""

    SAME = "is what it was"
    OTHER = "is not what it was"
    GONE = "is gone"
    UNKNOWN = "may not be read here, so whether it is what it was is not known"


@dataclass(frozen=True, slots=True)
class Draft:
    """What becomes a generation: the profile as written and as resolved, its units, its facts.

    `file` is where the profile lies, "" where that is not known.
    """

    profile: str
    written: str
    resolved: str
    units: tuple[UnitFile, ...]
    facts: Mapping[str, str | float]
    file: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as it lies on disk."""

    number: int
    path: Path
    profile: str
    created_at: float
    facts: Mapping[str, str | float]
    digest: str = ""
    file: str = ""

    @property
    def source(self) -> Path:
        """The profile to name when this is to be applied again: its file, else what was kept of it.

        A file that was changed since holds another profile, and one that cannot be read may.
        """
        same = bool(self.file) and self.file_now is FileNow.SAME
        return Path(self.file) if same else self.path / RESOLVED

    @property
    def file_now(self) -> FileNow:
        """What has become of its file, as far as who asks may see."""
        try:
            same = files.read_text(Path(self.file)) == files.read_text(self.path / PROFILE)
        except KimisvcError as error:
            return _unread(error.__cause__)
        return FileNow.SAME if same else FileNow.OTHER

    @property
    def label(self) -> str:
        """How a generation is named to people: number and profile."""
        return f"{self.number} ({self.profile})"

    def resolved(self) -> str:
        """Return the text of its resolved profile. Raise KimisvcError if it is not what was written."""
        text = files.read_text(self.path / RESOLVED)
        if _digest(text) != self.digest:
            raise _damaged(self.path / RESOLVED)
        return text

    def settings(self) -> Profile:
        """Return its profile. Raise KimisvcError if it is damaged."""
        self.resolved()
        return restore(self.path / RESOLVED)

    def units(self) -> tuple[UnitFile, ...]:
        """Return its units. Raise KimisvcError if one is missing or not what was written."""
        try:
            digests = dict(json.loads(files.read_text(self.path / MANIFEST))["units"])
        except (ValueError, KeyError, TypeError) as error:
            raise KimisvcError("generation-damaged", f"{self.path / MANIFEST}: {error}") from error
        if any("/" in name or name.strip(".") == "" for name in digests):  # root is to write it
            raise _damaged(self.path / MANIFEST)
        units = tuple(
            UnitFile(name, files.read_text(self.path / UNITS / name)) for name in sorted(digests)
        )
        for unit in units:
            if _digest(unit.text) != digests[unit.name]:
                raise _damaged(self.path / UNITS / unit.name)
        return units


class Generations:
    """All generations of one instance."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the generations on disk, oldest first; what is named otherwise is none."""
        return numbers(self._layout)

    def get(self, number: int) -> Generation:
        """Given a number, return that generation. Raise KimisvcError if it is not whole."""
        path = self._path(number)
        if not path.is_dir():
            there = ", ".join(map(str, self.numbers())) or "none yet"
            raise KimisvcError(
                "no-such-generation",
                f"there is no generation {number} of {self._layout.instance}",
                hint=f"generations on disk: {there}",
            )
        try:
            manifest = json.loads(files.read_text(path / MANIFEST))
            found = Generation(
                int(manifest["number"]), path, str(manifest["profile"]),
                float(manifest["created_at"]), dict(manifest["facts"]), str(manifest["digest"]),
                str(manifest.get("file", "")),
            )  # fmt: skip
            units = sorted(dict(manifest["units"]))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise KimisvcError("generation-damaged", f"{path / MANIFEST}: {error}") from error
        if found.number != number:  # a copy of another one
            raise _damaged(path / MANIFEST)
        if units and self._layout.units.service not in units:  # root would write them
            raise KimisvcError(
                "generation-damaged",
                f"{path / MANIFEST} is of another instance: its units are {', '.join(units)}",
                hint=f"is {self._layout.state} a copy? Then move it out of {self._layout.place.state}",
            )
        return found

    def current(self) -> Generation | None:
        """Return the generation whose units are installed, None before the first."""
        return self._linked(self._layout.current)

    def sound_current(self) -> Generation | None:
        """Return the current generation; None where there is none, or it is damaged."""
        try:
            return self.current()
        except KimisvcError:
            return None

    def current_number(self) -> int | None:
        """Return the number `current` points at, whatever became of that generation.

        None where it points nowhere: before the first, and where it is damaged.
        """
        try:
            return self._number(self._layout.current)
        except KimisvcError:
            return None

    def no_current(self) -> KimisvcError:
        """Return the error of who needs a current generation where `current` names none."""
        name, link = self._layout.instance, self._layout.current
        service = self._layout.installed(self._layout.units.service)
        if not (files.exists(link) or files.exists(service) or self.numbers()):
            return KimisvcError("no-generation", f"{name} was never applied")
        how = f"{link} is missing"
        try:
            self._number(link)
        except KimisvcError as error:
            how = error.message
        return KimisvcError(
            "no-generation",
            f"{how}, so which generation of {name} is in force is not known",
            hint=f"kimisvc apply PROFILE, or {going_back(self._layout)}, puts one in force",
        )

    def accepted_number(self) -> int | None:
        """Return the number `accepted` points at, whatever became of it; None as of `current_number`."""
        try:
            return self._number(self._layout.accepted)
        except KimisvcError:
            return None

    def is_whole(self, number: int) -> bool:
        """Given a number, say whether that generation can be restored: all of it is readable."""
        try:
            generation = self.get(number)
            generation.resolved()
            generation.units()
        except KimisvcError:
            return False
        return True

    def wrote(self, unit: UnitFile) -> bool:
        """Given an installed unit, say whether any generation on disk wrote it so.

        The target belongs to all instances: the last that was applied wrote it.
        """
        digest = _digest(unit.text)
        shared = unit.name == self._layout.units.target
        for folder in self._folders_of_all() if shared else folders(self._layout):
            try:
                manifest = json.loads(files.read_text(folder / MANIFEST))
                if manifest["units"].get(unit.name) == digest:
                    return True
            except (KimisvcError, ValueError, KeyError, TypeError, AttributeError):
                continue  # a damaged generation is no witness
        return False

    def sound_accepted(self) -> Generation | None:
        """Return the accepted generation; None where there is none, or it is damaged."""
        try:
            return self.accepted()
        except KimisvcError:
            return None

    def accepted(self) -> Generation | None:
        """Return the last generation that passed its gate, None if none has."""
        return self._linked(self._layout.accepted)

    def add(self, draft: Draft, now: float, last: int = 0) -> Generation:
        """Given a draft, write the next generation, or raise KimisvcError and leave none.

        `last` is the highest number that is known to have been given: none is
        given twice, though its folder is gone, for verdicts and links name it.
        """
        number = max(last, self._linked_to(), *self.numbers(), 0) + 1
        if number > LAST_GENERATION:
            raise KimisvcError(
                "generations-used-up",
                f"the next generation of {self._layout.instance} would be {number},"
                f" and {LAST_GENERATION} is the last",
                hint=f"did somebody put one of that number into {self._layout.generations} by hand?",
            )
        path = self._path(number)
        staging = path.with_name(staged_name(number, os.getpid()))
        manifest = {
            "number": number,
            "profile": draft.profile,
            "created_at": now,
            "digest": _digest(draft.resolved),
            "units": {unit.name: _digest(unit.text) for unit in draft.units},
            "facts": dict(draft.facts),
            "file": draft.file,
        }
        try:
            self._layout.generations.mkdir(parents=True, exist_ok=True)
            self._sweep()
            (staging / UNITS).mkdir(parents=True)
            files.write_atomic(staging / PROFILE, draft.written, mode=0o444)
            files.write_atomic(staging / RESOLVED, draft.resolved, mode=0o444)
            for unit in draft.units:
                files.write_atomic(staging / UNITS / unit.name, unit.text, mode=0o444)
            files.write_atomic(
                staging / MANIFEST, json.dumps(manifest, indent=2) + "\n", mode=0o444
            )
            staging.rename(path)
            files.sync_folder(path.parent)
        except OSError as error:
            raise files.translated(error, path) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return self.get(number)

    def make_current(self, generation: Generation) -> None:
        """Given a generation, point `current` at it."""
        files.switch_symlink(self._layout.current, self._target(generation))

    def accept(self, generation: Generation) -> None:
        """Given a generation that passed its gate, point `accepted` at it."""
        files.switch_symlink(self._layout.accepted, self._target(generation))

    def _folders_of_all(self) -> tuple[Path, ...]:
        """Those of every instance of this box."""
        place = self._layout.place
        found: list[Path] = []
        for name in begun(place):
            with contextlib.suppress(KimisvcError):  # one that cannot be listed is no witness
                found += folders(Layout(place, name))
        return tuple(found)

    def _path(self, number: int) -> Path:
        return self._layout.generations / folder_name(number)

    def _target(self, generation: Generation) -> str:
        return f"{self._layout.generations.name}/{generation.path.name}"

    def _linked_to(self) -> int:
        """The highest number that `current` or `accepted` points at, whatever lies there."""
        highest = 0
        for link in (self._layout.current, self._layout.accepted):
            with contextlib.suppress(KimisvcError):
                highest = max(highest, self._number(link) or 0)
        return highest

    def _linked(self, link: Path) -> Generation | None:
        number = self._number(link)
        return None if number is None else self.get(number)

    def _number(self, link: Path) -> int | None:
        try:
            target = Path(link.readlink())
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise files.translated(error, link) from error
            raise KimisvcError("state-damaged", f"{link} is no symlink") from error
        number = number_in(target.name)
        if target.parent != Path(self._layout.generations.name) or number is None:
            raise KimisvcError(
                "state-damaged", f"{link} points at {target}, which is no generation"
            )
        return number

    def _sweep(self) -> None:
        """Remove what an apply that was killed in the middle left staged."""
        for left in staged(self._layout):
            shutil.rmtree(left, ignore_errors=True)


def _unread(cause: BaseException | None) -> FileNow:
    """What it says of a file that it could not be read: what is no text, or no file, was never applied."""
    if isinstance(cause, FileNotFoundError | NotADirectoryError):
        return FileNow.GONE
    other = UnicodeDecodeError | IsADirectoryError | files.UnfitFileError
    return FileNow.OTHER if isinstance(cause, other) else FileNow.UNKNOWN


def _damaged(path: Path) -> KimisvcError:
    return KimisvcError(
        "generation-damaged",
        f"{path} is not what kimisvc wrote",
        hint="generations are never edited: apply the profile again",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
