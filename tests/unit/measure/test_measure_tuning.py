"""The plan: step by step on stories, and what holds of any box, budget and luck."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimisvc.measure.comparison import StartFigure
from kimisvc.measure.contest import RISK_ORDER, Candidate, Trial
from kimisvc.measure.tuning import (
    MOST_STARTS_EACH,
    Budget,
    Expected,
    Fallback,
    Plan,
    Search,
    Spent,
    Start,
    Stop,
    Why,
    allowed,
    expected,
    next_step,
)
from kimisvc.records.profile import Risk
from kimisvc.records.proof import VerdictKind

PASS, DEGRADED = VerdictKind.PASS, VerdictKind.DEGRADED
FAIL, UNKNOWN = VerdictKind.FAIL, VerdictKind.INCONCLUSIVE
LOAD = 2160.0
"""Kimi-K2.5 on the owner's box: 36 minutes (s)."""


def trial(speed: float, kind: VerdictKind = PASS) -> Trial:
    return Trial(kind, StartFigure(speed))


@dataclass
class Played:
    """A search that was played to its end: what was started, what it cost, how it stopped.

    `running` and `accepted`: what does so in the end; OLD: what was accepted before.
    """

    stop: Stop
    starts: list[str] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    running: str = ""
    accepted: str = ""


OLD = "what was accepted before"


def fallback_now(plan: Plan, played: Played, old_s: float) -> Fallback:
    """Given where a search is, return what one that fails gives way to, as the box would tell it."""
    start_s = {OLD: old_s, "": 0.0} | {one.name: one.start_s for one in plan.candidates}
    runs = played.accepted if played.accepted == played.running != OLD else ""
    replaced = old_s and played.accepted != OLD
    return Fallback(start_s[played.accepted], runs, old_s if replaced else 0.0)


def play(plan: Plan, outcomes: dict[str, list[Trial]]) -> Played:
    """Given a plan and what the starts of each candidate come to (the last for ever), follow it.

    One that fails is followed by a load of what is accepted, unless that is itself.
    """
    old_s = plan.fallback.start_s
    played = Played(Stop(Why.ALL_TRIED, ""))
    played.running = played.accepted = plan.fallback.running or (OLD if old_s else "")
    for _ in range(1000):
        plan = replace(plan, fallback=fallback_now(plan, played, old_s))
        step = next_step(plan, played.spent)
        if isinstance(step, Stop):
            played.stop = step
            return played
        one = next(c for c in plan.candidates if c.name == step.candidate)
        came = outcomes[one.name][min(len(one.trials), len(outcomes[one.name]) - 1)]
        # Asked whether it meets a target, what is loaded already costs its gate alone: seconds.
        again = plan.search is Search.FIRST_THAT_MEETS and played.starts[-1:] == [one.name]
        played.starts.append(one.name)
        cost = 0.0 if again else one.start_s
        itself = played.accepted == played.running == one.name
        played.running = one.name
        if came.verdict.accepted:
            played.accepted = one.name
        elif came.verdict is FAIL and not itself and played.accepted:
            cost += plan.fallback.start_s
            played.running = played.accepted
        played.spent = Spent(played.spent.seconds + cost, played.spent.starts + 1)
        after = replace(one, trials=(*one.trials, came))
        plan = replace(plan, candidates=tuple(after if c is one else c for c in plan.candidates))
    pytest.fail("it goes on and on")


BASE = Candidate("baseline", Risk.SAFE, 0, LOAD)
RING = Candidate("ll_ring", Risk.SAFE_ISH, 5, LOAD)
RISKY = Candidate("p2p", Risk.RISKY, 1, LOAD)


# ------------------------------------------------------------------ stories


def test_the_owners_story_costs_one_load() -> None:
    played = play(Plan((BASE, RING)), {"baseline": [trial(81.4)], "ll_ring": [trial(81.9)]})
    assert played.starts == ["baseline"]
    assert played.stop == Stop(Why.TARGET_MET, "baseline")


def test_a_target_that_is_missed_is_tried_with_the_next() -> None:
    outcomes = {"baseline": [Trial(FAIL)], "ll_ring": [trial(55.0)]}
    played = play(Plan((BASE, RING)), outcomes)
    assert played.starts == ["baseline", "ll_ring"]
    assert played.stop == Stop(Why.TARGET_MET, "ll_ring")


def test_between_floor_and_goal_is_not_met_and_the_faster_is_kept() -> None:
    outcomes = {"baseline": [trial(41.0, DEGRADED)], "ll_ring": [trial(48.0, DEGRADED)]}
    assert play(Plan((BASE, RING)), outcomes).stop == Stop(Why.ALL_TRIED, "ll_ring")


