"""The line each key of a TOML document stands on.

tomlkit keeps what a document looked like, so walking it and counting the
newlines it renders gives the line of every key without private names of its
parser. That is exact for documents whose tables are one deep, which is why a
deeper table is an error in a profile. Slow (the parse is), so it runs only
once there is a problem to place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tomlkit.container import Container
    from tomlkit.items import Item, Key

    from kimisvc.profile.problems import KeyPath

_MAYBE_DEEP = re.compile(r"^[ \t]*\[[^\]\n]*\.", re.MULTILINE)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Given a TOML document, return the 1-based line of each table and key, by path.

    The n-th table of an array of tables is (name, n), counted from 0. Keys of
    an inline table have no line of their own: use `line_of`. A document that
    tomlkit cannot read gives no lines.
    """
    return {path: line for path, line, _ in _walked(text)}


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Given a path, return its line, else that of the nearest table around it, else 0."""
    while path:
        for known in (path, (*path, 0)):  # of an array of tables the first stands for all
            if known in lines:
                return lines[known]
        path = path[:-1]
    return 0


def deep_tables(text: str) -> list[tuple[KeyPath, int]]:
    """Given a TOML document, return path and line of each `[a.b]` or `[[a.b]]` header in it."""
    if not _MAYBE_DEEP.search(text):  # nearly every document: no slow parse needed
        return []
    return [(path, line) for path, line, header in _walked(text) if header and _depth(path) > 1]


def _depth(path: KeyPath) -> int:
    return sum(isinstance(part, str) for part in path)


def _walked(text: str) -> list[tuple[KeyPath, int, bool]]:
    """Given a document, return (path, line, whether it is a table header) of all in it."""
    # Half of the time of a check that finds nothing would go into this import.
    from tomlkit import parse
    from tomlkit.exceptions import TOMLKitError

    try:
        found: list[tuple[KeyPath, int, bool]] = []
        _walk(parse(text), 1, (), found)
    except (TOMLKitError, ValueError, RecursionError):
        return []  # tomllib read it and tomlkit cannot: better no line than a wrong one
    return found


def _walk(
    container: Container, line: int, prefix: KeyPath, found: list[tuple[KeyPath, int, bool]]
) -> int:
    """Given a container that starts on `line`, note what it holds and return the line after."""
    from tomlkit.items import AoT, Table

    for key, item in cast("Iterator[tuple[Key | None, Item]]", container.body):
        if key is None:  # comment or blank line
            line += item.as_string().count("\n")
            continue
        path = (*prefix, key.key)
        if isinstance(item, AoT):
            for number, table in enumerate(item.body):
                found.append(((*path, number), line, True))
                line = _walk(table.value, line + 1, (*path, number), found)
        elif isinstance(item, Table):
            if not item.is_super_table():
                found.append((path, line, True))
                line += 1
            line = _walk(item.value, line, path, found)
        else:
            found.append((path, line, False))
            trivia = item.trivia
            rendered = trivia.indent + item.as_string() + trivia.comment_ws + trivia.comment
            line += (rendered + trivia.trail).count("\n")
    return line
