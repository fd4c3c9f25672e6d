"""Which known variable was meant by a name that nothing reads.

A mistake is claimed within the families that are known here, or where the
family itself is misspelled and the rest is a known name. Others' variables
(RCCL_*, MY_APP_*) are none of our business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.slips import edits, nearest, without_underscores
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.options import option_name

if TYPE_CHECKING:
    from kimisvc.records.profile import Profile

FAMILIES = ("NCCL", "CUDA", "OMP", "PYTORCH", "LD", "HF")
"""Families of names, by what stands before the first underscore, of which most are known."""

_OTHERS = frozenset(
    {"RCCL", "HCCL", "MCCL", "NCCLX", "ACCL", "ECCL", "FCCL", "ICCL", "OCCL", "XCCL"}
)
"""Collective libraries of other makers, one letter from NCCL."""

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
        near = nearest(rest, known) or without_underscores(rest, known)
        return f"{family}_{near}" if near else ""
    if family in _OTHERS:
        return ""
    for other in FAMILIES:
        meant = f"{other}_{rest}"
        if len(other) >= _LONG_FAMILY and edits(family, other, 1) and meant in VARIABLES:
            return meant
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
