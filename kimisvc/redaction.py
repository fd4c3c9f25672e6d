"""Keeps secrets out of what is shown and kept: known ones by value, others by their shape. Pure.

Text from outside (vLLM's words in the journal, bodies of HTTP errors, answers,
what a program wrote) may hold a key that kimisvc was never told to print. Two
nets are laid: each value of the secrets file in every writing a log gives it
(plain, as URL, base64, JSON, shell, repr, cut off), and what looks like a secret
whoever it belongs to.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHORTEST = 6
"""A value shorter than that (characters) is not sought: it would be found within other words."""
HEAD = 12
"""A longer secret is also known by so many first characters: messages are cut to a length."""
LEAST_BASE64 = 8
MARK = "[redacted]"


@dataclass(frozen=True, slots=True)
class Shape:
    """What secrets of one kind look like. `pattern` finds one anywhere in a text."""

    what: str
    pattern: re.Pattern[str]


def _shape(what: str, pattern: str) -> Shape:
    return Shape(what, re.compile(rf"(?<![A-Za-z0-9]){pattern}"))


_MIXED = r"(?=[A-Za-z0-9_-]*[A-Z0-9])"
"""At least one capital or digit: what tells a token from the name of a module."""
SHAPES: tuple[Shape, ...] = (
    _shape(
        "a Hugging Face token", r"(?:api_org|hf)_(?:[A-Za-z0-9]{16,}|" + _MIXED + "[A-Za-z0-9]{8,})"
    ),
    _shape("an API key", r"sk-(?:[a-z]{1,12}[0-9]{0,4}-){0,3}[A-Za-z0-9_]{8,}[A-Za-z0-9_-]*"),
    _shape("an API key", r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}"),
    _shape("an NVIDIA API key", r"nvapi-[A-Za-z0-9_-]{16,}"),
    _shape("a GitHub token", r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})"),
    _shape("a GitLab token", r"gl[a-z]{1,6}-[A-Za-z0-9_-]{20,}"),
    _shape("a Slack token", r"xox[a-z]-[A-Za-z0-9-]{10,}"),
    _shape("an AWS access key", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("a Google API key", r"(?:AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,})"),
    _shape("a PyPI token", r"pypi-[A-Za-z0-9_-]{30,}"),
    _shape("an npm token", r"npm_[A-Za-z0-9]{30,}"),
    _shape("a Docker token", r"dckr_[a-z]{3}_[A-Za-z0-9_-]{20,}"),
    _shape("a JSON web token", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
    _shape("a private key", r"-{3,5}BEGIN [A-Z ]*PRIVATE KEY.*"),
    _shape(
        "an Authorization header",
        r"[Bb](?:earer|asic)[ :=]+(?=[^\s'\"]*[0-9A-Z+/=_])[A-Za-z0-9._~+/=-]{12,}",
    ),
)
"""What nothing else looks like: good enough to refuse a profile for. Sources: the documentation
of each issuer, and GitHub's list of secret scanning patterns."""

URL_PASSWORD = re.compile(r"(?<=://)([^/\s@:'\"]*):([^/\s@'\"]+)@")
"""RFC 3986, 3.2.1: user and password before the host."""

