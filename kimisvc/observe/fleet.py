"""All instances of the box, found anew every few seconds; each with its samplers.

systemd is one world for all of them and is asked once for all; the other
sources hang one by one.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.instances import begun
from kimisvc.deploy.layout import Layout
from kimisvc.errors import KimisvcError
from kimisvc.host.systemd_apart import SystemdApart
from kimisvc.observe.sampler import Pace, Sampler
from kimisvc.observe.snapshots import (
    EngineView,
    FilesView,
    HistoryView,
    Scene,
    Source,
)
from kimisvc.observe.sources import (
    PAGE_TIMEOUT,
    EngineReader,
    FilesReader,
    HistoryReader,
    unit_names,
    units_view,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        self._trouble = ""
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
        return tuple(_scene(watched[name], states, systemd) for name in sorted(watched))

    def find(self) -> None:
        """Look for instances: begin with new ones, leave off those that are gone."""
        try:
            there = begun(self._place)
        except KimisvcError as error:
            self._say(error.message)  # those that are known are watched on
            return
        self._say("")
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
        names = {name for one in self._watched.values() for name in unit_names(one.layout)}
        return self._apart.states(sorted(names), SYSTEMD_TIMEOUT)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            sys.stderr.write(f"instances: {trouble}\n")
        self._trouble = trouble


def _scene(
    one: _Watched, states: Mapping[str, UnitState] | None, systemd: tuple[float, int]
) -> Scene:
    age, errors = systemd
    return Scene(
        instance=one.layout.instance,
        units=None if states is None else units_view(one.layout, states),
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
