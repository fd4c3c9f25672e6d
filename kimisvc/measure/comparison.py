"""Decides whether two profiles differ in speed. Pure.

The replicate is a start: requests of one start share its luck (clocks, where
memory lies, what the compiler chose), so a hundred of them say nothing about
the next start. Each start gives one figure; the two profiles are held against
each other by Welch's interval on the logarithm of their ratio. How well it
covers, by simulation, is in docs/measuring.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, stdev, variance
from typing import TYPE_CHECKING, Any

from kimisvc.measure.power import further_starts
from kimisvc.measure.statistics import CONFIDENCE, ENOUGH, t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

MARGIN = 0.02
"""A difference in speed that nobody would pay a load for, as a share."""
ASSUMED_SPREAD = 0.005
"""Standard deviation between starts, as a share, assumed where it was not measured.

Measured were 0.14 % on two H200 (four starts, docs/measuring.md); a box of
eight GPUs over PCIe is noisier, so it is taken to be more than three times that.
"""


class Difference(Enum):
    """What a comparison came to; it speaks of the other profile, held against the base."""

    BETTER = "better"
    BETTER_WITHIN_MARGIN = "better-within-margin"
    EQUIVALENT = "equivalent"
    WORSE_WITHIN_MARGIN = "worse-within-margin"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"


class Spread(Enum):
    """Where the spread between starts is from."""

    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class StartFigure:
    """What one start came to: the mean of its runs and that mean's standard error (tok/s).

    An error of 0 means: not known, as of a single run.
    """

    decode_tok_s: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The other profile's speed as a multiple of the base's, with its interval, and what it means.

    `further_starts` is how many more of each would likely settle it; 0 when it
    is settled. `deviation` is the standard deviation between starts as a share,
    measured or assumed as `spread` says.
    """

    ratio: float
    low: float
    high: float
    verdict: Difference
    further_starts: int
    starts: tuple[int, int]
    spread: Spread
    deviation: float
    margin: float = MARGIN
    confidence: float = CONFIDENCE


def start_figure(speeds: Sequence[float]) -> StartFigure:
    """Given the speeds of one start's runs (at least one; tok/s), return its figure."""
    error = stdev(speeds) / math.sqrt(len(speeds)) if len(speeds) >= ENOUGH else 0.0
    return StartFigure(fmean(speeds), error)


