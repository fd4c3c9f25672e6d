"""Durations, sizes and speed targets."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.quantities import (
    format_duration,
    format_size,
    format_target,
    parse_duration,
    parse_size,
    parse_target,
)
from kimisvc.records.profile import SpeedTarget

# Each was given to `systemd-analyze timespan` of systemd 252, which printed these microseconds.
AS_SYSTEMD_READS = {
    "45min": 2_700_000_000,
    "2h 30min": 9_000_000_000,
    "1h30min": 5_400_000_000,
    "30min 1h": 5_400_000_000,
    "1h 1h": 7_200_000_000,
    "1.5h": 5_400_000_000,
    "90": 90_000_000,
    "0": 0,
    "500ms": 500_000,
    "5 min": 300_000_000,
    "10 m": 600_000_000,
    "1us": 1,
    "1µs": 1,
    "1μs": 1,
    "1d": 86_400_000_000,
    "1w": 604_800_000_000,
    "3 hr": 10_800_000_000,
    "2hours 1 minute 5seconds": 7_265_000_000,
}


@pytest.mark.parametrize(("text", "microseconds"), AS_SYSTEMD_READS.items())
def test_a_duration_is_read_as_systemd_reads_it(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds / 1_000_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("-5min", "negative"),
        ("infinity", "deadline"),
        ("45 mins and change", '"mins" is not a unit of time (did you mean min?)'),
        ("45mins", "did you mean min?"),
        ("45Min", "did you mean min?"),
        ("1h30", "30 has no unit"),
        ("1 30min", "1 has no unit"),
        ("45M", "a minute is min"),
        ("1y", "longest unit here is w"),
        ("1,5s", "not a duration"),
        ("1e3", '"e" is not a unit of time'),
        ("soon", "not a duration"),
        ("9" * 15 + "w", "too long"),
        ("٣min", "not a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_likely_intention(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2700, "45min"),
        (9000, "2h 30min"),
        (90, "1min 30s"),
        (1.5, "1s 500ms"),
        (0, "0"),
        (0.000001, "1us"),
        (604800, "1w"),
        (90061, "1d 1h 1min 1s"),
    ],
)
def test_a_duration_is_written_as_systemd_writes_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_what_is_no_duration_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        format_duration(seconds)


@given(st.integers(min_value=0, max_value=2**53))
def test_every_duration_of_whole_microseconds_survives_the_way_there_and_back(us: int) -> None:
    seconds = us / 1_000_000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds < math.inf


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16 GiB", 17_179_869_184),
        ("16G", 17_179_869_184),
        ("512M", 536_870_912),
        ("1.5 KiB", 1536),
        ("3 B", 3),
        ("2T", 2_199_023_255_552),
        ("0", 0),
    ],
)
def test_a_size_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("16", "has no unit"),
        ("16 GB", "Write GiB (1024)"),
        ("16 gib", '"gib" is not a unit of size'),
        ("-1 GiB", "not a size"),
        ("", "not a size"),
        ("80%", "not a size"),
        ("0.3 B", "whole number of bytes"),
        ("9999999999 TiB", "more than a machine can have"),
    ],
)
def test_what_is_no_size_is_refused_with_the_likely_intention(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**53))
def test_every_size_survives_the_way_there_and_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text())
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except ValueError:
        return


@pytest.mark.parametrize(
    ("text", "floor", "goal"),
    [
        (">40~50", 40, 50),
        ("> 40 ~ 50", 40, 50),
        (">50", 50, 50),
        ("50", 50, 50),
        (">2.5~4", 2.5, 4),
    ],
)
def test_a_target_has_a_floor_and_a_goal(text: str, floor: float, goal: float) -> None:
    assert parse_target(text) == SpeedTarget(floor, goal)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (">=40~50", 'Write ">40~50"'),
        ("40~50", 'Write ">40~50"'),
        ("40-50", 'Write ">40~50"'),
        (">50 tok/s", 'Write ">50"'),
        ("fast", 'Write ">40~50"'),
        (">50~40", 'Did you mean ">40~50"?'),
        ("0", "lies from 0.01"),
        (">1~99999999", "lies from 0.01"),
        ("-5", 'Write ">5"'),
    ],
)
def test_what_is_no_target_is_refused_with_the_likely_intention(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_target(text)


SPEEDS = st.floats(min_value=0.01, max_value=1e6)


@given(SPEEDS, SPEEDS)
def test_every_target_survives_the_way_there_and_back(one: float, other: float) -> None:
    target = SpeedTarget(min(one, other), max(one, other))
    assert parse_target(format_target(target)) == target
