"""Histogram buckets of vLLM that can tell floor from goal, where the installed vLLM takes them. Pure.

vLLM's own bounds for gaps between tokens are 0.01, 0.025, 0.05 s: every speed
from 40 to 100 tok/s falls into one bucket, and its median reads 57.1. Since
0.32 (or earlier) `--custom-histogram-buckets` takes a table from a family of buckets to its
bounds, which have to rise; a family that is named loses its own bounds
(vllm/v1/metrics/buckets.py, vllm/config/observability.py).

An option that only some versions know is not worth a load: `settled` keeps a
service that runs without it as it is until it is started anew for another
reason, and `with_buckets` never writes it for a vLLM that was not asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.records import KnownFrom
from kimisvc.render.arguments import option_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records import Profile, SpeedTarget, UnitFile, VllmKnowledge

OPTION = "custom-histogram-buckets"
FAMILY = "inter_token_latency"
"""Holds for inter_token_latency_seconds and request_time_per_output_token_seconds."""
DEFAULT = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
"""vLLM's own (0.12 to 0.33): kept, so that what was seen before can still be compared."""
STEP = 1.1
"""Two speeds that are further apart than this fall into different buckets."""
BELOW, ABOVE = 1.5, 2.5
"""So far under the floor and over the goal the steps reach: each bound is a series more."""


def bounds(target: SpeedTarget) -> tuple[float, ...]:
    """Given a target, return the bounds (s) of gaps between tokens that show where a speed lies.

    Floor and goal are bounds themselves: how many gaps were too long is then a
    count, and no interpolation.
    """
    speeds = [target.floor, target.goal]
    speed = target.goal * ABOVE
    while speed > target.floor / BELOW:
        speeds.append(speed)
        speed /= STEP
    return tuple(sorted({*DEFAULT, *(float(f"{1 / speed:.4g}") for speed in speeds)}))


def with_buckets(profile: Profile, knowledge: VllmKnowledge | None) -> Profile:
    """Given a profile and what its vLLM says it knows, return the profile asking for such buckets.

    The same profile where it has no target or says something of buckets itself,
    and where the installed vLLM does not know the option or was not asked.
    """
    target = profile.gate.decode_tok_s
    said = {option_name(key).partition(".")[0] for key in profile.args}
    if target is None or OPTION in said or knowledge is None:
        return profile
    if knowledge.known_from is not KnownFrom.ASKED or OPTION not in knowledge.options:
        return profile
    return replace(profile, args={**profile.args, OPTION: {FAMILY: list(bounds(target))}})


def settled(
    wanted: Sequence[UnitFile], plain: Sequence[UnitFile], current: Mapping[str, str]
) -> tuple[UnitFile, ...]:
    """Given units with buckets and without, and those that are current, return which to want.

    Those without where they are just what is current: buckets alone start nothing anew.
    """
    same = {unit.name: unit.text for unit in plain} == dict(current)
    return tuple(plain if same else wanted)
