"""Windows of the engines' counters: what each engine of a server told lately. Pure.

With --data-parallel-size a server has several engines, and each steps, speeds
and hangs for itself; sums over them hide all three. A counter that fell, or a
server that was born anew, begins a new window: what was counted in between is
not known, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from kimisvc.host.vllm_metrics import counters_delta
from kimisvc.observe.streams import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.records.proof import EngineCounters

WINDOW = 30.0
"""Speeds are means over so much of the past (s)."""
LEAST_APART = 0.001
"""Readings nearer than that say nothing of a speed (s)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One engine's counters at one moment of a monotonic clock (s).

    `born` tells one server from the next (Unix time, 0: it does not say).
    """

    at: float
    counters: EngineCounters
    born: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Readings of one engine, oldest first, and the last moment at which it did not stand."""

    readings: tuple[Reading, ...]
    moved_at: float

    @property
    def newest(self) -> Reading:
        """What the engine told last."""
        return self.readings[-1]

    @property
    def intervals(self) -> list[Interval]:
        """What lies between the readings, oldest first."""
        return [_between(one, other) for one, other in pairwise(self.readings)]

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing was made since the reading before."""
        return self.newest.counters.running <= 0 and all(
            interval.tokens <= 0 for interval in self.intervals[-1:]
        )


def grown(windows: Mapping[str, Window], readings: Mapping[str, Reading]) -> dict[str, Window]:
    """Given each engine's window and next reading, return the windows with it.

    An engine that is told of no more loses its window, one that comes begins one.
    """
    found = {
        engine: _grown(windows[engine], reading) if engine in windows else _begun(reading)
        for engine, reading in readings.items()
    }
    anew = any(engine not in found or len(found[engine].readings) == 1 for engine in windows)
    if anew and not all(reading.born for reading in readings.values()):
        # Several API servers do not say when they were born: what one engine forgot is all that
        # tells of a new server, and the counters of others may have overtaken what they were.
        return {engine: _begun(reading) for engine, reading in readings.items()}
    return found


def _begun(reading: Reading) -> Window:
    return Window((reading,), reading.at)


def _grown(window: Window, reading: Reading) -> Window:
    last = window.newest
    if last.born != reading.born or reading.at - last.at < LEAST_APART:
        return _begun(reading)
    delta = counters_delta(last.counters, reading.counters)
    if delta is None:
        return _begun(reading)
    nothing_to_do = reading.counters.running <= 0 and reading.counters.waiting <= 0
    # vLLM counts no iteration that gives nobody a token: while a long prompt is read alone, only
    # the use of the KV cache moves (v1/engine/async_llm.py makes no IterationStats without
    # outputs, v1/metrics/loggers.py sets the gauge before it looks for them; 0.24 and 0.32).
    # An engine that stands tells of no step at all, and the gauge stays as it was.
    filled = reading.counters.kv_cache != last.counters.kv_cache
    moved = nothing_to_do or delta.iterations > 0 or filled
    moved_at = reading.at if moved else window.moved_at
    # One reading older than the window stays, so that the whole of it is covered.
    kept = list(window.readings)
    while len(kept) > 1 and kept[1].at <= reading.at - WINDOW:
        kept.pop(0)
    return Window((*kept, reading), moved_at)


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
