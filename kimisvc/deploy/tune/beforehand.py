"""What the host would say to each candidate of a search, asked before anything is started."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.deploy.obstacles import in_the_way
from kimisvc.deploy.tune.plan import plan_from
from kimisvc.deploy.tune.trial import RELOAD
from kimisvc.deploy.wish import plan_of
from kimisvc.measure.tuning import allowed
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.deploy.tune.candidates import Offered
    from kimisvc.deploy.tune.state import TuneState
    from kimisvc.deploy.tune.world import World
    from kimisvc.records.problems import Problem


def beforehand(
    world: World, draft: TuneState, offered: Sequence[Offered]
) -> dict[str, tuple[Problem, ...]]:
    """Given a search that has not begun and its profiles, return what is odd, or in the way, of each.

    Asked of those that would be tried, by name, as the apply of their start asks it.
    """
    names = {one.name for one in allowed(plan_from(draft, {c.name: 0.0 for c in draft.candidates}))}
    found = {}
    for one in offered:
        if one.profile.name in names:
            wish = replace(
                world.wish_of(one.profile, one.written, one.file), reload=RELOAD[draft.asked.search]
            )
            box = world.means.box
            found[one.profile.name] = in_the_way(box, wish, plan_of(box, wish), world.means.checks)
    return found


def refused(found: Mapping[str, Sequence[Problem]]) -> tuple[Problem, ...]:
    """Given what is in the way of each, return the reasons where none can start; else nothing.

    A search goes on with the next candidate where the host refuses one.
    """
    reasons = {
        name: [one for one in problems if one.severity is Severity.ERROR]
        for name, problems in found.items()
    }
    if not all(reasons.values()):
        return ()
    return tuple(dict.fromkeys(one for several in reasons.values() for one in several))
