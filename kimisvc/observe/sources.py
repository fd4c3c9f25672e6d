"""Reads each source of one instance into its view; nothing here waits for another source.

Files and history are read anew only where they changed: looking costs a few
calls to the kernel, reading a hundred times that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from kimisvc.deploy.box import Box
from kimisvc.deploy.follow import read_progress
from kimisvc.deploy.gaps import lost
from kimisvc.deploy.history import History
from kimisvc.deploy.history.rows import ALL
from kimisvc.deploy.numbering import MANIFEST
from kimisvc.deploy.past import records_that_wait
from kimisvc.deploy.status import drift
from kimisvc.deploy.unkept import waiting_rollbacks
from kimisvc.errors import HostError
from kimisvc.host import files
from kimisvc.host.vllm_contract import missing
from kimisvc.host.vllm_metrics import born, each_engine, series_names
from kimisvc.host.vllm_page import metrics_page
from kimisvc.observe.rates import live
from kimisvc.observe.snapshots import EngineView, FilesView, HistoryView, UnitsView
from kimisvc.observe.windows import Reading, Window, grown
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kimisvc.deploy.history.rows import CanaryRow, RollbackRow
    from kimisvc.deploy.layout import Layout
    from kimisvc.host.systemd import Systemd
    from kimisvc.host.vllm_page import Page
    from kimisvc.records.profile import Profile

NEWEST = 20
"""Rows that are looked through for those of the start that runs. Starts, applies and rollbacks are
counted by reading ALL of them, which are few where a load takes half an hour; canaries, which may
be 100,000, are counted by SQLite, and two of them are read."""
PAGE_TIMEOUT = 2.5
"""How long /metrics may take (s). A server whose event loop is full answers late, not never."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - read, not bound

Stamp = tuple[tuple[int, int, int], ...]


class _Told:
    """Stands in for the door to systemd where only what it said last may be asked."""

    def __init__(self, states: Mapping[str, UnitState]) -> None:
        self._states = states

    def state(self, unit: str) -> UnitState:
        """Return what was said of a unit; where that is not known, that nothing is wrong with it."""
        quiet = UnitState(unit, "loaded", "active", "running", enabled="enabled")
        return self._states.get(unit, quiet)


class FilesReader:
    """Reads what lies on disk for one instance, and holds it against what systemd said last."""

    def __init__(self, layout: Layout, states: Callable[[], Mapping[str, UnitState]]) -> None:
        """Given an instance and what tells systemd's last words, begin with nothing."""
        self._layout = layout
        self._states = states
        self._stamp: object = None
        self._view = FilesView()

    def read(self) -> FilesView:
        """Return the view of now. Raise KimisvcError where the state cannot be read."""
        layout = self._layout
        names = layout.units.all
        told = _Told(self._states())
        stamp = (
            _stamp(
                layout.current, layout.accepted, layout.current / MANIFEST,
                *(layout.installed(name) for name in names),
            ),
            *((told.state(name).enabled, told.state(name).needs_reload) for name in names),
            *(told.state(n).active_state for n in (layout.units.service, layout.units.canary_timer)),
        )  # fmt: skip
        if stamp != self._stamp:
            self._view = _files_view(layout, told)
            self._stamp = stamp  # only now: what failed is read again
        box = Box(layout, cast("Systemd", told))
        return replace(
            self._view,
            progress=read_progress(layout),
            waiting=records_that_wait(box),
            rollbacks_waiting=_by_restored(waiting_rollbacks(layout)),
        )


def _by_restored(rollbacks: Sequence[RollbackRow]) -> Mapping[str, int]:
    return Counter("no" if row.to_generation is None else "yes" for row in rollbacks)


def _files_view(layout: Layout, told: _Told) -> FilesView:
    box = Box(layout, cast("Systemd", told))
    current = box.generations.current()
    if current is None:
        # Without a unit nothing is in force: an apply broke before its switch, or all was removed.
        if files.exists(layout.installed(layout.units.service)):
            raise box.generations.no_current()
        return FilesView()
    accepted = box.generations.accepted()
    return FilesView(
        current=current,
        accepted=accepted.number if accepted else None,
        profile=current.settings(),
        digest=hashlib.sha256(current.resolved().encode()).hexdigest(),
        drift=drift(box, current, told.state(layout.units.service)),
    )


