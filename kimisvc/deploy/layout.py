"""Where an instance keeps its state on the box. Pure: names of paths, nothing is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.records.units import UnitNames

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.records.units import Installation


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths and unit names of one instance."""

    place: Installation
    instance: str

    @property
    def units(self) -> UnitNames:
        """The names of this instance's units."""
        return UnitNames.of(self.instance)

    @property
    def state(self) -> Path:
        """What survives a reboot: generations, `current`, `accepted`, history. Owned by root."""
        return self.place.state / self.instance

    @property
    def generations(self) -> Path:
        """One folder a generation, named by its number with four digits or more."""
        return self.state / "generations"

    @property
    def current(self) -> Path:
        """Symlink to the generation whose units are installed."""
        return self.state / "current"

    @property
    def accepted(self) -> Path:
        """Symlink to the last generation that passed its gate."""
        return self.state / "accepted"

    @property
    def history(self) -> Path:
        """The SQLite file of starts, verdicts, applies and rollbacks."""
        return self.state / "history.sqlite"

    @property
    def tune(self) -> Path:
        """What a search for the best profile has to remember, replaced atomically."""
        return self.state / "tune.json"

    @property
    def tune_profiles(self) -> Path:
        """The profiles a search chooses from, as they were when it began."""
        return self.state / "tune"

    @property
    def tune_unit(self) -> str:
        """The unit that searches; it is there only while a search is under way."""
        return f"kimisvc-{self.instance}-tune.service"

    @property
    def overwritten(self) -> Path:
        """Copies of units that were edited by hand and then overwritten on request."""
        return self.state / "overwritten"

    @property
    def runtime(self) -> Path:
        """What a reboot clears: locks and what the gate is doing."""
        return self.place.runtime / self.instance

    @property
    def operator_lock(self) -> Path:
        """Held by a command of an operator for as long as it runs."""
        return self.runtime / "operator.lock"

    @property
    def switch_lock(self) -> Path:
        """Held for the moment in which units and symlinks are switched."""
        return self.runtime / "switch.lock"

    @property
    def gate(self) -> Path:
        """Folder of the unprivileged gate: its progress and its record, owned by its user."""
        return self.runtime / "gate"

    @property
    def progress(self) -> Path:
        """What the gate is doing now, replaced atomically."""
        return self.gate / "progress.json"

    def record(self, name: str) -> Path:
        """Given a record's id, return the file in which the gate hands it over to `settle`."""
        return self.gate / f"record-{name}.json"

    @property
    def canary(self) -> Path:
        """Folder of the unprivileged canary, owned by its user."""
        return self.runtime / "canary"

    def canary_record(self, name: str) -> Path:
        """Given a record's id, return the file in which the canary hands it over to `settle`."""
        return self.canary / f"record-{name}.json"

    def installed(self, unit: str) -> Path:
        """Given a unit's name, return where it is installed."""
        return self.place.units / unit


def going_back(layout: Layout, to: int | None = None) -> str:
    """Given where an instance lies, return the command that puts a generation of it in force.

    It names the instance: without one a command takes the only one of the box that is in order.
    `to` None: which generation is left to who reads it.
    """
    return f"kimisvc rollback --instance {layout.instance} --to {'N' if to is None else to}"
