"""Whether a search is under way or has stopped short of its end, and what that keeps others from.

What a search remembers says only that it has not ended. Whether anybody carries
it on, its unit says: one that failed too often, or was stopped by hand, waits
for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.tune.state import unfinished
from kimisvc.errors import LockedError

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.records.units import UnitState

DOWN = ("failed", "inactive")
"""States that systemd does not leave by itself: a start anew after a failure is `activating`."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A search that nobody carries on, by its unit: down, and nothing queued for it."""

    unit: UnitState
    instance: str

    @property
    def words(self) -> str:
        """What is wrong with its unit."""
        unit = self.unit
        if not self._is_there:
            return f"its unit {unit.name} is not there ({unit.load_state})"
        how = f" ({unit.result})" if unit.result not in ("", "success") else ""
        return f"its unit {unit.name} is {unit.active_state}{how}"

    @property
    def hint(self) -> str:
        """What goes on with it, and what ends it.

        A failed unit is at its start limit, which counts starts by hand too:
        systemctl(1), reset-failed.
        """
        name = self.unit.name
        ends = f"kimisvc tune --cancel --instance {self.instance} ends it"
        if not self._is_there:
            return ends
        failed = self.unit.active_state == "failed"
        again = f"systemctl reset-failed {name} && " if failed else ""
        return f"journalctl -u {name} says why; {again}systemctl start {name} goes on, {ends}"

    @property
    def _is_there(self) -> bool:
        return self.unit.load_state not in ("not-found", "masked", "error", "bad-setting")


def down(box: Box) -> Stopped | None:
    """Given a box, return what is told of the unit of its search where that is down; else None."""
    unit = box.systemd.state(box.layout.tune_unit)
    is_down = unit.active_state in DOWN and not unit.job
    return Stopped(unit, box.layout.instance) if is_down else None


def stopped(box: Box) -> Stopped | None:
    """Given a box, return its search's stop short of its end; None: it goes on, or there is none."""
    # The unit first: of a search that ends in between, the state tells that it has.
    found = down(box)
    return found if found is not None and unfinished(box.layout) else None


def refuse_meanwhile(box: Box) -> None:
    """Raise LockedError while a search has not ended: two cannot decide what runs."""
    if not unfinished(box.layout):
        return
    name, halted = box.layout.instance, stopped(box)
    search = f"a search for the best profile of {name}"
    if halted is not None:
        raise LockedError(
            "tuning", f"{search} is not at its end, and {halted.words}", hint=halted.hint
        )
    raise LockedError(
        "tuning",
        f"{search} is under way",
        hint=f"kimisvc tune --status --instance {name} shows it,"
        f" kimisvc tune --cancel --instance {name} ends it",
    )
