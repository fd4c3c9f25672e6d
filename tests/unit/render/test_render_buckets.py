"""Buckets that tell floor from goal: where they lie, when they are asked for, what they start."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.records.profile import GateSettings, Profile, SpeedTarget, VllmSettings
from kimisvc.records.units import UnitFile
from kimisvc.records.vllm import KnownFrom, OptionKind, VllmKnowledge, VllmOption
from kimisvc.render.arguments import argv
from kimisvc.render.buckets import (
    BOUNDS,
    FAMILY,
    OPTION,
    Load,
    Rendered,
    Taking,
    bounds,
    bounds_in_force,
    candidates,
    chosen,
    taking,
    with_buckets,
)
from kimisvc.render.quoting import exec_argument

PROFILE = Profile(
    "ll_ring", VllmSettings("/opt/vllm/bin/vllm", "/srv/models/Kimi"), args={"max-model-len": 4096}
)
OWN = (0.01, 0.025, 0.05, 0.075)
"""vLLM's bounds, those that matter here."""


def knows(*names: str, known_from: KnownFrom = KnownFrom.ASKED) -> VllmKnowledge:
    options = {name: VllmOption(name, OptionKind.JSON) for name in names}
    return VllmKnowledge("0.33.0", known_from, options, frozenset())


def test_speeds_that_vllms_own_buckets_take_for_one_another_are_told_apart() -> None:
    speeds = (41, 49, 62, 82, 99)
    assert len({bisect_left(OWN, 1 / speed) for speed in speeds}) == 1
    assert len({bisect_left(BOUNDS, 1 / speed) for speed in (39, *speeds, 101)}) == 7


def test_bounds_are_as_vllm_takes_them() -> None:
    assert all(a < b for a, b in pairwise(BOUNDS))
    assert all(math.isfinite(bound) and bound > 0 for bound in BOUNDS)
    assert (BOUNDS[0], BOUNDS[-1]) == (0.002, 80.0)
    assert len(BOUNDS) < 64


@pytest.mark.parametrize("speed", [4, 10, 20, 25, 40, 45, 50, 80, 100, 200])
def test_round_targets_are_bounds(speed: int) -> None:
    assert any(math.isclose(1 / speed, bound, rel_tol=1e-4) for bound in BOUNDS)


@pytest.mark.parametrize("speed", [2.1, 7.7, 33.0, 61.0, 84.0, 151.0, 480.0])
def test_any_speed_is_known_within_a_seventh(speed: float) -> None:
    place = bisect_left(BOUNDS, 1 / speed)
    assert BOUNDS[place] / BOUNDS[place - 1] < 8 / 7 + 1e-3


speeds = st.floats(0.5, 2000)


@given(speeds, speeds)
def test_floor_and_goal_are_bounds_whatever_they_are(floor: float, goal: float) -> None:
    upper = bounds(SpeedTarget(floor, goal))
    assert set(upper) >= set(BOUNDS)
    assert all(a < b for a, b in pairwise(upper))
    for speed in (floor, goal):
        assert any(math.isclose(1 / speed, bound, rel_tol=1e-4) for bound in upper)


def test_without_a_target_they_are_those_for_any() -> None:
    assert bounds(None) == BOUNDS


def test_it_is_a_table_that_follows_the_profiles_own_arguments() -> None:
    words = argv(with_buckets(PROFILE, BOUNDS))
    assert words[-2] == f"--{OPTION}"
    assert words[-1].startswith(f'{{"{FAMILY}":[0.002,')
    assert words[:-2] == argv(PROFILE)


@given(speeds, speeds)
def test_what_a_unit_asks_for_is_read_from_it_again(floor: float, goal: float) -> None:
    upper = bounds(SpeedTarget(floor, goal))
    line = "ExecStart=" + " \\\n    ".join(map(exec_argument, argv(with_buckets(PROFILE, upper))))
    assert bounds_in_force(line) == upper


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ExecStart=/vllm serve",
        f"ExecStart=/vllm --{OPTION} nothing",
        f'--{OPTION} {{"{FAMILY}":[0.1,]}}',
        f'--{OPTION} {{"{FAMILY}":[{{"a":1}}]}}',
    ],
)
def test_a_unit_without_buckets_of_ours_asks_for_none(text: str) -> None:
    assert bounds_in_force(text) == ()


@pytest.mark.parametrize(
    "key", [OPTION, "custom_histogram_buckets", "custom-histogram-buckets.request_latency"]
)
@pytest.mark.parametrize("takes", Taking)
def test_what_the_operator_says_of_buckets_stands(key: str, takes: Taking) -> None:
    own = replace(PROFILE, args={key: {}})
    assert candidates(own, "", takes) == (own,)


