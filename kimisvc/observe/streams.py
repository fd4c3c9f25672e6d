"""The decode speed of one stream, out of what lies between readings of each engine's counters. Pure.

vLLM does not say how many requests decode and how many have their prompt read;
`running` holds both. So a speed is told only where the counters leave no doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_DECODED = 0.1
"""Less decoding than that is made of a gap or two and says nothing of a speed (s)."""
ALL_DECODE = 0.95
"""So many tokens per iteration and request are made where all decode; readings cut iterations."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What one engine did between two readings. `decoded`: tokens after the first of those that finished."""

    seconds: float
    tokens: float
    iterations: float
    finished: float
    decoded: float
    decode_seconds: float
    running: tuple[float, float]
    waiting: tuple[float, float]


def per_stream(engines: Sequence[Sequence[Interval]]) -> float | None:
    """Given intervals of each engine, oldest first, return what a stream decodes (tok/s); None: untold.

    A mean over streams: those that run now, else those that finished, else those before. Each
    engine is judged for itself: one that reads a prompt or stands has no say, and hides no other.
    Running requests times seconds would not do for all others: they hold the time in which
    prompts are read, and nothing of requests that came and went between two readings.
    """
    newest = [
        interval
        for intervals in engines
        for interval, held in takewhile(lambda pair: pair[1], reversed(_judged(intervals)))
    ]
    before = [i for intervals in engines for i, held in _judged(intervals) if held]
    finished = [interval for intervals in engines for interval in intervals]
    return _of_steady(newest) or _of_finished(finished) or _of_steady(before)


def _judged(intervals: Sequence[Interval]) -> list[tuple[Interval, bool]]:
    """Given one engine's intervals, return all but the first, and whether each is steady."""
    return [(one, _steady(one, before)) for before, one in pairwise(intervals)]


def _of_steady(intervals: Sequence[Interval]) -> float | None:
    """Tokens by stream seconds, which are exact where nobody comes, goes or reads a prompt."""
    seconds = sum(i.running[1] * i.seconds for i in intervals)
    return sum(i.tokens for i in intervals) / seconds if seconds > 0 else None


def _of_finished(intervals: Sequence[Interval]) -> float | None:
    """Tokens after the first of each request that finished, by the time these took.

    vLLM counts both for the whole of a request, when it finishes, and neither
    for one that its client left.
    """
    seconds = sum(i.decode_seconds for i in intervals)
    tokens = sum(i.decoded for i in intervals)
    return tokens / seconds if seconds >= LEAST_DECODED and tokens > 0 else None


def _steady(interval: Interval, before: Interval) -> bool:
    """Whether the same requests ran all along, and all of them decoded from the first moment on.

    A single one does if the tokens before were its own. Several had to run before, too: in
    the tokens of all the silence of one is not seen.
    """
    if not _settled(interval) or before.finished > 0 or before.tokens <= 0:
        return False
    count = interval.running[0]
    return not any(before.waiting) and before.running[0] in ((0, 1) if count == 1 else (count,))


def _settled(interval: Interval) -> bool:
    """Whether the same requests ran all along, and those that ran decoded at its end.

    One iteration makes a token at least for each request that decodes; where it
    makes fewer, somebody's prompt is read. (Of several API servers each counts
    its own part of a step, so with them several streams look so, and are not told.)
    """
    one, other = interval.running
    return (
        one == other > 0
        and interval.finished == 0
        and not any(interval.waiting)
        and interval.tokens > 0
        and (one == 1 or interval.tokens >= ALL_DECODE * one * interval.iterations)
    )
