"""All profiles of a history held against its first one, for an overview.

Only starts of the environment of the newest one are held against each other:
another model, vLLM, GPU or prompt length would be compared, not the profile.
Starts of one profile's name count together, whatever its generations changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimisvc.records import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.deploy.history_rows import StartFigures
    from kimisvc.measure.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Contest:
    """How one profile's speed compares with the base's, in figures and in words.

    `low` to `high` is the interval of `ratio`; `margin` is the share that nobody
    would pay a load for; `starts` are the base's and the other's; `verdict` is that
    of the other's newest start: what is fast and answers wrongly is not better.
    """

    base: str
    other: str
    ratio: float
    low: float
    high: float
    margin: float
    starts: tuple[int, int]
    words: str
    verdict: VerdictKind
    json: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contests:
    """The comparisons, and how many measured starts were of another environment."""

    rows: tuple[Contest, ...] = ()
    left_out: int = 0


def contests(figures: Sequence[StartFigures]) -> Contests:
    """Given the figures of starts, oldest first, hold each profile against the first.

    Starts whose gate came to nothing are not among them: whether it was our
    server that answered may be what was not known.
    """
    from kimisvc.measure.comparison import compare, start_figure

    sound = [f for f in figures if f.verdict is not VerdictKind.INCONCLUSIVE and min(f.runs) > 0]
    if not sound:
        return Contests()
    alike = [f for f in sound if _environment(f) == _environment(sound[-1])]
    by_profile: dict[str, list[StartFigures]] = {}
    for one in alike:
        by_profile.setdefault(one.profile, []).append(one)
    sides = {name: [start_figure(f.runs) for f in own] for name, own in by_profile.items()}
    base, *others = sides
    rows = tuple(
        _contest(base, by_profile[other][-1], compare(sides[base], sides[other]))
        for other in others
    )
    return Contests(rows, len(sound) - len(alike))


def _environment(figures: StartFigures) -> tuple[Any, ...]:
    facts = figures.facts
    tokens = facts.get("prompt_tokens") or figures.prompt_tokens
    return figures.model, figures.vllm_version, facts.get("gpus"), tokens


def _contest(base: str, newest: StartFigures, comparison: Comparison) -> Contest:
    from kimisvc.measure.comparison import as_json, say

    return Contest(
        base=base, other=newest.profile, ratio=comparison.ratio, low=comparison.low, high=comparison.high,
        margin=comparison.margin, starts=comparison.starts, words=say(comparison),
        verdict=newest.verdict,
        json={
            "base": base, "other": newest.profile, "gate": newest.verdict.value,
            **as_json(comparison),
        },
    )  # fmt: skip
