"""The door to a model folder: which files of weights it holds, and which it says it holds.

Reads names, sizes and indexes, and no tensor: 547 GB in 64 shards take a
fraction of a second.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kimisvc.host import files

if TYPE_CHECKING:
    from pathlib import Path

INDEX = ".index.json"
FIRST_INDEX = "model.safetensors.index.json"
"""The one vLLM reads by default; a folder may hold that of another format too."""
LARGEST_JSON = 128 << 20
"""The index of a model of 10^12 parameters takes some 20 MB (bytes)."""
UNFINISHED = (".incomplete", ".part", ".aria2", ".crdownload", ".tmp")
"""How downloaders name what they have not finished."""
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)(?P<suffix>\.\w+)")


class Weights(Enum):
    """The formats of weights, by the suffix of their files, in the order vLLM looks for them."""

    SAFETENSORS = ".safetensors"
    PYTORCH = ".bin"
    TORCH = ".pt"
    GGUF = ".gguf"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a model folder holds of the format vLLM would take.

    `needed` are the files it takes, whether they are there or not: those of
    the index, else those that numbers promise (…-00001-of-00064), else all.
    `total_size` is what the index says all tensors take (bytes; 0: it does not).
    """

    weights: Weights | None
    needed: tuple[str, ...] = ()
    present: frozenset[str] = frozenset()
    index: str = ""
    total_size: int = 0
    unfinished: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    @property
    def missing(self) -> tuple[str, ...]:
        """What is needed and not there."""
        return tuple(name for name in self.needed if name not in self.present)


@dataclass(frozen=True, slots=True)
class BadJson:
    """A JSON file that cannot be used: which, in which line (0: not known), and why."""

    path: Path
    line: int
    reason: str


def read(folder: Path) -> Checkpoint | BadJson:
    """Given a model folder, return what it holds, or which of its indexes is broken.

    Raise HostError if the folder cannot be listed.
    """
    names = frozenset(path.name for path in files.entries(folder))
    unfinished = tuple(sorted(name for name in names if name.endswith(UNFINISHED)))
    for weights in Weights:
        present = frozenset(name for name in names if name.endswith(weights.value))
        index = _index(names, weights)
        if not present and not index:
            continue
        if not index:
            needed = _numbered(present)
            return Checkpoint(weights, needed, present, "", 0, unfinished, names)
        document = read_json(folder / index)
        if isinstance(document, BadJson):
            return document
        listed = document.get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            return BadJson(folder / index, 0, "has no table weight_map of tensors and their files")
        needed = tuple(sorted(set(listed.values())))
        return Checkpoint(weights, needed, present, index, _total(document), unfinished, names)
    return Checkpoint(None, unfinished=unfinished, names=names)


def read_json(path: Path) -> dict[str, Any] | BadJson:
    """Given a path, return the JSON object in it, or why it is none."""
    try:
        document = json.loads(files.read_bytes(path, LARGEST_JSON))
    except OSError as error:
        return BadJson(path, 0, error.strerror or str(error))
    except UnicodeDecodeError as error:
        return BadJson(path, 0, f"is not UTF-8 text (byte {error.start})")
    except json.JSONDecodeError as error:
        return BadJson(path, error.lineno, f"is no JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        return BadJson(path, 0, "is nested too deeply")
    if not isinstance(document, dict):
        return BadJson(path, 0, "holds no JSON object")
    return document


def size_on_disk(folder: Path, names: tuple[str, ...]) -> int:
    """Given a folder and names of files in it, return their bytes together; absent ones count 0."""
    total = 0
    for name in names:
        try:
            total += (folder / name).stat().st_size
        except OSError:
            continue
    return total


def _index(names: frozenset[str], weights: Weights) -> str:
    if FIRST_INDEX in names:
        return FIRST_INDEX
    return min((n for n in names if n.endswith(f"{weights.value}{INDEX}")), default="")


def _numbered(present: frozenset[str]) -> tuple[str, ...]:
    """Return all files that are there, and those that the numbers in their names promise."""
    needed = set(present)
    for name in present:
        part = _NUMBERED.fullmatch(name)
        if part and int(part["count"]) <= _MOST_SHARDS:
            width = len(part["number"])
            needed |= {
                f"{part['stem']}-{number:0{width}}-of-{part['count']}{part['suffix']}"
                for number in range(1, int(part["count"]) + 1)
            }
    return tuple(sorted(needed))


_MOST_SHARDS = 10_000
"""A larger count in a name is none of shards."""


def _total(document: dict[str, Any]) -> int:
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    # Some tools write it as a float.
    return int(total) if isinstance(total, int | float) else 0
