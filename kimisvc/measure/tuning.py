"""Says which profile to start next, or to stop and which to keep. Pure.

A start of the model is what everything costs, so the plan makes as few as
answer the question. Without `Search.EXPLORE` the question is whether the target
can be met: the first profile that meets it ends the search. With it the
question is which profile is faster: starts are interleaved forwards and
backwards (A B B A), so that a drift of the box falls on all alike, until
every pair that matters is settled or the budget is spent.

The plan is a function of what was measured so far, so a search that was cut
off goes on by asking again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.measure.comparison import MARGIN, Difference
from kimisvc.measure.contest import RISK_ORDER, Candidate, Trial, fastest, pair, winner
from kimisvc.measure.statistics import ENOUGH
from kimisvc.records.profile import Risk
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_STARTS_EACH = 10
"""Where a comparison ends that no budget ends."""


class Search(Enum):
    """What is searched for."""

    FIRST_THAT_MEETS = "the first that meets the target"
    EXPLORE = "the fastest"


class Why(Enum):
    """Why a search stops."""

    TARGET_MET = "the target is met"
    SETTLED = "the comparison is settled"
    ALL_TRIED = "all candidates were tried"
    BUDGET_SPENT = "the budget is spent"
    UNSETTLED = f"{MOST_STARTS_EACH} starts of each did not settle it"
    NONE_ALLOWED = "every candidate is over the allowed risk"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may cost: seconds in all, and starts that measure."""

    seconds: float = math.inf
    starts: float = math.inf


@dataclass(frozen=True, slots=True)
class Spent:
    """What a search has cost so far."""

    seconds: float = 0.0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a candidate that fails its gate gives way to: a load that nobody asked for.

    `start_s`: how long a start of what is accepted now takes (s); 0 where nothing
    is. `running`: the candidate that is accepted and runs, whose own FAIL brings
    nothing back; "" for none. `before_s`: a start of what was accepted before the
    search, where another was accepted since: it comes back where none is good enough.
    """

    start_s: float = 0.0
    running: str = ""
    before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be found out, among which profiles; the first listed is tried first."""

    candidates: tuple[Candidate, ...]
    search: Search = Search.FIRST_THAT_MEETS
    max_risk: Risk = Risk.SAFE_ISH
    budget: Budget = Budget()
    margin: float = MARGIN
    fallback: Fallback = Fallback()


