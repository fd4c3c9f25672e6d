"""Grammars of values: each is a function that returns what is wrong, or "" for a legal value.

A message says what would be made of the value and what to write. A grammar
never raises, whatever the text. Lists of algorithms and protocols are in
`nccl.selections`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kimisvc.profile.knowledge.variables.integers import as_read, how_read, is_clear, likely_meant
from kimisvc.profile.secret_signs import WHERE_TO
from kimisvc.profile.values import shown

Grammar = Callable[[str], str]
"""Given a value, return what is wrong with it and what to write instead, or ""."""

INT = 2**31 - 1
"""The greatest value of a C int, in which NCCL keeps most sizes."""

_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_LEGACY_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")


def whole_number(
    low: int = -(2**63),
    high: int = 2**63 - 1,
    *,
    below: str = "",
    above: str = "",
    multiple_of: int = 1,
    uneven: str = "",
) -> Grammar:
    """Given a range and what NCCL does outside of it, return the grammar of such a number.

    An empty value is legal: NCCL takes it for a variable that is not set.
    """
    legal = f"a whole number{_range(low, high, multiple_of)}"

    def check(value: str) -> str:
        if not value:
            return ""
        meant = likely_meant(value)
        fits = meant is not None and low <= meant <= high and meant % multiple_of == 0
        write = f"Write {meant}" if fits else f"Write {legal}"
        if not is_clear(value):
            return f"{shown(value)} {how_read(value)}. {write}"
        number = as_read(value) or 0
        if number < low:
            return f"{number} is too small{_so(below)}. Write {legal}"
        if number > high:
            return f"{number} is too large{_so(above)}. Write {legal}"
        if number % multiple_of:
            return f"{number} is not a multiple of {multiple_of}{_so(uneven)}. Write {legal}"
        return ""

    return check


def _range(low: int, high: int, multiple_of: int) -> str:
    unbounded = high >= 2**63 - 1
    text = f" from {low} to {high}" if not unbounded else f", {low} or more"
    if unbounded and low <= -(2**63):
        text = ""
    return text + (f", a multiple of {multiple_of}" if multiple_of > 1 else "")


def _so(effect: str) -> str:
    return f": {effect}" if effect else ""


def flag(value: str) -> str:
    """Given a switch of NCCL, return what is wrong: NCCL knows 0 and 1, and no words."""
    if value in ("", "0", "1"):
        return ""
    meant = likely_meant(value)
    write = f"Write {meant}" if meant in (0, 1) else "Write 0 or 1"
    if is_clear(value):
        return f"{shown(value)} is neither 0 nor 1. {write}"
    return f"{shown(value)} {how_read(value)}. {write}"


def switch(value: str) -> str:
    """Given a switch of another library than NCCL, return what is wrong: it takes 0 or 1."""
    if value in ("", "0", "1"):
        return ""
    meant = likely_meant(value)
    return f"{shown(value)} is neither 0 nor 1. Write {meant if meant in (0, 1) else '0 or 1'}"


def plain_number(low: int, high: int, instead: str = "") -> Grammar:
    """Given a range, return the grammar of a plain decimal number of another library than NCCL."""

    def check(value: str) -> str:
        if value.isascii() and value.isdigit() and len(value) < len(str(2**64)):
            if low <= int(value) <= high:
                return ""
            said = f"{shown(value)} is out of range{_so(instead)}"
        else:
            said = f"{shown(value)} is not a plain whole number"
        meant = likely_meant(value)
        fits = meant is not None and low <= meant <= high
        return f"{said}. Write {meant if fits else f'a whole number{_range(low, high, 1)}'}"

    return check


def words(*names: str, otherwise: str) -> Grammar:
    """Given the words a variable takes in any case, return their grammar."""
    known = {name.upper() for name in names}
    return lambda value: "" if value.upper() in known else _no_word(value, names, otherwise)


def exact_words(*names: str, otherwise: str) -> Grammar:
    """Given the words a variable takes as they are, return their grammar."""
    return lambda value: "" if value in names else _no_word(value, names, otherwise)


def _no_word(value: str, names: tuple[str, ...], otherwise: str) -> str:
    if not value:
        return ""
    write = _near(value, names) or ", ".join(names[:-1]) + f" or {names[-1]}"
    return f"{shown(value)} is not a word it knows: {otherwise}. Write {write}"


def word_list(*names: str, otherwise: str, separator: str = ",") -> Grammar:
    """Given words, return the grammar of a list of them, maybe after a ^."""

    def check(value: str) -> str:
        known = {name.upper() for name in names}
        for word in value.removeprefix("^").split(separator):
            if word.strip().upper() in known or not value:
                continue
            near = _near(word, names)
            write = f"Write {near}" if near else f"There are: {', '.join(names)}"
            return f"{shown(word)} is not a word it knows: {otherwise}. {write}"
        return ""

    return check


def _near(text: str, names: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # only a value with a problem pays

    found = get_close_matches(text.strip().upper(), [name.upper() for name in names], 1)
    return next((name for name in names if found and name.upper() == found[0]), "")


def distance(value: str) -> str:
    """Given a level of NCCL_P2P_LEVEL or NCCL_NET_GDR_LEVEL, return what is wrong with it.

    NCCL compares the words as they are (strcmp); a wrong one is ignored without
    a word. A leading digit makes it a legacy number, which is read with strtol
    and mapped to another order (src/graph/paths.cc of NCCL, ncclGetLevel).
    """
    if not value or value in _LEVELS:
        return ""
    if "0" <= value[0] <= "9":
        number = as_read(value)
        meant = _LEGACY_LEVELS[min(number, 4)] if number is not None else "SYS"
        return f"{shown(value)} is a legacy number, read as {meant}. Write {meant}"
    upper = value.strip().upper()
    write = upper if upper in _LEVELS else "LOC, NVL, PIX, PXB, PHB or SYS"
    return (
        f"{shown(value)} would be ignored without a word: only the exact words count. Write {write}"
    )


def absolute_path(value: str) -> str:
    """Given a path, return what is wrong: a service has no working folder to count on."""
    if not value or value.startswith("/"):
        return ""
    if value.startswith("~"):
        return f"{shown(value)} is not expanded: no shell reads it. Write an absolute path"
    return f"{shown(value)} depends on the folder the service runs in. Write an absolute path"


def libraries(value: str) -> str:
    """Given libraries for the loader, return what is wrong: paths, or bare names it searches for.

    They are set apart by colons or blanks; a name without a slash is looked for
    as those of linked libraries are (ld.so(8), LD_PRELOAD; dlopen(3)).
    """
    parts = value.replace(":", " ").split()
    return next((fault for part in parts if "/" in part if (fault := absolute_path(part))), "")


def folders(separators: str) -> Grammar:
    """Given what sets them apart, return the grammar of a list of folders to look in.

    An empty part stands for the folder the program runs in, as a relative one
    does (ld.so(8), LD_LIBRARY_PATH; Python's sys.path): whoever may write there
    has code of theirs run. $ORIGIN and its like are the loader's own (ld.so(8)).
    """
    legal = f"Write absolute paths with {separators[0]} between them"

    def check(value: str) -> str:
        parts = re.split(f"[{separators}]", value) if value else []
        if "" in parts:
            return (
                f"{shown(value)} has an empty part, which stands for the folder the service runs "
                f"in. {legal}, and none at an end"
            )
        named = (part for part in parts if not part.startswith("$"))
        return next((fault for part in named if (fault := absolute_path(part))), "")

    return check


def several(one: Grammar) -> Grammar:
    """Given the grammar of one value, return that of a list of them with commas, one a level.

    OpenMP reads such lists for nested parallel regions (OpenMP specification,
    OMP_NUM_THREADS, OMP_PROC_BIND).
    """

    def check(value: str) -> str:
        return next((fault for part in value.split(",") if (fault := one(part.strip()))), "")

    return check


def secret(value: str) -> str:
    """Given a value that is a secret, return that it may not stand here, without showing it."""
    why = "is a secret, and every user can read the environment of a unit"
    return f"{why}. {WHERE_TO}" if value else ""
