"""What is wished for: a profile and what it becomes, what is done with what stands in its way, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.box import Box, plan_for
from kimisvc.deploy.plan import Action, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kimisvc.deploy.traffic import Counting
    from kimisvc.records.problems import Problem
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitFile


class HandEdits(Enum):
    """What to do with units that were edited by hand."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"


class HostChecks(Enum):
    """What an error of the preflight does: it refuses, or is told as a warning."""

    HEED = "heed"
    OVERRIDE = "override"


class Following(Enum):
    """Whether a command waits for the verdict."""

    FOLLOW = "follow"
    LEAVE = "leave"


class Reload(Enum):
    """What is to be done anew although nothing that is wanted has changed."""

    IF_CHANGED = "no more than changed"
    PROVE = "the gate; the model stays loaded"
    ALWAYS = "vLLM, and so its gate"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be applied: a checked profile and what it becomes, before the box is asked.

    `file` is where the profile lies, for who wants to apply it again. `drain_s`: how long requests
    may take to end before a restart (s); None waits for none.
    """

    profile: Profile
    written: str
    resolved: str
    units: tuple[UnitFile, ...]
    actor: str
    hand_edits: HandEdits = HandEdits.REFUSE
    following: Following = Following.FOLLOW
    host_checks: HostChecks = HostChecks.HEED
    reload: Reload = Reload.IF_CHANGED
    file: str = ""
    drain_s: float | None = None


@dataclass(frozen=True, slots=True)
class Checks:
    """What looks at the host before anything is changed; each returns what stands in the way.

    `server` opens the door to a profile's server, whose counters tell whether it is in use.
    """

    preflight: Callable[[Profile], tuple[Problem, ...]]
    verify: Callable[[tuple[UnitFile, ...]], tuple[Problem, ...]]
    prepare: Callable[[], None]
    facts: Callable[[Profile], Mapping[str, str | float]]
    server: Callable[[Profile], Counting]


def plan_of(box: Box, wish: Wish) -> Plan:
    """Given a wish, return what bringing it about would do, with what is to be done anew."""
    plan = plan_for(box, wish.resolved, wish.units)
    running = (Action.NOTHING, Action.RECORD)
    if wish.reload is Reload.ALWAYS and plan.action is not Action.RESTART:
        return replace(plan, action=Action.RESTART, why="a restart is asked for")
    if wish.reload is Reload.PROVE and plan.action in running:
        return replace(plan, action=Action.GATE, why="a new proof is asked for")
    return plan
