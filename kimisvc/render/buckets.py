"""Histogram buckets of vLLM that can tell floor from goal, where the installed vLLM takes them. Pure.

vLLM's own bounds for gaps between tokens are 0.01, 0.025, 0.05 s: every speed
from 40 to 100 tok/s falls into one bucket, and its median reads 57.1. Newer
ones (0.32 and 0.33 do) take `--custom-histogram-buckets`, a table from a family
of buckets to its bounds, which have to rise; a family that is named loses its
own (vllm/v1/metrics/buckets.py, vllm/config/observability.py).

They are the same for every target, and no load is ever paid for them: a service
that runs with others keeps those until it is started anew for another reason,
an upgrade of vLLM among them.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.records.vllm import KnownFrom
from kimisvc.render.arguments import option_name
from kimisvc.render.compare import Change, compare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.records.profile import Profile
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
"""Upper bounds (s)."""
_NO_RESTART = (Change.SAME, Change.COSMETIC, Change.RELOADED)


class Taking(Enum):
    """Whether a vLLM takes the option."""

    YES = "it said so"
    NO = "it said all that it knows, and this is not among it"
    UNKNOWN = "it could not be asked"


def taking(knowledge: VllmKnowledge | None) -> Taking:
    """Given what is known of a vLLM, say whether it takes such buckets."""
    if knowledge is None or knowledge.known_from is not KnownFrom.ASKED:
        return Taking.UNKNOWN
    return Taking.YES if OPTION in knowledge.options else Taking.NO


def with_buckets(profile: Profile) -> Profile:
    """Given a profile, return it asking for our buckets, or as it is where it asks for its own."""
    if OPTION in {option_name(key).partition(".")[0] for key in profile.args}:
        return profile
    return replace(profile, args={**profile.args, OPTION: {FAMILY: list(BOUNDS)}})


def chosen(
    plain: Sequence[UnitFile],
    asking: Sequence[UnitFile],
    takes: Taking,
    service: str,
    current: Mapping[str, str],
) -> tuple[UnitFile, ...]:
    """Given units without buckets and with them, return which to want.

    `service` is the unit that loads, `current` the texts that are in force:
    where one of the two starts nothing anew, it is that one.
    """
    if takes is Taking.NO:
        return tuple(plain)
    preferred = (asking, plain) if takes is Taking.YES else (plain, asking)
    for units in preferred:
        (change,) = [one.change for one in compare(current, units) if one.name == service]
        if change in _NO_RESTART:
            return tuple(units)
    return tuple(preferred[0])