def test_nothing_that_works_is_no_winner() -> None:
    outcomes = {"baseline": [Trial(FAIL)], "ll_ring": [Trial(UNKNOWN)]}
    assert play(Plan((BASE, RING)), outcomes).stop == Stop(Why.ALL_TRIED, "")


def test_what_could_not_be_judged_is_asked_once_more_while_it_runs() -> None:
    outcomes = {"baseline": [Trial(UNKNOWN), trial(81.4)], "ll_ring": [trial(90.0)]}
    played = play(Plan((BASE, RING)), outcomes)
    assert played.starts == ["baseline", "baseline"]
    assert played.spent.seconds == LOAD
    assert played.stop == Stop(Why.TARGET_MET, "baseline")


def test_what_could_not_be_judged_twice_is_given_up() -> None:
    outcomes = {"baseline": [Trial(UNKNOWN)], "ll_ring": [Trial(UNKNOWN), trial(55.0)]}
    played = play(Plan((BASE, RING)), outcomes)
    assert played.starts == ["baseline", "baseline", "ll_ring", "ll_ring"]
    assert played.stop == Stop(Why.TARGET_MET, "ll_ring")


def test_what_does_not_run_any_more_is_not_asked_again() -> None:
    before = replace(BASE, trials=(Trial(UNKNOWN),))
    after = replace(RING, trials=(trial(41.0, DEGRADED),))
    assert next_step(Plan((before, after)), Spent()) == Stop(Why.ALL_TRIED, "ll_ring")


def test_the_first_listed_is_tried_first_and_the_others_by_risk() -> None:
    calm = Candidate("calm", Risk.SAFE, 1, LOAD)
    plan = Plan((RING, RISKY, BASE, calm), max_risk=Risk.RISKY)
    assert [one.name for one in allowed(plan)] == ["ll_ring", "baseline", "calm", "p2p"]


def test_what_is_over_the_risk_is_left_out_though_it_is_first() -> None:
    assert [one.name for one in allowed(Plan((RISKY, RING, BASE)))] == ["baseline", "ll_ring"]
    assert next_step(Plan((RISKY,)), Spent()) == Stop(Why.NONE_ALLOWED, "")
    assert next_step(Plan(()), Spent()) == Stop(Why.NONE_ALLOWED, "")


def test_a_search_that_was_cut_off_goes_on_where_it_was() -> None:
    done = replace(BASE, trials=(trial(41.0, DEGRADED),))
    assert next_step(Plan((done, RING)), Spent(LOAD, 1)) == Start("ll_ring")


def test_exploring_is_interleaved_there_and_back_until_it_is_settled() -> None:
    outcomes = {
        "baseline": [trial(v) for v in (55.33, 55.44)],
        "ll_ring": [trial(v) for v in (60.43, 60.32)],
    }
    played = play(Plan((BASE, RING), Search.EXPLORE), outcomes)
    assert played.starts == ["baseline", "ll_ring", "ll_ring", "baseline"]
    assert played.stop == Stop(Why.SETTLED, "ll_ring")


def test_exploring_goes_on_though_the_target_is_met() -> None:
    step = next_step(Plan((replace(BASE, trials=(trial(81.4),)), RING), Search.EXPLORE), Spent())
    assert step == Start("ll_ring")


def test_equal_profiles_end_with_the_simplest() -> None:
    outcomes = {
        "ll_ring": [trial(v) for v in (50.0, 50.02, 50.01)],
        "baseline": [trial(v) for v in (50.01, 50.0, 50.02)],
    }
    played = play(Plan((RING, BASE), Search.EXPLORE), outcomes)
    assert played.stop == Stop(Why.SETTLED, "baseline")
    assert len(played.starts) == 4


def test_what_is_told_from_the_fastest_is_started_no_more() -> None:
    third = Candidate("third", Risk.SAFE, 2, LOAD)
    outcomes = {
        "baseline": [trial(v) for v in (30.0, 30.01)],
        "third": [trial(v) for v in (50.0, 51.5, 49.0, 50.4, 50.1, 50.3)],
        "ll_ring": [trial(v) for v in (50.5, 49.2, 51.4, 50.0, 50.2, 50.3)],
    }
    played = play(Plan((BASE, third, RING), Search.EXPLORE), outcomes)
    assert played.starts.count("baseline") == 3
    assert played.starts.count("third") == MOST_STARTS_EACH
    assert played.stop.winner == "third"


def test_a_profile_that_failed_is_started_no_more() -> None:
    outcomes = {"baseline": [trial(50.0)], "ll_ring": [Trial(FAIL)]}
    played = play(Plan((BASE, RING), Search.EXPLORE), outcomes)
    assert played.starts == ["baseline", "ll_ring"]
    assert played.stop == Stop(Why.ALL_TRIED, "baseline")


