"""Live speed and stalls of a server, out of the windows of its engines. Pure.

One reading says nothing, two a mean over what lies between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.observe.streams import per_stream

if TYPE_CHECKING:
    from collections.abc import Collection

    from kimisvc.observe.windows import Window

PATIENCE = 60.0
"""A single step of the engine may take so long (s). Busy servers were killed as hung at 2 s, and
none at 120 s of standing iterations (gonka-ai/gonka#1421)."""


@dataclass(frozen=True, slots=True)
class Live:
    """What a server does now. Speeds in tokens per second, None: there is nothing to say.

    `stalled`: one of its engines stands at least.
    """

    decode_tok_s: float | None
    total_tok_s: float | None
    stalled: bool
    running: float = 0.0
    waiting: float = 0.0


def live(windows: Collection[Window], patience: float = PATIENCE) -> Live:
    """Given the window of each engine of a server, return what the server does now."""
    idle = all(window.idle for window in windows)
    return Live(
        decode_tok_s=None if idle else per_stream([window.intervals for window in windows]),
        total_tok_s=_total(windows),
        stalled=any(window.newest.at - window.moved_at > patience for window in windows),
        running=sum(window.newest.counters.running for window in windows),
        waiting=sum(window.newest.counters.waiting for window in windows),
    )


def _total(windows: Collection[Window]) -> float | None:
    """The speeds of all engines together; unknown as long as that of one is."""
    if not all(window.intervals for window in windows):
        return None
    return sum(_speed(window) for window in windows)


def _speed(window: Window) -> float:
    if window.idle:
        return 0.0
    intervals = window.intervals
    return sum(i.tokens for i in intervals) / sum(i.seconds for i in intervals)
