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


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_memory_of_both_processes_counts_in_megabytes(main: int, apart: int) -> None:
    memory, growth = told(Resident(main, apart), Resident(main, apart), main)
    judged = "met" if (main + apart) * 1024 <= 45_000_000 else "missed by "
    assert f"aim 45 MB together: {judged}" in memory
    assert growth.endswith("+0.0")


def test_each_alone_under_the_aim_is_not_both_under_it() -> None:
    # 44 MiB, which are 46.1 MB, in two.
    memory, growth = told(Resident(30 * 1024, 14 * 1024), Resident(30 * 1024, 15 * 1024), 40 * 1024)
    assert memory == (
        "resident 46.1 MB (31.5 and 14.7 of the process apart; what they share counted once: 41.9 MB),"
        " aim 45 MB together: missed by 1.1 MB"
    )
    assert growth == "after 100,000 scrapes 47.2 MB, aim no growth: +1.0"
