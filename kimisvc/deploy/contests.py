"""All profiles of a history held against the one measured first, for an overview.

By the rules of `compare` (deploy/comparing.py), so that both say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.comparing import Compared, Side


@dataclass(frozen=True, slots=True)
class Contest:
    """How one profile's speed compares with the base's, in figures and in words.

    `low` to `high` is the interval of `ratio`; `margin` is the share that nobody
    would pay a load for; `starts` are the base's and the other's.
    """

    base: str
    other: str
    ratio: float
    low: float
    high: float
    margin: float
    starts: tuple[int, int]
    words: str
    notes: tuple[str, ...] = ()
    json: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contests:
    """The comparisons; and of each profile that could not be compared, why."""

    rows: tuple[Contest, ...] = ()
    apart: tuple[str, ...] = ()


def contests(box: Box, names: Sequence[str]) -> Contests:
    """Given a box and names of profiles, hold each against the one that was measured first.

    A history that cannot be read is left to be told by who reads it first.
    """
    from kimisvc.deploy.comparing import held_together
    from kimisvc.measure.comparison import MARGIN

    sides = [_side(box, name) for name in names]
    measured = sorted((s for s in sides if s.starts), key=lambda side: side.starts[0].sequence)
    apart = [f"{side.asked}: no accepted start of it" for side in sides if not side.starts]
    rows = []
    for other in measured[1:]:
        try:
            found = held_together(measured[0], other, MARGIN)
        except KimisvcError as error:
            apart.append(error.message)
        except ValueError:  # what a gate handed over need not be a speed
            apart.append(
                f"{other.asked}: its figures, or those of {measured[0].asked}, are no speeds"
            )
        else:
            rows.append(_contest(measured[0].asked, other.asked, found))
    return Contests(tuple(rows), tuple(apart))


def _side(box: Box, name: str) -> Side:
    """The starts of a profile as it was last; where no generation of it is left, all of its name."""
    from kimisvc.deploy.comparing import Side, of_name

    side = of_name(box, name)
    if side is not None:
        return side
    starts = tuple(one for one in box.history.start_figures(name) if one.verdict.accepted)
    note = f"{name}: no generation of it is left, so what it said is not known"
    return Side(name, None, (), starts, (note,))


def _contest(base: str, other: str, found: Compared) -> Contest:
    from kimisvc.measure.comparison import as_json, say

    comparison = found.comparison
    return Contest(
        base=base, other=other, ratio=comparison.ratio, low=comparison.low, high=comparison.high,
        margin=comparison.margin, starts=comparison.starts, words=say(comparison),
        notes=found.notes, json={"base": base, "other": other, **as_json(comparison)},
    )  # fmt: skip
