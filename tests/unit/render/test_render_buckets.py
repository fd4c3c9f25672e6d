"""Buckets that tell floor from goal: where they lie, when they are asked for, and what they start."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.records import (
    GateSettings,
    KnownFrom,
    OptionKind,
    Profile,
    SpeedTarget,
    UnitFile,
    VllmKnowledge,
    VllmOption,
    VllmSettings,
)
from kimisvc.render.arguments import argv
from kimisvc.render.buckets import DEFAULT, FAMILY, OPTION, bounds, settled, with_buckets

TARGET = SpeedTarget(40.0, 50.0)
PROFILE = Profile(
    "ll_ring", VllmSettings("/opt/vllm/bin/vllm", "/srv/models/Kimi"),
    args={"max-model-len": 4096}, gate=GateSettings(decode_tok_s=TARGET),
)  # fmt: skip


def knows(*names: str, known_from: KnownFrom = KnownFrom.ASKED) -> VllmKnowledge:
    options = {name: VllmOption(name, OptionKind.JSON) for name in names}
    return VllmKnowledge("0.33.0", known_from, options, frozenset())


def bucket(speed: float, target: SpeedTarget = TARGET) -> int:
    return bisect_left(bounds(target), 1 / speed)


def test_speeds_that_vllms_own_buckets_take_for_one_another_are_told_apart() -> None:
    assert len({bisect_left(DEFAULT, 1 / speed) for speed in (41, 49, 62, 82, 99)}) == 1
    assert len({bucket(speed) for speed in (39, 41, 49, 51, 62, 82, 99)}) == 7


@given(st.floats(0.5, 5000), st.floats(1, 5))
def test_bounds_are_as_vllm_takes_them_and_hold_floor_and_goal(floor: float, ratio: float) -> None:
    target = SpeedTarget(floor, floor * ratio)
    found = bounds(target)
    assert all(a < b for a, b in pairwise(found))
    assert all(math.isfinite(bound) and bound > 0 for bound in found)
    assert set(DEFAULT) <= set(found)
    for speed in (target.floor, target.goal):
        assert any(math.isclose(bound, 1 / speed, rel_tol=1e-3) for bound in found)
    assert len(found) < 60


def test_they_are_asked_for_where_the_vllm_knows_the_option() -> None:
    asking = with_buckets(PROFILE, knows(OPTION))
    assert asking.args == {**PROFILE.args, OPTION: {FAMILY: list(bounds(TARGET))}}
    words = argv(asking)
    assert words[words.index(f"--{OPTION}") + 1].startswith('{"inter_token_latency":[0.008,')


@pytest.mark.parametrize(
    "knowledge",
    [None, knows("max-model-len"), knows(OPTION, known_from=KnownFrom.SHIPPED)],
    ids=["not asked", "too old", "only the table that ships"],
)
def test_they_are_not_asked_of_another(knowledge: VllmKnowledge | None) -> None:
    assert with_buckets(PROFILE, knowledge) is PROFILE


def test_without_a_target_there_is_nothing_to_see() -> None:
    blind = replace(PROFILE, gate=GateSettings())
    assert with_buckets(blind, knows(OPTION)) is blind


@pytest.mark.parametrize(
    "key", [OPTION, "custom_histogram_buckets", "custom-histogram-buckets.request_latency"]
)
def test_what_the_operator_says_of_buckets_stands(key: str) -> None:
    own = replace(PROFILE, args={key: {}})
    assert with_buckets(own, knows(OPTION)) is own


def test_buckets_alone_start_nothing_anew() -> None:
    plain, wanted = (UnitFile("a.service", "plain"),), (UnitFile("a.service", "buckets"),)
    assert settled(wanted, plain, {"a.service": "plain"}) == plain
    assert settled(wanted, plain, {"a.service": "buckets"}) == wanted
    assert settled(wanted, plain, {"a.service": "another profile"}) == wanted
    assert settled(wanted, plain, {}) == wanted
