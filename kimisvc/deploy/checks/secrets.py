"""Judges the secrets file before systemd reads it: who may touch it, what each line really means.

No value is ever part of a problem: it names file, line, variable and rule.
systemd itself is less careful: an assignment it drops (`export X=...`) it
writes to the journal, value and all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.environment_file import Oddity, is_name
from kimisvc.host import secrets_file
from kimisvc.profile.secret_signs import SETTINGS, looks_secret, names_a_secret
from kimisvc.profile.secret_stand_ins import is_placeholder
from kimisvc.records.problems import Problem, Severity
from kimisvc.redaction import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.environment_file import Assignment
    from kimisvc.host.secrets_file import Contents
    from kimisvc.records.profile import Profile

KEY = "service.secrets_file"
API_KEY = "VLLM_API_KEY"
ERROR, WARNING = Severity.ERROR, Severity.WARNING
SET_BY_KIMISVC = frozenset(
    {"PATH", "HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}
)
"""Variables whose defaults kimisvc writes into the unit; the file would win over them."""
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_WEAK = frozenset({"secret", "password", "token", "none", "null", "key", "test"})
"""Words that nobody means to keep for a key, and that guessers try first."""
_LONG = 16
_FANCY = "\u2018\u2019\u201c\u201d\u00ab\u00bb\ufeff\u200b\u00a0"


@dataclass(frozen=True, slots=True)
class Rule:
    """One odd writing, how bad it is, and what to tell. The words follow the variable's name."""

    oddity: Oddity
    severity: Severity
    message: str


RULES: tuple[Rule, ...] = (
    Rule(
        Oddity.OPEN_QUOTE, ERROR,
        "opens a quote that is never closed, so that all lines after it are part of the value. "
        'Close it, or write a quote within double quotes as \\"',
    ),
    Rule(
        Oddity.LINE_IN_QUOTES, ERROR,
        "has a line break within its quotes; neither a key nor a token has one. Close the quote",
    ),
    Rule(
        Oddity.JOINED_LINES, ERROR,
        "ends a line with a backslash, so that the next line is part of the value",
    ),
    Rule(
        Oddity.LOST_BACKSLASH, ERROR,
        "has a backslash outside of quotes, which systemd takes away. Put the value in single "
        "quotes",
    ),
    Rule(
        Oddity.BEHIND_QUOTE, ERROR,
        "goes on behind its closing quote, and that is part of the value, a # as well. "
        "Comments have lines of their own",
    ),
    Rule(
        Oddity.UNQUOTED_HASH, ERROR,
        "has a # behind a blank, and systemd takes it and what follows as part of the value. "
        "Comments have lines of their own; a # that is meant goes into single quotes",
    ),
    Rule(
        Oddity.EXPANSION, WARNING,
        "has a $ or a backtick, which stays as it is: systemd expands neither variables nor "
        "commands here. If it is meant so, put the value in single quotes",
    ),
    Rule(
        Oddity.KEPT_BACKSLASH, WARNING,
        "has a backslash in double quotes that escapes nothing and stays in the value. If it is "
        "meant so, put the value in single quotes",
    ),
)  # fmt: skip
"""systemd.exec(5), EnvironmentFile=, and what systemd 252 was seen to do."""


def secrets(about: Inspection) -> Iterator[Problem]:
    """Yield what is wrong with the secrets file: who may touch it, and what its lines mean."""
    yield from secrets_problems(about.profile)


def secrets_problems(profile: Profile) -> list[Problem]:
    """Given a checked profile, return what is wrong with its secrets file; nothing without one.

    Errors: systemd or vLLM would get something else than was meant, or others
    could. Warnings: it works, and surprises. Content is judged only where it
    may be read, by root as a rule.
    """
    if not profile.service.secrets_file:
        return []
    path = Path(profile.service.secrets_file)
    problems = [Problem(why, key=KEY) for why in secrets_file.why_open(path)]
    found = secrets_file.contents(path)
    if found.trouble and problems:
        return problems
    if found.trouble and os.geteuid() != 0:
        told = f"{found.trouble}; what it holds is checked by root only (sudo)"
        return [Problem(told, str(path), key=KEY, severity=WARNING)]
    return [*problems, *content_problems(profile, found)]


def content_problems(profile: Profile, found: Contents) -> list[Problem]:
    """Given a checked profile and what its secrets file holds, return what is wrong with that."""
    file = profile.service.secrets_file
    if found.trouble:
        return [Problem(found.trouble, file, found.line, KEY)]
    problems = list(_whole(profile, found))
    first: dict[str, Assignment] = {}
    for one in found.assignments:
        before = first.setdefault(one.name, one)
        told = list(_line(one))
        if not told:
            told = list(_value(profile, one))
            told += [_again(one, before)] if before is not one else []
        problems += [Problem(words, file, one.line, KEY, how) for how, words in told]
    return problems