@pytest.mark.parametrize(
    ("knowledge", "takes"),
    [
        (knows(OPTION), Taking.YES),
        (knows("max-model-len"), Taking.NO),
        (knows(OPTION, known_from=KnownFrom.SHIPPED), Taking.UNKNOWN),
        (None, Taking.UNKNOWN),
    ],
)
def test_only_the_installed_vllm_can_say_that_it_takes_them(
    knowledge: VllmKnowledge | None, takes: Taking
) -> None:
    assert taking(knowledge) is takes


SERVICE = "kimisvc-kimi.service"
OTHER = BOUNDS[3:20]


def units(
    profile: Profile, *, gate: str = "1", before: str = "", after: str = ""
) -> tuple[UnitFile, ...]:
    line = " ".join(map(exec_argument, argv(profile)))
    return (
        UnitFile(SERVICE, f"{before}[Service]\nExecStart=/vllm {line}\n{after}"),
        UnitFile("kimisvc-kimi-gate.service", f"# settings: {gate}"),
    )


ASKING = with_buckets(PROFILE, BOUNDS)
KEPT = with_buckets(PROFILE, OTHER)
IN_FORCE = {
    "nothing": (),
    "plain": units(PROFILE),
    "plain, another gate": units(PROFILE, gate="2"),
    "plain, another remark": units(PROFILE, before="# old\n"),
    "plain, another deadline": units(PROFILE, after="TimeoutStartSec=9\n"),
    "asking": units(ASKING),
    "asking for others": units(KEPT),
    "another profile": units(replace(PROFILE, args={"max-model-len": 8192})),
    "another profile, asking for others": units(
        with_buckets(replace(PROFILE, args={"max-model-len": 8192}), OTHER)
    ),
}


@pytest.mark.parametrize(
    ("takes", "in_force", "wanted"),
    [
        (Taking.YES, "nothing", ASKING),
        (Taking.YES, "another profile", ASKING),
        (Taking.YES, "another profile, asking for others", ASKING),
        (Taking.YES, "asking", ASKING),
        # another target, or a kimisvc that asked for others: no load for buckets
        (Taking.YES, "asking for others", KEPT),
        # vLLM was upgraded under a service that runs
        (Taking.YES, "plain", PROFILE),
        (Taking.YES, "plain, another gate", PROFILE),
        (Taking.YES, "plain, another remark", PROFILE),
        (Taking.YES, "plain, another deadline", PROFILE),
        # it cannot be asked for now: what is in force stays
        (Taking.UNKNOWN, "asking", ASKING),
        (Taking.UNKNOWN, "asking for others", KEPT),
        (Taking.UNKNOWN, "plain", PROFILE),
        (Taking.UNKNOWN, "nothing", PROFILE),
        (Taking.UNKNOWN, "another profile", PROFILE),
        # it was downgraded: the option would end the next start
        (Taking.NO, "asking", PROFILE),
        (Taking.NO, "nothing", PROFILE),
    ],
)
def test_buckets_alone_start_nothing_anew(takes: Taking, in_force: str, wanted: Profile) -> None:
    current = {unit.name: unit.text for unit in IN_FORCE[in_force]}
    may_be = candidates(PROFILE, current.get(SERVICE, ""), takes)
    found = chosen([Rendered(one, units(one)) for one in may_be], SERVICE, current)
    assert found == Rendered(wanted, units(wanted))


def test_a_load_that_is_paid_anyway_brings_the_bounds_that_are_wanted() -> None:
    in_force = units(KEPT)[0].text
    assert candidates(PROFILE, in_force, Taking.YES, Load.PAID) == (ASKING,)
    for takes in (Taking.UNKNOWN, Taking.NO):  # it is not known to take them: nothing is risked
        assert candidates(PROFILE, in_force, takes, Load.PAID) == candidates(
            PROFILE, in_force, takes
        )


def test_another_target_alone_costs_no_load() -> None:
    def aiming(floor: float, goal: float) -> Profile:
        return replace(PROFILE, gate=GateSettings(SpeedTarget(floor, goal)))

    first = candidates(aiming(81, 85), "", Taking.YES)[0]
    current = {unit.name: unit.text for unit in units(first)}
    may_be = candidates(aiming(47, 49), current[SERVICE], Taking.YES)
    found = chosen([Rendered(one, units(one)) for one in may_be], SERVICE, current)
    assert found.units[0].text == current[SERVICE]
