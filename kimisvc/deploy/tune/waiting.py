"""Waits until a search may restart the service: its window is open, and no request runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.traffic import Traffic, drain, in_use, traffic
from kimisvc.deploy.tune.plan import back_seconds, needed
from kimisvc.deploy.tune.state import TuneState, write_state
from kimisvc.deploy.tune.window import parse_window, time_of_day
from kimisvc.host import locks
from kimisvc.profile.quantities import format_duration

if TYPE_CHECKING:
    from kimisvc.deploy.tune.world import World
    from kimisvc.records.profile import Profile

WINDOW_LOOK = 30.0
"""How often a search that waits for its window looks at the clock (s): clocks are set."""


def wait_to_restart(world: World, state: TuneState, profile: Profile) -> TuneState:
    """Given the profile to be started, wait until a restart is allowed; return the search with its log.

    A window has to hold the start and, should it fail, that of what is put back then.
    Requests may take so long to end that the window closes: then the next one
    is waited for. `drain_s` is the patience of all these waits together.
    """
    box = world.means.box
    need = needed(box, profile, state.asked.search) + back_seconds(box, profile)
    patience = state.asked.drain_s or 0.0
    while True:
        state = _await_window(world, state, need)
        used = None if state.asked.drain_s is None else in_use(box, profile)
        if used is None:
            return state
        began, api = box.clock(), world.means.api_of(used)
        if traffic(api, box.sleep) is not Traffic.NONE:
            limit = f"requests to end, {format_duration(patience)} at most"
            state = _say(world, state, f"waiting for {limit}")
            locks.tell(box.layout.operator_lock, f"waits for {limit}")
        drained = drain(api, patience, box.clock, box.sleep)
        locks.tell(box.layout.operator_lock, "")
        patience = max(0.0, patience - (box.clock() - began))
        if _until_window(world, state, need):
            continue
        if drained:
            return state
        return _say(
            world, state,
            f"not seen idle within {state.asked.drain_s or 0.0:.0f} s; restarting all the same",
        )  # fmt: skip


def _await_window(world: World, state: TuneState, need: float) -> TuneState:
    box = world.means.box
    if _until_window(world, state, need):
        state = _say(world, state, f"waiting for the window {state.asked.window}")
    while wait := _until_window(world, state, need):
        box.sleep(min(WINDOW_LOOK, wait))
    return state


def _until_window(world: World, state: TuneState, need: float) -> float:
    """How long it is until a start that needs so long may begin (s)."""
    if not state.asked.window:
        return 0.0
    return parse_window(state.asked.window).wait(time_of_day(world.means.box.now()), need)


def _say(world: World, state: TuneState, text: str) -> TuneState:
    state = state.saying(world.means.box.now(), text)
    write_state(world.means.box.layout, state)
    world.means.reporter.step(text)
    return state
