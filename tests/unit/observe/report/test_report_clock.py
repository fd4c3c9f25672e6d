"""A clock that was wrong moves no event but its own."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kimisvc.observe.report.clock import EARLIEST, PATIENCE, Clock

NOW = 1_790_000_000.0
DAY = 86400.0
AT = 1_780_000_000.0


def placed(moments: list[float], now: float = NOW) -> list[float]:
    clock = Clock(enumerate(moments, 1), now)
    return [clock.place(sequence, at) for sequence, at in enumerate(moments, 1)]


def test_moments_in_order_stay() -> None:
    assert placed([AT, AT + DAY, AT + DAY, AT + 9 * DAY]) == [AT, AT + DAY, AT + DAY, AT + 9 * DAY]


def test_a_clock_of_1970_and_one_of_tomorrow_year_stand_beside_what_came_before() -> None:
    assert placed([AT, 5.0, NOW + 99 * DAY, AT + DAY]) == [AT, AT, AT, AT + DAY]


def test_the_first_stands_beside_what_came_after() -> None:
    assert placed([7.0, AT]) == [AT, AT]


def test_a_clock_set_back_by_weeks_moves_only_what_it_dated() -> None:
    good = [AT + n * DAY for n in range(6)]
    moments = [*good[:3], AT - 40 * DAY, AT - 39 * DAY, *good[3:]]
    assert placed(moments) == [*good[:3], good[2], good[2], *good[3:]]


def test_a_start_that_is_kept_after_its_load_stays_where_it_began() -> None:
    assert placed([AT, AT + 2200, AT + 30, AT + 2300]) == [AT, AT + 2200, AT + 30, AT + 2300]


def test_where_nothing_is_believable_all_stands_at_now() -> None:
    assert placed([3.0, 1.0, 9e15]) == [NOW, NOW, NOW]
    assert placed([]) == []


@given(st.lists(st.floats(0, 2 * NOW, allow_nan=False), max_size=60))
def test_every_event_stands_within_what_is_believed(moments: list[float]) -> None:
    for at in placed(moments):
        if any(EARLIEST <= one <= NOW + DAY for one in moments):
            assert EARLIEST <= at <= NOW + 2 * DAY


@given(st.lists(st.floats(EARLIEST, NOW, allow_nan=False), min_size=1, max_size=60))
def test_the_order_is_kept_up_to_what_a_load_takes(moments: list[float]) -> None:
    seen = placed(moments)
    for before, after in pairwise(seen):
        assert after >= before - 2 * PATIENCE
