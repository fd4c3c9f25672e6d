"""One raw TOML value and the row of its key: to the value of the record, and back to TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, cast

from kimisvc.profile.problems import UNWRITABLE
from kimisvc.profile.quantities import (
    format_duration,
    format_size,
    format_target,
    parse_duration,
    parse_size,
    parse_target,
)
from kimisvc.profile.secret_signs import WHERE_TO, looks_secret, secret_in
from kimisvc.profile.settings import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.profile.settings import Setting
    from kimisvc.records.profile import SpeedTarget

_LONGEST_SHOWN = 60
_INT64 = 2**63
_A_MINUTE = 60
_FIRST_NONCHARACTER = 0xFDD0
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\"} | {
    chr(code): f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))
}
_ESCAPED = str.maketrans(_ESCAPES)


def parse(setting: Setting, raw: object) -> object:
    """Given the row of a key and what TOML holds there, return the value for the record.

    Raise ValueError that names the value and the rule.
    """
    refuse_control(raw)
    secret = secret_in("", raw)
    if secret:
        raise ValueError(f"looks like a secret ({secret}), and every user can read it. {WHERE_TO}")
    return _PARSERS[setting.kind](setting, raw)


def doubted(setting: Setting, raw: object) -> str:
    """Given a row and a raw value that `parse` took, say why it may not be meant; "" if it may well.

    A plain number is seconds. Below a minute, and for a key that is thought of
    in minutes (its example is), it may be one of minutes.
    """
    whole = isinstance(raw, int) and not isinstance(raw, bool)
    if setting.kind is not Kind.DURATION or not setting.example.endswith('min"') or not whole:
        return ""
    if not 0 < cast("int", raw) < _A_MINUTE:
        return ""
    return (
        f"{raw} is {raw} seconds, as any plain number is. "
        f'Was "{raw}min" meant? If not, write "{raw}s"'
    )


def refuse_control(raw: object) -> None:
    """Given a raw value, raise ValueError if it is a string with a control character in it."""
    found = UNWRITABLE.search(raw) if isinstance(raw, str) else None
    if found:
        code = ord(found[0])
        kind = "control character" if code < _FIRST_NONCHARACTER else "noncharacter of Unicode"
        what = {10: "a line break", 13: "a line break"}.get(code, f"U+{code:04X}")
        raise ValueError(
            f"contains a {kind} ({what}, at position {found.start() + 1}); "
            f"values are single lines of plain text"
        )


def rule_of(setting: Setting) -> str:
    """Given a row, return in words what its key takes: "a whole number from 1 to 65535"."""
    if setting.choices:
        return "one of " + ", ".join(f'"{choice.value}"' for choice in setting.choices)
    words = setting.rule or setting.kind.value
    show: Callable[[float], str] = {
        Kind.DURATION: format_duration,
        Kind.SIZE: lambda size: format_size(int(size)),
    }.get(setting.kind, "{:g}".format if setting.kind is Kind.NUMBER else "{:.0f}".format)
    if setting.low is not None and setting.low == setting.high:
        words = show(setting.low)
    elif setting.low is not None and setting.high is not None:
        words += f" from {show(setting.low)} to {show(setting.high)}"
    return f"{words} (in {setting.unit})" if setting.unit else words


def _refused(setting: Setting, raw: object, hint: str = "") -> ValueError:
    tail = f". {hint}" if hint else ""
    return ValueError(f"{shown(raw)} is refused: {setting.key} takes {rule_of(setting)}{tail}")


def _text(setting: Setting, raw: object) -> str:
    if not isinstance(raw, str):
        plain = isinstance(raw, int | float) and setting.kind is Kind.TEXT and not setting.pattern
        hint = f'Write {setting.key} = "{shown(raw)}"' if plain else ""
        raise _refused(setting, raw, hint)
    if not raw.strip():
        if setting.default == "" and not raw:
            return raw  # written to unset what an extended file sets
        raise ValueError(f"is empty: {setting.key} takes {rule_of(setting)}")
    if setting.pattern and not re.fullmatch(setting.pattern, raw):
        raise _refused(setting, raw)
    return raw


def _path(setting: Setting, raw: object) -> str:
    text = _text(setting, raw)
    if text and not text.startswith("/"):
        hint = "~ is not expanded: write the path out" if text.startswith("~") else ""
        raise _refused(setting, raw, hint)
    return text


def _integer(setting: Setting, raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        hint = ""
        if isinstance(raw, str) and re.fullmatch("[0-9]{1,15}", raw.strip()):
            hint = f"Write it without quotes: {setting.key} = {int(raw)}"
        elif isinstance(raw, float) and raw.is_integer():
            hint = f"Write it without a point: {setting.key} = {raw:.0f}"
        raise _refused(setting, raw, hint)
    return int(_in_range(setting, raw, raw))


def _number(setting: Setting, raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        hint = ""
        if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", raw.strip()):
            hint = f"Write it without quotes: {setting.key} = {raw.strip()}"
        raise _refused(setting, raw, hint)
    return float(_in_range(setting, raw, raw))


def _flag(setting: Setting, raw: object) -> bool:
    if not isinstance(raw, bool):
        raise _refused(setting, raw)
    return raw


def _choice(setting: Setting, raw: object) -> Enum:
    kinds = cast("type[Enum]", setting.choices)
    for choice in kinds:
        if choice.value == raw:
            return choice
    from difflib import get_close_matches  # only a profile with a problem pays

    words = [str(choice.value) for choice in kinds]
    near = get_close_matches(raw.lower(), words, 1) if isinstance(raw, str) else []
    raise _refused(setting, raw, f'Did you mean "{near[0]}"?' if near else "")


def _names(setting: Setting, raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(name, str) and name for name in raw):
        raise _refused(setting, raw, f"Write {setting.key} = {setting.example}")
    for name in raw:
        refuse_control(name)
    return tuple(raw)


def _duration(setting: Setting, raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise _refused(setting, raw, f"Write {setting.key} = {setting.example}")
    # A plain number is seconds, as in a unit; to whole microseconds, as there.
    seconds = (
        parse_duration(raw) if isinstance(raw, str) else round(_in_range(setting, raw, raw), 6)
    )
    return _in_range(setting, raw, seconds)


def _size(setting: Setting, raw: object) -> int:
    if raw == 0 and not isinstance(raw, bool):
        return 0
    if not isinstance(raw, str):
        raise _refused(setting, raw, f"A size carries its unit: {setting.key} = {setting.example}")
    return int(_in_range(setting, raw, parse_size(raw)))


def _target(setting: Setting, raw: object) -> SpeedTarget:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise _refused(setting, raw, f"Write {setting.key} = {setting.example}")
    return parse_target(raw if isinstance(raw, str) else shown(raw).removesuffix(".0"))


_PARSERS: Mapping[Kind, Callable[[Setting, object], object]] = {
    Kind.TEXT: _text,
    Kind.PATH: _path,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.FLAG: _flag,
    Kind.CHOICE: _choice,
    Kind.NAMES: _names,
    Kind.DURATION: _duration,
    Kind.SIZE: _size,
    Kind.TARGET: _target,
}


def _in_range(setting: Setting, raw: object, value: float) -> float:
    low = -math.inf if setting.low is None else setting.low
    high = math.inf if setting.high is None else setting.high
    if not low <= value <= high:  # also refuses nan
        raise _refused(setting, raw)
    return value


def shown(raw: object) -> str:
    """Given a raw value, return it on one short line, for a message; never a secret."""
    if looks_secret(raw):
        return "a value that looks like a secret (not shown)"
    if isinstance(raw, str):
        text = UNWRITABLE.sub("?", raw)
        return f'"{text[:_LONGEST_SHOWN]}..."' if len(text) > _LONGEST_SHOWN else f'"{text}"'
    if isinstance(raw, int) and abs(raw) >= _INT64:
        return "a number of more than 64 bits"
    if isinstance(raw, bool | int | float):
        return toml(raw)
    if isinstance(raw, list | tuple | dict):
        return "a table" if isinstance(raw, dict) else "a list"
    return f"the date or time {raw}"


def toml(value: object) -> str:
    """Given a bool, number, string, sequence or mapping, return it as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPED)}"'
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{toml_key(key)} = {toml(value[key])}" for key in sorted(value))
        return f"{{ {pairs} }}" if pairs else "{}"
    return f"[{', '.join(toml(item) for item in cast('Sequence[object]', value))}]"


def toml_key(name: str) -> str:
    """Given the name of a key, return it as TOML writes it, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else toml(name)


def spelled(setting: Setting, value: object) -> str:
    """Given a row and a value of its record (not None), return the value as TOML."""
    if isinstance(value, Enum):
        return toml(value.value)
    form: Mapping[Kind, Callable[..., str]] = {
        Kind.DURATION: format_duration,
        Kind.SIZE: format_size,
        Kind.TARGET: format_target,
    }
    return toml(form[setting.kind](value) if setting.kind in form else value)
