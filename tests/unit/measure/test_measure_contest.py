from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.comparison import MARGIN, Difference, StartFigure
from kimisvc.measure.contest import (
    Candidate,
    Standing,
    Trial,
    confidence_of,
    fastest,
    pair,
    standing,
    winner,
)
from kimisvc.records.profile import Risk
from kimisvc.records.proof import VerdictKind

PASS, DEGRADED = VerdictKind.PASS, VerdictKind.DEGRADED
FAIL, UNKNOWN = VerdictKind.FAIL, VerdictKind.INCONCLUSIVE


def trial(speed: float, kind: VerdictKind = PASS) -> Trial:
    return Trial(kind, StartFigure(speed))


def tried(
    name: str,
    *speeds: float,
    differences: int = 0,
    kind: VerdictKind = PASS,
    risk: Risk = Risk.SAFE,
) -> Candidate:
    return Candidate(name, risk, differences, 60.0, tuple(trial(v, kind) for v in speeds))


def won(*candidates: Candidate) -> str:
    found = winner(candidates, MARGIN)
    return found.name if found else ""


def test_the_storys_end_is_the_baseline() -> None:
    assert won(tried("baseline", 81.4), tried("ll_ring", 81.9, differences=5)) == "baseline"


def test_a_gain_that_is_shown_is_worth_its_settings() -> None:
    # 1.8 %, at the confidence of a first look 0.9 to 2.7: shown, and not shown to be small.
    base, ring = tried("baseline", 55.33, 55.44), tried("ll_ring", 56.43, 56.32, differences=5)
    assert won(base, ring) == "ll_ring"


def test_a_gain_that_is_shown_to_be_within_the_margin_is_not() -> None:
    base, ring = tried("baseline", 50.0, 50.02), tried("ll_ring", 50.5, 50.52, differences=5)
    assert won(base, ring) == "baseline"


def test_one_start_each_is_enough_to_choose_the_much_faster() -> None:
    slow = tried("baseline", 41.0, kind=DEGRADED)
    assert won(slow, tried("ll_ring", 48.0, differences=5, kind=DEGRADED)) == "ll_ring"


def test_what_meets_the_target_comes_before_what_does_not() -> None:
    slow = tried("baseline", 49.9, kind=DEGRADED)
    assert won(slow, tried("ll_ring", 50.4, differences=5)) == "ll_ring"


def test_of_two_alike_the_lower_risk_then_the_first_listed_is_simpler() -> None:
    risky = tried("a", 50.0, differences=2, risk=Risk.SAFE_ISH)
    assert won(risky, tried("b", 50.0, differences=2)) == "b"
    assert won(tried("a", 50.0), tried("b", 50.0)) == "a"


def stands(*candidates: Candidate) -> Standing:
    found = winner(candidates, MARGIN)
    assert found is not None
    return standing(found, candidates, MARGIN)


def test_what_an_assumed_spread_leaves_out_is_not_shown_to_be_worse() -> None:
    base, ring = tried("baseline", 80.0), tried("ll_ring", 81.9, differences=5)
    assert won(base, ring) == "ll_ring"
    assert stands(base, ring) is Standing.FASTEST_SEEN
    both = tried("baseline", 80.0, 80.01), tried("ll_ring", 83.9, 83.91, differences=5)
    assert stands(*both) is Standing.SHOWN
    # Of two that are alike in all else, the first listed is the simpler one.
    assert stands(tried("a", 80.0), tried("b", 81.9)) is Standing.FASTEST_SEEN


def test_a_winner_between_is_claimed_neither_way() -> None:
    third = tried("third", 81.8, differences=2)
    assert stands(tried("baseline", 80.0), third, tried("ll_ring", 81.9, differences=5)) is (
        Standing.CHOSEN
    )
    assert stands(tried("baseline", 81.8), tried("ll_ring", 81.9, differences=5)) is (
        Standing.NOT_SHOWN_WORSE
    )


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (Trial(FAIL),),
        (trial(90.0), Trial(FAIL)),
        (Trial(UNKNOWN), Trial(UNKNOWN)),
        (Trial(UNKNOWN, StartFigure(90.0)),),
    ],
)
def test_what_was_not_accepted_or_ever_failed_does_not_win(trials: tuple[Trial, ...]) -> None:
    other = Candidate("other", trials=trials)
    assert not other.usable
    assert won(other) == ""
    assert won(tried("baseline", 40.0), other) == "baseline"


def test_a_start_that_could_not_be_judged_is_no_figure_and_no_failure() -> None:
    one = Candidate("one", trials=(Trial(UNKNOWN, StartFigure(1.0)), trial(50.0)))
    assert one.figures == (StartFigure(50.0),)
    assert one.usable
    assert one.meets


def test_given_up_after_two_starts_that_could_not_be_judged() -> None:
    assert not Candidate("one", trials=(Trial(UNKNOWN),)).failed
    assert Candidate("one", trials=(Trial(UNKNOWN),) * 2).failed


@given(st.integers(2, 6), st.integers(2, 200))
def test_the_errors_of_all_looks_and_pairs_are_5_percent_together(
    contestants: int, most: int
) -> None:
    pairs = contestants * (contestants - 1) / 2
    spent = sum(1 - confidence_of(starts, contestants) for starts in range(2, most + 1))
    assert spent * pairs <= 0.05 + 1e-9


candidates = st.builds(
    Candidate,
    name=st.uuids().map(str),
    risk=st.sampled_from(Risk),
    differences=st.integers(0, 9),
    trials=st.lists(
        st.builds(Trial, st.sampled_from(VerdictKind), st.floats(10, 100).map(StartFigure)),
        max_size=4,
    ).map(tuple),
)


@given(st.lists(candidates, max_size=5))
def test_a_winner_is_usable_and_there_is_one_whenever_one_is(found: list[Candidate]) -> None:
    best = winner(found, MARGIN)
    assert (best is not None) == any(one.usable for one in found)
    assert best is None or best.usable
    if best and any(one.usable and one.meets for one in found):
        assert best.meets


@given(st.lists(candidates, min_size=1, max_size=5))
def test_the_simplest_is_claimed_only_where_all_simpler_ones_are_shown_to_be_worse(
    found: list[Candidate],
) -> None:
    best = winner(found, MARGIN)
    if best is None or standing(best, found, MARGIN) is not Standing.SHOWN:
        return
    group = [one for one in found if one.usable and one.meets >= best.meets]
    top = fastest(group)
    settled = [pair(top, one, len(found), MARGIN).verdict for one in group if one is not top]
    assert Difference.INCONCLUSIVE not in settled
    for one in group:
        simpler = (one.differences, list(Risk).index(one.risk)) < (
            best.differences, list(Risk).index(best.risk),
        )  # fmt: skip
        if simpler:
            assert pair(top, one, len(found), MARGIN).verdict is Difference.WORSE
