from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.power import MOST, POWER, further_starts, settles

MARGIN = math.log1p(0.02)
NO_MARGIN = 1e-9  # equivalence out of reach: a plain test of a difference


@pytest.mark.parametrize(
    ("deviation", "starts"), [(0.0025, 4), (0.005, 12), (0.01, 43), (0.0235, 233)]
)
def test_starts_to_prove_a_difference_are_those_of_the_noncentral_t(
    deviation: float, starts: int
) -> None:
    # 0.61 %, two-sided 5 %, power 80 %: worked out elsewhere with other software.
    effect = math.log(81.9 / 81.4)
    assert further_starts(effect, deviation, (1, 1), NO_MARGIN, 0.95) == starts - 1


def test_equivalence_may_be_the_shorter_way() -> None:
    effect = math.log(81.9 / 81.4)
    assert further_starts(effect, 0.005, (1, 1), MARGIN, 0.95) == 3


def test_more_than_a_thousand_is_not_counted() -> None:
    assert further_starts(0.0001, 0.5, (2, 2), MARGIN, 0.95) == MOST


def test_no_spread_settles_at_once() -> None:
    assert settles(0.01, 0.0, (2, 2), MARGIN, 0.95) == 1.0


effects, deviations = st.floats(-0.1, 0.1), st.floats(0.0005, 0.03)


@given(effects, deviations, st.integers(1, 5), st.integers(1, 5))
def test_the_answer_is_the_least_number_that_is_enough(
    effect: float, deviation: float, one: int, two: int
) -> None:
    more = further_starts(effect, deviation, (one, two), MARGIN, 0.95)
    assert 1 <= more <= MOST
    if more < MOST:
        assert settles(effect, deviation, (one + more, two + more), MARGIN, 0.95) >= POWER
    if more > 1:
        fewer = (one + more - 1, two + more - 1)
        assert settles(effect, deviation, fewer, MARGIN, 0.95) < POWER


@given(effects, deviations)
def test_the_sign_does_not_matter(effect: float, deviation: float) -> None:
    there = settles(effect, deviation, (3, 4), MARGIN, 0.95)
    assert settles(-effect, deviation, (4, 3), MARGIN, 0.95) == pytest.approx(there, abs=1e-6)
