"""NCCL_ALGO and NCCL_PROTO: which algorithms and protocols NCCL may use, by collective.

A list of names, inverted by a leading ^, or since NCCL 2.24 several of them:
`ring,tree;allreduce:tree`. Only the first may lack a collective, and then
stands for all. Names are compared without their case, spaces count, and an
unknown one ends the start with ncclInvalidUsage (src/tuning/cost_model.cc of
NCCL, parseList; user guide, Environment Variables, NCCL_ALGO).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.profile.values import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

ALGORITHMS = ("Ring", "Tree", "CollNetChain", "CollNetDirect", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce")

Selection = dict[str, frozenset[str]]
"""What may be used, by collective; a collective that is not named is not a key."""

_FAILS = "makes NCCL fail at its start (ncclInvalidUsage)"


def algorithms(value: str) -> str:
    """Given a value of NCCL_ALGO, return what is wrong with it, or ""."""
    return _problem(value, ALGORITHMS)


def protocols(value: str) -> str:
    """Given a value of NCCL_PROTO, return what is wrong with it, or ""."""
    return _problem(value, PROTOCOLS)


def allowed_algorithms(value: str) -> Selection:
    """Given a value of NCCL_ALGO, return the algorithms it allows; {} if it is not legal."""
    return {} if algorithms(value) else _allowed(value, ALGORITHMS)


def allowed_protocols(value: str) -> Selection:
    """Given a value of NCCL_PROTO, return the protocols it allows; {} if it is not legal."""
    return {} if protocols(value) else _allowed(value, PROTOCOLS)


def _entries(value: str) -> Iterator[tuple[int, list[str]]]:
    """Yield where each entry begins, and what stands between its colons, as strtok(3) does."""
    for entry in re.finditer("[^;]+", value):
        yield entry.start(), [part for part in entry[0].split(":") if part]


def _names(listed: str) -> list[str]:
    return [name for name in listed.removeprefix("^").split(",") if name]


def _allowed(value: str, names: tuple[str, ...]) -> Selection:
    """Given a legal value, return what it allows. A ^ allows all the others, LL128 among them."""
    known = {name.lower(): name for name in names}
    collectives = {name.lower(): name for name in COLLECTIVES}
    allowed: Selection = {}
    for _, parts in _entries(value):
        listed = frozenset(known[name.lower()] for name in _names(parts[-1]))
        chosen = frozenset(names) - listed if parts[-1].startswith("^") else listed
        targets = COLLECTIVES if len(parts) == 1 else (collectives[parts[0].lower()],)
        allowed.update(dict.fromkeys(targets, chosen))
    return allowed


def _problem(value: str, names: tuple[str, ...]) -> str:
    for start, parts in _entries(value):
        problem = _entry_problem(start, parts, names)
        if problem:
            return f"{shown(value)} {problem}"
    return ""


def _entry_problem(start: int, parts: list[str], names: tuple[str, ...]) -> str:
    """Given where an entry begins and its parts, return what is wrong with it, or ""."""
    if not parts:
        return "has a colon with nothing around it. Write allreduce:..., for example"
    if len(parts) > 2:  # noqa: PLR2004 - a collective and its list
        return "has two colons in an entry. Separate the collectives by semicolons"
    collectives = {name.lower() for name in COLLECTIVES}
    if len(parts) > 1 and parts[0].lower() not in collectives:
        return _unknown(parts[0], COLLECTIVES, "collective")
    if len(parts) == 1 and parts[0].lower() in collectives:
        return f"{_FAILS}: {parts[0]} has no list. Write {parts[0]}:{names[0]}, for example"
    if len(parts) == 1 and start > 0:
        listed = ",".join(_spelled(name, names) or name for name in _names(parts[0]))
        return (
            f"{_FAILS}: only the first list may stand without a collective. "
            f"Write a comma to add {listed or 'a name'} to the first, or a collective before it"
        )
    return _list_problem(_names(parts[-1]), names)


def _list_problem(listed: list[str], names: tuple[str, ...]) -> str:
    if not listed:
        return f"has a list that names nothing. Write some of {', '.join(names)}"
    known = {name.lower() for name in names}
    wrong = next((name for name in listed if name.lower() not in known), "")
    return wrong and _unknown(wrong, names, "protocol" if names is PROTOCOLS else "algorithm")


def _unknown(text: str, names: tuple[str, ...], what: str) -> str:
    near = _spelled(text, names)
    hint = f"Write {near}" if near else f"There are: {', '.join(names)}"
    if near and text != text.strip():
        why = f"{shown(text)} holds a space, and spaces count"
    elif text.lower() == "collnet":
        why = '"Collnet" was split with NCCL 2.14'
        hint = "Write CollNetChain or CollNetDirect"
    else:
        why = f"{shown(text)} is no {what} it knows"
    return f"{_FAILS}: {why}. {hint}"


def _spelled(text: str, names: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # only a value with a problem pays

    lowered = {name.lower(): name for name in names}
    near = get_close_matches(text.strip().lower(), list(lowered), 1, 0.75)
    return lowered[near[0]] if near else ""
