"""How the folders of generations are named; what is named otherwise beside them is none of ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.host import files
from kimisvc.records.names import LAST_GENERATION

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.layout import Layout

MANIFEST = "manifest.json"
"""What a generation says of itself, in its folder."""
_STAGED = re.compile(r"\.[0-9]{4,}\.[0-9]+")


def folder_name(number: int) -> str:
    """Given a number, return what the folder of that generation is called."""
    return f"{number:04d}"


def staged_name(number: int, pid: int) -> str:
    """Given a number and the process that writes it, return the name until it is whole."""
    return f".{folder_name(number)}.{pid}"


def number_in(name: str) -> int | None:
    """Given a name, return the number of the generation whose folder is called so; None: of none."""
    plain = name.isascii() and name.isdecimal() and len(name) <= len(str(LAST_GENERATION))
    number = int(name) if plain else 0
    return number if 1 <= number <= LAST_GENERATION and folder_name(number) == name else None


def numbers(layout: Layout) -> tuple[int, ...]:
    """Given an instance, return the numbers of its generations, oldest first. Raise HostError."""
    there = (number_in(path.name) for path in files.entries(layout.generations))
    return tuple(sorted(number for number in there if number is not None))


def folders(layout: Layout) -> tuple[Path, ...]:
    """Given an instance, return the folders of its generations, oldest first. Raise HostError."""
    return tuple(layout.generations / folder_name(number) for number in numbers(layout))


def staged(layout: Layout) -> tuple[Path, ...]:
    """Given an instance, return the folders that are not whole. Raise HostError."""
    there = files.entries(layout.generations)
    return tuple(path for path in there if _STAGED.fullmatch(path.name))
