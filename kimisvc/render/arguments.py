"""The command line of vLLM, one item a token. Pure.

Plain arguments, never --config: vLLM's YAML drops `false` under underscored
keys to this day (vllm#51401).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.records import ArgValue, Profile


def argv(profile: Profile) -> tuple[str, ...]:
    """Given a profile, return vLLM's arguments after the program, in a fixed order."""
    vllm = profile.vllm
    tokens = ["serve", vllm.model, "--host", vllm.host, "--port", str(vllm.port)]
    if vllm.served_model_name:
        tokens += ["--served-model-name", vllm.served_model_name]
    for key, value in profile.args.items():
        tokens += option(key, value)
    return tuple(tokens)


def option(key: str, value: ArgValue) -> list[str]:
    """Given an option and its value as TOML has it, return its tokens.

    true and false become --key and --no-key, a table becomes JSON, a list of
    words becomes several tokens after one --key, a list of anything else JSON.
    """
    if value is True:
        return [f"--{key}"]
    if value is False:
        return [f"--no-{key}"]
    if isinstance(value, Mapping):
        return [f"--{key}", _json(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if any(isinstance(item, (Mapping, bool)) or _is_list(item) for item in value):
            return [f"--{key}", _json(value)]
        return [f"--{key}", *map(str, value)]
    text = str(value)
    # argparse takes a word that begins with a dash for an option, unless it is joined on.
    return [f"--{key}={text}"] if text.startswith("-") else [f"--{key}", text]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _json(value: ArgValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
