"""The words of vLLM's options that hold JSON, as TOML has them. Pure.

The fields of an option's table may each be an option of its own, `--x.y WORD`.
vLLM gathers them before argparse does anything: it reads the word as JSON and,
where it is none, takes it as it is; behind `--x.y+` it takes the words between
commas as a list; a list or table given twice becomes one of both
(vllm/utils/argparse_utils.py, FlexibleArgumentParser.parse_args).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.records.profile import ArgValue

APPENDS = "+"
"""What stands at the end of the name of a field whose words are added to a list."""
UNCARRIED = (
    "was left out: vLLM reads its word as JSON that TOML cannot hold (null, NaN, a number of more "
    "than 64 bits); write the whole option as one string of JSON"
)
_INT64 = 2**63
_DEEPEST = 16
"""Deeper tables are refused by [args] itself."""


def whole(word: str) -> ArgValue | None:
    """Given a word, return what it holds as JSON; None if TOML cannot hold the same."""
    try:
        value = json.loads(word, parse_constant=_refuse, object_pairs_hook=_once)
        _refuse_unwritable(value)
    except (ValueError, RecursionError):
        return None
    result: ArgValue = value
    return result


def field(name: str, word: str) -> ArgValue | None:
    """Given a field's name and its word, return what vLLM makes of it; None if TOML cannot."""
    if name.endswith(APPENDS):
        return word.split(",")
    try:
        value = json.loads(word)
    except (ValueError, RecursionError):
        return word
    try:
        _refuse_unwritable(value)
    except ValueError:
        return None
    result: ArgValue = value
    return result


def joined(before: object, value: ArgValue) -> ArgValue:
    """Given what a field has and what it is given again, return what vLLM makes of the two.

    Lists are strung together, tables merged, field by field; else the last holds.
    """
    if isinstance(before, list | tuple) and isinstance(value, list | tuple):
        return [*before, *value]
    if isinstance(before, Mapping) and isinstance(value, Mapping):
        both = {key: joined(before.get(key), item) for key, item in value.items()}
        return {**before, **both}
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_unwritable(value: object, depth: int = 0) -> None:
    if value is None or (isinstance(value, int) and abs(value) >= _INT64):
        raise ValueError("TOML has no null, and no numbers of more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a number")
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        value.encode()  # JSON can name half of a pair of surrogates
    elif isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_unwritable(item, depth + 1)
