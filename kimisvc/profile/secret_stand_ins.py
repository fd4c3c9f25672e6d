"""What stands where a secret would: a reference to it, or a word to put one in. Pure.

Profiles, their comments and the commands they came from are full of these:
`${DB_PASSWORD}`, `$(cat /run/key)`, `<your token>`, `hf_...`, `EMPTY`. None of
them gives anything away.
"""

from __future__ import annotations

import re

SWITCH = re.compile(r"(?i)|[01]|true|false|yes|no|on|off|none|null|auto")
PATH = re.compile(r"(?:/[\w.@+-]+){2,}/?|file:.*")
"""Where a secret lies, which is none."""
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|api-?key|api-token)[ =:]+")
_KIND = r"(?:[A-Za-z]{1,8}[-_]){0,2}"
"""What issuers put before their tokens: `hf_`, `sk-proj-`."""
_PLACEHOLDER = re.compile(
    rf"(?i)<[^<>]*>|{_KIND}(?:\.{{3,}}|\u2026|x{{3,}}|your[-_ ].*|here|changeme)|\*+|%[sd]|%\w+%"
    r"|[a-z_-]{1,24}\.{3}|\{\{.*|\{\w*\}|empty|dummy|fake|example|placeholder|change[-_ ]?me|todo|tbd"
    r"|(?:replace|insert|paste|fill)[-_ ].*|\[?redacted.*"
)
"""What is written where a value is to be put in."""
_REFERENCE = re.compile(
    r"\$(?:[A-Za-z_]\w*)?|\$\{[A-Za-z_]\w*(?::?\?[^{}]*|:?-)?\}|\$\([^()]*\)|`[^`]*`"
    r"|(?:os\.)?(?:environ|getenv)\b.*|process\.env\b.*|getpass\b.*"
)
"""Where a shell or a program has a value from. One with a default in it, `${A:-b}`, is none."""


def is_placeholder(value: str) -> bool:
    """Given a value, return whether it only marks the place of one: `<key>`, `hf_xxxx`, `EMPTY`."""
    return _PLACEHOLDER.fullmatch(value) is not None


def is_stand_in(value: str) -> bool:
    """Given what stands behind the name of a secret, return whether it is none, but stands for one.

    It may be in quotes, behind a scheme of HTTP (`Bearer $KEY`), or several in a
    list, or in a row, each of them a stand-in.
    """
    bare = value.strip("\"' ")
    if _is_one(bare) or _is_one(_SCHEME.sub("", bare, count=1)):
        return True
    several = [word for word in re.split(r"[\s,\[\]'\"]+", bare) if word]
    return len(several) > 0 and "<" not in bare and all(map(_is_one, several))


def _is_one(value: str) -> bool:
    patterns = (SWITCH, PATH, _PLACEHOLDER, _REFERENCE)
    return any(pattern.fullmatch(value) for pattern in patterns)
