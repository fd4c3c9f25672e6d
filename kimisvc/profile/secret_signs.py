"""How a secret that was written into a profile by mistake is known, so that it is never shown.

Profiles, units and command lines can be read by any user of the box; secrets
belong in the file that `service.secrets_file` names. A value is known by its
looks (`secret_looks`), or by a name that only secrets have. Of names that
other things have too ("key", "auth") only a value that looks random counts.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kimisvc.profile.secret_looks import behind_its_name, looks_random, shapes
from kimisvc.profile.secret_stand_ins import PATH, SWITCH, is_stand_in
from kimisvc.redaction import URL_PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHERE_TO = 'Put it in a file of mode 0600 and name that file: [service] secrets_file = "/..."'


class Name(Enum):
    """What a name says of its value."""

    SECRET = "secret"  # noqa: S105 - a word for it
    PERHAPS = "perhaps"
    PLAIN = "plain"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALWAYS = _words("password passwd passphrase psk secret secrets apikey credentials authorization")
"""A name that ends in one of these holds a secret, or where one is."""
_OF_A_KEY = _words(
    "api access secret private signing encryption account license master service auth ssh"
)
_NO_TOKEN = _words(
    "bos eos pad unk sep cls mask stop start end begin image video audio special think last first "
    "next max min num per any every single new bad placeholder prefix suffix implicit"
)
"""Before "token": tokens of a model, or a switch, not of a person."""
_OF_A_PERSON = _OF_A_KEY | _words("hf hub huggingface user bearer refresh id github gitlab")
"""Before "token", deep in a table: those of a person, or of a service. Models have many others."""
_NO_KEY = _words(
    "public cache sort primary partition routing hash dict config group shard map lookup"
)
_PERHAPS = _words("key auth cred creds credential cookie salt pat pass pwd session headers")
_SURE_OF_A_VARIABLE = _words("pass pwd")
"""What ends the name of a variable for a password: REDIS_PASS, MYSQL_PWD."""
_TAIL = re.compile(r"\d+|b64|base64|value|string|plain")
"""Words after the telling one that change nothing: TOKEN_2, SECRET_B64."""
_NOT_AT_ALL = _words("PWD OLDPWD")
_INT64 = 2**63
_DEEPEST = 16
_LONGEST_NAME = 40


def name_says(name: str) -> Name:
    """Given the name of a variable, option or key, return what it says of its value."""
    if name in _NOT_AT_ALL:
        return Name.PLAIN
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if part]
    while len(parts) > 1 and _TAIL.fullmatch(parts[-1]):
        parts.pop()
    if parts[-3:] == ["access", "key", "id"]:
        parts.pop()
    last, before = (parts or [""])[-1], parts[-2] if len(parts) > 1 else ""
    of_a_variable = last in _SURE_OF_A_VARIABLE and bool(before) and name.isupper()
    if of_a_variable or last in _ALWAYS or last.endswith(("password", "passwd", "apikey")):
        return Name.SECRET
    if last == "token":
        return Name.PLAIN if before in _NO_TOKEN else Name.SECRET
    if last == "key" and (before in _OF_A_KEY or (name.isupper() and before not in _NO_KEY)):
        return Name.SECRET if before else Name.PERHAPS
    if last in _PERHAPS:
        return Name.PLAIN if before in _NO_KEY else Name.PERHAPS
    return Name.PLAIN


def names_a_secret(name: str) -> bool:
    """Given a name, return whether such hold secrets, or may."""
    return name_says(name) is not Name.PLAIN


def looks_secret(value: object) -> bool:
    """Given a raw value, return whether it is, or holds, what looks like a secret by itself."""
    return bool(secret_in("", value))


def secret_in(name: str, value: object) -> str:
    """Given a name and its raw value, return in words what in it looks like a secret; "" if nothing.

    Looks into lists, tables and strings of JSON. The words hold no part of the
    value: "a Hugging Face token", "the value of b".
    """
    return next(_signs(name, value, 0), "")


def _signs(name: str, value: object, depth: int) -> Iterator[str]:
    if depth > _DEEPEST or isinstance(value, bool):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from shapes(str(key))
            yield from _signs(str(key), inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _signs(name, inner, depth + 1)
    elif isinstance(value, str | int):
        text = value if isinstance(value, str) else _digits(value)
        yield from shapes(text)
        inside = _json(text)
        if inside is None:
            yield from behind_its_name(text)
        else:
            yield from _signs(name, inside, depth + 1)
        doubted = depth > 0 and _may_be_a_models(name) and not looks_random(text)
        if _is_secret(name, text) and not doubted:
            yield f"the value of {_short(name)}" if depth else "by its name"


def _digits(value: int) -> str:
    """Python writes no number of more than 4300 digits as decimals; as hexadecimals it does."""
    return str(value) if abs(value) < _INT64 else f"{value:x}"


def _may_be_a_models(name: str) -> bool:
    """Whether a key in a table may be that of a token of a model (boi_token, in hf-overrides)."""
    of, _, last = re.sub(r"[^A-Za-z0-9]+", "_", name).rpartition("_")
    return last == "token" and of != "" and of.rpartition("_")[2].lower() not in _OF_A_PERSON


def _is_secret(name: str, value: str) -> bool:
    """Whether the name makes a secret of a value that does not look like one."""
    says = name_says(name) if name else Name.PLAIN
    if says is Name.PLAIN or SWITCH.fullmatch(value.strip()):
        return False
    if PATH.fullmatch(value):  # where a secret lies is none; the names of keys and tokens are sure
        return name_says(name) is Name.SECRET and not re.search(r"(?i)credentials?$", name)
    return says is Name.SECRET or looks_random(value)


def _short(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name[:_LONGEST_NAME])


def _json(text: str) -> object:
    """Return what a string of JSON holds; None where it is none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def secrets_in_comments(text: str) -> Iterator[tuple[int, str]]:
    """Given the text of a profile, yield the number of each line whose comment holds a secret, and what.

    A generation keeps the profile as it was written, comments and all.
    """
    for number, line in enumerate(text.split("\n"), 1):
        comment = line.partition("#")[2]
        what = next(shapes(comment), "") or _commented_out(comment)
        what = what or next(behind_its_name(comment), "")
        if what:
            yield number, what


