"""What may be asked of a search: one row a word, for the command line and for a plan file alike."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.tune.state import Asked
from kimisvc.deploy.tune.window import parse_window
from kimisvc.errors import ProfileRefusedError
from kimisvc.host import files
from kimisvc.measure.tuning import Search
from kimisvc.profile.lines import key_lines
from kimisvc.profile.nearest import near_name
from kimisvc.profile.problems import UNWRITABLE
from kimisvc.profile.quantities import format_target, parse_span, parse_target
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Word:
    """One thing that may be asked for: its type in TOML, what it becomes, how it is written.

    `becomes` raises ValueError for what it cannot take.
    """

    key: str
    kind: type
    becomes: Callable[[Any], object]
    example: str


def _target(text: str) -> str:
    return format_target(parse_target(text))


def _search(explore: bool) -> Search:  # noqa: FBT001 - as TOML and a flag have it
    return Search.EXPLORE if explore else Search.FIRST_THAT_MEETS


def _risk(text: str) -> Risk:
    try:
        return Risk(text)
    except ValueError:
        words = ", ".join(risk.value for risk in Risk)
        raise ValueError(f'"{text[:60]}" is no class of risk. Write one of {words}') from None


def _starts(count: int) -> int:
    if count < 1:
        raise ValueError(f"{count} starts measure nothing. Write 1 or more")
    return count


def _window(text: str) -> str:
    parse_window(text)
    return text.strip()


def _profiles(names: list[Any]) -> tuple[str, ...]:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError('is no list of profiles. Write it as ["baseline.toml", "ll_ring.toml"]')
    for name in names:
        if UNWRITABLE.search(name):
            raise ValueError(f"has a control character in {name!r}, which no path here may have")
    return tuple(names)


WORDS = (
    Word("profiles", list, _profiles, '["baseline.toml", "ll_ring.toml"]'),
    Word("target", str, _target, '">40~50"'),
    Word("explore", bool, _search, "true"),
    Word("max_risk", str, _risk, '"safe-ish"'),
    Word("budget", str, parse_span, '"3h"'),
    Word("max_starts", int, _starts, "6"),
    Word("drain", str, parse_span, '"10min"'),
    Word("window", str, _window, '"02:00-06:00"'),
)
"""Every word, in the order in which help shows them."""
_FIELDS = {"explore": "search", "budget": "budget_s", "drain": "drain_s"}
"""Words whose field of `Asked` has another name."""


def read_plan(path: Path, named: Callable[[str], Path | None]) -> Mapping[str, object]:
    """Given a plan file, return what it asks for, by word; its profiles as paths.

    A profile is a file beside the plan, else a bare name, which `named` knows.
    Raise ProfileRefusedError with every problem of it, HostError if it cannot be read.
    """
    text = files.read_text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileRefusedError([Problem(f"is not TOML: {error}", file=str(path))]) from error
    asked: dict[str, object] = {}
    problems = list(_read(data, asked))
    if problems:
        lines = key_lines(text)
        raise ProfileRefusedError(
            [Problem(words, str(path), lines.get((key,), 0), key) for key, words in problems]
        )
    names: tuple[str, ...] = asked.get("profiles", ())  # type: ignore[assignment]  # as its row has it
    return {**asked, "profiles": tuple(str(_found(path.parent, one, named)) for one in names)}


def _found(folder: Path, name: str, named: Callable[[str], Path | None]) -> Path:
    beside = folder / name
    return beside if files.exists(beside) else named(name) or beside


def _read(data: Mapping[str, Any], asked: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Read each key into `asked`; yield (key, what is wrong with it)."""
    rows = {word.key: word for word in WORDS}
    for key, value in data.items():
        word = rows.get(key)
        if word is None:
            near = near_name(key, rows)
            meant = f"Did you mean {near}?" if near else f"A plan has {', '.join(rows)}"
            yield key, f"is no word of a plan. {meant}"
        elif not isinstance(value, word.kind) or isinstance(value, bool) is not (word.kind is bool):
            yield key, f"takes a value such as {word.example}"
        else:
            try:
                asked[key] = word.becomes(value)
            except ValueError as error:
                yield key, str(error)


def asked_of(words: Mapping[str, object], actor: str) -> Asked:
    """Given what is asked for, by word, and by whom, return it."""
    known = {_FIELDS.get(key, key): value for key, value in words.items() if key != "profiles"}
    return Asked(**known, actor=actor)  # type: ignore[arg-type]  # each made by its row
