"""What gives a secret away by itself, whatever the key that holds it is called. Pure.

Three kinds: the marks that issuers give their tokens (`redaction.SHAPES`), a
password or token within a URL, and a value behind a name that only secrets
have: in a header, a connection string or a command within the text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from kimisvc.redaction import SHAPES, URL_PASSWORD, behind_names

if TYPE_CHECKING:
    from collections.abc import Iterator

SWITCH = re.compile(r"(?i)|[01]|true|false|yes|no|on|off|none|null|auto")
PATH = re.compile(r"(?:/[\w.@+-]+){2,}/?|file:.*")
"""Where a secret lies, which is none."""
_RANDOM = re.compile(r"[A-Za-z0-9+/_=.~-]{16,}")
_LEAST_ENTROPY = 3.0
"""Bits a character: English words lie below, base64 and hexadecimal of 16 characters above."""
_URL_USER = re.compile(r"(?<=://)([^/\s@:'\"]+)@")
_URL_QUERY = re.compile(
    r"(?i)[?&](?:[\w-]*(?:token|signature|secret|password|api[_-]?key)|sig|key)=([^&\s'\"]{8,})"
)
_STAND_IN = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*)?|<[^>]*>|%[sd]|\*+|\[redacted.*")
"""What is written where the value is to be put in."""
_WORD = re.compile(r"[A-Za-z]+[.!?]?")
_GOES_ON = re.compile(r"\s+[^\s-]")


def shapes(text: str) -> Iterator[str]:
    """Given a text, yield in words each kind of secret in it that looks like nothing else."""
    yield from (shape.what for shape in SHAPES if shape.pattern.search(text))
    if URL_PASSWORD.search(text):
        yield "a URL with a password"
    user = _URL_USER.search(text)
    if (user and looks_random(user[1])) or _URL_QUERY.search(text):
        yield "a URL with a token"


def behind_its_name(text: str) -> Iterator[str]:
    """Given a text that is no JSON, yield in words that a secret stands in it, behind its name.

    Not for `Password=/run/secrets/db`, `API_KEY=${KEY}`, `psk: off`, nor for a
    sentence: `password: ask for it`.
    """
    if any(_is_value(found) for found in behind_names(text)):
        yield "a key or password behind its name"


def _is_value(found: re.Match[str]) -> bool:
    value = found["value"].strip("\"'")
    if SWITCH.fullmatch(value) or PATH.fullmatch(value) or _STAND_IN.fullmatch(value):
        return False
    first, blank, _ = value.partition(" ")
    more = blank or _GOES_ON.match(found.string, found.end())
    prose = found["sign"][-1:].isspace() and more and _WORD.fullmatch(first)
    return not prose


def looks_random(value: str) -> bool:
    """Given a value, return whether it is long, of one piece, and of as many characters as a key."""
    if not _RANDOM.fullmatch(value) or not re.search(r"\d", value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _LEAST_ENTROPY
