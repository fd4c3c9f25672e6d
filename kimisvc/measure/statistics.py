"""Arithmetic on samples: the interval of a mean. Pure; knows nothing of servers or verdicts."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from kimisvc.records.proof import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
ENOUGH = 2
"""Values needed before their spread says anything."""


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Given measured values, return their mean with its two-sided Student t interval.

    None with fewer than two values: one value has no spread to judge by. The
    interval is right for independent values around one mean; equal values give
    an interval of no width.
    """
    count = len(values)
    if count < ENOUGH:
        return None
    mean = fmean(values)
    half = t_quantile(0.5 + confidence / 2, count - 1) * stdev(values, mean) / math.sqrt(count)
    return Interval(mean - half, mean, mean + half)


def shared(looks: int, confidence: float = CONFIDENCE) -> float:
    """Given how often one looks, return the confidence each look needs for all to hold together.

    Intervals of this confidence hold at every look at once with `confidence`,
    and so at the look where one stops, whatever made one stop (repeated
    confidence intervals: Jennison and Turnbull, Group Sequential Methods, 2000,
    chapter 9). The error is spread evenly over the looks and added up by
    Boole's inequality: no assumption on how the looks depend on each other,
    and none on the size of the samples.
    """
    return 1 - (1 - confidence) / looks


def prepare() -> None:
    """Import what `mean_interval` needs (0.3 s): for who has to wait anyway, as for a load."""
    t_quantile(0.975, 1)


def relative_half_width(interval: Interval) -> float:
    """Given an interval, return half its width as a share of its mean; infinite at a mean of 0."""
    return (interval.high - interval.low) / 2 / interval.mean if interval.mean else math.inf


def t_quantile(probability: float, freedom: float) -> float:
    """Given a probability and degrees of freedom, return the quantile of Student's t."""
    # scipy.stats takes twice as long to import.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))
