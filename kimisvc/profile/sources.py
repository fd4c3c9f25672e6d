"""The files a profile is made of: read, decoded, parsed, and followed along `extends`.

The only module of this room that reads from the disk, and only the named files.
"""

from __future__ import annotations

import stat
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.nearest import near_name
from kimisvc.profile.problems import CONTROL, Fault, Finding
from kimisvc.profile.syntax_slips import syntax_fault
from kimisvc.profile.values import shown

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

_LARGEST = 1 << 20
"""Bytes. A profile is a page; this keeps a model file named by mistake out of memory."""

_ODD_NAME = (
    "has a control character in its path, which could make up a line of an answer. Rename it"
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a profile. `data` is None where it could not be read or parsed.

    `faults` are those for which it has no data: each with a line (0: none), and a key where one is at fault.
    """

    file: Path
    text: str = ""
    data: Mapping[str, object] | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a profile, the operator's first, each extending the next.

    `broken` holds what is wrong with the last file's `extends`, if anything is.
    """

    sources: tuple[Source, ...]
    broken: Finding | None = None

    @property
    def complete(self) -> bool:
        """Whether every file was read and parsed."""
        return self.broken is None and all(source.data is not None for source in self.sources)


def read_source(path: Path) -> Source:
    """Given a path, return the file's text and data, or what is wrong with it; never raise."""
    if CONTROL.search(str(path)):
        return Source(path, faults=(Fault(0, _ODD_NAME),))
    try:
        status = path.stat()
        unfit = _unfit(status)
        raw = b"" if unfit else path.read_bytes()
    except FileNotFoundError:
        unfit = f"no such file.{_neighbour(path)}"
    except PermissionError:
        unfit = "may not be read by this user (permission denied)"
    except OSError as error:
        unfit = f"cannot be read: {error.strerror}"
    return Source(path, faults=(Fault(0, unfit),)) if unfit else _decoded(path, raw)


def _unfit(status: os.stat_result) -> str:
    """Given what stat says of a file, return why it is no profile, or ""."""
    if stat.S_ISDIR(status.st_mode):
        return "is a directory. Name one of the files in it"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"  # opening a pipe or a device may wait for ever
    return "is larger than 1 MiB: not a profile" if status.st_size > _LARGEST else ""


def _neighbour(path: Path) -> str:
    """Given a path without a file, return a hint at the file beside it that was likely meant."""
    try:
        beside = (file.stem for file in path.parent.glob("*.toml"))
        stems = sorted(stem for stem in beside if not CONTROL.search(stem))
    except OSError:
        return ""
    near = path.name if path.name in stems else near_name(path.stem, stems)
    return f" Did you mean {near}.toml?" if near else ""


def _decoded(path: Path, raw: bytes) -> Source:
    faults: list[Fault] = []
    if raw.startswith(b"\xef\xbb\xbf"):
        faults.append(Fault(1, "begins with a byte order mark. Save it as UTF-8 without one"))
        raw = raw[3:]
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        what = "is UTF-16" if wide else f"byte 0x{raw[error.start]:02x} is not UTF-8"
        return Source(path, faults=(Fault(line, f"{what}. Save the file as UTF-8"),))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        faults.append(syntax_fault(str(error), text))
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets without end
        faults.append(Fault(0, "is TOML that no reader takes: a number or a nesting without end"))
    else:
        return Source(path, text, data, tuple(faults))
    return Source(path, text, faults=tuple(faults))


def read_chain(path: Path, shipped: Path) -> Chain:
    """Given the operator's file and the folder of shipped profiles, return all files it needs.

    `extends` is looked for beside the file that says it, then by its file name
    in the shipped folder. Never raise: what is wrong is in the chain.
    """
    sources: list[Source] = []
    seen: list[Path] = []
    wanted: object = None
    while True:
        source = read_source(path)
        unfit = next((fault.message for fault in source.faults if not fault.line), "")
        if sources and unfit:  # it has no line of its own: the file that names it has one
            message = f"{shown(wanted)} leads to {path}, which {unfit}"
            return Chain(tuple(sources), Finding(("extends",), message))
        sources.append(source)
        seen.append(_real(path))
        wanted = source.data.get("extends") if source.data else None
        if not isinstance(wanted, str) or not wanted.strip() or CONTROL.search(wanted):
            return Chain(tuple(sources))  # none, or one that the key's own check refuses
        beside, fallback = path.parent / wanted, shipped / wanted.rsplit("/", 1)[-1]
        path = beside if _exists(beside) or not _exists(fallback) else fallback
        if _real(path) in seen:
            first = seen.index(_real(path))
            names = [str(loop.file) for loop in sources[first:]]
            message = f"extends itself: {' -> '.join([*names, names[0]])}. Break the chain"
            return Chain(tuple(sources), Finding(("extends",), message))
        if not _exists(path):
            message = (
                f"{shown(wanted)}: no such file in {beside.parent} and none of that name in "
                f"{shipped}.{_neighbour(beside) or _neighbour(fallback)}"
            )
            return Chain(tuple(sources), Finding(("extends",), message))


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:
        return isinstance(error, PermissionError)  # there, but not for us: reading it will say so
    return True


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of symbolic links
        return path.absolute()
