"""Over how many GPUs a profile spreads a model, as far as its [args] say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.options import option_name

if TYPE_CHECKING:
    from kimisvc.records import ArgValue, Profile

_SIZES = (
    ("tensor-parallel-size", "tp"),
    ("pipeline-parallel-size", "pp"),
    ("data-parallel-size", "dp"),
)
"""Options of `vllm serve` whose product is the number of GPUs; each is 1 if not given."""

_MOST = 10_000


def option(profile: Profile, *names: str) -> ArgValue | None:
    """Given an option's names, return its value in [args], or None; spelling does not matter."""
    for written, value in profile.args.items():
        if option_name(written) in names:
            return value
    return None


def gpus_used(profile: Profile) -> int | None:
    """Given a profile, return how many GPUs vLLM will use, or None if that cannot be read."""
    product = 1
    for names in _SIZES:
        size = _size(option(profile, *names))
        if size is None:
            return None
        product *= size
    return product


def _size(value: ArgValue | None) -> int | None:
    if value is None:
        return 1
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < len("10000"):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST:
        return value
    return None
