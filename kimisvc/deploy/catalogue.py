"""Which profiles there are, which would run on this host, and what became of each here.

Only looks. A profile's name ties it to the generations and verdicts of its
instance; its text may have changed since, which `changed` tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.generations import Generation, Generations
from kimisvc.deploy.history import History
from kimisvc.deploy.layout import Layout
from kimisvc.errors import KimisvcError
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kimisvc.deploy.history import VerdictRow
    from kimisvc.profile.loader import Checked
    from kimisvc.records.problems import Problem
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import Installation


@dataclass(frozen=True, slots=True)
class Listed:
    """One profile file. `profile` is None where check refuses it: `problems` says why.

    `in_the_way` is what this host lacks for it. `current` and `accepted` are
    the generations of that name, if they are such; `last` is its newest
    verdict that measured a speed.
    """

    file: Path
    profile: Profile | None
    problems: tuple[Problem, ...]
    in_the_way: tuple[Problem, ...] = ()
    current: int | None = None
    accepted: int | None = None
    changed: bool = False
    last: VerdictRow | None = None


def catalogue(
    files: Iterable[Path],
    check: Callable[[Path], Checked],
    preflight: Callable[[Profile], tuple[Problem, ...]],
    place: Installation,
) -> tuple[Listed, ...]:
    """Given profile files, what checks one and what looks at the host, return what is known."""
    return tuple(_listed(file, check(file), preflight, place) for file in files)


def _listed(
    file: Path,
    checked: Checked,
    preflight: Callable[[Profile], tuple[Problem, ...]],
    place: Installation,
) -> Listed:
    profile = checked.profile
    if profile is None:
        return Listed(file, None, _errors(checked.problems))
    layout = Layout(place, profile.service.instance)
    generations = Generations(layout)
    current = _named(generations.sound_current(), profile)
    return Listed(
        file,
        profile,
        checked.problems,
        in_the_way=_errors(preflight(profile)),
        current=current.number if current else None,
        accepted=_number(_named(_accepted(generations), profile)),
        changed=current is not None and _resolved(current) != to_toml(profile),
        last=_last(History(layout.history), profile),
    )


def _errors(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


def _named(generation: Generation | None, profile: Profile) -> Generation | None:
    return generation if generation and generation.profile == profile.name else None


def _number(generation: Generation | None) -> int | None:
    return generation.number if generation else None


def _accepted(generations: Generations) -> Generation | None:
    try:
        return generations.accepted()
    except KimisvcError:
        return None  # damaged state is told by status; a list of profiles goes on without


def _resolved(generation: Generation) -> str:
    try:
        return generation.resolved()
    except KimisvcError:
        return ""


def _last(history: History, profile: Profile) -> VerdictRow | None:
    try:
        rows = history.verdicts(limit=500)
    except KimisvcError:
        return None
    return next((v for v in rows if v.profile == profile.name and v.decode_tok_s), None)
