"""How far two ways of telling one speed are apart: what `make bench` prints of the probe."""

from __future__ import annotations

from statistics import harmonic_mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def together(speeds: Sequence[float]) -> float:
    """Given the speeds of runs of equal length (tok/s), return that of all: tokens over seconds.

    So the engine's counters and a mean time per token have it. The mean of the speeds
    themselves is higher, the more the runs differ: by 0.6 % where they differ by 8 %.
    """
    return harmonic_mean(speeds)


def percent_apart(ours: float, theirs: float) -> float:
    """Given two speeds, return how far the first is from the second (%)."""
    return 100 * abs(ours / theirs - 1)
