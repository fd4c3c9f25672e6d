"""From what a search remembers to the plan that says what comes next, and how long a start takes."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.measure.comparison import StartFigure
from kimisvc.measure.contest import Candidate, Trial
from kimisvc.measure.gate import budget
from kimisvc.measure.tuning import Budget, Fallback, Plan, Search, Spent
from kimisvc.profile.resolved import to_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.history import History
    from kimisvc.deploy.tune.state import TrialRow, TuneState
    from kimisvc.records.profile import Profile


@dataclass(frozen=True, slots=True)
class Durations:
    """How long starts took here (s). None: never seen.

    `load_s`: from the start to ready. `gate_s`: from ready to the verdict.
    """

    load_s: float | None
    gate_s: float | None

    @property
    def start_s(self) -> float | None:
        """From the start to the verdict; None where no load was seen."""
        return None if self.load_s is None else self.load_s + (self.gate_s or 0.0)


def durations(history: History, model: str) -> Durations:
    """Given a history and a model, return how long its starts took; a damaged one saw none.

    Of gates those count that told a speed: one that ends at a golden question, or as the
    server dies, takes a moment, and says nothing of the runs that the next will make.
    """
    try:
        loads = history.loads(model)
        ready = {s.invocation: s.ready_at for s in history.starts(50) if s.model == model}
        gates = [
            verdict.at - moment
            for verdict in history.verdicts(limit=50)
            if verdict.decode_tok_s is not None
            and (moment := ready.get(verdict.invocation)) is not None
            and verdict.at > moment
        ]
    except KimisvcError:
        return Durations(None, None)
    # A gate that was run again long after the start would tell of that time, not of itself.
    return Durations(median(loads) if loads else None, min(gates) if gates else None)


def start_seconds(box: Box, profile: Profile, search: Search) -> float | None:
    """Given a candidate, return how long a start of it will take here (s); None: never seen.

    Where the question is whether it meets a target and it runs already, only
    its gate is run again.
    """
    seen = durations(box.history, profile.vllm.model)
    if search is Search.FIRST_THAT_MEETS and _runs(box, profile):
        return budget(profile) if seen.gate_s is None else seen.gate_s
    return seen.start_s


def needed(box: Box, profile: Profile, search: Search) -> float:
    """Given a profile, return how long a start of it takes here, or the most it can take (s)."""
    seen = start_seconds(box, profile, search)
    return longest(profile) if seen is None else seen


def _runs(box: Box, profile: Profile) -> bool:
    """Whether it is loaded: it was accepted, or at least a gate has judged the start that runs."""
    current, accepted = box.generations.sound_current(), box.generations.sound_accepted()
    service = box.systemd.state(box.layout.units.service)
    if current is None or service.active_state != "active":
        return False
    try:
        same = current.resolved() == to_toml(profile)
        newest = next(iter(box.history.verdicts(limit=1)), None)
    except KimisvcError:
        return False
    judged = newest is not None and newest.invocation == service.invocation_id
    return same and (judged or (accepted is not None and accepted.number == current.number))


def longest(profile: Profile) -> float:
    """Given a profile, return how long a start of it can take at most, to its verdict (s)."""
    return profile.service.load_timeout + budget(profile)


def fallback_of(box: Box, resolved: Mapping[str, str], before: int | None) -> Fallback:
    """Given a box and what each candidate is, resolved, return what one that fails gives way to.

    `before`: the generation that was accepted before the search.
    """
    accepted = box.generations.sound_accepted()
    if accepted is None:
        return Fallback()
    running = ""
    with contextlib.suppress(KimisvcError):
        if box.generations.current_number() == accepted.number:
            text = accepted.resolved()
            running = next((name for name, one in resolved.items() if one == text), "")
    replaced = before is not None and before != accepted.number
    return Fallback(
        _full_start(box, accepted.number), running, _full_start(box, before) if replaced else 0.0
    )


def back_seconds(box: Box, profile: Profile) -> float:
    """Given a profile that is to be started, return how long what is accepted takes to be put back (s)."""
    found = fallback_of(box, {profile.name: to_toml(profile)}, None)
    return 0.0 if found.running else found.start_s


def _full_start(box: Box, number: int | None) -> float:
    """How long a start of a generation takes, load and all; 0 of a damaged one, which none goes back to."""
    try:
        return 0.0 if number is None else needed(
            box, box.generations.get(number).settings(), Search.EXPLORE
        )  # fmt: skip
    except KimisvcError:
        return 0.0


def plan_from(
    state: TuneState, start_s: Mapping[str, float], fallback: Fallback | None = None
) -> Plan:
    """Given a search, how long a start of each candidate takes (s) and what one that fails gives way to.

    What candidates themselves took goes before that in a comparison, where each start is
    a load; where a target is to be met, it may have been a gate alone.
    """
    asked = state.asked
    candidates = []
    for one in state.candidates:
        trials = [trial for trial in state.trials if trial.candidate == one.name]
        took = [trial.seconds for trial in trials if trial.verdict.accepted]
        seconds = median(took) if took else start_s[one.name]
        if asked.search is Search.FIRST_THAT_MEETS:
            seconds = max(seconds, start_s[one.name])
        candidates.append(
            Candidate(
                one.name, one.risk, one.differences, seconds,
                tuple(_as_trial(trial) for trial in trials),
            )
        )  # fmt: skip
    spent = Budget(
        math.inf if asked.budget_s is None else asked.budget_s,
        math.inf if asked.max_starts is None else asked.max_starts,
    )
    return Plan(
        tuple(candidates), asked.search, asked.max_risk, spent, asked.margin, fallback or Fallback()
    )


def spent(state: TuneState) -> Spent:
    """Given a search, return what it has cost: every second, and the starts that measure."""
    return Spent(state.spent_s, sum(trial.started for trial in state.trials))


def _as_trial(row: TrialRow) -> Trial:
    figure = None
    if row.decode_tok_s is not None and row.decode_tok_s.mean > 0:
        figure = StartFigure(row.decode_tok_s.mean, row.error)
    return Trial(row.verdict, figure)
