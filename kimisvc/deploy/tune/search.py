"""tune: searches for the profile to run, start by start, as the unit of the search. The order of things.

The plan says which candidate comes next; each start is an apply; what it came
to is kept before the next one begins. In the end the simplest profile that is
not worse is in place, accepted and running, or what is there instead is told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.tune.leave import leave
from kimisvc.deploy.tune.plan import longest, plan_from, spent, start_seconds
from kimisvc.deploy.tune.state import (
    Pending,
    TuneState,
    kept_profile,
    read_state,
    write_state,
)
from kimisvc.deploy.tune.traffic import drain
from kimisvc.deploy.tune.trial import RELOAD, Means, carry_out
from kimisvc.deploy.tune.window import parse_window, time_of_day
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.measure.tuning import Stop, next_step
from kimisvc.profile.quantities import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.apply import Wish
    from kimisvc.deploy.tune.state import TrialRow
    from kimisvc.deploy.tune.traffic import Counting
    from kimisvc.measure.tuning import Plan
    from kimisvc.records import Profile

LOCK_WAIT = 7200.0
"""How long a search waits for a command that was at work before it (s): longer than a load."""
WINDOW_LOOK = 30.0
"""How often a search that waits for its window looks at the clock (s): clocks are set."""


@dataclass(frozen=True, slots=True)
class World:
    """What a search works with: `wish_of` makes a wish of a profile and its text as written."""

    means: Means
    wish_of: Callable[[Profile, str], Wish]
    api_of: Callable[[Profile], Counting]


def search(world: World) -> TuneState | None:
    """Given a world, carry the search of its box on until it has ended; None where there is none.

    Raise LockedError where another command goes on for longer than any load,
    KimisvcError where the state cannot be kept: then it goes on from what was.
    """
    box = world.means.box
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.operator_lock, wait=LOCK_WAIT):
        state = read_state(box.layout)
        while state is not None and state.ended is None:
            state = _step(world, state)
            write_state(box.layout, state)
        return state


def _step(world: World, state: TuneState) -> TuneState:
    """Given a search, do what comes next and return it with what that came to."""
    if state.pending is not None:
        return _try(world, state, state.pending)
    step = next_step(plan_of(world, state), spent(state))
    if isinstance(step, Stop):
        return leave(world, state, step)
    state = _wait(world, state, step.candidate)
    box = world.means.box
    pending = Pending(step.candidate, box.history.sequence(), box.now())
    number = 1 + sum(trial.candidate == step.candidate for trial in state.trials)
    state = replace(state, pending=pending).saying(
        box.now(), f"starting {step.candidate} (start {number} of it)"
    )
    write_state(box.layout, state)
    return _try(world, state, pending)


def plan_of(world: World, state: TuneState) -> Plan:
    """Given a search, return its plan with how long a start of each candidate takes here."""
    box = world.means.box
    start_s = {}
    for one in state.candidates:
        profile, _ = kept_profile(box.layout, one.name)
        seen = start_seconds(box, profile, state.asked.search)
        start_s[one.name] = longest(profile) if seen is None else seen
    return plan_from(state, start_s)


def _try(world: World, state: TuneState, pending: Pending) -> TuneState:
    box = world.means.box
    world.means.reporter.step(f"candidate {pending.candidate}")
    profile, written = kept_profile(box.layout, pending.candidate)
    wish = replace(
        world.wish_of(profile, written), reload=RELOAD[state.asked.search], actor=state.asked.acting
    )
    target = parse_target(state.asked.target) if state.asked.target else None
    row = carry_out(world.means, wish, pending, target)
    world.means.reporter.step(told(row))
    return replace(state, trials=(*state.trials, row), pending=None).saying(box.now(), told(row))


def told(row: TrialRow) -> str:
    """Given a start of a candidate, return what it came to in one line."""
    outcome = "" if row.outcome == "accepted" else f" [{row.outcome}]"
    return f"{row.candidate}: {row.verdict.value}{outcome}: {row.reason}"


def _wait(world: World, state: TuneState, candidate: str) -> TuneState:
    """Wait until a restart is allowed: for the window, then for requests to end."""
    box = world.means.box
    if state.asked.window:
        window = parse_window(state.asked.window)
        need = next(c.start_s for c in plan_of(world, state).candidates if c.name == candidate)
        if window.wait(time_of_day(box.now()), need):
            state = state.saying(box.now(), f"waiting for the window {state.asked.window}")
            write_state(box.layout, state)
            world.means.reporter.step(state.log[-1][1])
        while wait := window.wait(time_of_day(box.now()), need):
            box.sleep(min(WINDOW_LOOK, wait))
    current = box.generations.sound_current() if state.asked.drain_s is not None else None
    if current is None or state.asked.drain_s is None:
        return state
    try:
        api = world.api_of(current.settings())
    except KimisvcError:
        return state  # a damaged generation serves nobody that could be asked about
    if drain(api, state.asked.drain_s, box.clock, box.sleep):
        return state
    return state.saying(
        box.now(), f"requests still ran after {state.asked.drain_s:.0f} s; restarting all the same"
    )