_ASSIGNMENT = re.compile(
    r"(?:\s*export\s)?[\s\"']*([A-Za-z_][\w.-]*)[\"']?\s*([=:])\s*"
    r"(<[^<>]*>|[\"']?\$\([^()]*\)|`[^`]*`|[\"']?[^\s\"'#]+)[\"',;]*\s*(.*)"
)


def _commented_out(comment: str) -> str:
    """What a setting that was put into a comment gives away; "" if nothing.

    A sentence that begins with the name of a secret is none: `# HF_TOKEN: see the
    secrets file`. So the name alone tells only of what is written as a setting is.
    """
    found = _ASSIGNMENT.match(comment)
    if found is None:
        return ""
    name, sign, value, rest = found.groups()
    value = value.lstrip("\"'")
    if is_stand_in(value):
        return ""
    is_setting = sign == "=" and not rest
    return secret_in(name, value) if is_setting or looks_random(value) else ""


# ------------------------------------------------------------- what a redactor has to know

_GIVEN = _words(
    "PATH HOME USER LOGNAME SHELL LANG LC_ALL TERM TZ INVOCATION_ID JOURNAL_STREAM MAINPID "
    "SYSTEMD_EXEC_PID RUNTIME_DIRECTORY CACHE_DIRECTORY STATE_DIRECTORY LISTEN_FDS NOTIFY_SOCKET "
    "PYTHONDONTWRITEBYTECODE SERVICE_RESULT EXIT_CODE EXIT_STATUS TRIGGER_UNIT MEMORY_PRESSURE_WATCH "
    "MEMORY_PRESSURE_WRITE"
)
"""What systemd gives every process of a unit (systemd.exec(5), "Environment variables")."""
SETTINGS = re.compile(
    r"(?:NCCL|CUDA|VLLM|TORCH|TORCHINDUCTOR|TRITON|OMP|HF_HUB|UCX|GLOO|PYTORCH)_.*|HF_HOME"
)
"""Variables that tune, and are no secrets unless their name ends as one."""


def secrets_held(variables: Mapping[str, str]) -> dict[str, str]:
    """Given what a secrets file sets, or the environment of a unit that reads it, return its secrets.

    All of it, but for what tunes, what names a place, and what systemd sets itself.
    """
    return _with_passwords(
        {
            name: value
            for name, value in variables.items()
            if secret_in(name, value)
            or names_a_secret(name)
            or not (name in _GIVEN or SETTINGS.fullmatch(name) or PATH.fullmatch(value))
        }
    )


def secrets_named(variables: Mapping[str, str]) -> dict[str, str]:
    """Given the environment of an operator, return what is a secret by its name or its looks."""
    return _with_passwords(
        {name: value for name, value in variables.items() if secret_in(name, value)}
    )


def _with_passwords(secrets: dict[str, str]) -> dict[str, str]:
    """Add the password within each URL: it is told alone, too, as it is and decoded."""
    found = dict(secrets)
    for name, value in secrets.items():
        inside = URL_PASSWORD.search(value)
        if inside:
            found[f"{name}, its password"] = unquote(inside[2])
            found[f"{name}, its encoded password"] = inside[2]
    return found