def compare(
    base: Sequence[StartFigure],
    other: Sequence[StartFigure],
    *,
    margin: float = MARGIN,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Given at least one start of each of two profiles, say how the other's speed compares.

    With one start on a side there is no spread to judge by: the interval then
    rests on an assumed one, says so, and the verdict is INCONCLUSIVE whatever
    the figures. Raise ValueError where a side has no start or a speed is not
    above 0.
    """
    sides = _Side.of(base), _Side.of(other)
    measured = all(side.count >= ENOUGH for side in sides)
    half, deviation = (_welch if measured else _assumed)(*sides, confidence)
    ratio = sides[1].mean - sides[0].mean
    low, high = ratio - half, ratio + half
    verdict = place(math.exp(low), math.exp(high), margin) if measured else Difference.INCONCLUSIVE
    further = 0
    if verdict is Difference.INCONCLUSIVE:
        counts = (sides[0].count, sides[1].count)
        further = further_starts(ratio, deviation, counts, math.log1p(margin), confidence)
    return Comparison(
        ratio=math.exp(ratio),
        low=math.exp(low),
        high=math.exp(high),
        verdict=verdict,
        further_starts=further,
        starts=(sides[0].count, sides[1].count),
        spread=Spread.MEASURED if measured else Spread.ASSUMED,
        deviation=deviation,
        margin=margin,
        confidence=confidence,
    )


def place(low: float, high: float, margin: float = MARGIN) -> Difference:
    """Given the interval of a ratio, say where it lies against 1 and the margin around it.

    The margin is symmetric in the logarithm: 1/1.02 to 1.02. An interval inside
    it shows equivalence (two one-sided tests, Schuirmann 1987, here each at
    half the interval's error, which asks for more than the usual).
    """
    within = low >= 1 / (1 + margin) and high <= 1 + margin
    if low > 1:
        return Difference.BETTER_WITHIN_MARGIN if within else Difference.BETTER
    if high < 1:
        return Difference.WORSE_WITHIN_MARGIN if within else Difference.WORSE
    return Difference.EQUIVALENT if within else Difference.INCONCLUSIVE


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Given a comparison, return it as programs read it."""
    return {
        "ratio": comparison.ratio,
        "low": comparison.low,
        "high": comparison.high,
        "verdict": comparison.verdict.value,
        "further_starts": comparison.further_starts,
        "starts": list(comparison.starts),
        "spread": comparison.spread.value,
        "deviation": comparison.deviation,
        "margin": comparison.margin,
        "confidence": comparison.confidence,
    }


def say(comparison: Comparison) -> str:
    """Given a comparison, return it in words."""
    ratio, low, high = (
        f"{100 * (value - 1):+.1f}" for value in (comparison.ratio, comparison.low, comparison.high)
    )
    figures = f"{ratio} % ({100 * comparison.confidence:.4g} % interval {low} to {high} %)"
    if comparison.spread is Spread.ASSUMED:
        figures = f"{ratio} % ({low} to {high} % if starts differ by {_percent(comparison)})"
    return f"{figures}: {_words(comparison)}"


def _words(comparison: Comparison) -> str:
    margin = f"the margin of {100 * comparison.margin:g} %"
    words = {
        Difference.BETTER: "faster",
        Difference.BETTER_WITHIN_MARGIN: f"faster, but by less than {margin}",
        Difference.EQUIVALENT: f"equivalent within {margin}",
        Difference.WORSE_WITHIN_MARGIN: f"slower, but by less than {margin}",
        Difference.WORSE: "slower",
    }
    return words.get(comparison.verdict) or _outlook(comparison)


def _outlook(comparison: Comparison) -> str:
    more = comparison.further_starts
    starts = f"{more} further {'start' if more == 1 else 'starts'} of each would likely settle it"
    if comparison.spread is Spread.MEASURED:
        return f"inconclusive; {starts}, if starts go on to differ by {_percent(comparison)}"
    return (
        f"inconclusive: a single start does not show how much starts differ; {starts}, if they "
        f"differ by {_percent(comparison)}, which is assumed"
    )


def _percent(comparison: Comparison) -> str:
    return f"{100 * comparison.deviation:.2g} %"


@dataclass(frozen=True, slots=True)
class _Side:
    """One profile's starts in logarithms. `variance`: between starts, 0 with a single one."""

    count: int
    mean: float
    variance: float

    @classmethod
    def of(cls, figures: Sequence[StartFigure]) -> _Side:
        """Given the starts of a profile, return what the comparison needs of them.

        Starts cannot spread less than the error of their own means lets them,
        so that is the floor; two figures that agree by chance, or because they
        were rounded, are no proof of no spread.
        """
        if not figures:
            raise ValueError("a comparison needs at least one start of each profile")
        logs = [math.log(figure.decode_tok_s) for figure in figures]
        if len(logs) < ENOUGH:
            return cls(1, logs[0], 0.0)
        floor = fmean((figure.error / figure.decode_tok_s) ** 2 for figure in figures)
        return cls(len(logs), fmean(logs), max(variance(logs), floor))


def _welch(base: _Side, other: _Side, confidence: float) -> tuple[float, float]:
    """Given two sides of two starts or more, return half the interval's width and the deviation.

    Welch 1947 (Biometrika 34, 28): degrees of freedom by Satterthwaite's formula.
    Where one side has fewer starts than the other, no more of them than with the
    smaller number on both: there the formula alone covers too little.
    """
    deviation = _pooled(base, other)
    if deviation == 0.0:
        return 0.0, 0.0
    one, two = base.variance / base.count, other.variance / other.count
    freedom = (one + two) ** 2 / (one**2 / (base.count - 1) + two**2 / (other.count - 1))
    freedom = min(freedom, 2.0 * (min(base.count, other.count) - 1))
    return t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(one + two), deviation


def _assumed(base: _Side, other: _Side, confidence: float) -> tuple[float, float]:
    """Given two sides of which one has one start, return the same, resting on an assumed spread."""
    from scipy.special import ndtri

    deviation = max(ASSUMED_SPREAD, _pooled(base, other))
    error = deviation * math.sqrt(1 / base.count + 1 / other.count)
    return float(ndtri(0.5 + confidence / 2)) * error, deviation


def _pooled(base: _Side, other: _Side) -> float:
    """Return the standard deviation between starts over both sides; 0 where each has one."""
    freedom = base.count + other.count - 2
    squares = (base.count - 1) * base.variance + (other.count - 1) * other.variance
    return math.sqrt(squares / freedom) if freedom else 0.0