@dataclass(frozen=True, slots=True)
class Start:
    """Start this candidate and measure it; in a comparison anew, even if it is the one that runs."""

    candidate: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop, and leave the winner in place: start it if another one runs. "": none was accepted."""

    why: Why
    winner: str


@dataclass(frozen=True, slots=True)
class Expected:
    """How long a search takes at the least and at the most (s)."""

    least: float
    most: float


def allowed(plan: Plan) -> tuple[Candidate, ...]:
    """Given a plan, return what it may start, in order: the first listed, then by risk."""
    fit = [c for c in plan.candidates if _rank(c.risk) <= _rank(plan.max_risk)]
    first = [c for c in fit if c is plan.candidates[0]]
    return (*first, *sorted((c for c in fit if c not in first), key=lambda c: _rank(c.risk)))


def next_step(plan: Plan, spent: Spent) -> Start | Stop:
    """Given a plan with all figures so far and what they cost, return what to do next.

    It never starts what is over the allowed risk or over the budget: there has to be time
    for the start, and for all that putting other profiles back after it takes, also if it fails.
    """
    order = allowed(plan)
    if not order:
        return Stop(Why.NONE_ALLOWED, "")
    found = _first(order) if plan.search is Search.FIRST_THAT_MEETS else _explored(order, plan)
    if isinstance(found, Candidate):
        if _affordable(found, order, plan, spent):
            return Start(found.name)
        found = Why.BUDGET_SPENT
    chosen = winner(order, plan.margin)
    return Stop(found, chosen.name if chosen else "")


def expected(plan: Plan) -> Expected:
    """Given a plan before its first start, return how long it will take, from the loads known.

    A gate that is run once more or goes on because it could not tell is not reckoned with.
    """
    order = allowed(plan)
    each = [one.start_s for one in order]
    if not each:
        return Expected(0.0, 0.0)
    if plan.search is Search.FIRST_THAT_MEETS or len(each) == 1:
        least, rounds = each[0], 1
    else:
        least, rounds = ENOUGH * sum(each), MOST_STARTS_EACH
    starts = min(plan.budget.starts, rounds * len(each))
    most = min(rounds * sum(each), starts * max(each))
    most += _put_back(order, starts, plan.fallback) * max(plan.fallback.start_s, *each)
    most = min(most, plan.budget.seconds)
    return Expected(min(least, most), most)


def _put_back(order: Sequence[Candidate], starts: float, fallback: Fallback) -> float:
    """Given the candidates and how many starts there may be, return how often another is put back at most.

    Each candidate fails once at most, and is then tried no more; what is accepted comes
    back. One that does not fail may have to make way in the end, once in all. Where
    nothing was accepted before, or the first itself, its failing brings nothing back.
    """
    most = min(starts, len(order))
    nothing = fallback.start_s == 0 or fallback.running == order[0].name
    return max(0.0, most - 1 if nothing else most)


def _first(order: Sequence[Candidate]) -> Candidate | Why:
    """Given the candidates in order, return the next to try, or why there is none to try.

    One whose gate could not tell runs still, as nothing was started after it: to
    ask its gate once more costs no load, and the next candidate costs one.
    """
    if any(one.usable and one.meets for one in order):
        return Why.TARGET_MET
    newest = next((one for one in reversed(order) if one.trials), None)
    if newest is not None and newest.unknown and not newest.failed:
        return newest
    return next((one for one in order if not one.trials), Why.ALL_TRIED)


def _explored(order: Sequence[Candidate], plan: Plan) -> Candidate | Why:
    """Given the candidates in order, return whose turn it is, or why there is no turn left."""
    left = [one for one in order if not one.failed]
    if not left:
        return Why.ALL_TRIED
    done = min(len(one.trials) for one in left)
    if done >= 1 and len(left) == 1:
        return Why.ALL_TRIED
    open_ones = _unsettled(left, len(order), plan.margin) if done >= ENOUGH else left
    if not open_ones:
        return Why.SETTLED
    done = min(len(one.trials) for one in open_ones)
    if done >= MOST_STARTS_EACH:
        return Why.UNSETTLED
    turns = open_ones if done % 2 == 0 else list(reversed(open_ones))
    return next(one for one in turns if len(one.trials) == done)


def _unsettled(left: Sequence[Candidate], contestants: int, margin: float) -> list[Candidate]:
    """Given who is left, return the fastest with all who are not yet told from it; none if all are."""
    with_figures = [one for one in left if one.figures]
    if not with_figures:
        return list(left)
    best = fastest(with_figures)
    close = [
        one
        for one in left
        if one is not best
        and (
            not one.figures
            or pair(best, one, contestants, margin).verdict is Difference.INCONCLUSIVE
        )
    ]
    return [one for one in left if one is best or one in close] if close else []


def _affordable(one: Candidate, order: Sequence[Candidate], plan: Plan, spent: Spent) -> bool:
    """Whether there is time to start it, and for what has to be put back then, however it ends."""
    seconds = spent.seconds + one.start_s + max(_if_it_runs(one, order, plan.fallback),
                                                _if_it_fails(one, order, plan))  # fmt: skip
    return seconds <= plan.budget.seconds and spent.starts + 1 <= plan.budget.starts


def _if_it_runs(one: Candidate, order: Sequence[Candidate], fallback: Fallback) -> float:
    """Given the next candidate, return how long it takes to leave another in place after it (s).

    Any of the others may win. Without any it is good enough, or gives way to what
    was accepted before the search.
    """
    others = [other.start_s for other in order if other is not one and other.usable]
    if others:
        return max(others)
    is_itself = fallback.running == one.name and fallback.before_s == 0
    return 0.0 if is_itself else fallback.before_s or fallback.start_s


def _if_it_fails(one: Candidate, order: Sequence[Candidate], plan: Plan) -> float:
    """Given the next candidate, return how long it takes until the right one runs if it fails (s).

    What is accepted comes back by itself; that need not be the winner of the others.
    """
    fallback = plan.fallback
    failed = replace(one, trials=(*one.trials, Trial(VerdictKind.FAIL)))
    chosen = winner([failed if other is one else other for other in order], plan.margin)
    back = 0.0 if fallback.running == one.name else fallback.start_s
    if chosen is None:
        return back + fallback.before_s
    return back if chosen.name == fallback.running else back + chosen.start_s


def _rank(risk: Risk) -> int:
    return RISK_ORDER.index(risk)
