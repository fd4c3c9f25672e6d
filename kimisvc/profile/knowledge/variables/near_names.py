"""Which known variable was meant by a name that nothing reads.

A mistake is claimed within the families that are known here, or where the
family itself is misspelled and the rest is a known name. Of any other name it
is only suspected: variables of others (RCCL_*, MY_APP_*) are none of our business.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.elsewhere import READ_BY_OTHERS
from kimisvc.profile.knowledge.variables.slips import edits, nearest, without_underscores
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.options import option_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimisvc.records.profile import Profile

FAMILIES = ("NCCL", "CUDA", "OMP", "PYTORCH", "LD", "HF")
"""Families of names, by what stands before the first underscore, of which most are known."""

_OTHERS = frozenset(
    {"RCCL", "HCCL", "MCCL", "NCCLX", "ACCL", "ECCL", "FCCL", "ICCL", "OCCL", "XCCL"}
)
"""Collective libraries of other makers, one letter from NCCL."""

_NEIGHBOURS = _OTHERS | {"GOMP", "KMP", "MUSA", "LLM", "SGLANG"}
"""Families of others whose names are like known ones and no slips of them, but of each other."""

_LONG_NAME, _SHORT_NAME, _SHORTEST = 12, 5, 4
"""From so many characters on two edits count as a slip; below so many none does, but a letter
that was typed twice, down to the last."""

_UNFINISHED = ("CONF", "CONFIG")
"""Last words that are forgotten: PYTORCH_CUDA_ALLOC."""

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
        near = nearest(rest, known) or without_underscores(rest, known) or _spelled_out(rest, known)
        near = near or next((one for one in known if _lacks_an_end(rest, one)), "")
        return f"{family}_{near}" if near else ""
    if family in _OTHERS:
        return ""
    for other in FAMILIES:
        meant = f"{other}_{rest}"
        if len(other) >= _LONG_FAMILY and edits(family, other, 1) and meant in VARIABLES:
            return meant
    return ""


def like_variable(name: str) -> str:
    """Given a name outside the families that are known, return the name it may be a slip of, or "".

    That of VLLM_* as well; a name that programs beside vLLM read is none.
    """
    upper = name.upper()
    family = _family(upper)
    if name in READ_BY_OTHERS or family in FAMILIES or len(name) < _SHORT_NAME:
        return ""
    known = (*VARIABLES, *shipped_knowledge().variables, *READ_BY_OTHERS)
    if family in _NEIGHBOURS:
        known = tuple(other for other in known if _family(other) == family)
    for most in (1, 2) if len(name) >= _LONG_NAME else (1,):
        for other in known:
            if _so_alike(upper, other.upper(), most):
                return other
    return ""


def _so_alike(name: str, other: str, most: int) -> bool:
    """Whether so few edits lie between both names; more than one not in the family as well."""
    if len(other) < _SHORT_NAME:
        return len(other) >= _SHORTEST and _doubles_a_letter(name, other)
    if abs(len(name) - len(other)) > most:
        return False
    if (Counter(name) - Counter(other)).total() > most:
        return False
    one, two = _family(name), _family(other)
    if most > 1 and not (one[0] == two[0] and edits(one, two, 1)):
        return False
    return edits(name, other, most)


def _doubles_a_letter(name: str, other: str) -> bool:
    """Whether the one is the other but for a letter that was typed twice: LANGG."""
    return any(
        name[at] == name[at - 1] and name[:at] + name[at + 1 :] == other
        for at in range(1, len(name))
    )


def _lacks_an_end(rest: str, known: str) -> bool:
    return known.rpartition("_")[2] in _UNFINISHED and known.rpartition("_")[0] == rest


def _spelled_out(rest: str, known: Iterable[str]) -> str:
    """Given what stands behind a family, return the known one that shortens a word of it, or "".

    PROTOCOL is PROTO, and ALGORITHM ALGO.
    """
    words = rest.split("_")
    for other in known:
        short = other.split("_")
        pairs = [pair for pair in zip(words, short, strict=False) if pair[0] != pair[1]]
        if len(words) != len(short) or len(pairs) != 1:
            continue
        ((word, part),) = pairs
        if len(part) >= _LONG_FAMILY and word.startswith(part):
            return other
    return ""


def leave(name: str, draft: Profile) -> str:
    """Given a name that is like a known one and its profile, return how to let it pass."""
    set_here = {*draft.env, *map(option_name, draft.args)}
    kept = [one for one in draft.allow_risky if {one, option_name(one.lstrip("-"))} & set_here]
    names = ", ".join(f'"{allowed}"' for allowed in (*kept, name))
    return f"If the name is meant: allow_risky = [{names}]"


def _family(name: str) -> str:
    return name.partition("_")[0]


def _rest(name: str) -> str:
    return name.partition("_")[2]
