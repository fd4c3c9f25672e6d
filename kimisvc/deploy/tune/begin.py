"""Begins a search, cancels one, and keeps its unit: what an operator's command does.

The unit is a file, enabled, and not a transient one: systemd forgets those at a
reboot, and a search has to go on after it. It is removed when the search has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import AT_WORK
from kimisvc.deploy.traffic import Traffic, traffic
from kimisvc.deploy.tune.begun import left_to_its_gate
from kimisvc.deploy.tune.leave import what_runs
from kimisvc.deploy.tune.meanwhile import refuse_meanwhile
from kimisvc.deploy.tune.plan import plan_from
from kimisvc.deploy.tune.state import (
    Asked,
    Contender,
    Ended,
    TrialRow,
    TuneState,
    forget_profiles,
    keep_profile,
    read_state,
    write_state,
)
from kimisvc.deploy.tune.summary import spell
from kimisvc.errors import ExitStatus, KimisvcError
from kimisvc.host import files, locks
from kimisvc.measure.tuning import Search, Spent, Stop, Why, next_step
from kimisvc.profile.quantities import format_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.traffic import Counting
    from kimisvc.measure.tuning import Fallback
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitFile

STOP = 120.0
"""How long the unit of a search may take to stop (s)."""
CANCELLED = "cancelled"
FORGOTTEN = "this summary is all there is of the search, it could not be kept"


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate as it comes: what is kept of it, and its profile's texts."""

    contender: Contender
    written: str
    resolved: str


def with_target(asked: Asked, first: Profile) -> Asked:
    """Given what is asked, fill in the target of the first profile where none is given.

    Raise KimisvcError where there is none and the question is who meets it.
    """
    if asked.target:
        return asked
    own = first.gate.decode_tok_s
    if own is not None:
        return replace(asked, target=format_target(own))
    if asked.search is Search.EXPLORE:
        return asked
    raise KimisvcError(
        "no-target",
        f"{first.name} sets no [gate] decode_tok_s, and no --target is given: nothing is to be met",
        hint='say --target ">40~50", or --explore to find the fastest',
    )


def refuse_hopeless(
    draft: TuneState, start_s: Mapping[str, float], fallback: Fallback | None = None
) -> None:
    """Given a search, how long a start of each may take (s) and what one that fails gives way to.

    Raise KimisvcError if it would start none.
    """
    plan = plan_from(draft, start_s, fallback)
    step = next_step(plan, Spent())
    if not isinstance(step, Stop):
        return
    if step.why is Why.NONE_ALLOWED:
        raise KimisvcError(
            "over-risk",
            f"{step.why.value}, {draft.asked.max_risk.value}",
            hint="--max-risk risky allows more; kimisvc explain PROFILE says what is risky and why",
        )
    back = plan.fallback.start_s
    also = f", putting back what is accepted if it fails {spell(back)}" if back else ""
    raise KimisvcError(
        "budget-too-small",
        f"one start may take {spell(min(start_s.values()))}{also}, and the budget is"
        f" {spell(draft.asked.budget_s or 0.0)}: nothing would be started",
        hint="where no load of the model was seen here yet, [service] load_timeout is reckoned with",
    )


def refuse_traffic(box: Box, asked: Asked, api: Counting | None) -> None:
    """Raise KimisvcError where requests would be cut off that nobody said may be.

    `api` is the server that runs, None where none does. Who gives a window or a
    time to drain has thought of them.
    """
    if api is None or asked.window or asked.drain_s is not None:
        return
    seen = traffic(api, box.sleep)
    if seen is not Traffic.NONE:
        raise KimisvcError(
            "live-traffic",
            f"{seen.value}, and each candidate restarts it",
            hint="--drain 10min waits so long for requests to end before each restart, and then"
            " restarts all the same; --window 02:00-06:00 restarts only then",
        )


def begin(box: Box, asked: Asked, entries: tuple[Entry, ...], unit: UnitFile) -> TuneState:
    """Given what is asked and the candidates, keep them and start the unit that searches.

    Raise LockedError where another command or search is at work on the instance.
    """
    files.make_folder(box.layout.runtime)
    files.make_folder(box.layout.state)
    with locks.Lock(box.layout.operator_lock):
        refuse_meanwhile(box)
        accepted = box.generations.sound_accepted()
        state = TuneState(
            instance=box.layout.instance,
            begun_at=box.now(),
            asked=asked,
            candidates=tuple(entry.contender for entry in entries),
            before=accepted.number if accepted else None,
        )
        forget_profiles(box.layout)
        for entry in entries:
            keep_profile(box.layout, entry.contender.name, entry.written, entry.resolved)
        files.write_atomic(box.layout.installed(unit.name), unit.text, mode=0o644)
        box.systemd.reload()
        box.systemd.enable((unit.name,))
        box.systemd.reset_failed(unit.name)
        # Last: a unit that systemd did not take is no search that anybody waits for.
        write_state(box.layout, state)
    box.systemd.start(unit.name)
    return state


def cancel(box: Box) -> TuneState | None:
    """Given a box, end its search where it is; return it, None where there was none to end.

    A start that is under way is left to its gate: it is accepted or rolled back
    as after any apply, and counts as a start that was made. A damaged state is removed with its unit,
    and so is one whose end cannot be written (a full disk): else apply and rollback would wait for it.
    """
    job = box.systemd.stop(box.layout.tune_unit)
    if job:
        box.systemd.wait_for_job(job, STOP)
    files.make_folder(box.layout.runtime)
    with locks.Lock(box.layout.operator_lock, wait=STOP):
        try:
            state = read_state(box.layout)
        except KimisvcError:
            files.remove(box.layout.tune)
            state = None
        if state is not None and state.ended is None:
            begun = left_to_its_gate(box, state.pending) if state.pending else None
            trials = (*state.trials, begun) if begun else state.trials
            ended = Ended(box.now(), CANCELLED, "", _left(box, begun), int(ExitStatus.FAILED))
            state = replace(state, trials=trials, pending=None).saying(box.now(), CANCELLED)
            state = _kept(box, state, ended)
        remove_unit(box)
    return state


def _left(box: Box, begun: TrialRow | None) -> str:
    """What a search leaves that is cancelled: a gate at work, also that of what it was putting back."""
    names = box.layout.units
    watch = f"kimisvc status --follow --instance {box.layout.instance}"
    left = f"what runs is left to its gate: {watch}"
    if begun:
        return left
    try:
        states = [box.systemd.state(one) for one in (names.service, names.gate, names.rollback)]
        at_work = any(one.job or one.active_state in AT_WORK for one in states)
        return left if at_work else what_runs(box)
    except KimisvcError as error:
        return f"what runs is not known: {error.message}"


def _kept(box: Box, state: TuneState, ended: Ended) -> TuneState:
    """Keep how a search has ended; where that cannot be, remove what is kept of it, and say so in it."""
    try:
        write_state(box.layout, replace(state, ended=ended))
    except KimisvcError as error:
        files.remove(box.layout.tune)
        ended = replace(ended, left=f"{ended.left}; {FORGOTTEN}: {error.message}")
    return replace(state, ended=ended)


def remove_unit(box: Box) -> None:
    """Given a box whose search has ended, remove the unit of it; not being there is fine."""
    name = box.layout.tune_unit
    if not files.exists(box.layout.installed(name)):
        return
    box.systemd.disable((name,))
    files.remove(box.layout.installed(name))
    box.systemd.reload()
