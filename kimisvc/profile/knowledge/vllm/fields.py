"""What a vLLM makes of the fields of a table in [args], and of the numbers of plain options.

Judged by what vLLM itself told (host.vllm_trial): a field it was not sure
of is not judged. It checks them while it reads its options, or soon after, and
ends.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.vllm.doubt import newest, refused
from kimisvc.profile.knowledge.vllm.words import folded, meant
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import ChoiceRule, FieldKind, VllmField

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimisvc.records.profile import ArgValue

_SWITCHES = frozenset({"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"})
"""Words that pydantic takes for true or false, in any case (Conversion Table of its manual)."""
_BOUNDS: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
    ("ge", "at least", operator.ge),
    ("gt", "more than", operator.gt),
    ("le", "at most", operator.le),
    ("lt", "less than", operator.lt),
)
_UNQUOTED = "is a string that holds JSON, and vLLM gets the string. Write it without the quotes"


def table_findings(
    path: tuple[str, str],
    fields: Mapping[str, VllmField],
    table: Mapping[str, ArgValue],
    doubt: Severity,
) -> Iterator[Finding]:
    """Given what is known of fields and a table that sets some, yield what vLLM refuses of it.

    Names at the first level are not judged here: they are known of more vLLMs.
    """
    for name, value in table.items():
        known = fields.get(name)
        if known is not None:
            yield from _field_findings(path, name, known, value, doubt)


def dotted_findings(
    path: tuple[str, str], fields: Mapping[str, VllmField], value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    """Given a key with dots, what is known of its option's fields, and its value, yield faults."""
    first, *rest = path[1].split(".")[1:]
    if path[1].endswith("+"):
        return  # adds to a list
    for name in reversed(rest):
        value = {name: value}
    faults = list(table_findings(path, fields, {first: value}, doubt))
    yield from faults
    while isinstance(value, Mapping) and rest:
        value = value[rest.pop(0)]
    if not faults and isinstance(value, str) and _holds_json(value):
        yield Finding(path, _UNQUOTED, Severity.WARNING)


def number_fault(known: VllmField, number: float) -> str:
    """Given what is known of a number, say what is wrong with one; "" if nothing is."""
    for name, words, fits in _BOUNDS:
        bound = getattr(known, name)
        if bound is not None and not fits(number, bound):
            return f"{words} {bound:g}"
    return ""


def word_fault(known: VllmField, value: ArgValue, doubt: Severity) -> str:
    """Given what is known of words and a value that is none of them, say so; "" if it is one."""
    folds = known.choice_rule is ChoiceRule.ANY_CASE
    word = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    choices = [folded(one) if folds else one for one in known.choices]
    if (folded(word) if folds else word) in choices:
        return ""
    return f"is not among the choices{newest(doubt, 'of')}. {meant(word, known.choices)}"


def _field_findings(
    path: tuple[str, str], name: str, known: VllmField, value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    if not _JUDGES[known.kind](value):
        why = f"{name} takes {known.kind.value}, not {_named(value)}"
        hint = ". Write it without the quotes" if _holds_json(value) else ""
        yield Finding(path, f"{shown_short(value)}{refused(doubt)}: {why}{hint}", doubt)
    elif known.kind is FieldKind.TABLE and isinstance(value, Mapping) and known.fields:
        for inner, one in value.items():
            if inner in known.fields:
                yield from _field_findings(path, f"{name}.{inner}", known.fields[inner], one, doubt)
            else:
                hint = meant(inner, tuple(known.fields))
                message = f"{name} has no field {shown(inner)}{newest(doubt, 'in')}. {hint}"
                yield Finding(path, message, doubt)
    elif known.kind is FieldKind.WORDS and not isinstance(value, bool):
        fault = word_fault(known, value, doubt)
        if fault:
            yield Finding(path, f"{name}: {shown(value)} {fault}", doubt)
    elif known.kind in (FieldKind.INTEGER, FieldKind.NUMBER) and not isinstance(value, bool):
        fault = number_fault(known, float(str(value)))
        if fault:
            yield Finding(path, f"{name}: {shown(value)} {refused(doubt)}: {fault}", doubt)


def shown_short(value: ArgValue) -> str:
    """Given a value, return it as it is shown before a fault; "" for what is long."""
    return "" if isinstance(value, Mapping) or _is_list(value) else f"{shown(value)} "


# ---------------------------------------------------------------- kinds


def _is_list(value: ArgValue) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _named(value: ArgValue) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a string"
    return "a list" if _is_list(value) else "a number"


def _float(value: ArgValue) -> float | None:
    """The number that pydantic reads, from a string as well; None where there is none."""
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None


def _whole(value: ArgValue) -> bool:
    number = _float(value)
    return number is not None and math.isfinite(number) and number.is_integer()


def _switch(value: ArgValue) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _SWITCHES
    return isinstance(value, int | float) and value in (0, 1)


def _word(value: ArgValue) -> bool:
    return isinstance(value, str | int | float)


_JUDGES: Mapping[FieldKind, Callable[[ArgValue], bool]] = MappingProxyType(
    {
        FieldKind.ANY: lambda _: True,
        FieldKind.SWITCH: _switch,
        FieldKind.INTEGER: _whole,
        FieldKind.NUMBER: lambda value: _float(value) is not None,
        FieldKind.TEXT: lambda value: isinstance(value, str),
        FieldKind.WORDS: _word,
        FieldKind.LIST: _is_list,
        FieldKind.TABLE: lambda value: isinstance(value, Mapping) or value in ((), []),
    }
)
"""Whether a value is of a kind, or may be read as one."""


def _holds_json(value: ArgValue) -> bool:
    if not isinstance(value, str) or not value.strip().startswith(("[", "{")):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
