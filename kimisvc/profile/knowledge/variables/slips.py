"""Which of several names was meant by one that is a slip of the pen away: words, edits, underscores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_EDITS = ((8, 2), (4, 1), (0, 0))
"""How many edits may lie in words of so many characters or more, for one to be meant by the other."""


def nearest(text: str, known: Iterable[str]) -> str:
    """Given a text and the known ones, return the one it is a slip of, or "" if it is of none.

    Slips lie within words. A name with another word in it, or one word more, is
    a name of its own: MIN_CTAS is not MAX_CTAS, nor LL_BUFFSIZE BUFFSIZE.
    """
    others = tuple(known)
    for most in (1, 2):
        for other in others:
            if _slipped(*_apart(text, other), most):
                return other
    return ""


def _apart(text: str, other: str) -> tuple[str, str]:
    """Given two names, return what is left without the words they share at their ends."""
    one, two = text.split("_"), other.split("_")
    while one and two and one[0] == two[0]:
        one, two = one[1:], two[1:]
    while one and two and one[-1] == two[-1]:
        one, two = one[:-1], two[:-1]
    return "_".join(one), "_".join(two)


def _slipped(one: str, two: str, most: int) -> bool:
    """Whether so few edits are between both; more than one leave the first letter alone."""
    if not one or not two:
        return False
    longest = max(len(one), len(two))
    allowed = next(allowed for least, allowed in _EDITS if longest >= least)
    if allowed == 0:
        allowed = int(sorted(one) == sorted(two))  # MXA
    return most <= allowed and (most == 1 or one[0] == two[0]) and edits(one, two, most)


def without_underscores(text: str, known: Iterable[str]) -> str:
    """Given a text and the known ones, return the one it is a slip of but for underscores, or "".

    BUFFER_SIZE is three edits from BUFFSIZE, one of them an underscore.
    """
    words = frozenset(text.split("_"))
    for other in known:
        if text.count("_") == other.count("_"):
            continue
        one, two = text.replace("_", ""), other.replace("_", "")
        whole = words - {""} < frozenset(other.split("_")) or frozenset(
            other.split("_")
        ) < words - {""}
        if one == two or (not whole and (_slipped(one, two, 1) or _slipped(one, two, 2))):
            return other
    return ""


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
