"""Buckets that tell floor from goal: where they lie, when they are asked for, what they start."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

import pytest

from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.units import UnitFile
from kimisvc.records.vllm import KnownFrom, OptionKind, VllmKnowledge, VllmOption
from kimisvc.render.arguments import argv
from kimisvc.render.buckets import (
    BOUNDS,
    FAMILY,
    OPTION,
    Taking,
    chosen,
    taking,
    with_buckets,
)

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


def test_it_is_a_table_that_follows_the_profiles_own_arguments() -> None:
    words = argv(with_buckets(PROFILE))
    assert words[-2] == f"--{OPTION}"
    assert words[-1].startswith(f'{{"{FAMILY}":[0.002,')
    assert words[:-2] == argv(PROFILE)


@pytest.mark.parametrize(
    "key", [OPTION, "custom_histogram_buckets", "custom-histogram-buckets.request_latency"]
)
def test_what_the_operator_says_of_buckets_stands(key: str) -> None:
    own = replace(PROFILE, args={key: {}})
    assert with_buckets(own) is own


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


def units(line: str, gate: str = "# settings: 1") -> tuple[UnitFile, ...]:
    return UnitFile(SERVICE, f"[Service]\n{line}\n"), UnitFile("kimisvc-kimi-gate.service", gate)


PLAIN, ASKING = units("ExecStart=/vllm"), units("ExecStart=/vllm --buckets")
IN_FORCE = {
    "nothing": {},
    "plain": {unit.name: unit.text for unit in PLAIN},
    "plain, another gate": {unit.name: unit.text for unit in units("ExecStart=/vllm", "# settings: 2")},
    "plain, another remark": {unit.name: f"# old\n{unit.text}" for unit in PLAIN},
    "plain, another deadline": {SERVICE: PLAIN[0].text + "TimeoutStartSec=9\n"},
    "asking": {unit.name: unit.text for unit in ASKING},
    "another profile": {unit.name: unit.text for unit in units("ExecStart=/vllm --more")},
}  # fmt: skip


@pytest.mark.parametrize(
    ("takes", "in_force", "wanted"),
    [
        (Taking.YES, "nothing", ASKING),
        (Taking.YES, "another profile", ASKING),
        (Taking.YES, "asking", ASKING),
        # vLLM was upgraded under a service that runs: no load for buckets
        (Taking.YES, "plain", PLAIN),
        (Taking.YES, "plain, another gate", PLAIN),
        (Taking.YES, "plain, another remark", PLAIN),
        (Taking.YES, "plain, another deadline", PLAIN),
        # it cannot be asked for now: what is in force stays
        (Taking.UNKNOWN, "asking", ASKING),
        (Taking.UNKNOWN, "plain", PLAIN),
        (Taking.UNKNOWN, "nothing", PLAIN),
        (Taking.UNKNOWN, "another profile", PLAIN),
        # it was downgraded: the option would end the next start
        (Taking.NO, "asking", PLAIN),
        (Taking.NO, "nothing", PLAIN),
    ],
)
def test_buckets_alone_start_nothing_anew(
    takes: Taking, in_force: str, wanted: tuple[UnitFile, ...]
) -> None:
    assert chosen(PLAIN, ASKING, takes, SERVICE, IN_FORCE[in_force]) == wanted