class HistoryReader:
    """Reads the history of one instance."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._stamp: Stamp = ()
        self._view = HistoryView()
        self._canaries = _Canaries()

    def read(self) -> HistoryView:
        """Return the view of now. Raise KimisvcError where what history held is lost, as `status` says it."""
        path = self._layout.history
        history = History(path)
        stamp = _stamp(path, path.with_name(f"{path.name}-wal"))
        if stamp != self._stamp or not files.exists(path):
            if why := lost(self._layout, history):
                raise HostError("history-missing", why)
            canaries = self._canaries.with_those_of(history)
            self._view = _history_view(history, canaries)
            self._stamp, self._canaries = stamp, canaries
        return self._view


@dataclass(frozen=True, slots=True)
class _Canaries:
    """The newest that measured, and when the newest flew that saw something, up to a sequence."""

    measured: CanaryRow | None = None
    until: int = 0
    at: float = 0.0

    def with_those_of(self, history: History) -> _Canaries:
        """Given a history, return these and what has come since; it began anew where it is behind."""
        if history.sequence() < self.until:
            return _Canaries().with_those_of(history)
        # The newest first: one that comes in between is seen again the next time, and not left out.
        newest = next(iter(history.canaries(after=self.until, limit=1)), None)
        if newest is None:
            return self
        measured = history.measured_canary(after=self.until)
        seeing = history.seeing_canary(after=self.until)
        at = self.at if seeing is None else seeing.at
        return _Canaries(measured or self.measured, newest.sequence, at)


def _history_view(history: History, canaries: _Canaries) -> HistoryView:
    starts = history.starts(ALL)
    rollbacks = history.rollbacks(limit=ALL)
    models = dict.fromkeys(row.model for row in starts)
    return HistoryView(
        starts=starts[:NEWEST],
        verdicts=history.verdicts(limit=NEWEST),
        starts_total=len(starts),
        applies=dict(Counter(row.outcome for row in history.applies(ALL) if row.outcome)),
        rollbacks=_by_restored(rollbacks),
        expected_load={model: history.expected_load(model) for model in models},
        canary_runs=history.canary_counts(),
        canary=canaries.measured,
        canary_at=canaries.at,
    )


class EngineReader:
    """Reads the engines' counters of one instance and keeps the windows they make."""

    def __init__(
        self,
        profile: Callable[[], Profile | None],
        page: Callable[[str, int, float], Page] = metrics_page,
    ) -> None:
        """Given what tells the profile of now, and how a page is fetched, begin with no window."""
        self._profile = profile
        self._page = page
        self._windows: Mapping[str, Window] = {}

    def read(self) -> EngineView:
        """Return the view of now; a server that is not there is a fact and no failure.

        Raise HostError where something is there and gives no page.
        """
        profile = self._profile()
        if profile is None:
            return EngineView()
        host = EVERYWHERE.get(profile.vllm.host, profile.vllm.host)
        try:
            page = self._page(host, profile.vllm.port, PAGE_TIMEOUT)
        except HostError as error:
            self._windows = {}
            if error.code == "connection-refused":
                return EngineView()
            raise
        lacks = missing(series_names(page.text))
        readings = {
            engine: Reading(page.at, counters, born(page.text))
            for engine, counters in each_engine(page.text).items()
        }
        self._windows = grown(self._windows, readings)
        now = live(self._windows.values()) if readings else None
        return EngineView(reachable=True, live=now, missing=lacks)


def units_view(layout: Layout, states: Mapping[str, UnitState]) -> UnitsView | None:
    """Given what systemd said of all units, return those of an instance; None: it was not asked."""
    service, gate, rollback, canary = (states.get(name) for name in unit_names(layout)[:4])
    if service is None or gate is None or rollback is None:
        return None
    timer = states.get(layout.units.canary_timer)
    return UnitsView(service, gate, rollback, _there(canary), _there(timer))


def _there(state: UnitState | None) -> UnitState | None:
    return state if state is not None and state.load_state == "loaded" else None


def unit_names(layout: Layout) -> tuple[str, ...]:
    """Given an instance, return the names of its units that are watched: as shown, then others."""
    names = layout.units
    shown = (names.service, names.gate, names.rollback, names.canary)
    return (*shown, names.target, names.canary_timer)


def _stamp(*paths: Path) -> Stamp:
    """What changes when one of these files does; links are looked through, nothing there is 0."""
    stamps = []
    for path in paths:
        try:
            stat = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            stamps.append((0, 0, 0))
        except OSError as error:
            raise files.translated(error, path) from error
        else:
            # One who may write and only reads leaves an empty write-ahead log for a moment.
            empty = stat.st_size == 0
            stamps.append((0, 0, 0) if empty else (stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
