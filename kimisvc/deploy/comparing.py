"""compare: which starts of the history speak for a profile, and whether two may be held together.

A profile is known by what it says and not by its name or a generation's number:
going back and forth between two makes a generation each time. Starts are only
held together where nothing but the profile differed; what else did is told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.measure.comparison import Comparison, StartFigure, compare, start_figure
from kimisvc.profile.differences import differences
from kimisvc.profile.resolved import flattened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history import StartFigures
    from kimisvc.records.profile import Profile

ALIKE = ("model", "vllm", "gpus", "driver", "prompt_tokens", "max_tokens")
"""The facts of a start that have to be alike, as deploy/start_facts.py names them."""
SPEED_TABLES = ("vllm", "args", "env", "probe")
SPEED_KEYS = ("service.cpu_quota_percent", "service.memory_max")
SILENT_KEYS = (
    "vllm.host", "vllm.port", "vllm.min_version", "vllm.served_model_name", "probe.min_runs",
    "probe.max_runs", "probe.warmup", "probe.precision", "probe.timeout",
)  # fmt: skip
"""Settings that change nothing about the speed: profiles that differ only there are one."""

Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One profile with the starts that speak for it. `profile` None: its generation is gone."""

    asked: str
    profile: Profile | None
    generations: tuple[int, ...]
    starts: tuple[StartFigures, ...]
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How it is named to people."""
        return self.profile.name if self.profile else self.asked

    @property
    def figures(self) -> tuple[StartFigure, ...]:
        """The figure of each start, oldest first."""
        return tuple(start_figure(start.runs) for start in self.starts)


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides and what their comparison came to. `unlike`: what else differed (name, base, other).

    Over all starts of both: of a side whose own starts differed, how many were which.
    """

    base: Side
    other: Side
    comparison: Comparison
    differences: tuple[tuple[str, str, str], ...]
    unlike: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]


def of_generation(box: Box, number: int) -> Side:
    """Given a generation's number, return all starts of what it says, whatever their numbers.

    Where it is gone from disk, those that history knows under its number.
    """
    try:
        profile = box.generations.get(number).settings()
    except KimisvcError as error:
        starts = _good(box.history.start_figures(generations=(number,)))
        if not starts:
            raise
        note = f"generation {number}: {error.message}; what it said is not known"
        return Side(str(number), None, (number,), starts, (note,))
    return of_profile(box, profile, str(number))


def of_name(box: Box, name: str) -> Side | None:
    """Given a profile's name, return the starts of the newest generation called so; None without one."""
    called = [one for one in _generations(box) if one.profile == name]
    for generation in reversed(called):
        try:
            profile = generation.settings()
        except KimisvcError:
            continue
        side = of_profile(box, profile, name)
        earlier = [one.number for one in called if one.number not in side.generations]
        if not earlier:
            return side
        numbers = ", ".join(map(str, earlier))
        note = f"{name} said something else in earlier generations ({numbers}): left out"
        return Side(name, profile, side.generations, side.starts, (*side.notes, note))
    return None


def of_profile(box: Box, profile: Profile, asked: str) -> Side:
    """Given a profile, return the starts of every generation that says the same of the speed."""
    wanted = speed_settings(profile)
    numbers = []
    for generation in _generations(box):
        try:
            if speed_settings(generation.settings()) == wanted:
                numbers.append(generation.number)
        except KimisvcError:
            continue  # damaged: what it said cannot be known
    # All these generations ask alike: of a start that later ones asked otherwise, they tell how.
    asked_so = {
        "prompt_tokens": profile.probe.prompt_tokens,
        "max_tokens": profile.probe.max_tokens,
    }
    all_starts = [
        replace(one, facts={**asked_so, **one.facts})
        for one in box.history.start_figures(generations=numbers)
    ]
    starts = _good(all_starts)
    failed = len(all_starts) - len(starts)
    notes = (f"{asked}: {failed} starts that were not accepted are left out",) if failed else ()
    return Side(asked, profile, tuple(numbers), starts, notes)


def speed_settings(profile: Profile) -> Mapping[str, str]:
    """Given a profile, return the settings that may bear on speed, by key."""
    return {
        key: value
        for key, value in flattened(profile).items()
        if key not in SILENT_KEYS and (key.partition(".")[0] in SPEED_TABLES or key in SPEED_KEYS)
    }


