"""Live speed and stalls, out of a window of the engine's counters. Pure.

One reading says nothing, two a mean over what lies between. A counter that
fell, or a server that was born anew, begins a new window: what was counted in
between is not known, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kimisvc.host.vllm_metrics import counters_delta
from kimisvc.observe.streams import Interval, per_stream

if TYPE_CHECKING:
    from kimisvc.records.proof import EngineCounters

WINDOW = 30.0
"""Speeds are means over so much of the past (s)."""
PATIENCE = 60.0
"""A single step of the engine may take so long (s). Busy servers were killed as hung at 2 s, and
none at 120 s of standing iterations (gonka-ai/gonka#1421)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The engine's counters at one moment of a monotonic clock (s).

    `born` tells one server from the next (Unix time, 0: it does not say).
    """

    at: float
    counters: EngineCounters
    born: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Readings of one server, oldest first, and the last moment at which its engine did not stand."""

    readings: tuple[Reading, ...] = ()
    moved_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Live:
    """What the engine does now. Speeds in tokens per second, None: there is nothing to say."""

    decode_tok_s: float | None
    total_tok_s: float | None
    stalled: bool
    running: float = 0.0
    waiting: float = 0.0


LEAST_APART = 0.001
"""Readings nearer than that say nothing of a speed (s)."""


def grown(window: Window, reading: Reading) -> Window:
    """Given a window and the next reading, return the window with it; a new one after a restart."""
    last = window.readings[-1] if window.readings else None
    if last is None or last.born != reading.born or reading.at - last.at < LEAST_APART:
        return Window((reading,), reading.at)
    delta = counters_delta(last.counters, reading.counters)
    if delta is None:
        return Window((reading,), reading.at)
    idle = reading.counters.running <= 0 and reading.counters.waiting <= 0
    # vLLM counts no iteration that gives nobody a token: while a long prompt is read alone, only
    # the use of the KV cache moves (v1/engine/async_llm.py makes no IterationStats without
    # outputs, v1/metrics/loggers.py sets the gauge before it looks for them; 0.24 and 0.32).
    # An engine that stands tells of no step at all, and the gauge stays as it was.
    filled = reading.counters.kv_cache != last.counters.kv_cache
    moved = idle or delta.iterations > 0 or filled
    moved_at = reading.at if moved else window.moved_at
    # One reading older than the window stays, so that the whole of it is covered.
    kept = list(window.readings)
    while len(kept) > 1 and kept[1].at <= reading.at - WINDOW:
        kept.pop(0)
    return Window((*kept, reading), moved_at)


def live(window: Window, patience: float = PATIENCE) -> Live:
    """Given a window with a reading at least, return what the engine does now."""
    newest = window.readings[-1]
    counters = newest.counters
    intervals = [_between(one, other) for one, other in pairwise(window.readings)]
    idle = counters.running <= 0 and (not intervals or intervals[-1].tokens <= 0)
    return Live(
        decode_tok_s=None if idle else per_stream(intervals),
        total_tok_s=_total(intervals, idle),
        stalled=newest.at - window.moved_at > patience,
        running=counters.running,
        waiting=counters.waiting,
    )


def _total(intervals: list[Interval], idle: bool) -> float | None:  # noqa: FBT001 - told apart by its caller once
    if not intervals:
        return None
    if idle:
        return 0.0
    return sum(i.tokens for i in intervals) / sum(i.seconds for i in intervals)


def _between(one: Reading, other: Reading) -> Interval:
    a, b = one.counters, other.counters
    return Interval(
        other.at - one.at,
        b.generation_tokens - a.generation_tokens,
        b.iterations - a.iterations,
        b.requests_finished - a.requests_finished,
        (b.finished_tokens - a.finished_tokens) - (b.requests_finished - a.requests_finished),
        b.decode_seconds - a.decode_seconds,
        (a.running, b.running),
        (a.waiting, b.waiting),
    )