_WHOSE = "hf|hub|api|auth|access|bearer|refresh|session|id|github|gitlab|private|vault|sas"
"""Before "token": tokens of a person or a service; models have many others."""
_WORDS = (
    r"(?:api[_-]?key|(?:shared|secret)?[_-]?access[_-]?key|(?:account|shared|secret|private)[_-]?key"
    rf"|(?:{_WHOSE})[_-]?token|x-(?:[a-z0-9]{{1,16}}-){{1,3}}(?:token|key|secret)"
    r"|(?:shared[_-]?)?access[_-]?signature|client[_-]?secret|authorization|psk"
    r"|[a-z0-9]{0,16}(?:password|passwd|passphrase)|(?<=;)pwd|(?<=; )pwd)s?"
)
"""Names of headers and of fields of connection strings, too: `AccountKey=`, `X-Api-Key:`, `;Pwd=`."""
_MARKED = r"\[redacted[^\]\n]*\]"
_NOTHING = r"\.{3}|None\b|null\b|True\b|False\b|\[\]|''|\"\""
_ASSIGNED = re.compile(
    rf"(?i)(?<![A-Za-z0-9])(?P<name>{_WORDS})(?P<sign>['\"]?\s*[=:]\s*|\s+(?=['\"]))"
    rf"(?!\s*(?:\[redacted|{_NOTHING}))"
    rf"(?P<value>\[(?:{_MARKED}|[^\[\]])*\]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    r"|<[^<>\n]*>|\$\{[^{}\n]*\}|\$\([^()\n]*\)|`[^`\n]*`|(?<==)\{[^{}\n]*\}"
    r"|(?:(?:bearer|basic)\s+)?[^\s,;'\"\]\[(){}]+)"
)
"""api_key='...', 'hf_token': ['...'], Authorization: Bearer ..., PASSWORD=..., Pwd={...}"""
_AUTHORIZED = re.compile(
    r"(?i)(?P<name>authorization)(?P<sign>\s*[=:]\s*)"
    r"(?P<value>[a-z][\w-]*[ \t]+(?=[^\s,;'\"]{8})"
    r"(?-i:(?=[0-9]|[^\s,;'\"]+[0-9A-Z+/=_]))"
    r"[^\s,;'\"\]\[(){}]+(?:\"[^\"\n]*\")?"
    r"(?:,[ \t]*[a-z][\w-]*=(?:\"[^\"\n]*\"|[^\s,;'\"]+))*)"
)
"""RFC 9110, 11.4: a scheme, of which there are more than a list holds, and a key or parameters."""


def _option(names: str, more: str = "") -> re.Pattern[str]:
    """An option and its value, as typed or as the words of a list; `more`: of what it goes on."""
    return re.compile(
        rf"(?i)(?<![a-z0-9-])(?P<name>--(?:[a-z0-9]{{1,16}}[-_]){{0,4}}(?:{names}))"
        rf"(?P<sign>=|[ \t]+|['\"],\s*['\"])(?!\s*(?:{_NOTHING}))"
        rf"(?P<value>(?:{_MARKED}|[^\s'\"]+){more})"
    )


_OPTION = _option(rf"password|passwd|passphrase|secret|(?:{_WHOSE})[-_]token")
_SEVERAL = _option("api[-_]?key", rf"(?:(?:[ \t]+|['\"],\s*['\"])(?!-)(?:{_MARKED}|[^\s'\"]+))*")
"""vLLM takes several keys, up to the next option."""
_LOGIN = re.compile(
    r"(?<![\w-])(?P<name>(?:-u|--user|--proxy-user)[ =]['\"]?[^\s:'\"/]{1,64})(?P<sign>:)"
    r"(?!\[redacted|\d+(?![^\s'\"]))(?=[^\s'\"]*[^A-Za-z\s'\"_-])(?P<value>[^\s'\"/][^\s'\"]{5,})"
)
"""curl(1), --user: a name and a password. Those of docker have a group behind the colon."""
_BEHIND = (_AUTHORIZED, _ASSIGNED, _SEVERAL, _OPTION, _LOGIN)
_OPTION_ALONE = re.compile(r"(?i)--?(?:[a-z0-9]+[_-])*(?:api[_-]?key|token|password|secret)")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets in a text. Its `repr` shows none of them."""

    names: tuple[str, ...] = ()
    _known: tuple[tuple[re.Pattern[str], str, str], ...] = ()

    @classmethod
    def of(cls, secrets: Mapping[str, str]) -> Redactor:
        """Given secrets by name, return what keeps them, and whatever looks like one, out."""
        held = {name: value for name, value in secrets.items() if len(value) >= SHORTEST}
        # The longest first: one may be the beginning of another.
        order = sorted(held, key=lambda name: -len(held[name]))
        known = [(_pattern(held[name]), held[name], f"[redacted: {name}]") for name in order]
        return cls(tuple(order), tuple(known))

    def __repr__(self) -> str:
        """Return the names alone."""
        return f"Redactor({', '.join(self.names)})"

    def __call__(self, text: str) -> str:
        """Given a text from outside, return it without secrets. Doing so twice changes nothing."""
        for pattern, value, mark in self._known:
            text = pattern.sub(mark, text)
            if len(value) > HEAD:
                text = _without_heads(text, value, mark)
        return without_shapes(text)

    def words(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Given a command line, return its words without secrets, those behind options neither."""
        shown, behind = [], False
        for word in argv:
            is_value = behind and not word.startswith("-")
            shown.append(MARK if is_value else self(word))
            behind = is_value or _OPTION_ALONE.fullmatch(word) is not None
        return tuple(shown)


def without_shapes(text: str) -> str:
    """Given a text, return it without what looks like a secret, whoever it belongs to."""
    for pattern in _BEHIND:
        text = pattern.sub(_hidden, text)
    text = URL_PASSWORD.sub(lambda found: f"{found[1]}:{MARK}@", text)
    for shape in SHAPES:
        text = shape.pattern.sub(MARK, text)
    return text


def behind_names(text: str) -> Iterator[re.Match[str]]:
    """Given a text, yield each value behind a name that secrets have: groups name, sign and value.

    `Password=x`, `X-Api-Key: x`, `--hf-token x`, `-u name:x`: any value, so a word
    of a sentence too.
    """
    for pattern in _BEHIND:
        yield from pattern.finditer(text)


def _hidden(found: re.Match[str]) -> str:
    """What stands for a value behind its name; one that is hidden already says whose it was."""
    done = re.fullmatch(_MARKED, found["value"])
    return found[0] if done else f"{found['name']}{found['sign']}{MARK}"


def _pattern(value: str) -> re.Pattern[str]:
    forms = sorted(set(_forms(value)), key=lambda form: -len(form))
    return re.compile("|".join(re.escape(form) for form in forms))


def _forms(value: str) -> Iterator[str]:
    """Yield a value in each writing in which logs, URLs, headers and dumps carry it."""
    printed = "".join(c if c.isprintable() else " " for c in value)
    escaped = json.dumps(value)[1:-1]
    yield from (value, printed, value.strip(), escaped, escaped.replace("/", "\\/"))
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield from (repr(value)[1:-1], repr(value.encode())[2:-1], ascii(value)[1:-1])
    yield from (value.replace("'", "\\'"), value.replace("$", "$$"), value.replace("%", "%%"))
    yield from (value.replace("\\", "\\\\"), re.sub(r'(["\\`$])', r"\\\1", value))
    yield from (shlex.quote(value), html.escape(value), html.escape(value, quote=False))
    for percent in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield from (percent, re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), percent))
    for code in _base64(value.encode()):
        if len(code) >= LEAST_BASE64:
            yield from (code, code.replace("+", "-").replace("/", "_"))
    yield value.encode().hex()


def _base64(value: bytes) -> Iterator[str]:
    """Yield what base64 makes of a value, whatever stands before it ("user:") and behind it.

    Three bytes make four characters; only those that are made of the value
    alone are the same everywhere.
    """
    for before, foreign in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(b"\0" * before + value).decode()
        yield whole[foreign : (before + len(value)) * 8 // 6]


def _without_heads(text: str, value: str, mark: str) -> str:
    """Replace a secret that was cut off, down to its first characters."""
    head, begin = value[:HEAD], 0
    while (at := text.find(head, begin)) >= 0:
        end = at + HEAD
        while end < len(text) and value.startswith(text[at : end + 1]):
            end += 1
        text = f"{text[:at]}{mark}{text[end:]}"
        begin = at + len(mark)
    return text