def held_together(base: Side, other: Side, margin: float) -> Compared:
    """Given two sides, compare the starts made in one environment, the newest that both have.

    Raise KimisvcError where a side has no start, the same starts speak for both, or they
    have no environment in common.
    """
    _need_starts(base, other)
    _need_two(base, other)
    here, there = _by_environment(base), _by_environment(other)
    shared = [environment for environment in there if environment in here]
    if not shared:
        unlike = _unlike(base, other)
        told = "; ".join(f"{name}: {a or 'unknown'} and {b or 'unknown'}" for name, a, b in unlike)
        raise KimisvcError(
            "not-comparable",
            f"{base.label} and {other.label} differ in more than the profile: {told}",
            hint="--anyway compares them all the same; a fair comparison needs new starts:"
            " kimisvc tune --explore",
        )
    newest = max(shared, key=lambda one: max(s.sequence for s in (*here[one], *there[one])))
    sides = [
        Side(side.asked, side.profile, side.generations, tuple(starts[newest]), side.notes)
        for side, starts in ((base, here), (other, there))
    ]
    left_out = [
        f"{side.label}: {len(side.starts) - len(kept.starts)} starts in another environment"
        " are left out"
        for side, kept in zip((base, other), sides, strict=True)
        if len(side.starts) > len(kept.starts)
    ]
    return _compared(sides[0], sides[1], margin, left_out)


def held_together_anyway(base: Side, other: Side, margin: float) -> Compared:
    """Given two sides, compare all their starts, whatever else differed.

    Raise KimisvcError where a side has no start, or the same starts speak for both.
    """
    _need_starts(base, other)
    _need_two(base, other)
    return _compared(base, other, margin, [])


def _compared(base: Side, other: Side, margin: float, notes: Sequence[str]) -> Compared:
    both = base.profile is not None and other.profile is not None
    return Compared(
        base,
        other,
        compare(base.figures, other.figures, margin=margin),
        differences(base.profile, other.profile) if both else (),  # type: ignore[arg-type]  # both are there
        _unlike(base, other),
        (*base.notes, *other.notes, *notes),
    )


def _need_starts(*sides: Side) -> None:
    for side in sides:
        if not side.starts:
            raise KimisvcError(
                "no-starts",
                f"{side.asked}: no accepted start of it is in the history, so it has no figures",
                hint="kimisvc apply measures one start, kimisvc tune --explore several",
            )


def _need_two(base: Side, other: Side) -> None:
    """Raise where what is compared is one thing: its starts would be held against themselves."""
    both = base.profile is not None and other.profile is not None
    same = both and speed_settings(base.profile) == speed_settings(other.profile)  # type: ignore[arg-type]  # both are there
    if same or {s.invocation for s in base.starts} & {s.invocation for s in other.starts}:
        # A start that was kept from the one to the other was only asked in another way.
        in_what = "nothing that bears on speed" if same or not both else "how a start is asked"
        raise KimisvcError(
            "same-speed-settings",
            f"{base.asked} and {other.asked} differ in {in_what}: the same starts speak for both",
            hint="there is nothing to compare; kimisvc history --instance NAME shows the starts",
        )


def _good(starts: Sequence[StartFigures]) -> tuple[StartFigures, ...]:
    return tuple(one for one in starts if one.verdict.accepted)


def _generations(box: Box) -> tuple[Generation, ...]:
    found = []
    for number in box.generations.numbers():
        try:
            found.append(box.generations.get(number))
        except KimisvcError:
            continue
    return tuple(found)


def _environment(start: StartFigures) -> Environment:
    known = {**start.facts, "model": start.model, "vllm": start.vllm_version}
    known.setdefault("prompt_tokens", start.prompt_tokens)
    return tuple((name, _shown(known.get(name))) for name in ALIKE)


def _shown(value: object) -> str:
    """A fact in words: eight GPUs of a kind are "8 x that", and None is nothing."""
    if isinstance(value, list):
        return ", ".join(f"{count} x {name}" for name, count in Counter(map(str, value)).items())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def _by_environment(side: Side) -> dict[Environment, list[StartFigures]]:
    grouped: dict[Environment, list[StartFigures]] = {}
    for start in side.starts:
        grouped.setdefault(_environment(start), []).append(start)
    return grouped


def _unlike(base: Side, other: Side) -> tuple[tuple[str, str, str], ...]:
    """What was not the same at every start of both sides."""
    sides = [[_environment(start) for start in side.starts] for side in (base, other)]
    found = []
    for place, name in enumerate(ALIKE):
        here, there = ([one[place][1] for one in side] for side in sides)
        if len({*here, *there}) > 1:
            found.append((name, _counted(here), _counted(there)))
    return tuple(found)


def _counted(values: Sequence[str]) -> str:
    """Given a fact at each start of a side, oldest first, return it; where it changed, how often each was."""
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    return "; ".join(
        f"{value or 'unknown'} ({count} of {len(values)} starts)" for value, count in counts.items()
    )
