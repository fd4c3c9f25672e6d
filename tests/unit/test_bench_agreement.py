"""What `make bench` holds together: the same seconds, told in three ways, are no distance apart."""

from __future__ import annotations

from statistics import fmean

import pytest
from agreement import percent_apart, together
from hypothesis import given
from hypothesis import strategies as st
from resident import Resident, told

TOKENS = 127

turns = st.lists(
    st.lists(st.floats(5, 30), min_size=4, max_size=4), min_size=1, max_size=6
)  # of each turn the speed of its runs


@given(turns)
def test_one_and_the_same_seconds_are_not_apart(speeds: list[list[float]]) -> None:
    probe = together([together(runs) for runs in speeds])
    engine = together([TOKENS * len(runs) / sum(TOKENS / v for v in runs) for runs in speeds])
    loader = together([1000 / fmean(1000 / v for v in runs) for runs in speeds])
    assert percent_apart(probe, engine) == pytest.approx(0, abs=1e-6)
    assert percent_apart(probe, loader) == pytest.approx(0, abs=1e-6)


def test_a_difference_is_told() -> None:
    assert percent_apart(together([14.07, 14.07]), 14.0) == pytest.approx(0.5)


@given(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 10**8))
def test_the_most_that_the_exporter_had_is_judged(main: int, apart: int, grown: int) -> None:
    now = Resident(main, apart, main + apart)
    later = Resident(main + grown, apart, main + apart + grown)
    memory, growth = told(now, later)
    judged = "met;" if main + grown <= 45_000_000 else "missed by "
    assert f"aim 45 MB: {judged}" in memory
    assert growth.endswith(f"{grown / 10**6:+.1f}")


def test_what_the_process_apart_takes_is_told_beside_it() -> None:
    now = Resident(30_000_000, 22_000_000, 46_100_000)
    memory, growth = told(now, Resident(30_000_000, 23_000_000, 47_100_000))
    assert memory == (
        "resident 30.0 MB at most, aim 45 MB: met; with the process apart that asks systemd 47.1 MB,"
        " what they share counted once"
    )
    assert growth == ("after 100,000 scrapes 30.0 MB, and 47.1 MB together, aim no growth: +1.0")
