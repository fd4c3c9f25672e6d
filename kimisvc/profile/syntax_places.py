"""Where in a text that is no TOML the parser stopped: in which table, at which key, in what value.

The parser reads up to its fault, so all above the statement at fault is TOML:
it is parsed once more with one key added, and the table that this key comes
to lie in is the statement's. Pure.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from kimisvc.profile.secret_signs import looks_secret, names_a_secret
from kimisvc.profile.settings import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.profile.problems import KeyPath
    from kimisvc.profile.settings import Setting

_PROBE = "kimisvc: which table is this?"
_LONGEST = 1000
"""Characters. What is longer is no slip of a pen, and is not looked through for secrets."""
_TRIES = 6
"""Each is a parse of all above; a value of several lines is rare, and short."""

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_SHAPE = re.compile(
    rf"(?P<shell>(?:export|set|setenv)[ \t]+)?(?P<key>{_KEY})[ \t]*(?P<sign>==|:=|=|:)(?P<value>.*)"
)
_HEADER = re.compile(rf"\[\[?[ \t]*(?P<key>{_KEY})[ \t]*\]\]?[ \t]*(?:#.*)?")
_BEGINS = re.compile(rf"[ \t]*{_PART}[ \t.=]")
_COMMENT = re.compile(r"(?:^|\s)#")
_WORD = re.compile(r"(?<![/\w.-])[\w.-]{1,80}|[\w.-]{1,80}(?=[\"']?\s*[=:])")
"""What may name the value behind it, whatever stands before it and between the two; no part of a path."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A key and its value, or the header of a table, as written.

    `line` is where it begins (from 1), `at` the line the parser stopped in, ""
    where that is empty or too long. `value` and `at` are None where any of it
    looks like a secret: no message can show what is not here. `sign` is "["
    for a header, and "" for what is neither.
    """

    line: int
    path: KeyPath
    key: str = ""
    sign: str = ""
    value: str | None = None
    at: str | None = None
    above: str = ""

    @property
    def setting(self) -> Setting | None:
        """The row of its key, if there is one."""
        table = str(self.path[0]) if len(self.path) > 1 else ""
        return TABLES.get(table, {}).get(str(self.path[-1])) if self.path and self.key else None

    @property
    def table(self) -> str:
        """The name of the table it stands in, "" for the top of the file."""
        return str(self.path[0]) if len(self.path) > 1 else ""


def statement_at(text: str, line: int) -> Statement | None:
    """Given a text and the line a parser stopped in, return the statement there; None if unclear."""
    lines = [one.removesuffix("\r") for one in text.split("\n")]
    line = min(line, len(lines))
    for number in islice(_beginnings(lines, line), _TRIES):
        above = "\n".join(lines[: number - 1])
        home = _home(above)
        if home is not None:
            return _read("\n".join(lines[number - 1 : line]), number, home, above)
    return None


def _beginnings(lines: list[str], line: int) -> Iterator[int]:
    yield line
    for number in range(line - 1, 0, -1):
        if _BEGINS.match(lines[number - 1]):
            yield number


def _home(above: str) -> KeyPath | None:
    """Given what stands above a line, return the table the line is in; None if in a value."""
    try:
        data = tomllib.loads(f'{above}\n"{_PROBE}" = 0\n')
    except (ValueError, RecursionError):
        return None
    open_: list[tuple[KeyPath, object]] = [((), data)]
    while open_:
        path, inner = open_.pop()
        if isinstance(inner, dict):
            if _PROBE in inner:
                return path
            open_ += [((*path, key), value) for key, value in inner.items()]
        elif isinstance(inner, list) and inner:
            open_.append(((*path, len(inner) - 1), inner[-1]))
    return None


def _read(whole: str, line: int, home: KeyPath, above: str) -> Statement:
    """Given the lines from the beginning to the fault, return the statement they are of."""
    if len(whole) > _LONGEST:
        return Statement(line, home, at="", above=above)
    lines = whole.split("\n")
    written, at = lines[0].strip(), None if holds_secret(whole) else lines[-1].strip()
    header = _HEADER.fullmatch(written)
    if header:
        return Statement(line, _parts(header["key"]), header["key"], "[", at=at, above=above)
    found = _SHAPE.fullmatch(written)
    if found is None:
        return Statement(line, home, at=at, above=above)
    value = _COMMENT.split(found["value"], maxsplit=1)[0].strip()
    hidden = at is None and value  # nothing behind a name gives nothing away
    sign = f"{(found['shell'] or '').strip()} {found['sign']}".strip()
    path = (*home, *_parts(found["key"]))
    return Statement(line, path, found["key"], sign, None if hidden else value, at, above)


def _parts(key: str) -> KeyPath:
    """Given a key as written, return its parts without quotes."""
    try:
        data = tomllib.loads(f"{key} = 0")
    except ValueError:  # a control character within the quotes
        return (key,)
    parts: list[str] = []
    inner: object = data
    while isinstance(inner, dict):
        ((part, inner),) = inner.items()
        parts.append(part)
    return tuple(parts)


def holds_secret(text: str) -> bool:
    """Given lines that are no TOML, return whether they may hold a secret, by name or by looks.

    Stricter than for a value that was parsed: where a name ends and its value
    begins is a guess here, so any word that may be the name of a secret is enough.
    """
    return looks_secret(text) or any(map(names_a_secret, _WORD.findall(text)))
