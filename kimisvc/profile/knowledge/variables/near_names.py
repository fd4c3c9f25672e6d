"""Which known variable was meant by a name that nothing reads.

A mistake is claimed within the families that are known here, or where the
family itself is misspelled and the rest is a known name. Others' variables
(RCCL_*, MY_APP_*) are none of our business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.table import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

FAMILIES = ("NCCL", "CUDA", "OMP", "PYTORCH", "LD", "HF")
"""Families of names, by what stands before the first underscore, of which most are known."""

_OTHERS = frozenset(
    {"RCCL", "HCCL", "MCCL", "NCCLX", "ACCL", "ECCL", "FCCL", "ICCL", "OCCL", "XCCL"}
)
"""Collective libraries of other makers, one letter from NCCL."""

_LONG, _FAR = 8, 2
"""From how many characters on two edits are near, and not one alone."""

_LONG_FAMILY = 4
"""Shorter families are near too many others: GOMP_* is not OMP_*."""


def near_variable(name: str) -> str:
    """Given the name of a variable that is not known, return the known one it is like, or ""."""
    upper = name.upper()
    if upper in VARIABLES:
        return upper
    family, _, rest = upper.partition("_")
    if family in FAMILIES:
        known = [_rest(name) for name in VARIABLES if _family(name) == family]
        near = nearest(rest, known) or _without_underscores(rest, known)
        return f"{family}_{near}" if near else ""
    if family in _OTHERS:
        return ""
    for other in FAMILIES:
        meant = f"{other}_{rest}"
        if len(other) >= _LONG_FAMILY and edits(family, other, 1) and meant in VARIABLES:
            return meant
    return ""


def nearest(text: str, known: Iterable[str]) -> str:
    """Given a text and the known ones, return the one fewest edits away, or "" if all are far."""
    others = tuple(known)
    for most in range(1, (_FAR if len(text) >= _LONG else 1) + 1):
        for other in others:
            if edits(text, other, most):
                return other
    return ""


def _without_underscores(text: str, known: Iterable[str]) -> str:
    """BUFFER_SIZE is three edits from BUFFSIZE, one of them an underscore."""
    joined = {name.replace("_", ""): name for name in known}
    return joined.get(nearest(text.replace("_", ""), joined), "")


def edits(text: str, other: str, most: int) -> bool:
    """Given two texts, return whether few edits turn one into the other.

    An edit puts in, drops or replaces a character, or swaps two neighbours
    (optimal string alignment).
    """
    if abs(len(text) - len(other)) > most:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, char in enumerate(text, 1):
        last, row = row, [at]
        for to, wanted in enumerate(other, 1):
            cost = min(row[to - 1] + 1, last[to] + 1, last[to - 1] + (char != wanted))
            if before and to > 1 and char == other[to - 2] and text[at - 2] == wanted:
                cost = min(cost, before[to - 2] + 1)
            row.append(cost)
        before = last
    return row[-1] <= most


def _family(name: str) -> str:
    return name.partition("_")[0]


def _rest(name: str) -> str:
    return name.partition("_")[2]
