"""What `make bench` holds together: the same seconds, told in three ways, are no distance apart."""

from __future__ import annotations

from statistics import fmean

import pytest
from agreement import percent_apart, together
from hypothesis import given
from hypothesis import strategies as st

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
