"""What an apply would do, decided before anything is done.

Pure: values in, a `Plan` out. `apply --dry-run` and `diff` print it, `apply`
and `rollback` carry it out, so what was shown is what happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.render.compare import Change, UnitComparison, compare, unified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records.units import UnitFile, UnitNames, UnitState


class Action(Enum):
    """What happens to running processes, from nothing to a reload of the model."""

    NOTHING = "nothing to do"
    FOLLOW = "follow the gate that is already at work"
    RECORD = "record the profile; nothing that runs is touched"
    GATE = "run the gate again; the model stays loaded"
    RESTART = "restart vLLM, then run the gate"


class Standing(Enum):
    """How the generation that is wanted stands to the one installed."""

    SAME = "same"
    OTHER = "other"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class HandEdit:
    """An installed unit that is not what kimisvc wrote there, and how it differs from that.

    `diff` "": no current generation tells what kimisvc wrote, so it may be that very text.
    """

    unit: str
    diff: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done: which units are written, what is restarted, and why."""

    action: Action
    standing: Standing
    units: tuple[UnitComparison, ...]
    hand_edits: tuple[HandEdit, ...]
    why: str

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the units that would be written."""
        none = (Change.SAME, Change.GONE)
        return tuple(u.name for u in self.units if u.change not in none)

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the units that would be removed."""
        return tuple(u.name for u in self.units if u.change is Change.GONE)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a plan is made from: all that was read of the box.

    `waiting`: what is to go on beside the service does, or the service does not run either.
    """

    names: UnitNames
    standing: Standing
    installed: Mapping[str, str | None]
    ours: Mapping[str, str]
    foreign: frozenset[str]
    service: UnitState
    gate: UnitState
    accepted: bool
    proven: bool = True
    owed: Action | None = None
    enabled: bool = True
    waiting: bool = True


def make_plan(situation: Situation, wanted: Sequence[UnitFile]) -> Plan:
    """Given the situation on the box and the units wanted, return what to do about it."""
    wished = {unit.name: unit.text for unit in wanted}
    comparisons = (*compare(situation.installed, wanted), *_gone(situation, wished))
    # What runs was started from what the current generation wrote, whatever somebody, or an
    # apply that was cut off, has put on disk since.
    since = compare(situation.ours, wanted) if situation.ours else ()
    action, why = _decide(situation, (*comparisons, *since))
    return Plan(action, situation.standing, comparisons, _hand_edits(situation, wished), why)


def _decide(  # noqa: PLR0911 - a list of cases, each with its answer
    now: Situation, units: Sequence[UnitComparison]
) -> tuple[Action, str]:
    changed = {u.name for u in units if u.change in (Change.CHANGED, Change.NEW)}
    if why := _why_restart(now, changed):
        return Action.RESTART, why
    if now.names.gate in changed:
        return Action.GATE, "what the gate asks for changes"
    if now.owed is Action.GATE:
        return Action.GATE, "an apply before this one was cut off before its gate"
    if now.gate.active_state in ("activating", "active", "deactivating"):
        if now.standing is Standing.SAME:
            return Action.FOLLOW, "the gate is at work on this profile"
        return Action.GATE, "the gate at work is that of another generation"
    if not now.accepted:
        return Action.GATE, "this profile runs but was not accepted"
    if not now.proven:
        return Action.GATE, "the start that runs is not proven"
    if why := _why_record(now, units):
        return Action.RECORD, why
    return Action.NOTHING, "this profile runs and is accepted"


def _why_record(now: Situation, units: Sequence[UnitComparison]) -> str:
    """What has to be put right beside what runs; empty where all is as it should be."""
    if now.standing is Standing.OTHER or any(u.change is not Change.SAME for u in units):
        return "nothing that runs depends on what changes"
    if not now.enabled:
        return "it runs and is accepted, but was disabled: it starts at boot again"
    return "" if now.waiting else "it runs and is accepted, but its canary's timer was stopped"


def _why_restart(now: Situation, changed: set[str]) -> str:
    """Why the model has to be loaded anew; empty where what runs can stay."""
    if now.names.service in changed:
        first = now.standing is Standing.FIRST
        return "first install" if first else "the unit of vLLM changes"
    if now.owed is Action.RESTART:
        return "an apply before this one was cut off before its restart"
    if not now.service.goes_on:
        return f"the service is {now.service.active_state}"
    return ""


def _gone(now: Situation, wished: Mapping[str, str]) -> tuple[UnitComparison, ...]:
    """The units that are installed, ours, and not wanted; one we never wrote is not ours to remove."""
    return tuple(
        UnitComparison(name, Change.GONE, unified(text, "", f"{name} now", name))
        for name, text in now.installed.items()
        if text is not None and name not in wished and _is_ours(now, name)
    )


def _is_ours(now: Situation, name: str) -> bool:
    return name in now.ours or name not in now.foreign


def _hand_edits(now: Situation, wished: Mapping[str, str]) -> tuple[HandEdit, ...]:
    """A unit was edited by hand when no generation wrote it so, and we would not either.

    One that is neither wanted nor was ours is left alone.
    """
    return tuple(
        HandEdit(name, _edit(now, name, text))
        for name, text in now.installed.items()
        if text is not None
        and name in now.foreign
        and text != wished.get(name)
        and (name in wished or name in now.ours)
    )


def _edit(now: Situation, name: str, text: str) -> str:
    if not now.ours:
        return ""
    return unified(now.ours.get(name, ""), text, f"{name} by kimisvc", f"{name} now")