def test_a_comparison_that_nothing_settles_ends() -> None:
    noisy = [trial(v) for v in (40.0, 70.0, 41.0, 69.0, 50.0)]
    played = play(Plan((BASE, RING), Search.EXPLORE), {"baseline": noisy, "ll_ring": noisy[::-1]})
    assert played.stop == Stop(Why.UNSETTLED, "baseline")
    assert len(played.starts) == 2 * MOST_STARTS_EACH


def test_a_budget_of_time_leaves_room_to_put_the_winner_back() -> None:
    plan = Plan((BASE, RING), budget=Budget(seconds=3 * LOAD - 1))
    outcomes = {"baseline": [trial(41.0, DEGRADED)], "ll_ring": [trial(81.9)]}
    played = play(plan, outcomes)
    assert played.starts == ["baseline"]
    assert played.stop == Stop(Why.BUDGET_SPENT, "baseline")
    assert play(replace(plan, budget=Budget(seconds=3 * LOAD)), outcomes).starts == [
        "baseline",
        "ll_ring",
    ]


@pytest.mark.parametrize(
    ("plan", "outcomes", "loads"),
    [
        # Both fail, and what was accepted before is loaded after each.
        (Plan((BASE, RING), fallback=Fallback(LOAD)),
         {"baseline": [Trial(FAIL)], "ll_ring": [Trial(FAIL)]}, 4),
        # Nothing was there before; the first is good enough to be put back after each of the others.
        (Plan((BASE, RING, replace(RING, name="third"))),
         {"baseline": [trial(41.0, DEGRADED)], "ll_ring": [Trial(FAIL)], "third": [Trial(FAIL)]}, 5),
    ],
)  # fmt: skip
def test_the_load_that_a_failure_brings_back_is_reckoned_with(
    plan: Plan, outcomes: dict[str, list[Trial]], loads: int
) -> None:
    assert play(plan, outcomes).spent.seconds == loads * LOAD == expected(plan).most
    tight = replace(plan, budget=Budget(seconds=loads * LOAD - 1))
    assert play(tight, outcomes).spent.seconds == (loads - 2) * LOAD


def test_no_budget_for_a_failure_is_no_budget_for_a_start() -> None:
    plan = Plan((RING,), budget=Budget(seconds=LOAD + 300), fallback=Fallback(LOAD))
    assert next_step(plan, Spent()) == Stop(Why.BUDGET_SPENT, "")
    # What runs already, and is what is accepted, brings nothing back.
    running = replace(plan, fallback=Fallback(LOAD, "ll_ring"))
    assert next_step(running, Spent()) == Start("ll_ring")


def test_a_failure_may_bring_back_another_than_the_winner() -> None:
    """The slower was accepted last: it comes back first, and then gives way to the faster."""
    quick = replace(BASE, trials=(trial(48.0, DEGRADED),))
    slow = replace(RING, trials=(trial(41.0, DEGRADED),))
    third = Candidate("third", Risk.SAFE_ISH, 6, LOAD)
    plan = Plan((quick, slow, third), fallback=Fallback(LOAD, "ll_ring"))
    before = Spent(2 * LOAD, 2)
    assert next_step(replace(plan, budget=Budget(5 * LOAD)), before) == Start("third")
    stop = next_step(replace(plan, budget=Budget(5 * LOAD - 1)), before)
    assert stop == Stop(Why.BUDGET_SPENT, "baseline")


def test_a_budget_of_starts_counts_those_that_measure() -> None:
    outcomes = {"baseline": [trial(50.0)], "ll_ring": [trial(60.0)]}
    plan = Plan((BASE, RING), Search.EXPLORE, budget=Budget(starts=3))
    played = play(plan, outcomes)
    assert played.starts == ["baseline", "ll_ring", "ll_ring"]
    assert played.stop == Stop(Why.BUDGET_SPENT, "ll_ring")


def test_no_budget_at_all_starts_nothing() -> None:
    assert next_step(Plan((BASE,), budget=Budget(starts=0)), Spent()) == Stop(Why.BUDGET_SPENT, "")


