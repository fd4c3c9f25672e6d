"""What a vLLM makes of a value in [args]: its type, its choices, its size.

What argparse would refuse is refused; what it would misread is named.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.vllm.doubt import newest, refused
from kimisvc.profile.knowledge.vllm.fields import number_fault, table_findings, word_fault
from kimisvc.profile.knowledge.vllm.words import folded, meant
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import ChoiceRule, OptionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kimisvc.records.profile import ArgValue
    from kimisvc.records.vllm import VllmOption

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
WITH_LORA = ("max-loras", "max-lora-cls-labels")
"""Numbers that vLLM looks at with enable-lora only: judged among the contradictions."""
_FOR_SOME_MODELS = ("mm-", "video-")
"""How options begin that vLLM looks at for models of more than text only."""
_MULTIPLIED = r"\b(\d+(?:\.\d+)?)[kKmMgGtT]\b"
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_BRACED = r"(?s)\s*{.*}\s*"
"""What vLLM reads as JSON where an option takes a string as well (union_dict_and_str of arg_utils)."""
_UNSET = ("None", "")
"""What vLLM takes for "not set" where an option may be unset (optional_type of arg_utils)."""
_ELSEWHERE = ("tool-call-parser", "reasoning-parser")
"""Options whose choices depend on further ones: judged with the model."""
_ONE_JSON_LIST = ("allowed-origins", "allowed-methods", "allowed-headers")
"""Options whose list is written as one JSON token (render.arguments)."""
_ADAPTERS = "lora-modules"
_LEVELS = ("0", "1", "2", "3")
"""vLLM before 0.12 took the bare level of compilation-config, whose short form was -O then."""


@dataclass(frozen=True, slots=True)
class _Range:
    """What a number has to be: more than `above`, at most `most`, and why."""

    above: float
    most: float
    why: str


_COUNT = _Range(0, float("inf"), "at least 1")
_RANGES: Mapping[str, _Range] = MappingProxyType(
    {
        "gpu-memory-utilization": _Range(0, 1, "a share of the memory, above 0 and at most 1"),
        "tensor-parallel-size": _COUNT,
        "pipeline-parallel-size": _COUNT,
        "data-parallel-size": _COUNT,
        "decode-context-parallel-size": _COUNT,
        "max-num-seqs": _COUNT,
        "max-num-batched-tokens": _COUNT,
    }
)
"""Ranges that vLLM checks after it has read its options (vllm/config of 0.33.0)."""


def value_findings(
    path: tuple[str, str], option: VllmOption, value: ArgValue, doubt: Severity = Severity.ERROR
) -> Iterator[Finding]:
    """Given an option and a value that is not true or false, yield what is wrong with it.

    `doubt` says how bad a choice or a field is that is not known.
    """
    if option.kind is OptionKind.FLAG:
        yield Finding(
            path, f"{shown(value)} is refused: it is on or off. Write {option.name} = true or false"
        )
        return
    if isinstance(value, Mapping):
        if option.kind not in (OptionKind.JSON, OptionKind.JSON_OR_TEXT):
            yield Finding(path, f"takes {option.kind.value}, not a table")
        else:
            yield from field_findings(path, option, value, doubt)
            yield from table_findings(path, option.value.fields, value, doubt)
        return
    if isinstance(value, str) or not isinstance(value, Sequence):
        yield from _single(path, option, value, doubt)
    elif option.many:
        for item in value:
            if isinstance(item, str | int | float) and not isinstance(item, bool):
                yield from _single(path, option, item, doubt)
            elif option.kind is not OptionKind.JSON_OR_TEXT:
                yield Finding(path, f"takes several times {option.kind.value}")
    elif option.kind is OptionKind.JSON and option.name in _ONE_JSON_LIST:
        return
    else:
        yield Finding(path, f"takes one value ({option.kind.value}), not a list")


def field_findings(
    path: tuple[str, str],
    option: VllmOption,
    fields: Iterable[str],
    doubt: Severity = Severity.ERROR,
) -> Iterator[Finding]:
    """Given an option and keys of the table it gets, yield those the table does not have."""
    for field in fields:
        if not option.fields or field in option.fields:
            continue
        message = f"has no field {shown(field)}{newest(doubt, 'in')}. {meant(field, option.fields)}"
        yield Finding(path, message, doubt)


def _single(
    path: tuple[str, str], option: VllmOption, value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    if option.unset and isinstance(value, str) and value in _UNSET:
        return
    fault = _TYPES[option.kind](option, value)
    if fault:
        yield Finding(path, fault)
        return
    if option.kind is OptionKind.JSON and isinstance(value, str):
        told = _loaded(value)
        table = told if isinstance(told, dict) else {}
        yield from field_findings(path, option, table, doubt)
        if not re.search(_MULTIPLIED, value):
            set_ones = {name: one for name, one in table.items() if one is not None}
            yield from table_findings(path, option.value.fields, set_ones, doubt)
    yield from _small_multiplier(path, option, value)
    yield from _chosen(path, option, value, doubt)
    yield from _out_of_range(path, option, value, doubt)


def _out_of_range(
    path: tuple[str, str], option: VllmOption, value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    number = number_in(value)
    limits = _RANGES.get(option.name)
    if option.value.choices:
        fault = word_fault(option.value, value, doubt)
        if fault:
            yield Finding(path, f"{shown(value)} {fault}", doubt)
    elif number is None or option.name in WITH_LORA:
        return
    elif limits:
        if not limits.above < number <= limits.most:
            yield Finding(path, f"{shown(value)} is refused: {limits.why}")
    else:
        fault = number_fault(option.value, number)
        if option.name == "max-model-len" and number == 0:
            fault = "at least 1, or -1 for what the memory allows"
        if fault and option.name.startswith(_FOR_SOME_MODELS):
            message = f"{shown(value)} {refused(doubt)} for models of more than text: {fault}"
            yield Finding(path, message, Severity.WARNING)
        elif fault:
            yield Finding(path, f"{shown(value)} {refused(doubt)}: {fault}", doubt)


# ---------------------------------------------------------------- types


def number_in(value: ArgValue) -> float | None:
    """Given a plain value, return the number it stands for, k and K counted; None for no number."""
    match = _SIZE.fullmatch(str(value))
    if match:
        base = 1024 if match[2].isupper() else 1000
        return float(match[1]) * float(base ** _POWERS[match[2].lower()])
    return float(str(value)) if _is_number(value) else None


def _is_number(value: ArgValue) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False


def _whole(option: VllmOption, value: ArgValue) -> str:
    if re.fullmatch(r"[+-]?\d+(_\d+)*", str(value)):  # as Python's int() reads
        return ""
    if isinstance(value, str) and _SIZE.fullmatch(value):
        return f"{shown(value)} is refused: {option.name} reads no k or K. Write the whole number"
    return f"{shown(value)} is refused: {option.name} takes {option.kind.value}"


def _size(option: VllmOption, value: ArgValue) -> str:
    word = str(value)
    if word.lower() in option.choices or re.fullmatch(r"\d+(_\d+)*", word):
        return ""
    match = _SIZE.fullmatch(word)
    if match is None:
        others = f', or "{option.choices[0]}"' if option.choices else ""
        return f"{shown(value)} is refused: {option.name} takes {option.kind.value}{others}"
    if "." in match[1] and match[2].isupper():
        return f"{shown(value)} is refused: vLLM takes no fraction before {match[2]}"
    return ""


def _number(option: VllmOption, value: ArgValue) -> str:
    if _is_number(value):
        return ""
    return f"{shown(value)} is refused: {option.name} takes {option.kind.value}"


def _any(_option: VllmOption, _value: ArgValue) -> str:
    return ""


def _json_or_text(option: VllmOption, value: ArgValue) -> str:
    """Given a value that may be a string, say what is wrong where vLLM takes it for JSON.

    An adapter is NAME=PATH, and all else JSON (LoRAParserAction of cli_args).
    """
    word = str(value)
    braced = re.fullmatch(_BRACED, word) is not None
    adapter = option.name == _ADAPTERS and not ("=" in word and "," not in word)
    if not (braced or adapter):
        return ""
    try:
        told = json.loads(word)
    except (ValueError, RecursionError) as error:
        if adapter and not braced:
            return f"{shown(value)} is refused: an adapter is written NAME=PATH, or as a table"
        return f"is not JSON ({error}), and ends vLLM at its start. {_as_table(option)}"
    if adapter and not isinstance(told, dict | list):
        return f"{shown(value)} is refused: an adapter is written NAME=PATH, or as a table"
    return ""


def _as_table(option: VllmOption) -> str:
    return f"Write a table: {option.name} = {{ key = value }}"


def _json(option: VllmOption, value: ArgValue) -> str:
    if option.name == "compilation-config" and "O" in option.short and str(value) in _LEVELS:
        return ""
    meant = _as_table(option)
    if not isinstance(value, str):
        return f"{shown(value)} is refused: {option.name} takes {option.kind.value}. {meant}"
    try:
        told = _loaded(value)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error}). {meant}"
    if isinstance(told, dict) or (isinstance(told, list) and option.name in _ONE_JSON_LIST):
        return ""
    return f"{shown(value)} is refused: {option.name} takes {option.kind.value}. {meant}"


def _loaded(text: str) -> object:
    """Given JSON, return what it says, but for the multipliers (80g) that vLLM reads in it."""
    return json.loads(re.sub(_MULTIPLIED, r"\1", text))


_TYPES = MappingProxyType(
    {
        OptionKind.INTEGER: _whole,
        OptionKind.SIZE: _size,
        OptionKind.NUMBER: _number,
        OptionKind.TEXT: _any,
        OptionKind.JSON: _json,
        OptionKind.JSON_OR_TEXT: _json_or_text,
    }
)
"""How a single value of each kind is judged: "" where it is fine."""


def _small_multiplier(
    path: tuple[str, str], option: VllmOption, value: ArgValue
) -> Iterator[Finding]:
    """A small k is 1000 and a capital K 1024 (human_readable_int); models count in the latter."""
    match = _SIZE.fullmatch(str(value))
    if option.kind is not OptionKind.SIZE or match is None or match[2].isupper():
        return
    number, letter = float(match[1]), match[2]
    small, large = (int(number * base ** _POWERS[letter]) for base in (1000, 1024))
    yield Finding(
        path,
        f"{shown(value)} is {small}; {match[1]}{letter.upper()} would be {large}. "
        "Write the number that is meant",
        Severity.WARNING,
    )


# ---------------------------------------------------------------- choices


def _chosen(
    path: tuple[str, str], option: VllmOption, value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    if not option.choices or option.kind is OptionKind.SIZE or option.name in _ELSEWHERE:
        return
    word = str(value)
    known: tuple[str, ...] = option.choices
    if option.choice_rule is ChoiceRule.ANY_CASE:
        word, known = folded(word), tuple(folded(choice) for choice in known)
    if word in known:
        return
    hint = meant(str(value), option.choices)
    if option.choice_rule is ChoiceRule.OPEN:
        message = f"{shown(value)} is not among those vLLM knows itself. {hint}"
        yield Finding(path, message, Severity.WARNING)
    else:
        message = f"{shown(value)} is not among the choices{newest(doubt, 'of')}. {hint}"
        yield Finding(path, message, doubt)
