"""Which of the profiles that were tried is to be left in place. Pure.

Two candidates are compared on as many starts each as the one with fewer has,
so that a pair is looked at once for each number of starts. For the error of all
these looks and pairs together to stay within 5 %, look j (the one at j+1 starts
each) is given 1 / (j (j + 1)) of it, which adds up to 1 however long one goes
on, and each pair an even share of that (Boole's inequality).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import geometric_mean
from typing import TYPE_CHECKING

from kimisvc.measure.comparison import Comparison, Difference, StartFigure, compare, place
from kimisvc.measure.statistics import CONFIDENCE, ENOUGH
from kimisvc.records.profile import Risk
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

RISK_ORDER = tuple(Risk)
"""From what costs nothing to what may cost right answers."""
NO_FIGURE = 2
"""Starts that could not be judged until a candidate is given up."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One start of a candidate: the verdict against the plan's target, and its figure if it has one."""

    verdict: VerdictKind
    figure: StartFigure | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A profile that may be tried. `differences`: settings in which it differs from the baseline.

    `start_s` is how long one start is expected to take, until it is judged (s).
    """

    name: str
    risk: Risk = Risk.SAFE
    differences: int = 0
    start_s: float = 0.0
    trials: tuple[Trial, ...] = ()

    @property
    def figures(self) -> tuple[StartFigure, ...]:
        """The figures of its accepted starts, in order."""
        return tuple(t.figure for t in self.trials if t.figure and t.verdict.accepted)

    @property
    def unknown(self) -> bool:
        """Whether it was started, and no start of it could be judged."""
        return {trial.verdict for trial in self.trials} == {VerdictKind.INCONCLUSIVE}

    @property
    def failed(self) -> bool:
        """Whether it is given up: a start failed, or none could be judged."""
        kinds = [trial.verdict for trial in self.trials]
        unknown = kinds.count(VerdictKind.INCONCLUSIVE)
        return VerdictKind.FAIL in kinds or (not self.figures and unknown >= NO_FIGURE)

    @property
    def usable(self) -> bool:
        """Whether it could be left in place: accepted, and never failed."""
        return bool(self.figures) and not self.failed

    @property
    def meets(self) -> bool:
        """Whether it met the target at every start that could be judged."""
        kinds = {trial.verdict for trial in self.trials} - {VerdictKind.INCONCLUSIVE}
        return kinds == {VerdictKind.PASS}


def winner(candidates: Sequence[Candidate], margin: float) -> Candidate | None:
    """Given all candidates, return the simplest that is not worse than the fastest; None without any.

    Those that meet the target come before those that do not. Simplest is the one
    with the fewest differences, then the lowest risk, then the first listed.
    Slower by less than the margin is not worse. With one start each the spread
    is an assumed one, which is enough to choose by, not to claim by.
    """
    group = _eligible(candidates)
    if not group:
        return None
    best = fastest(group)
    good = [one for one in group if one is best or not _slower(best, one, len(candidates), margin)]
    return min(good, key=_simplicity)


class Standing(Enum):
    """What is shown of a winner, by comparisons that claim something; with one start each none does."""

    SHOWN = "the simplest that is not worse"
    NOT_SHOWN_WORSE = "the simplest that is not shown to be worse"
    FASTEST_SEEN = "the fastest seen; it is not shown that the simpler ones are worse"
    CHOSEN = "chosen by speeds of too few starts; it is not shown that the simpler ones are worse"


def standing(chosen: Candidate, candidates: Sequence[Candidate], margin: float) -> Standing:
    """Given the winner among candidates, return what is shown of it.

    `winner` leaves a simpler one out for an assumed spread, too. That it is worse
    is then not shown, nor that the winner is the simplest of those that are not.
    """
    group = _eligible(candidates)
    best = fastest(group) if group else chosen
    unsettled = [
        one.name
        for one in group
        if one.name != best.name
        and pair(best, one, len(candidates), margin).verdict is Difference.INCONCLUSIVE
    ]
    # Sorting keeps the order of equals: of those the first listed is simpler.
    names = [one.name for one in sorted(group, key=_simplicity)]
    simpler = names[: names.index(chosen.name)] if chosen.name in names else []
    if any(name in simpler for name in unsettled):
        return Standing.FASTEST_SEEN if best.name == chosen.name else Standing.CHOSEN
    return Standing.NOT_SHOWN_WORSE if unsettled else Standing.SHOWN


def _simplicity(one: Candidate) -> tuple[int, int]:
    """What the simpler of two has less of: differences, then risk."""
    return one.differences, RISK_ORDER.index(one.risk)


def _eligible(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that may win: what meets the target, else what was accepted at all."""
    usable = [one for one in candidates if one.usable]
    return [one for one in usable if one.meets] or usable


def fastest(candidates: Sequence[Candidate]) -> Candidate:
    """Given candidates with figures, return the fastest; of equals the first."""
    return max(candidates, key=lambda one: geometric_mean([f.decode_tok_s for f in one.figures]))


def pair(base: Candidate, other: Candidate, contestants: int, margin: float) -> Comparison:
    """Given two of so many contestants, compare them on equal numbers of starts."""
    starts = min(len(base.figures), len(other.figures))
    return compare(
        base.figures[:starts],
        other.figures[:starts],
        margin=margin,
        confidence=confidence_of(starts, contestants),
    )


def confidence_of(starts: int, contestants: int) -> float:
    """Given the starts each and the number of contestants, return the confidence of one interval.

    With one start each nothing is claimed, so no error is spent there.
    """
    if starts < ENOUGH:
        return CONFIDENCE
    look = starts - ENOUGH + 1
    pairs = max(1, contestants * (contestants - 1) // 2)
    return 1 - (1 - CONFIDENCE) / (look * (look + 1)) / pairs


def _slower(best: Candidate, other: Candidate, contestants: int, margin: float) -> bool:
    found = pair(best, other, contestants, margin)
    return place(found.low, found.high, margin) is Difference.WORSE
