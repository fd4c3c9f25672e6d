"""rollback: back to the last accepted generation, once, and that one proven again.

Called by systemd after a failed gate or a service that gave up (`for_unit`),
or by an operator (`to_generation`). Restores unit by unit: where only the
gate differs, the model stays loaded.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.apply import ended_by, keep_ending, wait_for
from kimisvc.deploy.box import (
    SWITCH_WAIT,
    AtBoot,
    Box,
    keep_copies,
    plan_for,
    restarts,
    switch,
)
from kimisvc.deploy.failure import has_failed, reason
from kimisvc.deploy.follow import Begun, gates_before, rollbacks_before
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import ApplyRow, RollbackRow
from kimisvc.deploy.mending import mend_history
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.plan import Action
from kimisvc.deploy.restorable import last_proven, obstacle, proven_earlier, unfinished_switch
from kimisvc.deploy.start_needs import that_end_a_start
from kimisvc.deploy.told import is_told, note_told
from kimisvc.deploy.tune.meanwhile import refuse_meanwhile
from kimisvc.deploy.unkept import (
    keep_rollback,
    take_rollbacks,
    waiting_records,
    waiting_rollbacks,
)
from kimisvc.deploy.wish import Following
from kimisvc.errors import KimisvcError, LeftAtWorkError, PreflightRefusedError
from kimisvc.host import files, locks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.plan import Plan
    from kimisvc.records.problems import Problem
    from kimisvc.records.profile import Profile


@dataclass(frozen=True, slots=True)
class Restoring:
    """What an operator wants restored (None: the last accepted before what runs), and how."""

    number: int | None
    actor: str
    following: Following = Following.FOLLOW


def for_unit(box: Box) -> RollbackRow | None:
    """Given a box whose gate or service failed, restore what can be and return what was done.

    None: nothing has failed on the current generation. A failure of the one
    before can be reported after a new apply began, and a gate that was killed
    has shown nothing. What an operator disabled stays disabled. The host is not
    asked: what failed is given up, whatever is in the way of what was proven. What
    is restored does not depend on the history: where that cannot be written, the
    row says so and is returned all the same. One that leads from a generation to
    itself is told and not kept: it finished a switch, whose own row was kept first.
    """
    files.make_folder(box.layout.runtime)
    with locks.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        current = box.generations.current_number()
        if current is None:
            raise box.generations.no_current()
        unfinished = unfinished_switch(box, current)
        if unfinished is not None:
            _restore(box, unfinished, _plan(box, unfinished), AtBoot.AS_IT_WAS)
            return RollbackRow(box.now(), current, current, "a switch to it was cut off; finished")
        if not has_failed(box):
            return None
        why = reason(box, current)
        accepted = last_proven(box, current)
        why_not = obstacle(box, current, accepted)
        if why_not or accepted is None:
            return _kept(box, RollbackRow(box.now(), current, None, f"{why}; {why_not}"))
        plan = _plan(box, accepted)
        copies = keep_copies(box, plan)
        aside = "".join(f"; a unit that was there is kept as {copy}" for copy in copies)
        # Kept first: what ends us in between must not leave a box that nobody can explain.
        row = _kept(box, RollbackRow(box.now(), current, accepted.number, why + aside))
        switch(box, plan, accepted, accepted.units(), AtBoot.AS_IT_WAS)
        return row


def _kept(box: Box, row: RollbackRow) -> RollbackRow:
    """Keep a rollback, once for what failed however often it is tried; return what is to be told."""
    if is_told(box, row):
        return row
    unkept = keep_rollback(box, row)
    note_told(box, row)
    return replace(row, reason=f"{row.reason}; not kept in history: {unkept}") if unkept else row


def take_unkept(box: Box) -> None:
    """Given a box, put into history what could not be kept when it happened, if a gate is not at work.

    Raise KimisvcError where that still cannot be: systemd tries it again.
    """
    gate = box.systemd.state(box.layout.units.gate)
    if gate.job or gate.active_state not in ("inactive", "failed"):
        return  # it settles when it ends
    if waiting_records(box.layout) or waiting_rollbacks(box.layout):
        settle(box)


def to_generation(
    box: Box,
    wish: Restoring,
    preflight: Callable[[Profile], tuple[Problem, ...]],
    reporter: Reporter,
) -> Applied:
    """Given a wish, restore its generation and follow the gate.

    Raise LockedError when another kimisvc is at work on the instance: a search
    that has not ended would undo it. (Not asked by `for_unit`: each start of a
    search counts on that.) Raise PreflightRefusedError where the host would not
    run it any more (its model was removed, say; `start_needs`): what runs now is not
    stopped for that. What is restored does not depend on the history: where that cannot be
    written, it is said.
    """
    files.make_folder(box.layout.runtime)
    refuse_meanwhile(box)  # a search holds the lock too, and has more to say
    with locks.Lock(box.layout.operator_lock):
        refuse_meanwhile(box)
        while True:
            with (
                locks.Lock(box.layout.switch_lock, wait=SWITCH_WAIT),
                contextlib.suppress(KimisvcError),  # told below, where its row cannot be kept
            ):
                mend_history(box, reporter)
            target, plan = _wanted(box, wish)
            # Not under the lock of a switch: asking a vLLM takes its time, and a gate that ends
            # meanwhile has to be settled.
            _refuse(target, plan, preflight)
            begun = _begin(box, wish, target, plan, reporter)
            if begun is not None:
                break
        ending = wait_for(box, target, plan.action, begun.what, wish.following, reporter)
        _keep_ending(box, begun.row, ending)
        return Applied(
            ending,
            target.number,
            begun.previous,
            begun.restored.restarted,
            None,
            begun.restored.copies,
        )


def _wanted(box: Box, wish: Restoring) -> tuple[Generation, Plan]:
    """The generation that is to be restored, and what that would do."""
    number = wish.number
    if number is None:
        target = proven_earlier(box, box.generations.current_number())
    else:
        target = box.generations.get(number)
    return target, _plan(box, target)


def _plan(box: Box, target: Generation) -> Plan:
    return plan_for(box, target.resolved(), target.units())


@dataclass(frozen=True, slots=True)
class _Begun:
    """A rollback by hand that is on its way: its row in history, what was current, what was done.

    `row` None: history could not take it.
    """

    row: int | None
    what: Begun
    previous: int | None
    restored: _Restored


def _begin(
    box: Box, wish: Restoring, target: Generation, plan: Plan, reporter: Reporter
) -> _Begun | None:
    """Restore under the lock; None where the box has changed since it was looked at."""
    with locks.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        if _wanted(box, wish) != (target, plan):
            return None
        previous = box.generations.current_number()
        reporter.step(f"restoring generation {target.label}")
        row = ApplyRow(
            box.now(), None, target.number, previous,
            target.profile, wish.actor, restarts(plan, box.layout.units), None, None,
        )  # fmt: skip
        begun = _keep_begun(box, row, reporter)
        before = gates_before(box, plan.action)
        what = Begun(
            target.number, _sequence(box), ended_by(box, plan), before, rollbacks_before(box)
        )
        try:
            return _Begun(begun, what, previous, _restore(box, target, plan, AtBoot.ENABLED))
        except KimisvcError as error:
            _keep_ending(box, begun, Ending(Outcome.BROKE, error.message))
            raise
        except KeyboardInterrupt:
            raise LeftAtWorkError(box.layout.instance) from None


def _keep_begun(box: Box, row: ApplyRow, reporter: Reporter) -> int | None:
    """Keep that a rollback by hand begins; where history cannot take it, say so and go on without."""
    try:
        take_rollbacks(box)  # they came first
        return box.history.begin_apply(row)
    except KimisvcError as error:
        reporter.step(f"warning: this rollback is not kept in history: {error.message}")
        return None


def _keep_ending(box: Box, begun: int | None, ending: Ending) -> None:
    if begun is not None:
        keep_ending(box, begun, ending)


def _sequence(box: Box) -> int | None:
    """The newest of history; None where it cannot be read: what it holds may all be of before."""
    try:
        return box.history.sequence()
    except KimisvcError:
        return None


def _refuse(
    target: Generation, plan: Plan, preflight: Callable[[Profile], tuple[Problem, ...]]
) -> None:
    if plan.action is not Action.RESTART:
        return
    profile = target.settings()
    reasons = that_end_a_start(preflight(profile), profile, target.units())
    if reasons:
        raise PreflightRefusedError(reasons)


@dataclass(frozen=True, slots=True)
class _Restored:
    """What a restore did: the units started anew, the copies of hand edits."""

    restarted: tuple[str, ...]
    copies: tuple[Path, ...]


def _restore(box: Box, target: Generation, plan: Plan, at_boot: AtBoot) -> _Restored:
    """Make a generation the installed one as planned, restarting no more than differs."""
    copies = keep_copies(box, plan)
    return _Restored(switch(box, plan, target, target.units(), at_boot), copies)