def _whole(profile: Profile, found: Contents) -> Iterator[Problem]:
    file = profile.service.secrets_file
    if not found.assignments:
        yield Problem(
            "sets nothing: write NAME=value lines, or leave secrets_file out of the profile",
            file, key=KEY, severity=WARNING,
        )  # fmt: skip
    if found.bare_returns:
        yield Problem(
            "has lines that end as on Windows; systemd reads them, a shell does not. "
            "Convert it: sed -i 's/\\r$//' FILE",
            file, key=KEY, severity=WARNING,
        )  # fmt: skip


def _line(one: Assignment) -> Iterator[tuple[Severity, str]]:
    """What keeps a line from being an assignment at all."""
    if Oddity.COMMENT_GOES_ON in one.oddities:
        yield (
            ERROR,
            (
                "is a comment that ends in a backslash: systemd before 254 takes the next line as part "
                "of it, a newer one does not. Take the backslash away"
            ),
        )
    elif Oddity.NO_SIGN in one.oddities:
        yield ERROR, "is a line without =, which systemd skips. Write NAME=value, or # before it"
    elif one.name.startswith("\ufeff"):
        yield (
            ERROR,
            (
                "begins with a byte order mark, so that systemd drops the first variable. "
                "Save the file as UTF-8 without BOM"
            ),
        )
    elif one.name.split()[:1] == ["export"]:
        name = one.name.split()[-1]
        said = f": write {name}=... alone" if is_name(name) else ""
        yield (
            ERROR,
            (
                f"begins with export, so systemd drops the line, and writes it to the journal with its "
                f"value{said}"
            ),
        )
    elif _is_bare_secret(one.name):
        yield ERROR, "is a value without a name (a key that ends in =?). Write NAME=value"
    elif not is_name(one.name):
        yield (
            ERROR,
            (
                "sets what is not the name of a variable (letters, digits and underscore, no digit "
                "first), so systemd drops the line, and writes it to the journal with its value"
            ),
        )


def _is_bare_secret(name: str) -> bool:
    """Whether the name is to be shown to nobody: base64 ends in a =, and then looks like one."""
    mixed = not (name.isupper() or name.islower())
    return looks_secret(name) or (len(name) >= _LONG and mixed and bool(re.search(r"\d", name)))


def _value(profile: Profile, one: Assignment) -> Iterator[tuple[Severity, str]]:
    """What is odd about a variable's value, in the words that follow its name."""
    told = [(r.severity, r.message) for r in RULES if r.oddity in one.oddities]
    if not told:
        told = list(_plain_value(one))
    told += _standing(profile, one)
    for severity, words in told:
        yield severity, f"{one.name} {words}"


def _plain_value(one: Assignment) -> Iterator[tuple[Severity, str]]:
    value, secret = one.value, names_a_secret(one.name)
    control = _CONTROL.search(value)
    if control:
        yield ERROR, f"has a control character in its value (U+{ord(control[0]):04X})"
    elif not value.strip():
        what = "vLLM then asks nobody for a key" if one.name == API_KEY else "so it is not set"
        yield (
            (ERROR if secret else WARNING),
            f"is empty, {what}. Write its value, or remove the line",
        )
    elif value != value.strip():
        yield ERROR, "has a blank at an end of its quoted value: was it pasted along?"
    elif one.name == API_KEY and not value.isascii():
        yield ERROR, "has characters that no HTTP header can carry; take ASCII ones"
    elif any(char in value for char in _FANCY):
        yield (
            WARNING,
            "has typographic quotes or invisible blanks in its value: was it pasted along?",
        )
    elif secret and (is_placeholder(value) or value.lower() in _WEAK):
        yield WARNING, "has a placeholder for a value"
    elif secret and len(value) < SHORTEST:
        yield (
            WARNING,
            (
                f"has fewer than {SHORTEST} characters: too short for a key, and to be kept out of logs"
            ),
        )
    elif one.name == API_KEY and value.lower().startswith("bearer "):
        yield ERROR, 'begins with "Bearer "; the key alone is written here'


def _standing(profile: Profile, one: Assignment) -> Iterator[tuple[Severity, str]]:
    """How a variable stands to what the unit sets: what comes from this file wins there."""
    if one.name in profile.env:
        yield (
            WARNING,
            (
                "is set in [env] of the profile too, and the file wins: what is checked there is not "
                "what vLLM gets. Keep one of the two"
            ),
        )
    elif one.name in SET_BY_KIMISVC:
        yield WARNING, "is set by kimisvc, and the file wins. Write it in [env] if it must differ"
    elif SETTINGS.fullmatch(one.name) and not (names_a_secret(one.name) or looks_secret(one.value)):
        yield (
            WARNING,
            "is no secret, and no check looks at it here. Write it in [env] of the profile",
        )


def _again(one: Assignment, before: Assignment) -> tuple[Severity, str]:
    if one.value == before.value:
        return WARNING, f"{one.name} is set in line {before.line} already. Remove one of the two"
    return ERROR, (
        f"{one.name} is set to something else in line {before.line}; systemd takes the last. "
        "Remove one of the two"
    )
