"""apply: profile in, proven service out, or the last proven one again. The order of things.

check, render, plan, preflight, verify, write the generation, switch, restart,
follow. Until the switch nothing on the box has changed; after it the units
do the work, and an operator who leaves changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.box import SWITCH_WAIT, Box, keep_copies, plan_for, restarts, switch
from kimisvc.deploy.follow import Begun, Reporter, follow, gates_before, rollbacks_before
from kimisvc.deploy.generations import Draft, Generation
from kimisvc.deploy.history import ApplyRow
from kimisvc.deploy.mending import mend_history
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.plan import Action, HandEdit, Plan, Standing
from kimisvc.deploy.traffic import drain, in_use
from kimisvc.deploy.tune.meanwhile import refuse_meanwhile
from kimisvc.deploy.unkept import rollbacks_after, take_rollbacks
from kimisvc.deploy.verify import news
from kimisvc.errors import KimisvcError, LeftAtWorkError, PreflightRefusedError
from kimisvc.host import files, locks
from kimisvc.profile.problems import format_problem
from kimisvc.profile.quantities import format_duration
from kimisvc.records.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kimisvc.deploy.history import VerdictRow
    from kimisvc.deploy.traffic import Counting
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


def plan_of(box: Box, wish: Wish) -> Plan:
    """Given a wish, return what bringing it about would do, with what is to be done anew."""
    plan = plan_for(box, wish.resolved, wish.units)
    running = (Action.NOTHING, Action.RECORD)
    if wish.reload is Reload.ALWAYS and plan.action is not Action.RESTART:
        return replace(plan, action=Action.RESTART, why="a restart is asked for")
    if wish.reload is Reload.PROVE and plan.action in running:
        return replace(plan, action=Action.GATE, why="a new proof is asked for")
    return plan


def _try(box: Box, wish: Wish, checks: Checks, reporter: Reporter) -> Applied | None:
    """Plan, look, carry out. None: what the plan was made from had changed under it."""
    plan = plan_of(box, wish)
    odd = _refuse(box, wish, plan, checks, reporter)
    previous = box.generations.sound_current()
    if plan.action is Action.NOTHING and previous is not None:
        return Applied(Ending(Outcome.UNCHANGED, plan.why), previous.number, previous.number)
    _warn_of_rejected(box, wish, reporter)
    if plan.action is Action.RESTART and wish.drain_s is not None:
        _drain(box, wish, wish.drain_s, checks, reporter)
        _refuse(box, wish, plan, checks, reporter, told=odd)  # what was looked at may have gone
    return _carry_out(box, wish, checks, plan, reporter)


def _warn_of_rejected(box: Box, wish: Wish, reporter: Reporter) -> None:
    """Say so when this very profile was rolled back before: its load may be paid for nothing."""
    accepted = box.generations.sound_accepted()
    for row in rollbacks_after(box, 0)[:5]:
        if row.to_generation is None or (accepted and accepted.number == row.from_generation):
            continue  # it was kept, or has proven itself since
        try:
            before = box.generations.get(row.from_generation).resolved()
        except KimisvcError:
            continue  # removed or damaged: nothing to compare with
        if before == wish.resolved:
            reporter.step(f"warning: this profile was rejected before: {row.reason}")
            return


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


def _refuse(
    box: Box,
    wish: Wish,
    plan: Plan,
    checks: Checks,
    reporter: Reporter,
    told: Collection[Problem] = (),
) -> tuple[Problem, ...]:
    """Raise what stands in the way; tell what is only odd and not `told` yet, and return all of that."""
    if plan.action is Action.RESTART:
        reporter.step("looking at the host")
    reasons = in_the_way(box, wish, plan, checks)
    odd = tuple(one for one in reasons if one.severity is Severity.WARNING)
    for one in odd:
        if one not in told:
            reporter.step(format_problem(one))
    refusing = [one for one in reasons if one.severity is Severity.ERROR]
    if refusing:
        raise PreflightRefusedError(refusing)
    return odd


def in_the_way(box: Box, wish: Wish, plan: Plan, checks: Checks) -> tuple[Problem, ...]:
    """Given a wish and what it would do, return all that is odd, or stands in its way.

    Preflight is for a load: without one the host is not asked. A warning refuses nothing.
    """
    reasons = _too_short(box, wish, plan)
    if wish.hand_edits is HandEdits.REFUSE:
        reasons += [Problem(_about_edit(box, edit), file=edit.unit) for edit in plan.hand_edits]
    if plan.action is Action.RESTART:
        found = checks.preflight(wish.profile)
        if wish.host_checks is HostChecks.OVERRIDE:
            found = tuple(replace(one, severity=Severity.WARNING) for one in found)
        reasons += found
    if plan.written:
        reasons += news(checks.verify(wish.units), reasons)
    return tuple(reasons)


def _about_edit(box: Box, edit: HandEdit) -> str:
    if not box.generations.numbers():
        return (
            f"is there, and no generation in {box.layout.generations} tells whether kimisvc wrote"
            " it so; --overwrite replaces it (a copy is kept)"
        )
    if not edit.diff:
        return (
            f"is there, and {_unknown(box)}, so nobody can tell whether it is as kimisvc wrote it;"
            " --overwrite replaces it (a copy is kept)"
        )
    return (
        f"was edited by hand; kimisvc does not overwrite that:\n{edit.diff}\n"
        f"keep the edit in a drop-in (systemctl edit {edit.unit}), or say --overwrite"
        " (a copy is kept)"
    )


def _unknown(box: Box) -> str:
    if box.generations.current_number() is None:
        return "which generation is in force is not known"
    return "the generation that is in force is damaged"


def _too_short(box: Box, wish: Wish, plan: Plan) -> list[Problem]:
    """Say so when no load seen here would have met the deadline: "45s" typed for "45min".

    Where the model is loaded anew it may load faster now, and is only warned of;
    where it is not, the next start of the very same vLLM would be ended.
    """
    if plan.action in (Action.NOTHING, Action.FOLLOW):
        return []
    model, limit = wish.profile.vllm.model, wish.profile.service.load_timeout
    try:
        fastest = min(box.history.loads(model), default=0.0)
    except KimisvcError:
        return []  # a damaged history stops no apply
    if limit > fastest:
        return []
    severity = Severity.WARNING if plan.action is Action.RESTART else Severity.ERROR
    return [
        Problem(
            f"load_timeout is {format_duration(limit)}, but the fastest of the last loads of"
            f" {model} here took {format_duration(round(fastest, 1))}: the next one would be ended"
            " before it is ready",
            key="service.load_timeout",
            severity=severity,
        )
    ]


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
