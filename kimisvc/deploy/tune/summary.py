"""A search in words: for who watches, and to paste into a ticket. Pure."""

from __future__ import annotations

import time
from statistics import fmean
from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.tune.plan import plan_from
from kimisvc.measure.comparison import say
from kimisvc.measure.contest import RISK_ORDER, Standing, pair, standing
from kimisvc.measure.tuning import Plan, Search, allowed, expected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.deploy.tune.state import TrialRow, TuneState
    from kimisvc.measure.tuning import Fallback

HOUR = 3600.0
SHORT = 600.0
"""Below this many seconds, minutes are told with a tenth."""


def summary(state: TuneState, stopped: str = "") -> str:
    """Given a search, return what was tried, its figures, what it cost, and what was left and why.

    `stopped` says why nobody carries it on, where it is not at its end.
    """
    lines = [f"{_title(state)}", f"asked for: {_asked(state)}", "tried:"]
    lines += [f"  {line}" for line in _tried(state)] or ["  nothing yet"]
    lines += [f"  {line}" for line in _not_tried(state)]
    comparisons = list(_compared(state))
    if comparisons:
        lines += ["compared:", *(f"  {line}" for line in comparisons)]
    lines.append(f"cost: {_cost(state)}")
    if state.ended is not None:
        lines.append(f"ended: {state.ended.why}")
        lines.append(f"left in place: {state.ended.left}{_choice(state)}")
    else:
        lines += [f"{'was at' if stopped else 'now'}: {line}" for line in _now(state)]
        lines += [f"stopped: {stopped}"] if stopped else []
    return "\n".join(lines)


def proposal(state: TuneState) -> str:
    """Given a search that has not begun, return what it would try, in order, and what it would not."""
    lines = [
        f"kimisvc tune, instance {state.instance}",
        f"asked for: {_asked(state)}",
        "would try:",
    ]
    lines += [
        f"  {number}. {one.name}, {one.risk.value}"
        for number, one in enumerate(allowed(_plan(state)), 1)
    ]
    lines += [f"  {line}" for line in _not_tried(state)]
    return "\n".join(lines)


def outlook(
    state: TuneState, start_s: Mapping[str, float | None], fallback: Fallback | None = None
) -> str:
    """Given a search that begins and how long starts take (None: never seen), say how long it will.

    `fallback`: what one that fails gives way to.
    """
    known = {name: seconds or 0.0 for name, seconds in start_s.items()}
    unknown = [name for name, seconds in start_s.items() if seconds is None]
    if unknown:
        return (
            "how long it will take is not known: no load of this model was seen here yet;"
            " the first start will tell"
        )
    times = expected(plan_from(state, known, fallback))
    least, most = spell(times.least), spell(times.most)
    each = spell(max(known.values()))
    span = least if least == most else f"{least} to {most}"
    return f"it will take {span} (a start takes about {each} here)"


def spell(seconds: float) -> str:
    """Given seconds, return them as `72 min`, `4.2 min` or `3 h 05 min`."""
    if seconds < SHORT:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def _title(state: TuneState) -> str:
    until = f" to {_at(state.ended.at)}" if state.ended else ", not ended"
    by = f", by {state.asked.actor}" if state.asked.actor else ""
    return f"kimisvc tune, instance {state.instance}: {_at(state.begun_at)}{until}{by}"


def _asked(state: TuneState) -> str:
    asked = state.asked
    parts = [f"{asked.target} tok/s" if asked.target else "no target"]
    parts.append(asked.search.value)
    parts.append(f"risk {asked.max_risk.value} at most")
    if asked.budget_s is not None:
        parts.append(f"{spell(asked.budget_s)} at most")
    if asked.max_starts is not None:
        parts.append(f"{asked.max_starts} starts at most")
    if asked.window:
        parts.append(f"restarts within {asked.window}")
    return ", ".join(parts)


