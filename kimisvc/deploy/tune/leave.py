"""The end of a search: the right profile is put in place, and what is there is told honestly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.deploy.generations import PROFILE
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.plan import Action
from kimisvc.deploy.restorable import proven
from kimisvc.deploy.tune.state import Ended, Pending, TuneState, write_state
from kimisvc.deploy.tune.trial import carry_out
from kimisvc.deploy.tune.waiting import wait_to_restart
from kimisvc.deploy.tune.world import kept_wish
from kimisvc.deploy.wish import Reload, plan_of
from kimisvc.errors import ExitStatus, KimisvcError
from kimisvc.host import files
from kimisvc.records.proof import VerdictKind
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.tune.state import TrialRow
    from kimisvc.deploy.tune.world import World
    from kimisvc.deploy.wish import Wish
    from kimisvc.measure.tuning import Stop

RUNS = (Outcome.UNCHANGED.value, Outcome.RECORDED.value, Outcome.ACCEPTED.value)


def leave(world: World, state: TuneState, stop: Stop) -> TuneState:
    """Given a search that stops, put its winner in place, or what was accepted before it began.

    Where the winner fails now, that is a start like any other: the search is
    returned not ended, and chooses anew.
    """
    box = world.means.box
    why = stop.why.value
    if not stop.winner:
        return _without_winner(world, state, why)
    wish = kept_wish(world, state, stop.winner)
    state, row = _put_back(world, state, stop.winner, wish)
    if row.outcome in RUNS:
        left = f"{stop.winner}, accepted and running"
        return _end(box, state, why, stop.winner, left, ExitStatus.DONE)
    if row.verdict is VerdictKind.INCONCLUSIVE:
        state, row = _put_back(world, state, stop.winner, replace(wish, reload=Reload.PROVE))
        if row.outcome in RUNS:
            left = f"{stop.winner}, accepted and running"
            return _end(box, state, why, stop.winner, left, ExitStatus.DONE)
    if row.verdict is VerdictKind.FAIL:
        # Not the winner any more; its seconds are counted as those of this start.
        state = replace(state, restoring_s=state.restoring_s - row.seconds)
        return replace(state, trials=(*state.trials, row))
    if row.outcome == Outcome.INCONCLUSIVE.value:
        left = f"{stop.winner}, running but not proven this time: {row.reason}"
        return _end(box, state, why, stop.winner, left, ExitStatus.INCONCLUSIVE)
    left = f"{stop.winner} was to be left in place and was not: {row.reason}; {what_runs(box)}"
    return _end(box, state, why, "", left, ExitStatus.NOT_RESTORED)


def _without_winner(world: World, state: TuneState, why: str) -> TuneState:
    """None was good enough: back to what was accepted before the search, where that still is."""
    box = world.means.box
    target, what = _fallback(box, state)
    if target is None:
        nothing = f"{_none_accepted(box)}, so nothing is put back; {what_runs(box)}"
        return _end(box, state, why, "", nothing, ExitStatus.NOT_RESTORED)
    try:
        wish = wish_of(target, world)
    except KimisvcError as error:
        lost = f"generation {target.label} is lost ({error.message}); {what_runs(box)}"
        return _end(box, state, why, "", lost, ExitStatus.NOT_RESTORED)
    state, row = _put_back(world, state, target.profile, wish)
    if row.outcome in RUNS:
        left = f"{target.profile}, {what}"
        return _end(box, state, why, "", left, ExitStatus.ROLLED_BACK)
    left = f"{target.profile} was to be put back and was not proven: {row.reason}; {what_runs(box)}"
    return _end(box, state, why, "", left, ExitStatus.NOT_RESTORED)


def _fallback(box: Box, state: TuneState) -> tuple[Generation | None, str]:
    """What to put back where no candidate is good enough, and what to say of it."""
    if state.before is not None and box.generations.is_whole(state.before):
        return box.generations.get(state.before), "which was accepted before this search, runs"
    lost = "" if state.before is None else f"; generation {state.before}, from before, is damaged"
    return (
        box.generations.sound_accepted(),
        f"accepted by its own gate although it is not what was asked for, runs{lost}",
    )


def wish_of(generation: Generation, world: World) -> Wish:
    """Given a generation, return the wish for it as it was written then. Raise KimisvcError."""
    resolved = generation.resolved()
    units = tuple(UnitFile(unit.name, unit.text) for unit in generation.units())
    # Its text as written goes with its file: only where the two are alike is the file named again.
    written = files.read_text(generation.path / PROFILE)
    wish = world.wish_of(generation.settings(), written, generation.file)
    return replace(wish, resolved=resolved, units=units)


def _put_back(world: World, state: TuneState, name: str, wish: Wish) -> tuple[TuneState, TrialRow]:
    """Bring a wish about where it does not run yet; return the search with the seconds that took."""
    box = world.means.box
    if _restarts(box, wish):
        state = wait_to_restart(world, state, wish.profile)
    state = state.saying(box.now(), f"leaving {name} in place")
    write_state(box.layout, state)
    world.means.reporter.step(state.log[-1][1])
    began = Pending(name, box.history.sequence(), box.now())
    row = carry_out(world.means, replace(wish, actor=state.asked.acting), began, None)
    return replace(state, restoring_s=state.restoring_s + row.seconds), row


def _none_accepted(box: Box) -> str:
    """Say why no generation can be put back: none was ever accepted, or that is not known any more."""
    try:
        never = not proven(box)
    except KimisvcError:
        never = False
    return "nothing was ever accepted" if never else "which generation was accepted is not known"


def _restarts(box: Box, wish: Wish) -> bool:
    try:
        return plan_of(box, wish).action is Action.RESTART
    except KimisvcError:
        return True  # not known: then as if


def what_runs(box: Box) -> str:
    """Given a box, say what runs now, and whether it is accepted."""
    current = box.generations.sound_current()
    service = box.systemd.state(box.layout.units.service)
    if current is None:
        return "no generation is in place"
    accepted = box.generations.sound_accepted()
    proven = accepted is not None and accepted.number == current.number
    standing = "accepted" if proven else "not accepted"
    return f"generation {current.label}, {standing}, is {service.active_state}"


def _end(
    box: Box, state: TuneState, why: str, winner: str, left: str, status: ExitStatus
) -> TuneState:
    ended = Ended(box.now(), why, winner, left, int(status))
    return replace(state, ended=ended).saying(box.now(), f"ended: {why}; {left}")
