"""What a search works with, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.apply import Wish
    from kimisvc.deploy.tune.traffic import Counting
    from kimisvc.deploy.tune.trial import Means
    from kimisvc.records import Profile


@dataclass(frozen=True, slots=True)
class World:
    """What a search works with: `wish_of` makes a wish of a profile and its text as written."""

    means: Means
    wish_of: Callable[[Profile, str], Wish]
    api_of: Callable[[Profile], Counting]
