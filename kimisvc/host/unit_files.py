"""The door to the unit files of others: a unit by its name or path, with its drop-ins.

systemd is asked where they lie; where it does not run, or for a file that is
not installed, its search path is followed here (systemd.unit(5), "Unit File
Load Path").
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.errors import HostError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SEARCH_PATH = tuple(
    Path(folder)
    for folder in (
        "/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient",
        "/run/systemd/generator.early", "/etc/systemd/system", "/etc/systemd/system.attached",
        "/run/systemd/system", "/run/systemd/system.attached", "/run/systemd/generator",
        "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
        "/run/systemd/generator.late",
    )
)  # fmt: skip
SUFFIX = ".service"
_NOWHERE = Path("/dev/null")
"""What a masked unit, and a masked drop-in, is a symlink to (systemd.unit(5))."""


@dataclass(frozen=True, slots=True)
class FoundUnit:
    """A unit's name, and its file and drop-ins with their texts, in the order they count."""

    name: str
    texts: tuple[tuple[Path, str], ...]


def find_unit(given: str, search: Sequence[Path] = SEARCH_PATH) -> FoundUnit:
    """Given the name of a service, or a path to its file, return it as it lies on disk.

    Raise HostError if it is not there, is masked, or cannot be read.
    """
    if "/" in given or (given.endswith(SUFFIX) and files.exists(Path(given))):
        path = Path(given)
        return _read(path.name, path, _drop_ins(path.name, (path.absolute().parent,)))
    name = given if given.endswith(SUFFIX) else f"{given}{SUFFIX}"
    for candidate in _names(name):
        for folder in search:
            path = folder / candidate
            if files.exists(path):
                return _read(name, path, _drop_ins(name, search))
    raise HostError(
        "no-such-unit", f"{name}: no unit of that name is installed",
        hint="give the path of its file, or see: systemctl list-unit-files --type=service",
    )  # fmt: skip


def read_found(name: str, fragment: str, drop_ins: Sequence[str]) -> FoundUnit:
    """Given where systemd says a unit and its drop-ins lie, return them. Raise HostError."""
    return _read(name, Path(fragment), [Path(one) for one in drop_ins])


def _read(name: str, path: Path, drop_ins: Sequence[Path]) -> FoundUnit:
    if files.real_path(path) == _NOWHERE:
        raise HostError("unit-masked", f"{name} is masked: it cannot be started, nor adopted")
    texts = [(path, files.read_text(path))]
    texts += [(one, files.read_text(one)) for one in drop_ins if files.real_path(one) != _NOWHERE]
    return FoundUnit(name, tuple(texts))


def _names(name: str) -> Iterator[str]:
    """A unit's own file, then, for an instance, its template's."""
    yield name
    stem, at, _ = name.removesuffix(SUFFIX).partition("@")
    if at:
        yield f"{stem}@{SUFFIX}"


def _drop_ins(name: str, search: Sequence[Path]) -> list[Path]:
    """The drop-ins of a unit, by file name; of two with one name the first folder's counts.

    Those for the unit itself go before those for its template, for its name
    cut at a dash, and for all services.
    """
    found: dict[str, Path] = {}
    stem = name.removesuffix(SUFFIX)
    cuts = [f"{stem[: i + 1]}{SUFFIX}" for i in range(len(stem) - 1, 0, -1) if stem[i] == "-"]
    for owner in (*_names(name), *cuts, "service"):
        for folder in search:
            for one in files.entries(folder / f"{owner}.d"):
                if one.suffix == ".conf":
                    found.setdefault(one.name, one)
    return [found[key] for key in sorted(found)]
