"""Moments that can be drawn on one axis, although clocks jump. Pure.

The order of events is their sequence. Of their moments the longest run that
never goes back is believed; one that does not fit between its believed
neighbours was told by a clock that was wrong, and stands where they stand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

EARLIEST = 1577836800.0
"""2020-01-01: a moment before it was told by a clock that had not been set yet."""
DAY = 86400.0
PATIENCE = DAY / 4
"""How far back a moment may lie against the order (s): a start is kept after its load has ended."""


class Clock:
    """Tells where an event stands on the axis of time."""

    def __init__(self, events: Iterable[tuple[int, float]], now: float) -> None:
        """Given all events as (sequence, moment), in any order, and what time it is, be ready."""
        self._now = now
        believable = sorted(event for event in events if EARLIEST <= event[1] <= now + DAY)
        trusted = _longest_run(believable)
        self._sequences = [sequence for sequence, _ in trusted]
        self._moments = [at for _, at in trusted]

    def place(self, sequence: int, at: float) -> float:
        """Given an event, return the moment it is drawn at: its own, or its neighbour's."""
        if not self._moments:
            return self._now  # no clock is believed: all stand together
        before = bisect_right(self._sequences, sequence) - 1
        after = bisect_left(self._sequences, sequence)
        low = self._moments[before] if before >= 0 else float("-inf")
        high = self._moments[after] if after < len(self._moments) else float("inf")
        if max(low - PATIENCE, EARLIEST) <= at <= high + PATIENCE and at <= self._moments[-1] + DAY:
            return at
        return low if before >= 0 else high


def _longest_run(events: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Given events in their order, return the longest part of them whose moments never go back.

    By patience sorting (Schensted 1961): N log N, as a history can be long.
    """
    ends: list[float] = []
    holders: list[int] = []
    previous: list[int] = []
    for index, (_, at) in enumerate(events):
        place = bisect_right(ends, at)
        previous.append(holders[place - 1] if place else -1)
        if place == len(ends):
            ends.append(at)
            holders.append(index)
        else:
            ends[place] = at
            holders[place] = index
    run = []
    index = holders[-1] if holders else -1
    while index >= 0:
        run.append(events[index])
        index = previous[index]
    return run[::-1]
