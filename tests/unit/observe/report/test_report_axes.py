"""What is written on an axis lies on it, is round, and is not too much."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.observe.report.axes import DAY, Scale, around, number_ticks, time_ticks

moments = st.floats(1.6e9, 1.9e9)


@given(moments, st.floats(60.0, 3e8))
def test_ticks_of_time_lie_within_and_are_few(low: float, wide: float) -> None:
    ticks = time_ticks(low, low + wide)
    assert len(ticks) <= 8
    assert all(low - 1 <= at <= low + wide for at, _ in ticks)


@given(st.floats(0, 1e6), st.floats(0.01, 1e6))
def test_ticks_of_numbers_lie_within_and_are_few(low: float, wide: float) -> None:
    ticks = number_ticks(low, low + wide)
    assert 1 <= len(ticks) <= 6
    assert all(low - 1e-6 <= tick <= low + wide + 1e-6 for tick in ticks)


def test_known_ticks() -> None:
    assert number_ticks(57, 99) == [60, 70, 80, 90]
    assert number_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_days_begin_at_local_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        ticks = time_ticks(1_780_000_000.0, 1_780_000_000.0 + 5 * DAY)
        assert [text for _, text in ticks][:2] == ["2026-05-30", "2026-05-31"]
        assert all(time.localtime(at).tm_hour == 0 for at, _ in ticks)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_value_beyond_an_end_stands_at_that_end() -> None:
    scale = Scale(0.0, 10.0, 100.0, 0.0)
    assert [scale.at(v) for v in (-5, 0, 5, 10, 99)] == [100, 100, 50, 0, 0]


def test_a_single_value_has_room_around_it_and_none_below_nothing() -> None:
    assert around([81.4]) == (80.4, 82.4)
    assert around([0.2]) == (0.0, 1.2)
