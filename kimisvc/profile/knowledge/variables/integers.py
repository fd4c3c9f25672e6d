"""How NCCL reads a whole number, and which number was likely meant.

NCCL hands the value to strtoll(3) with base 0: leading space is skipped, 0x
begins a hexadecimal and 0 an octal number, and reading ends without a word at
the first other character; beyond 64 bits the default stays (src/misc/param.cc
of NCCL, ncclLoadParam).
"""

from __future__ import annotations

import re

_SPACE = " \t\n\v\f\r"
_READ = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_CLEAR = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_LEAST, _MOST = -(2**63), 2**63 - 1
_LONGEST = 22
"""Digits of the longest 64-bit number, which is an octal one."""

# Compiled when they are used: only a value with a problem pays.
_COMMENT = r"(?s)[ \t]*(?:#|//|;).*"
_WRITTEN = r"([+-]?[0-9][0-9_]{0,30})(?:\.0{1,9})? ?([kmgt]?)(?:i?b|bytes?)?"
_EXPONENT = r"([0-9]{1,9})(?:\.([0-9]{1,9}))?e\+?([0-9]{1,2})"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "enable", "enabled"), 1),
    **dict.fromkeys(("false", "no", "off", "f", "n", "disable", "disabled", "none"), 0),
}


def as_read(text: str) -> int | None:
    """Given a value, return the number NCCL reads (0 if it finds none).

    None: more than 64 bits, and NCCL keeps its default.
    """
    found = _READ.match(text.lstrip(_SPACE))
    if not found:
        return 0
    sign, digits = found.groups()
    base = 16 if digits[1:2] in ("x", "X") else 8 if digits[0] == "0" else 10
    digits = digits[2:] if base == 16 else digits  # noqa: PLR2004 - two are the 0x
    digits = digits.lstrip("0")
    if len(digits) > _LONGEST:
        return None
    number = int(digits or "0", base) * (-1 if sign == "-" else 1)
    return number if _LEAST <= number <= _MOST else None


def is_clear(text: str) -> bool:
    """Given a value, return whether NCCL and a human read the same whole number of 64 bits."""
    return _CLEAR.fullmatch(text.strip(_SPACE)) is not None and as_read(text) is not None


def likely_meant(text: str) -> int | None:
    """Given a value, return the number its writer likely meant, or None if that is unknown.

    16M and 16 MiB mean 16777216, 010 means 10, 1e7 means 10000000, true means
    1; underscores group digits and # begins a comment.
    """
    bare = re.sub(_COMMENT, "", text).strip(_SPACE).lower()
    if bare in _WORDS:
        return _WORDS[bare]
    number: int | None = None
    if is_clear(bare):
        number = as_read(bare)
    elif power := re.fullmatch(_EXPONENT, bare):
        whole, part, exponent = power[1], power[2] or "", int(power[3])
        part = part.rstrip("0")
        number = int(whole + part) * 10 ** (exponent - len(part)) if exponent >= len(part) else None
    elif written := re.fullmatch(_WRITTEN, bare):
        number = int(written[1].replace("_", "")) * _UNITS[written[2]]
    return number if number is not None and _LEAST <= number <= _MOST else None


def how_read(text: str) -> str:
    """Given a value that is not a clear number, return what NCCL makes of it, and why."""
    number = as_read(text)
    if number is None:
        return "is more than 64 bits: NCCL would keep its default"
    bare = text.strip(_SPACE)
    if not _READ.match(bare):
        return "holds no number at its beginning: NCCL would read 0"
    if re.fullmatch(r"[+-]?0[0-9]+", bare):
        return f"would be read as {number}: a leading zero makes the number octal"
    return f"would be read as {number}: NCCL stops at the first character that is not a digit"
