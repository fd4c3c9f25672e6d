"""Histogram buckets of vLLM that can tell floor from goal, where the installed vLLM takes them. Pure.

vLLM's own bounds for gaps between tokens are 0.01, 0.025, 0.05 s: every speed
from 40 to 100 tok/s falls into one bucket, and its median reads 57.1. Newer
ones (0.32 and 0.33 do) take `--custom-histogram-buckets`, a table from a family
of buckets to its bounds, which have to rise; a family that is named loses its
own (vllm/v1/metrics/buckets.py, vllm/config/observability.py).

Ours tell any two speeds apart that are 14 % from each other, and lie at the floor
and at the goal of the profile, whatever these are. No load is ever paid for them:
a service that runs with others (of another target, of an older kimisvc, or vLLM's
own) keeps those until it is started anew for another change, or by `apply --restart`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.records.vllm import KnownFrom
from kimisvc.render.arguments import option_name
from kimisvc.render.compare import Change, compare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records.profile import Profile, SpeedTarget
    from kimisvc.records.units import UnitFile
    from kimisvc.records.vllm import VllmKnowledge

OPTION = "custom-histogram-buckets"
FAMILY = "inter_token_latency"
"""Holds for inter_token_latency_seconds and request_time_per_output_token_seconds."""
_STEPS = (
    1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8, 3.15, 3.55, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1,
    8.0, 9.0,
)  # fmt: skip
"""Preferred numbers (Renard's R20): 14 % apart at most, and round targets as 40 and 50 are among them."""
SLOWEST, FASTEST = 2.0, 500.0
_STALLS = (0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
"""vLLM's own bounds for gaps that are no decode any more."""
BOUNDS = tuple(
    sorted(
        {
            *_STALLS,
            *(
                float(f"{1 / (step * decade):.5g}")
                for decade in (1, 10, 100)
                for step in _STEPS
                if SLOWEST <= step * decade <= FASTEST
            ),
        }
    )
)
"""Upper bounds (s) for whatever target."""
_IN_FORCE = re.compile(rf"{OPTION}\W+{FAMILY}\W+(?P<bounds>\[[^]]*\])")
"""Within a line of a unit the JSON is quoted: between its words are quotes, backslashes and braces."""
_NO_RESTART = (Change.SAME, Change.COSMETIC, Change.RELOADED)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A profile as it is wanted, with what kimisvc asks of vLLM for it, and the units it becomes."""

    profile: Profile
    units: tuple[UnitFile, ...]


class Taking(Enum):
    """Whether a vLLM takes the option."""

    YES = "it said so"
    NO = "it said all that it knows, and this is not among it"
    UNKNOWN = "it could not be asked"


class Load(Enum):
    """Whether the model is loaded anew whatever the units say."""

    SPARED = "only for what changes"
    PAID = "anyway"


def taking(knowledge: VllmKnowledge | None) -> Taking:
    """Given what is known of a vLLM, say whether it takes such buckets."""
    if knowledge is None or knowledge.known_from is not KnownFrom.ASKED:
        return Taking.UNKNOWN
    return Taking.YES if OPTION in knowledge.options else Taking.NO


def bounds(target: SpeedTarget | None) -> tuple[float, ...]:
    """Given the speed that a start has to prove, return the upper bounds of buckets (s), rising."""
    speeds = (target.floor, target.goal) if target else ()
    return tuple(sorted({*BOUNDS, *(float(f"{1 / speed:.5g}") for speed in speeds)}))


def bounds_in_force(text: str) -> tuple[float, ...]:
    """Given the text of a service unit, return the bounds that its vLLM was asked for; none where none."""
    found = _IN_FORCE.search(text)
    try:
        told = json.loads(found["bounds"]) if found else []
        return tuple(float(bound) for bound in told)
    except (ValueError, TypeError):
        return ()


def with_buckets(profile: Profile, upper: Sequence[float]) -> Profile:
    """Given a profile that asks for no buckets of its own and bounds, return it asking for these."""
    return replace(profile, args={**profile.args, OPTION: {FAMILY: list(upper)}})


def candidates(
    profile: Profile, in_force: str, takes: Taking, load: Load = Load.SPARED
) -> tuple[Profile, ...]:
    """Given a profile and the text of the service unit in force, return what may be wanted, best first.

    Where a load is paid anyway, nothing is spared by keeping old bounds. Else the profile itself
    is among them, too: vLLM then has its own buckets, or those that the profile names.
    """
    if takes is Taking.NO or _asks_itself(profile):
        return (profile,)
    ours = bounds(profile.gate.decode_tok_s)
    kept = bounds_in_force(in_force)
    if takes is Taking.YES and load is Load.PAID:
        return (with_buckets(profile, ours),)
    asking = [with_buckets(profile, upper) for upper in (ours, kept) if upper]
    return (*asking, profile) if takes is Taking.YES else (profile, *asking)


def _asks_itself(profile: Profile) -> bool:
    return OPTION in {option_name(key).partition(".")[0] for key in profile.args}


def chosen(wanted: Sequence[Rendered], service: str, current: Mapping[str, str]) -> Rendered:
    """Given what may be wanted, best first, return the best of those that start nothing anew, or the best.

    `service` is the unit that loads, `current` the texts that are in force.
    """
    return next((one for one in wanted if _costs_no_load(one.units, service, current)), wanted[0])


def _costs_no_load(units: Sequence[UnitFile], service: str, current: Mapping[str, str]) -> bool:
    (change,) = [one.change for one in compare(current, units) if one.name == service]
    return change in _NO_RESTART
