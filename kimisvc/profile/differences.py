"""What two profiles do not have in common, for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.resolved import flattened

if TYPE_CHECKING:
    from kimisvc.records.profile import Profile


def differences(a: Profile, b: Profile) -> tuple[tuple[str, str, str], ...]:
    """Given two profiles, return (key, value in a, value in b) for each key that differs.

    Values are as TOML writes them; "" where a profile does not set the key.
    In the order of the resolved form, what only b sets after what a sets.
    """
    left, right = flattened(a), flattened(b)
    return tuple(
        (key, left.get(key, ""), right.get(key, ""))
        for key in left | right
        if left.get(key) != right.get(key)
    )
