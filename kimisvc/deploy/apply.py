"""apply: profile in, proven service out, or the last proven one again. The order of things.

check, render, plan, preflight, verify, write the generation, switch, restart,
follow. Until the switch nothing on the box has changed; after it the units
do the work, and an operator who leaves changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from kimisvc.deploy.box import SWITCH_WAIT, Box, keep_copies, restarts, switch
from kimisvc.deploy.follow import Begun, Reporter, follow, gates_before, rollbacks_before
from kimisvc.deploy.generations import Draft, Generation
from kimisvc.deploy.history import ApplyRow
from kimisvc.deploy.mending import mend_history
from kimisvc.deploy.obstacles import refuse, warn_of_rejected
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.plan import Action, Plan, Standing
from kimisvc.deploy.traffic import drain, in_use
from kimisvc.deploy.tune.meanwhile import refuse_meanwhile
from kimisvc.deploy.unkept import take_rollbacks
from kimisvc.deploy.wish import Checks, Following, Wish, plan_of
from kimisvc.errors import KimisvcError, LeftAtWorkError
from kimisvc.host import files, locks
from kimisvc.profile.quantities import format_duration

if TYPE_CHECKING:
    from kimisvc.deploy.history import VerdictRow


def apply(box: Box, wish: Wish, checks: Checks, reporter: Reporter) -> Applied:
    """Given a wish, bring it about on the box and return how it ended.

    Raise LockedError when another kimisvc is at work on the instance,
    PreflightRefusedError when the host or a hand edit stands in the way
    (nothing is changed then), KimisvcError when a door fails.
    """
    files.make_folder(box.layout.runtime)
    refuse_meanwhile(box)  # a search holds the lock too, and has more to say
    with locks.Lock(box.layout.operator_lock):
        refuse_meanwhile(box)
        mend_history(box, reporter)
        return bring_about(box, wish, checks, reporter)


def refuse_beside(box: Box) -> None:
    """Given a box, raise LockedError where `apply` would be turned away now. Nothing is changed.

    A search first: it holds the lock all along, and says how it is watched or ended. Others
    than root see no more than that: the lock is for its owner alone.
    """
    refuse_meanwhile(box)
    locks.refuse_held(box.layout.operator_lock)


def bring_about(box: Box, wish: Wish, checks: Checks, reporter: Reporter) -> Applied:
    """Given a wish, do as `apply` does, for who holds the lock of operators already."""
    while True:
        done = _try(box, wish, checks, reporter)
        if done is not None:
            return done
        reporter.step("the box changed meanwhile (a rollback?); looking again")


def _try(box: Box, wish: Wish, checks: Checks, reporter: Reporter) -> Applied | None:
    """Plan, look, carry out. None: what the plan was made from had changed under it."""
    plan = plan_of(box, wish)
    odd = refuse(box, wish, plan, checks, reporter)
    previous = box.generations.sound_current()
    if plan.action is Action.NOTHING and previous is not None:
        return Applied(Ending(Outcome.UNCHANGED, plan.why), previous.number, previous.number)
    warn_of_rejected(box, wish, reporter)
    if plan.action is Action.RESTART and wish.drain_s is not None:
        _drain(box, wish, wish.drain_s, checks, reporter)
        refuse(box, wish, plan, checks, reporter, told=odd)  # what was looked at may have gone
    return _carry_out(box, wish, checks, plan, reporter)


def _drain(box: Box, wish: Wish, patience: float, checks: Checks, reporter: Reporter) -> None:
    """Wait until nobody uses what is to be restarted, `patience` (s) at most. Nothing is changed yet."""
    used = in_use(box, wish.profile)
    if used is None:
        return
    limit = format_duration(patience)
    where = f"port {used.vllm.port}"
    reporter.step(
        f"waiting for requests on {where} to end, {limit} at most; nothing is changed yet"
    )
    until = time.strftime("%H:%M", time.localtime(box.now() + patience))
    locks.tell(box.layout.operator_lock, f"waits for requests to end, until {until} at most")
    try:
        idle = drain(checks.server(used), patience, box.clock, box.sleep)
    except KeyboardInterrupt:
        reporter.step("left while it waited: nothing was changed")
        raise
    finally:
        locks.tell(box.layout.operator_lock, "")
    if not idle:
        reporter.step(f"warning: {where} was not seen idle within {limit}; restarting all the same")


def _carry_out(
    box: Box, wish: Wish, checks: Checks, plan: Plan, reporter: Reporter
) -> Applied | None:
    before = _last_accepted(box)
    checks.prepare()
    draft = _draft(wish, checks)
    with locks.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        if plan_of(box, wish) != plan:
            return None
        previous, was = box.generations.sound_current(), box.generations.current_number()
        copies = keep_copies(box, plan)
        if plan.standing is Standing.SAME and previous is not None:
            generation = previous
        else:
            generation = box.generations.add(draft, box.now(), _last_given(box))
            reporter.step(f"generation {generation.label} written")
        row = ApplyRow(
            box.now(), None, generation.number, was,
            wish.profile.name, wish.actor, restarts(plan, box.layout.units), None, None,
        )  # fmt: skip
        take_rollbacks(box)  # they came first, and must not end what begins now
        begun = box.history.begin_apply(row)
        # Here, and not before the host was looked at: what was decided meanwhile is of what ran then.
        since = box.history.sequence()
        what = Begun(
            generation.number, since, ended_by(box, plan),
            gates_before(box, plan.action), rollbacks_before(box),
        )  # fmt: skip
        try:
            restarted = switch(box, plan, generation, wish.units)
        except KimisvcError as error:
            keep_ending(box, begun, Ending(Outcome.BROKE, error.message))
            raise
        except KeyboardInterrupt:
            raise LeftAtWorkError(box.layout.instance) from None
    reporter.step(plan.why)
    if plan.action is Action.RECORD:
        ending = Ending(Outcome.RECORDED, plan.why)
    else:
        ending = wait_for(box, generation, plan.action, what, wish.following, reporter)
    keep_ending(box, begun, ending)
    return Applied(ending, generation.number, row.previous, restarted, before, copies)


def ended_by(box: Box, plan: Plan) -> str:
    """Given a plan that is about to be carried out, return the start that it ends; "" if none."""
    service = box.systemd.state(box.layout.units.service)
    return service.invocation_id if plan.action is Action.RESTART else ""


def wait_for(
    box: Box,
    generation: Generation,
    action: Action,
    begun: Begun,
    following: Following,
    reporter: Reporter,
) -> Ending:
    """Given what was begun, follow the gate to its end where one is at work and that is asked for.

    Raise LeftAtWorkError on Ctrl-C: what was begun goes on.
    """
    if action in (Action.NOTHING, Action.RECORD):
        return Ending(Outcome.UNCHANGED, f"generation {generation.label} runs and is accepted")
    if following is Following.LEAVE:
        watch = f"kimisvc status --follow --instance {box.layout.instance}"
        return Ending(Outcome.STARTED, f"not waited for; follow with: {watch}")
    try:
        return follow(box, begun, reporter)
    except KeyboardInterrupt:
        raise LeftAtWorkError(box.layout.instance) from None


def keep_ending(box: Box, begun: int, ending: Ending) -> None:
    """Given an apply and its ending, keep that; one left at work is closed by what decides it."""
    if ending.outcome is Outcome.STARTED:
        return
    # Decided is decided: a history that cannot be written now does not undo it.
    with contextlib.suppress(KimisvcError):
        box.history.end_apply(begun, box.now(), ending.outcome.value, ending.outcome.exit_status)


def _draft(wish: Wish, checks: Checks) -> Draft:
    return Draft(
        wish.profile.name, wish.written, wish.resolved, wish.units,
        checks.facts(wish.profile), wish.file,
    )  # fmt: skip


def _last_given(box: Box) -> int:
    try:
        return box.history.last_generation()
    except KimisvcError:
        return 0  # a damaged history stops no apply; what lies on disk tells as well


def _last_accepted(box: Box) -> VerdictRow | None:
    accepted = box.generations.sound_accepted()
    if accepted is None:
        return None
    try:
        rows = box.history.verdicts()
    except KimisvcError:
        return None  # a damaged history hides the comparison, it does not stop an apply
    return next((v for v in rows if v.generation == accepted.number), None)