def _tried(state: TuneState) -> Iterator[str]:
    for number, trial in enumerate(state.trials, 1):
        reason = trial.reason.strip().splitlines()[0] if trial.reason.strip() else ""
        # One that was left to its gate was not judged.
        left = trial.outcome == Outcome.STARTED.value
        verdict = "" if left else f"{trial.verdict.value}, {_speed(trial)}"
        yield f"{number}. {trial.candidate}: {verdict}{reason}; {spell(trial.seconds)}"


def _speed(trial: TrialRow) -> str:
    """The speed, where the reason does not begin with it already."""
    speed = trial.decode_tok_s
    if speed is None or f"{speed.mean:.2f} tok/s" in trial.reason:
        return ""
    return f"{speed.mean:.2f} tok/s (95 % interval {speed.low:.2f} to {speed.high:.2f}): "


def _now(state: TuneState) -> Iterator[str]:
    """What a search that has not ended is at; nothing where it has only begun."""
    if state.pending is not None:
        yield f"a start of {state.pending.candidate}, since {_at(state.pending.at)}"
    elif state.log:
        yield state.log[-1][1]


def _not_tried(state: TuneState) -> Iterator[str]:
    tried = {trial.candidate for trial in state.trials}
    most = RISK_ORDER.index(state.asked.max_risk)
    for one in state.candidates:
        if RISK_ORDER.index(one.risk) > most:
            yield f"not tried: {one.name}, it is {one.risk.value}"
        elif one.name not in tried and state.ended is not None:
            yield f"not tried: {one.name} ({state.ended.why})"


def _compared(state: TuneState) -> Iterator[str]:
    """Each candidate with figures, held against the first that has some, as the search does it.

    On as many starts of each, and at the confidence that leaves room for all its
    looks and pairs: another interval could say what the search did not find.
    """
    plan = _plan(state)
    order = allowed(plan)
    measured = [one for one in order if one.figures]
    for other in measured[1:]:
        base = measured[0]
        starts = min(len(base.figures), len(other.figures))
        each = f"{starts} start{'' if starts == 1 else 's'} of each"
        words = say(pair(base, other, len(order), plan.margin))
        yield f"{other.name} against {base.name} ({each}): {words}"


def _plan(state: TuneState) -> Plan:
    return plan_from(state, {one.name: 0.0 for one in state.candidates})


def _cost(state: TuneState) -> str:
    starts = sum(trial.started for trial in state.trials)
    words = f"{spell(state.spent_s)} in {starts} start{'' if starts == 1 else 's'}"
    if state.restoring_s:
        words += f", {spell(state.restoring_s)} of it to leave the right profile in place"
    return words


def _choice(state: TuneState) -> str:
    """Why the winner is the one it is."""
    winner = state.ended.winner if state.ended else ""
    if not winner:
        return ""
    speeds = [
        trial.decode_tok_s.mean
        for trial in state.trials
        if trial.candidate == winner and trial.verdict.accepted and trial.decode_tok_s
    ]
    figure = f" at {fmean(speeds):.2f} tok/s" if speeds else ""
    if state.asked.search is Search.FIRST_THAT_MEETS and len(state.trials) == 1:
        return f"{figure}; no other had to be started"
    others = {trial.candidate for trial in state.trials} - {winner}
    return f"{figure}; {_how_sure(state, winner)}" if others else figure


def _how_sure(state: TuneState, winner: str) -> str:
    """What is shown of the winner: no more than the comparisons above it say."""
    plan = _plan(state)
    order = allowed(plan)
    chosen = next((one for one in order if one.name == winner and one.usable), None)
    if chosen is None:
        return Standing.SHOWN.value
    missed = chosen.meets and any(one.usable and not one.meets for one in order)
    if missed and not any(one.usable and one.meets for one in order if one is not chosen):
        return "the only one that met the target"
    group = "of those that met the target, " if missed else ""
    return f"{group}{standing(chosen, order, plan.margin).value}"


def _at(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
