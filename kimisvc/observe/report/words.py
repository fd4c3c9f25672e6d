"""How the report writes moments, spans and speeds. Every text from outside passes `plain`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kimisvc.foreign_text import printable

if TYPE_CHECKING:
    from kimisvc.records.proof import Interval

LONGEST = 400
"""Characters of a text from outside that the report shows."""
LAST = 253_370_764_800.0
"""The first moment of the year 9999; what a broken record dates later is written as that."""
TENTHS_BELOW = 10.0
"""Below this many seconds a tenth of one matters."""


def plain(text: str) -> str:
    """Given a text from outside, return it on one line, bounded, and without what steers a reader.

    Direction marks go, too: they could make a line read as another one.
    """
    clean = printable(text)
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]} …"


def moment(at: float) -> str:
    """Given a moment, return it in local time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(min(max(at, 0.0), LAST)))


def span(seconds: float) -> str:
    """Given seconds, return them short: `36m 05s`, `41s`, `0.4s`."""
    if seconds < TENTHS_BELOW:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def speed(interval: Interval | None) -> str:
    """Given a decode throughput, return it with its interval: `81.4 (81.1 to 81.7)` tok/s."""
    if interval is None:
        return "-"
    return f"{interval.mean:.4g} ({max(0.0, interval.low):.4g} to {interval.high:.4g})"


def number(value: float | None, unit: str = "") -> str:
    """Given a figure, return it with four digits; a dash where there is none."""
    return "-" if value is None else f"{value:.4g}{unit}"


def target(floor: float | None, goal: float | None) -> str:
    """Given what a gate asked for, return it as a profile writes it."""
    if floor is None or goal is None:
        return "-"
    return f">{floor:g}" if floor == goal else f">{floor:g}~{goal:g}"
