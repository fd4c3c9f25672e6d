"""apply: profile in, proven service out, or the last proven one again. The order of things.

check, render, plan, preflight, verify, write the generation, switch, restart,
follow. Until the switch nothing on the box has changed; after it the units
do the work, and an operator who leaves changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.box import (
    SWITCH_WAIT,
    Box,
    install,
    keep_copies,
    plan_for,
    restarts,
    set_going,
)
from kimisvc.deploy.follow import Reporter, follow
from kimisvc.deploy.generations import Draft, Generation
from kimisvc.deploy.history import ApplyRow
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.plan import Action, Plan, Standing
from kimisvc.errors import KimisvcError, PreflightRefusedError
from kimisvc.host import files
from kimisvc.records import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kimisvc.deploy.history import VerdictRow
    from kimisvc.records import Profile, UnitFile


class HandEdits(Enum):
    """What to do with units that were edited by hand."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"


class Following(Enum):
    """Whether a command waits for the verdict."""

    FOLLOW = "follow"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be applied: a checked profile and what it becomes, before the box is asked."""

    profile: Profile
    path: Path
    written: str
    resolved: str
    units: tuple[UnitFile, ...]
    actor: str
    hand_edits: HandEdits = HandEdits.REFUSE
    following: Following = Following.FOLLOW


@dataclass(frozen=True, slots=True)
class Checks:
    """What looks at the host before anything is changed; each returns what stands in the way."""

    preflight: Callable[[Profile], tuple[Problem, ...]]
    verify: Callable[[tuple[UnitFile, ...]], tuple[Problem, ...]]
    prepare: Callable[[], None]
    facts: Callable[[Profile], Mapping[str, str | float]]


def apply(box: Box, wish: Wish, checks: Checks, reporter: Reporter) -> Applied:
    """Given a wish, bring it about on the box and return how it ended.

    Raise LockedError when another kimisvc is at work on the instance,
    PreflightRefusedError when the host or a hand edit stands in the way
    (nothing is changed then), KimisvcError when a door fails.
    """
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.operator_lock):
        since = box.history.sequence()
        plan = plan_for(box, wish.resolved, wish.units)
        _refuse(wish, plan, checks, reporter)
        previous = box.generations.current()
        if plan.action is Action.NOTHING and previous is not None:
            return Applied(Ending(Outcome.UNCHANGED, plan.why), previous.number, previous.number)
        return _carry_out(box, wish, checks, plan, since, reporter)


def _refuse(wish: Wish, plan: Plan, checks: Checks, reporter: Reporter) -> None:
    """Raise what stands in the way. Preflight is for a load: without one the host is not asked."""
    reasons: list[Problem] = []
    if wish.hand_edits is HandEdits.REFUSE:
        reasons += [
            Problem(
                f"was edited by hand; kimisvc does not overwrite that:\n{edit.diff}\n"
                f"keep the edit in a drop-in (systemctl edit {edit.unit}), or say --overwrite"
                " (a copy is kept)",
                file=edit.unit,
            )
            for edit in plan.hand_edits
        ]
    if plan.action is Action.RESTART:
        reporter.step("looking at the host")
        reasons += checks.preflight(wish.profile)
    if plan.written:
        reasons += checks.verify(wish.units)
    if reasons:
        raise PreflightRefusedError(reasons)


def _carry_out(
    box: Box, wish: Wish, checks: Checks, plan: Plan, since: int, reporter: Reporter
) -> Applied:
    previous = box.generations.current()
    before = _last_accepted(box)
    checks.prepare()
    with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        copies = keep_copies(box, plan)
        if plan.standing is Standing.SAME and previous is not None:
            generation = previous
        else:
            generation = box.generations.add(_draft(wish, checks), box.now())
            reporter.step(f"generation {generation.label} written")
        row = ApplyRow(
            box.now(), None, generation.number, previous.number if previous else None,
            wish.profile.name, wish.actor, restarts(plan, box.layout.units), None, None,
        )  # fmt: skip
        begun = box.history.begin_apply(row)
        if generation is not previous or plan.written:
            install(box, generation, wish.units)
        if plan.action is Action.RECORD:
            box.generations.accept(generation)
        restarted = set_going(box, plan)
    reporter.step(plan.why)
    ending = _end(box, wish, plan, generation, since, reporter)
    box.history.end_apply(begun, box.now(), ending.outcome.value, ending.outcome.exit_status)
    return Applied(ending, generation.number, row.previous, restarted, before, copies)


def _end(
    box: Box, wish: Wish, plan: Plan, generation: Generation, since: int, reporter: Reporter
) -> Ending:
    if plan.action is Action.RECORD:
        return Ending(Outcome.RECORDED, plan.why)
    if wish.following is Following.LEAVE:
        return Ending(Outcome.STARTED, "not waited for; follow with: kimisvc status --follow")
    return follow(box, generation.number, since, reporter)


def _draft(wish: Wish, checks: Checks) -> Draft:
    return Draft(
        wish.profile.name, wish.written, wish.resolved, wish.units, checks.facts(wish.profile)
    )


def _last_accepted(box: Box) -> VerdictRow | None:
    accepted = box.generations.accepted()
    if accepted is None:
        return None
    try:
        rows = box.history.verdicts()
    except KimisvcError:
        return None  # a damaged history hides the comparison, it does not stop an apply
    return next((v for v in rows if v.generation == accepted.number), None)
