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

from kimisvc.profile.secret_stand_ins import is_stand_in
from kimisvc.redaction import SHAPES, URL_PASSWORD, behind_names

if TYPE_CHECKING:
    from collections.abc import Iterator

_RANDOM = re.compile(r"[A-Za-z0-9+/_=.~-]{16,}")
_LEAST_ENTROPY = 3.0
"""Bits a character: English words lie below, base64 and hexadecimal of 16 characters above."""
_URL_USER = re.compile(r"(?<=://)([^/\s@:'\"]+)@")
_URL_QUERY = re.compile(
    r"(?i)[?&](?:[\w-]*(?:token|signature|secret|password|api[_-]?key)|sig|key)=([^&\s'\"]{8,})"
)
_WORD = re.compile(r"[A-Za-z]+[.!?]?")
_GOES_ON = re.compile(r"\s+[^\s-]")
_POINTS = re.compile(
    r"(?i)see|ask|in|from|the|set|kept|taken|put|read|given|goes|comes|here|there|as|done|not|your"
    r"|to|for|of|and|or|is|are|with|which|that|it|if|on|by|so|when|but|will|must|may|can|needs|takes"
)
"""How a sentence behind a `=` or an option goes on: `HF_TOKEN = see there`. Passwords do not."""
_SCHEMES = re.compile(
    r"(?i)token|(?:api|genie)?-?key|api-?token|bearer|basic|digest|oauth|negotiate|ntlm|splunk|ssws|"
    r"bot|hawk|aws4-[\w-]*"
)
"""IANA's registry of HTTP authentication schemes, and those that vendors made up."""
_LEAST_CREDENTIAL = 8


def shapes(text: str) -> Iterator[str]:
    """Given a text, yield in words each kind of secret in it that looks like nothing else."""
    for shape in SHAPES:
        if any(not is_stand_in(found[0]) for found in shape.pattern.finditer(text)):
            yield shape.what
    if any(not is_stand_in(found[2]) for found in URL_PASSWORD.finditer(text)):
        yield "a URL with a password"
    tokens = [found[1] for found in _URL_QUERY.finditer(text) if not is_stand_in(found[1])]
    if tokens or any(looks_random(found[1]) for found in _URL_USER.finditer(text)):
        yield "a URL with a token"


def behind_its_name(text: str) -> Iterator[str]:
    """Given a text that is no JSON, yield in words that a secret stands in it, behind its name.

    Not for `Password=/run/secrets/db`, `API_KEY=${KEY}`, `psk: off`, nor for a
    sentence: `password: ask for it`.
    """
    if any(_is_value(found) for found in behind_names(text)):
        yield "a key or password behind its name"


def _is_value(found: re.Match[str]) -> bool:
    return not is_stand_in(found["value"]) and not _is_prose(found)


def _is_prose(found: re.Match[str]) -> bool:
    """Whether a sentence goes on behind the name. What stands in quotes or close to it is a value."""
    sign, value = found["sign"], found["value"]
    if not sign[-1:].isspace() or value[:1] in "\"'[":
        return False
    first, blank, second = value.partition(" ")
    if blank and _is_credential(first, second.strip()):
        return False
    goes_on = blank or _GOES_ON.match(found.string, found.end())
    words = _WORD if ":" in sign else _POINTS
    return bool(goes_on) and words.fullmatch(first) is not None


def _is_credential(scheme: str, word: str) -> bool:
    """Whether the word behind what may be a scheme of HTTP, or of a sentence, is a key."""
    if looks_random(word):
        return True
    is_scheme = _SCHEMES.fullmatch(scheme) or (scheme[0].isupper() and re.search(r"\d", word))
    plain = re.fullmatch(r"[A-Za-z]?[a-z-]*[.!?]?", word)
    return bool(is_scheme) and len(word) >= _LEAST_CREDENTIAL and not plain


def looks_random(value: str) -> bool:
    """Given a value, return whether it is long, of one piece, and of as many characters as a key."""
    if not _RANDOM.fullmatch(value) or not re.search(r"\d", value):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _LEAST_ENTROPY
