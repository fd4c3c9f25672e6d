"""All instances of the box, found anew every few seconds; each with its samplers.

systemd is one world for all of them and is asked once for all; the other
sources hang one by one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.instances import begun
from kimisvc.deploy.layout import Layout
from kimisvc.host.systemd_apart import SystemdApart
from kimisvc.observe.sampler import Pace, Sampler
from kimisvc.observe.snapshots import (
    EngineView,
    FilesView,
    HistoryView,
    Scene,
    Source,
    UnitsView,
)
from kimisvc.observe.sources import (
    PAGE_TIMEOUT,
    EngineReader,
    FilesReader,
    HistoryReader,
    unit_names,
    units_view,
)
from kimisvc.observe.troubles import Troubles, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kimisvc.records.profile import Profile
    from kimisvc.records.units import Installation, UnitState

SYSTEMD_TIMEOUT = 6.0
FIND = 5.0
"""How often instances are looked for (s)."""
EVERY = 5.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """One instance and what reads it."""

    layout: Layout
    files: Sampler[FilesView]
    history: Sampler[HistoryView]
    engine: Sampler[EngineView]

    @classmethod
    def of(
        cls, layout: Layout, every: float, states: Callable[[], Mapping[str, UnitState]]
    ) -> _Watched:
        """Given an instance and systemd's last words, return it watched; nothing is started yet."""
        name = layout.instance
        pace = Pace(every, every)
        on_disk = Sampler(f"{name}: files", FilesReader(layout, states).read, pace)

        def profile() -> Profile | None:
            view = on_disk.fresh()
            return view.profile if view else None

        return cls(
            layout,
            on_disk,
            Sampler(f"{name}: history", HistoryReader(layout).read, pace),
            Sampler(
                f"{name}: vllm", EngineReader(profile).read, Pace(every, PAGE_TIMEOUT), EngineView()
            ),
        )

    @property
    def samplers(self) -> tuple[Sampler[FilesView], Sampler[HistoryView], Sampler[EngineView]]:
        """What reads this instance alone; files first, for they tell where vLLM listens."""
        return self.files, self.history, self.engine


class Fleet:
    """Watches every instance under the state folder. `start` it, then take `scenes`."""

    def __init__(
        self, place: Installation, every: float = EVERY, apart: SystemdApart | None = None
    ) -> None:
        """Given where kimisvc keeps its state and how often sources are read (s), begin nothing."""
        self._place = place
        self._every = every
        self._apart = apart or SystemdApart()
        self._watched: Mapping[str, _Watched] = {}
        self._stopped = threading.Event()
        self._troubles = Troubles()
        self._systemd: Sampler[Mapping[str, UnitState]] = Sampler(
            "systemd", self._ask_systemd, Pace(every, SYSTEMD_TIMEOUT)
        )

    def start(self) -> None:
        """Find the instances that are there and begin to read them."""
        self.find()
        self._systemd.start()
        threading.Thread(target=self._keep_finding, name="instances", daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._systemd.stop()
        for one in self._watched.values():
            for sampler in one.samplers:
                sampler.stop()
        self._apart.close()

    def scenes(self) -> tuple[Scene, ...]:
        """Return what is known of each instance now, sorted by name. Waits for nothing."""
        states = self._systemd.fresh()
        systemd = self._systemd.age(), self._systemd.errors()
        watched = self._watched
        return tuple(
            _scene(watched[name], self._units(watched[name].layout, states), systemd)
            for name in sorted(watched)
        )

    def find(self) -> None:
        """Look for instances: begin with new ones, leave off those that are gone."""
        trouble = ""
        try:
            self._find()
        except Exception as error:  # noqa: BLE001 - those that are known are watched on
            trouble = words_of(error)
        self._troubles.say("instances", trouble)

    def _find(self) -> None:
        there = begun(self._place)
        before = self._watched
        fresh = {
            n: _Watched.of(Layout(self._place, n), self._every, self._states)
            for n in there
            if n not in before
        }
        self._watched = {name: before.get(name) or fresh[name] for name in there}
        for name, one in before.items():
            if name not in self._watched:
                for sampler in one.samplers:
                    sampler.stop()
        for one in fresh.values():
            for sampler in one.samplers:
                sampler.start()

    def _keep_finding(self) -> None:
        while not self._stopped.wait(FIND):
            self.find()

    def _states(self) -> Mapping[str, UnitState]:
        return self._systemd.fresh() or {}

    def _ask_systemd(self) -> Mapping[str, UnitState]:
        until = time.monotonic() + SYSTEMD_TIMEOUT
        watched = tuple(self._watched.values())
        names = {name for one in watched for name in unit_names(one.layout)}
        trouble = ""
        try:
            found = self._apart.states(sorted(names), SYSTEMD_TIMEOUT)
        except Exception as error:
            found = self._ask_one_by_one(watched, until) if len(watched) > 1 else {}
            if not found:
                raise
            trouble = words_of(error)
        self._troubles.say("systemd, of all instances at once", trouble)
        return found

    def _ask_one_by_one(self, watched: Sequence[_Watched], until: float) -> Mapping[str, UnitState]:
        """What cannot be asked of one instance is not to hide the others."""
        found: dict[str, UnitState] = {}
        for one in watched:
            left = until - time.monotonic()
            if left <= 0:
                break
            with contextlib.suppress(Exception):
                found |= self._apart.states(unit_names(one.layout), left)
        return found

    def _units(self, layout: Layout, states: Mapping[str, UnitState] | None) -> UnitsView | None:
        """The units of one instance, None where they are not known."""
        if states is None:
            return None
        trouble, view = "", None
        try:
            view = units_view(layout, states)
        except Exception as error:  # noqa: BLE001 - one instance must not take the others' page
            trouble = words_of(error)
        self._troubles.say(f"{layout.instance}: units", trouble)
        return view


def _scene(one: _Watched, units: UnitsView | None, systemd: tuple[float, int]) -> Scene:
    age, errors = systemd
    return Scene(
        instance=one.layout.instance,
        units=units,
        files=one.files.fresh(),
        history=one.history.fresh(),
        engine=one.engine.fresh(),
        ages={
            Source.SYSTEMD: age,
            Source.HISTORY: one.history.age(),
            Source.VLLM: one.engine.age(),
            Source.FILES: one.files.age(),
        },
        errors={
            Source.SYSTEMD: errors,
            Source.HISTORY: one.history.errors(),
            Source.VLLM: one.engine.errors(),
            Source.FILES: one.files.errors(),
        },
    )
