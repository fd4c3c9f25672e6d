"""A profile file to its profile, for tests that want one and no list of problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.errors import ProfileRefusedError
from kimisvc.profile.loader import check

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.records.profile import Profile


def load(path: Path, shipped: Path) -> Profile:
    """Given a profile file and the folder of shipped profiles, return the profile; raise if refused."""
    checked = check(path, shipped)
    if checked.profile is None:
        raise ProfileRefusedError(checked.problems)
    return checked.profile
