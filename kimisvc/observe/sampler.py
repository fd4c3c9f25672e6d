"""Reads one source again and again in a thread of its own, and keeps what it said last.

Whoever asks gets that at once, with its age; a source that hangs or fails
delays nobody. Data that has grown too old is not given out at all.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kimisvc.observe.troubles import Troubles, words_of

if TYPE_CHECKING:
    from collections.abc import Callable

View = TypeVar("View")
STALE = 3
"""Data is too old when it was read before so many intervals, and had its time to be read again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a source is read, and how long one reading may take before it counts as hung (s)."""

    every: float
    patience: float

    @property
    def stale_after(self) -> float:
        """How old data may be (s)."""
        return STALE * self.every + self.patience


class Sampler(Generic[View]):
    """One source, read by one thread. `start` it, ask it, `stop` it."""

    def __init__(
        self,
        name: str,
        read: Callable[[], View],
        pace: Pace,
        otherwise: View | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Given a name for the journal, how to read the source and how often, begin nothing yet.

        `otherwise` takes the place of what was said last as soon as a reading fails.
        """
        self._name = name
        self._read = read
        self._pace = pace
        self._otherwise = otherwise
        self._clock = clock
        self._made_at = clock()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._newest: tuple[float, View] | None = None
        self._began: float | None = None
        self._told_hang = False
        self._errors = 0
        self._troubles = Troubles()

    def start(self) -> None:
        """Begin to read. The thread ends with the process, whatever it waits for."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Read no more; a reading that hangs is left to itself."""
        self._stopped.set()

    def fresh(self) -> View | None:
        """Return what the source said last, None where that is too old or it never said anything."""
        with self._lock:
            if self._newest is None:
                return None
            at, view = self._newest
            return view if self._clock() - at <= self._pace.stale_after else None

    def age(self) -> float:
        """Return how old the newest data is (s); counted from the beginning where there is none."""
        with self._lock:
            return self._clock() - (self._newest[0] if self._newest else self._made_at)

    def errors(self) -> int:
        """Return how many readings failed or hang; one that hangs counts as soon as it does."""
        with self._lock:
            hangs = self._began is not None and self._clock() - self._began > self._pace.patience
            if hangs and not self._told_hang:
                self._told_hang = True
                self._errors += 1
            return self._errors

    def look(self) -> None:
        """Read the source once, now."""
        began = self._clock()
        with self._lock:
            self._began = began
        trouble = ""
        try:
            view = self._read()
        except Exception as error:  # noqa: BLE001 - a fault in one reading must not end all others
            trouble = words_of(error)
        with self._lock:
            if not trouble:
                self._newest = (began, view)
            else:
                self._errors += not self._told_hang
                if self._otherwise is not None and self._newest is not None:
                    self._newest = (self._newest[0], self._otherwise)
            self._began, self._told_hang = None, False
        self._troubles.say(self._name, trouble)

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = self._clock()
            self.look()
            self._stopped.wait(max(0.1, began + self._pace.every - self._clock()))
