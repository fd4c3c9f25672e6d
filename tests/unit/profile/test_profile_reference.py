"""What the reference of keys says of durations, sizes and targets is what is read."""

from __future__ import annotations

import re

import pytest

from kimisvc.profile.quantities import parse_duration, parse_size, parse_target
from kimisvc.profile.reference import reference

DURATIONS, SIZES, TARGETS = reference().split("\n\n")[1:4]


def examples(paragraph: str) -> list[str]:
    """What stands in quotes between backticks."""
    return re.findall(r'`"([^"`]*[0-9][^"`]*)"`', paragraph)


def test_every_duration_that_is_shown_is_one() -> None:
    seconds = {text: parse_duration(text) for text in examples(DURATIONS)}
    assert seconds == {"45min": 2700, "2h 30min": 9000, "1.5h": 5400, "500ms": 0.5, "90s": 90}


def test_a_plain_number_is_seconds() -> None:
    assert '`90` is\n`"90s"`' in DURATIONS
    assert parse_duration("90") == parse_duration("90s")


def test_every_unit_of_time_that_is_named_is_one() -> None:
    (named,) = re.findall(r"the units are ([\w, ]+)\.", DURATIONS)
    units = re.findall(r"\w+", named.replace(" and ", " "))
    assert len(units) == 7
    assert sorted(units, key=lambda unit: parse_duration(f"1{unit}")) == units


def test_every_size_that_is_shown_is_one() -> None:
    sizes = {text: parse_size(text) for text in examples(SIZES)}
    assert sizes == {"600 GiB": 600 << 30, "1.5 TiB": 3 << 39, "512M": 512 << 20}
    for short in "KMGT":
        assert parse_size(f"2{short}") == parse_size(f"2 {short}iB")


def test_what_is_said_to_be_no_size_is_none() -> None:
    assert parse_size("0") == 0
    for text in ("1 GB", "1"):
        with pytest.raises(ValueError, match="Write"):
            parse_size(text)


def test_every_target_that_is_shown_is_one() -> None:
    targets = {text: parse_target(text) for text in examples(TARGETS)}
    assert list(targets) == [">40~50", ">20", ">20~20"]
    assert (targets[">40~50"].floor, targets[">40~50"].goal) == (40, 50)
    assert targets[">20"] == targets[">20~20"]
