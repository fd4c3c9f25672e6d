"""What a search works with, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.tune.state import kept_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.tune.state import TuneState
    from kimisvc.deploy.tune.trial import Means
    from kimisvc.deploy.wish import Wish
    from kimisvc.records.profile import Profile


@dataclass(frozen=True, slots=True)
class World:
    """What a search works with.

    `wish_of` makes a wish of a profile, its text as written, and the file it lies
    in ("": not known).
    """

    means: Means
    wish_of: Callable[[Profile, str, str], Wish]


def kept_wish(world: World, state: TuneState, candidate: str) -> Wish:
    """Given a search and a candidate's name, return the wish for it, as it was when the search began.

    Raise KimisvcError where what was kept of it is damaged.
    """
    profile, written = kept_profile(world.means.box.layout, candidate)
    return world.wish_of(profile, written, state.file_of(candidate))
