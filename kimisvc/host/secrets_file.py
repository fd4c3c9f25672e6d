"""The door to the file that `service.secrets_file` names: who may touch it, and what it holds.

systemd reads it as root, so whoever may write it, or a folder on the way to
it, decides what root hands to the service; whoever may read it has the keys.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc import environment_file
from kimisvc.environment_file import Assignment, Dialect, is_name, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LARGEST = 64 << 10
"""A file of keys is not larger (bytes); the kernel takes no variable of more than 128 KiB."""
LINKS = 40
"""The kernel's own limit of symlinks in one path (path_resolution(7))."""
ROOT = 0
_NOT_TEXT = "is not UTF-8, so systemd refuses the file as a whole"
_NONCHARACTER = re.compile(
    "[\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
"""systemd takes them for broken UTF-8."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read: the assignments in order, or in `trouble` why there are none.

    `line` is where the trouble is (0: the file as a whole). `bare_returns`: its
    lines end as on Windows. `repr` shows no value.
    """

    assignments: tuple[Assignment, ...] = ()
    trouble: str = ""
    line: int = 0
    bare_returns: bool = False
    text: str = field(default="", repr=False)


def why_open(path: Path, owner: int = ROOT) -> tuple[str, ...]:
    """Given the file, return all that lets others than its owner read or change it.

    Every folder on the way is looked at, and so is the way to what a symlink
    points at.
    """
    try:
        way = tuple(_way(path))
    except OSError as error:
        return (f"{error.filename or path}: {error.strerror}",)
    if not way:
        return (f"{path}: too many symbolic links",)
    last, found = way[-1]
    troubles = [why for step, status in way[:-1] for why in _step(step, status, owner)]
    if not stat.S_ISREG(found.st_mode):
        return (*troubles, f"{last} is no regular file ({_kind(found.st_mode)})")
    if found.st_uid != owner:
        troubles.append(f"{last} belongs to user {found.st_uid}; chown root:root it")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        troubles.append(f"{last} may be read or written by others (mode {mode:04o}); chmod 600 it")
    if found.st_size > LARGEST:
        troubles.append(
            f"{last} has {found.st_size} bytes; a file of keys has at most {LARGEST}: is it the right one?"
        )
    return tuple(troubles)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each thing on the way to a file as the kernel goes, links too; nothing for a circle."""
    waiting, here, links = [*reversed(path.parts[1:])], Path("/"), 0
    steps = [(here, here.lstat())]
    while waiting:
        here = Path(os.path.normpath(here / waiting.pop()))
        found = here.lstat()
        steps.append((here, found))
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > LINKS:
                return
            target = here.readlink()
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent
    yield from steps


def _step(path: Path, found: os.stat_result, owner: int) -> Iterator[str]:
    """Why others could put another file in the place of ours. A link's own mode says nothing."""
    if found.st_uid not in (owner, ROOT):
        yield f"{path} belongs to user {found.st_uid}, who could put another file there"
    elif not stat.S_ISLNK(found.st_mode):
        others = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid)
        if others:
            mode = stat.S_IMODE(found.st_mode)
            yield f"{path} may be written by others (mode {mode:04o}), who could put another file there"


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def contents(path: Path) -> Contents:
    """Given the file, return what systemd reads in it. Waits for no pipe, raises nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            plain = stat.S_ISREG(os.fstat(handle).st_mode)
            raw = file.read(LARGEST + 1) if plain else b""
    except OSError as error:
        return Contents(trouble=error.strerror or "cannot be read")
    if not plain or len(raw) > LARGEST:
        return Contents(trouble="is no regular file, or too large")
    return parse(raw)


def parse(raw: bytes) -> Contents:
    """Given the bytes of the file, return what systemd reads in them."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Contents(trouble=_NOT_TEXT, line=line)
    foreign = _NONCHARACTER.search(text)
    if foreign:
        line = text.count("\n", 0, foreign.start()) + 1
        return Contents(trouble=f"{_NOT_TEXT} (U+{ord(foreign[0]):04X})", line=line)
    return Contents(read(text), bare_returns="\r\n" in text, text=text)


def variables(found: Contents) -> Mapping[str, str]:
    """Given what was read, return what the service gets: of one that comes twice, the last."""
    return environment_file.variables(found.assignments)


def everything(found: Contents) -> Mapping[str, str]:
    """Given what was read, return every value that somebody may have meant as a secret.

    Also of lines that systemd drops: it writes those to the journal. And of
    those that only an older systemd reads.
    """
    held: dict[str, str] = {}
    older = read(found.text, Dialect.BEFORE_254)
    for one in (*found.assignments, *(one for one in older if one not in found.assignments)):
        last = (one.name.split() or [""])[-1]
        name = last if is_name(last) and one.value else f"line {one.line}"
        held[name if name not in held else f"{name}, line {one.line}"] = one.value or one.name
    return held
