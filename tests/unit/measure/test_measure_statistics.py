from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measure_support import DATA

from kimisvc.measure.statistics import mean_interval, relative_half_width, shared
from kimisvc.records.proof import Interval

STARTS = json.loads((DATA / "starts.json").read_text())


def test_the_interval_of_one_to_five_is_the_textbook_one() -> None:
    # s = 1.5811, t(0.975, 4) = 2.7764, half = t s / sqrt(5) = 1.9632
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    assert interval.mean == 3.0
    assert interval.low == pytest.approx(1.0368, abs=1e-4)
    assert interval.high == pytest.approx(4.9632, abs=1e-4)


def test_two_values_give_the_widest_quantile() -> None:
    # t(0.975, 1) = 12.706, s / sqrt(2) = 1
    interval = mean_interval([49.0, 51.0])
    assert interval is not None
    assert interval.high - interval.mean == pytest.approx(12.706, abs=1e-3)


@pytest.mark.parametrize("values", [[], [50.0]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    assert mean_interval(values) is None


@pytest.mark.parametrize(
    ("start", "mean"),
    [("base1", 58.66), ("nb1", 55.33), ("nb2", 55.43), ("ll1", 56.43), ("ll2", 56.32)],
)
def test_starts_measured_on_real_gpus_give_their_known_means(start: str, mean: float) -> None:
    interval = mean_interval([run["decode_tok_s"] for run in STARTS[start]])
    assert interval is not None
    assert round(interval.mean, 2) == mean
    assert relative_half_width(interval) < 0.002  # within a start, runs are that alike


speeds = st.lists(st.floats(0.1, 1000), min_size=2, max_size=20)


@given(speeds)
def test_the_mean_lies_inside_its_interval(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval is not None
    assert interval.low <= interval.mean <= interval.high
    assert min(values) - 1e-9 <= interval.mean <= max(values) + 1e-9


@given(st.floats(0.1, 1000), st.integers(2, 10))
def test_equal_values_give_an_interval_of_no_width(value: float, count: int) -> None:
    interval = mean_interval([value] * count)
    assert interval is not None
    assert interval.high - interval.low <= 1e-9 * value


@given(speeds, st.floats(0.5, 2.0))
def test_another_unit_scales_the_interval(values: list[float], factor: float) -> None:
    one, other = mean_interval(values), mean_interval([v * factor for v in values])
    assert one is not None
    assert other is not None
    assert math.isclose(other.high, one.high * factor, rel_tol=1e-9, abs_tol=1e-6)


def test_the_relative_half_width_is_a_share_of_the_mean() -> None:
    assert relative_half_width(Interval(49.0, 50.0, 51.0)) == pytest.approx(0.02)
    assert relative_half_width(Interval(-1.0, 0.0, 1.0)) == math.inf


def test_the_error_is_shared_by_the_looks() -> None:
    assert shared(1) == pytest.approx(0.95)
    assert shared(8) == pytest.approx(1 - 0.05 / 8)
