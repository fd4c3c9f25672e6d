"""The command line of vLLM, one item a token. Pure.

Plain arguments, never --config: vLLM's YAML drops `false` under underscored
keys to this day (vllm#51401).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from kimisvc.records.profile import ArgValue, Profile

_ONE_JSON_LIST = ("allowed-origins", "allowed-methods", "allowed-headers")
"""Options whose list vLLM reads as one JSON token (entrypoints' cli_args of 0.15 to 0.33)."""
_REPEATED = ("middleware",)
"""Options that vLLM collects one at a time. All other lists take several words after one option."""


def argv(profile: Profile) -> tuple[str, ...]:
    """Given a profile, return vLLM's arguments after the program, in the order of the profile.

    Raise KimisvcError for what no command line can carry.
    """
    vllm = profile.vllm
    if vllm.model.startswith("-"):
        raise KimisvcError("bad-model", f"{vllm.model!r} would be read as an option")
    tokens = ["serve", vllm.model, *_joined("host", vllm.host), "--port", str(vllm.port)]
    if vllm.served_model_name:
        tokens += _joined("served-model-name", vllm.served_model_name)
    for key, value in profile.args.items():
        tokens += option(key, value)
    return tuple(tokens)


def option(key: str, value: ArgValue) -> list[str]:
    """Given an option and its value as TOML has it, return its tokens. Raise KimisvcError.

    true and false become --key and --no-key, a table becomes JSON, a list of
    words or of tables several tokens after one --key (vLLM's LoRAParserAction
    reads a table from each), a list of anything else JSON. The field of a table
    (a key with a dot) is one token.
    """
    name = option_name(key)
    if name == "config":
        raise KimisvcError("bad-option", "--config is never used: write its keys into [args]")
    if "." in name:
        return _joined(name, _field(value))
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, Mapping):
        return [f"--{name}", _json(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _list(name, value)
    return _joined(name, _word(value))


def option_name(key: str) -> str:
    """Given a key of [args], return the option without dashes in front: max_model_len is max-model-len.

    What stands after a dot names a field within the option's value and is kept.
    """
    head, dot, tail = key.partition(".")
    return head.replace("_", "-") + dot + tail


def _list(name: str, items: Sequence[ArgValue]) -> list[str]:
    if items and name not in _ONE_JSON_LIST and all(isinstance(i, Mapping) for i in items):
        return [f"--{name}", *(_json(item) for item in items)]
    if name in _ONE_JSON_LIST or not all(isinstance(i, str | int | float) for i in items):
        return [f"--{name}", _json(items)]
    words = [_word(item) for item in items]
    if name in _REPEATED:
        return [token for word in words for token in _joined(name, word)]
    if not words:
        raise KimisvcError("bad-option", f"--{name} takes at least one value, the list is empty")
    if len(words) == 1:
        return _joined(name, words[0])
    dashed = next((word for word in words if word.startswith("-")), None)
    if dashed is not None:
        raise KimisvcError("bad-option", f"--{name}: {dashed!r} would be read as an option")
    return [f"--{name}", *words]


def _field(value: ArgValue) -> str:
    """What vLLM reads back as the value: it takes a field for JSON, 80g for a number, else as it is."""
    if not isinstance(value, str) or re.fullmatch(r"\s*\d+(\.\d+)?[kKmMgGtT]\s*", value):
        return _json(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value
    return _json(value)


def _word(value: ArgValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value - value != 0:
        raise KimisvcError("bad-option", f"{value} is not a number that an option can take")
    return str(value)


def _joined(name: str, word: str) -> list[str]:
    """Argparse takes a word that begins with a dash for an option, unless it is joined on."""
    return [f"--{name}={word}"] if word.startswith("-") else [f"--{name}", word]


def _json(value: ArgValue) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise KimisvcError("bad-option", f"{value!r} cannot be written as JSON") from error
