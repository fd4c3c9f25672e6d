"""tune: searches for the profile to run, start by start, as the unit of the search. The order of things.

The plan says which candidate comes next; each start is an apply; what it came
to is kept before the next one begins. In the end the simplest profile that is
not worse is in place, accepted and running, or what is there instead is told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.deploy.tune.leave import leave
from kimisvc.deploy.tune.plan import fallback_of, needed, plan_from, spent
from kimisvc.deploy.tune.state import (
    Pending,
    TuneState,
    kept_profile,
    read_state,
    write_state,
)
from kimisvc.deploy.tune.trial import RELOAD, carry_out, follow_begun
from kimisvc.deploy.tune.waiting import wait_to_restart
from kimisvc.deploy.tune.world import kept_wish
from kimisvc.host import files, locks
from kimisvc.measure.tuning import Search, Stop, next_step
from kimisvc.profile.quantities import parse_target
from kimisvc.profile.resolved import to_toml

if TYPE_CHECKING:
    from kimisvc.deploy.tune.state import TrialRow
    from kimisvc.deploy.tune.world import World
    from kimisvc.deploy.wish import Wish
    from kimisvc.measure.tuning import Plan
    from kimisvc.records.profile import SpeedTarget

LOCK_WAIT = 7200.0
"""How long a search waits for a command that was at work before it (s): longer than a load."""


def search(world: World) -> TuneState | None:
    """Given a world, carry the search of its box on until it has ended; None where there is none.

    Raise LockedError where another command goes on for longer than any load,
    KimisvcError where the state cannot be kept: then it goes on from what was.
    """
    box = world.means.box
    files.make_folder(box.layout.runtime)
    with locks.Lock(box.layout.operator_lock, wait=LOCK_WAIT):
        state = read_state(box.layout)
        while state is not None and state.ended is None:
            state = _step(world, state)
            write_state(box.layout, state)
        return state


def _step(world: World, state: TuneState) -> TuneState:
    """Given a search, do what comes next and return it with what that came to."""
    if state.pending is not None:
        return _resume(world, state, state.pending)
    step = next_step(plan_of(world, state), spent(state))
    if isinstance(step, Stop):
        return leave(world, state, step)
    wish = _wish(world, state, step.candidate)
    state = wait_to_restart(world, state, wish.profile)
    box = world.means.box
    pending = Pending(step.candidate, box.history.sequence(), box.now())
    number = 1 + sum(trial.candidate == step.candidate for trial in state.trials)
    state = replace(state, pending=pending).saying(
        box.now(), f"starting {step.candidate} (start {number} of it)"
    )
    write_state(box.layout, state)
    world.means.reporter.step(f"candidate {step.candidate}")
    return _kept(world, state, carry_out(world.means, wish, pending, _target(state)))


def _resume(world: World, state: TuneState, pending: Pending) -> TuneState:
    """Given a start that was to be made before we were cut off, follow it to its end.

    One that was not begun, or of which nothing came, comes anew when a restart is
    allowed again.
    """
    wish = _wish(world, state, pending.candidate)
    row = follow_begun(world.means, wish, pending, _target(state))
    return replace(state, pending=None) if row is None else _kept(world, state, row)


def plan_of(world: World, state: TuneState) -> Plan:
    """Given a search, return its plan with how long a start of each candidate takes here.

    One that was accepted is started again to be put back, which is a load.
    """
    box = world.means.box
    kept = {one.name: kept_profile(box.layout, one.name)[0] for one in state.candidates}
    accepted = {trial.candidate for trial in state.trials if trial.verdict.accepted}
    start_s = {
        name: needed(box, one, Search.EXPLORE if name in accepted else state.asked.search)
        for name, one in kept.items()
    }
    resolved = {name: to_toml(one) for name, one in kept.items()}
    return plan_from(state, start_s, fallback_of(box, resolved, state.before))


def _wish(world: World, state: TuneState, candidate: str) -> Wish:
    reload, actor = RELOAD[state.asked.search], state.asked.acting
    return replace(kept_wish(world, state, candidate), reload=reload, actor=actor)


def _target(state: TuneState) -> SpeedTarget | None:
    return parse_target(state.asked.target) if state.asked.target else None


def _kept(world: World, state: TuneState, row: TrialRow) -> TuneState:
    """Given a start that has ended, return the search with it."""
    world.means.reporter.step(told(row))
    state = replace(state, trials=(*state.trials, row), pending=None)
    return state.saying(world.means.box.now(), told(row))


def told(row: TrialRow) -> str:
    """Given a start of a candidate, return what it came to in one line."""
    outcome = "" if row.outcome == "accepted" else f" [{row.outcome}]"
    return f"{row.candidate}: {row.verdict.value}{outcome}: {row.reason}"
