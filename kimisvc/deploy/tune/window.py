"""The hours in which a search may restart a service. Pure; hours are those of the box's clock."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

DAY = 86400.0
BEGINNING = 0.1
"""The share of a window that is its beginning: whoever waits for it looks at the clock in time."""
_WINDOW = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Window:
    """From `opens` to `closes`, in seconds after midnight; it may go over midnight."""

    opens: float
    closes: float

    @property
    def length(self) -> float:
        """How long it is open (s)."""
        return (self.closes - self.opens) % DAY or DAY

    def wait(self, moment: float, need: float) -> float:
        """Given seconds after midnight and what a start needs (s), return how long to wait for it.

        0 where the window is open and stays so for long enough. A start that no
        window can hold is let in at the beginning of one, and goes over its end.
        """
        into = (moment - self.opens) % DAY
        fits = into + min(need, (1 - BEGINNING) * self.length) <= self.length
        return 0.0 if fits else (DAY - into)


def parse_window(text: str) -> Window:
    """Given `22:00-06:00`, return the window. Raise ValueError for anything else."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text[:60]}" is no window of time. Write it as 22:00-06:00')
    hours = [int(part) for part in match.groups()]
    opens, closes = hours[0] * 3600 + hours[1] * 60, hours[2] * 3600 + hours[3] * 60
    if opens > DAY or closes > DAY or opens == closes:
        raise ValueError(f'"{text[:60]}" is no window of time: it has no beginning or no end')
    return Window(opens % DAY, closes % DAY)


def time_of_day(moment: float) -> float:
    """Given a moment, return the seconds since midnight on the box's clock."""
    here = time.localtime(moment)
    return here.tm_hour * 3600.0 + here.tm_min * 60.0 + here.tm_sec