def test_how_long_it_takes_is_said_before() -> None:
    assert expected(Plan((BASE, RING))) == Expected(LOAD, 3 * LOAD)
    assert expected(Plan((BASE,))) == Expected(LOAD, LOAD)
    assert expected(Plan((BASE, RING), Search.EXPLORE)) == Expected(4 * LOAD, 21 * LOAD)
    short = Plan((BASE, RING), Search.EXPLORE, budget=Budget(seconds=10_000.0))
    assert expected(short) == Expected(4 * LOAD, 10_000.0)
    few = Plan((BASE, RING), Search.EXPLORE, budget=Budget(starts=2))
    assert expected(few) == Expected(3 * LOAD, 3 * LOAD)
    assert expected(Plan((RISKY,))) == Expected(0.0, 0.0)
    old = Fallback(LOAD)
    assert expected(Plan((BASE,), fallback=old)) == Expected(LOAD, 2 * LOAD)
    assert expected(Plan((BASE, RING), fallback=old)) == Expected(LOAD, 4 * LOAD)
    # Where the first is what is accepted and runs, only the other brings something back.
    runs = replace(BASE, start_s=30.0)
    itself = Fallback(LOAD, "baseline")
    assert expected(Plan((runs, RING), fallback=itself)) == Expected(30.0, 30.0 + 2 * LOAD)
    assert expected(Plan((runs,), fallback=itself)) == Expected(30.0, 30.0)


# ------------------------------------------------------------------ what always holds

trials = st.one_of(
    st.builds(trial, st.floats(30, 90), st.sampled_from([PASS, DEGRADED])),
    st.builds(trial, st.floats(49, 51), st.just(PASS)),
    st.builds(Trial, st.sampled_from([FAIL, UNKNOWN])),
)
named = st.lists(
    st.tuples(st.sampled_from(Risk), st.integers(0, 9), st.floats(1, 5000)), min_size=1, max_size=4
).map(lambda rows: tuple(Candidate(f"c{i}", *row) for i, row in enumerate(rows)))
plans = st.builds(
    Plan,
    candidates=named,
    search=st.sampled_from(Search),
    max_risk=st.sampled_from(Risk),
    budget=st.builds(
        Budget,
        seconds=st.one_of(st.just(math.inf), st.floats(0, 40_000)),
        starts=st.one_of(st.just(math.inf), st.integers(0, 12).map(float)),
    ),
    fallback=st.one_of(st.just(Fallback()), st.floats(1, 5000).map(Fallback)),
)
luck = st.lists(st.lists(trials, min_size=1, max_size=5), min_size=4, max_size=4).map(
    lambda rows: {f"c{i}": row for i, row in enumerate(rows)}
)


def in_the_end(plan: Plan, played: Played) -> float:
    """Given a search that has stopped, return how long it takes to put in place what is to be left."""
    if not played.stop.winner:
        return 0.0 if played.running == OLD else plan.fallback.start_s
    if played.running == played.stop.winner:
        return 0.0
    return next(c.start_s for c in plan.candidates if c.name == played.stop.winner)


@settings(deadline=None)
@given(plans, luck)
def test_any_search_ends_within_its_budget_and_under_its_risk(
    plan: Plan, outcomes: dict[str, list[Trial]]
) -> None:
    played = play(plan, outcomes)
    by_name = {one.name: one for one in plan.candidates}
    assert played.spent.seconds + in_the_end(plan, played) <= plan.budget.seconds + 1e-6
    assert played.spent.starts <= plan.budget.starts
    assert played.spent.starts <= MOST_STARTS_EACH * len(plan.candidates)
    top = RISK_ORDER.index(plan.max_risk)
    assert all(RISK_ORDER.index(by_name[name].risk) <= top for name in played.starts)
    assert played.stop.winner in {"", *played.starts}


@settings(deadline=None)
@given(named, luck, st.sampled_from(Risk))
def test_a_target_met_by_the_first_is_exactly_one_start(
    candidates: tuple[Candidate, ...], outcomes: dict[str, list[Trial]], risk: Risk
) -> None:
    plan = Plan(candidates, max_risk=risk)
    order = allowed(plan)
    if not order:
        return
    played = play(plan, outcomes | {order[0].name: [trial(81.4)]})
    assert played.starts == [order[0].name]
    assert played.stop == Stop(Why.TARGET_MET, order[0].name)


@settings(deadline=None)
@given(plans, luck)
def test_without_exploring_nothing_is_loaded_twice(
    plan: Plan, outcomes: dict[str, list[Trial]]
) -> None:
    played = play(replace(plan, search=Search.FIRST_THAT_MEETS), outcomes)
    loads = [name for name, _ in groupby(played.starts)]
    assert len(set(loads)) == len(loads)
    again = {name for name in loads if played.starts.count(name) > 1}
    assert all(outcomes[name][0].verdict is UNKNOWN for name in again)
    assert len(played.starts) <= 2 * len(loads)


@settings(deadline=None)
@given(plans, luck)
def test_what_was_said_before_holds(plan: Plan, outcomes: dict[str, list[Trial]]) -> None:
    told, played = expected(plan), play(plan, outcomes)
    assert told.least <= told.most
    assert played.spent.seconds + in_the_end(plan, played) <= told.most + 1e-6
