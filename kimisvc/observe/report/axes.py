"""Axes: where a value stands, and which values are written beside. Pure."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
STEPS = (
    MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY,
    14 * DAY, 30 * DAY, 61 * DAY, 91 * DAY, 182 * DAY, 365 * DAY,
)  # fmt: skip
"""Distances between two moments that are written on an axis (s)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From values `low` to `high` to places `start` to `end` (user units of an SVG)."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Given a value, return its place; of one beyond an end, that end."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


def around(values: list[float], share: float = 0.08, least: float = 1.0) -> tuple[float, float]:
    """Given values (at least one), return the range that holds them with some room, never below 0."""
    low, high = min(values), max(values)
    room = max((high - low) * share, least)
    return max(0.0, low - room), high + room


def number_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Given a range, return at most so many round values within it (1, 2 or 5 times 10^n apart)."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [step * index for index in range(first, math.floor(high / step) + 1)]


def time_ticks(low: float, high: float, most: int = 7) -> list[tuple[float, str]]:
    """Given a range of moments, return at most so many within it, as local time writes them."""
    step = next((step for step in STEPS if (high - low) / step <= most), (high - low) / most)
    offset = time.localtime(low).tm_gmtoff
    form = "%Y-%m-%d" if step >= DAY else "%m-%d %H:%M"
    first = math.ceil((low + offset) / step)
    moments = [step * index - offset for index in range(first, first + most + 1)]
    return [(at, time.strftime(form, time.localtime(at))) for at in moments if at <= high]
