"""The two free tables: [args], the options of `vllm serve`, and [env], its environment.

Any option and any variable may stand there; what kimisvc sets itself, what
would carry a secret, and what could not be written into a unit may not. Which
options and values a given vLLM or NCCL knows is not judged here.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from kimisvc.profile.problems import Finding
from kimisvc.profile.secret_signs import WHERE_TO, secret_in
from kimisvc.profile.values import refuse_control, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records.profile import ArgValue

_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOKS_LIKE_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
_INT64 = 2**63
_LONGEST_WORD = 128 << 10
"""MAX_ARG_STRLEN of Linux: the longest argument or variable (bytes)."""
_DEEPEST = 16

_HTTPS = "kimisvc asks the server over plain HTTP. End TLS in a proxy before it"
OWNED_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "host": "is set by kimisvc. Write it in [vllm]: host = ...",
        "port": "is set by kimisvc. Write it in [vllm]: port = ...",
        "model": "is set by kimisvc. Write it in [vllm]: model = ...",
        "model-tag": "is set by kimisvc. Write it in [vllm]: model = ...",
        "served-model-name": "is set by kimisvc. Write it in [vllm]: served_model_name = ...",
        "api-key": "would show the key to every user of the box. Write VLLM_API_KEY=... into the "
        "file named by [service] secrets_file",
        "hf-token": "would show the token to every user of the box. Write HF_TOKEN=... into the "
        "file named by [service] secrets_file",
        "config": "is refused: a second file of options would hide from every check. "
        "Write its options here, one a line",
        "uds": "is refused: kimisvc asks the server at [vllm] host and port",
        "ssl-keyfile": f"is refused: {_HTTPS}",
        "ssl-certfile": f"is refused: {_HTTPS}",
    }
)
"""Options of `vllm serve` that may not stand in [args], and why."""

_NO_API = "kimisvc asks the HTTP API of vLLM for answers, and there would be"
_ASKABLE: Mapping[str, tuple[Mapping[str, str], str]] = MappingProxyType(
    {
        "headless": ({"true": "Leave it out"}, f"{_NO_API} none"),
        "grpc": ({"true": "Leave it out"}, f"{_NO_API} none but gRPC"),
        "api-server-count": ({"0": "Write 1 or more, or leave it out"}, f"{_NO_API} none"),
        "tokens-only": (
            {"true": "Leave it out"},
            f"{_NO_API} tokens alone: it refuses every question in words",
        ),
        "skip-tokenizer-init": (
            {"true": "Leave it out"},
            f"{_NO_API} no tokenizer: it refuses every question in words",
        ),
        "runner": (
            {"pooling": 'Write "generate", or leave it out', "draft": "Leave it out"},
            f"{_NO_API} no chat",
        ),
        "convert": (
            {"embed": "Leave it out", "classify": "Leave it out"},
            f"{_NO_API} no chat: it makes the model one for embeddings or classes",
        ),
    }
)
"""Values of options that leave no HTTP server, or none that writes text, and what to write instead.

By the serve command of vLLM 0.32 (entrypoints/cli/serve.py; ModelConfig._get_runner_type); a
server with tokens-only or skip-tokenizer-init was seen to answer chats and completions with errors.
"""

OWNED_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_API_KEY": f"is a secret, and every user can read the environment of a unit. "
        f"{WHERE_TO}",
        "PROMETHEUS_MULTIPROC_DIR": "is made and wiped by vLLM itself; a folder kept between "
        "starts mixes the counters of two. Leave it out",
    }
)
"""Environment variables that may not stand in [env], and why."""


def option_name(written: str) -> str:
    """Given an option as written, return its one name: max_model_len is max-model-len.

    vLLM takes both, and reads keys after a dot (`compilation-config.cache_dir`)
    as they are.
    """
    head, dot, tail = written.partition(".")
    return head.replace("_", "-") + dot + tail


def option_findings(table: Mapping[str, object]) -> Iterator[Finding]:
    """Given [args] as TOML has it, yield what is wrong with each of its keys."""
    seen: dict[str, str] = {}
    for written, value in table.items():
        path = ("args", written)
        message = _option_name_problem(written) or _option_value_problem(written, value)
        first = seen.setdefault(option_name(written), written)
        if message:
            yield Finding(path, message)
        elif first != written:
            yield Finding(path, f"is the same option as {first} above. Keep one of the two")
    for name, written in seen.items():
        positive = name.removeprefix("no-")
        if name != positive and positive in seen:
            yield Finding(
                ("args", written),
                f"contradicts {seen[positive]}. Keep one: {positive} = true or false",
            )


def _option_name_problem(written: str) -> str:
    bare = written.lstrip("-")
    if written.startswith("-") and _OPTION.fullmatch(bare):
        return f"options are written without leading dashes. Write {bare} = ..."
    if not _OPTION.fullmatch(written):
        return "is not the name of an option: letters, digits, dash, underscore and dot"
    if _LOOKS_LIKE_VARIABLE.fullmatch(written):
        return "looks like an environment variable; those belong in [env]"
    return OWNED_OPTIONS.get(option_name(written), "")


def _unaskable(written: str, value: object) -> str:
    """Given an option and its value, say why kimisvc could not ask the server; "" if it can."""
    refused, why = _ASKABLE.get(option_name(written), ({}, ""))
    word = str(value).strip().lower() if isinstance(value, bool | int | str) else ""
    if re.fullmatch("-[0-9]+|0+", word):
        word = "0"  # to vLLM as many API servers as none
    return f"{shown(value)} is refused: {why}. {refused[word]}" if word in refused else ""


def _option_value_problem(written: str, value: object) -> str:
    secret = secret_in(written, value)
    if secret:
        return f"looks like a secret ({secret}), and every user can read a command line. {WHERE_TO}"
    try:
        _refuse_unwritable(value, 0)
        if isinstance(value, str) or "." not in written:  # else a field: one word of JSON
            _refuse_words(value)
    except ValueError as error:
        return str(error)
    return _unaskable(written, value)


def _refuse_unwritable(value: object, depth: int) -> None:
    """Given a value of [args], raise ValueError if no command line or JSON can carry it."""
    if depth > _DEEPEST:
        raise ValueError(f"is nested more than {_DEEPEST} deep")
    if isinstance(value, str):
        refuse_control(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            refuse_control(key)
            _refuse_unwritable(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_unwritable(item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{shown(value)} is not a number that an option can take")
    elif isinstance(value, int) and abs(value) >= _INT64:
        raise ValueError("is a number of more than 64 bits")
    elif not isinstance(value, bool | int | float):
        raise ValueError(f"{shown(value)} is refused: options take no dates. Write a string")


def _refuse_words(value: object) -> None:
    """Given a value of [args], raise ValueError if the words it becomes cannot be told apart."""
    if isinstance(value, str) and len(value.encode()) >= _LONGEST_WORD:
        raise ValueError("is longer than 128 KiB, more than any process can be given (execve(2))")
    if not isinstance(value, list):
        return
    if not value:
        raise ValueError("is an empty list, and the option takes at least one value. Leave it out")
    words = [str(item) for item in value if isinstance(item, str | int | float)]
    dashed = [word for word in words if word.startswith("-")]
    if len(value) > 1 and len(words) == len(value) and dashed:
        raise ValueError(f"{shown(dashed[0])} begins with a dash and would be read as an option")


def option_value(value: object) -> ArgValue:
    """Given a value of [args] without findings, return it frozen, with its keys in order."""
    if isinstance(value, list):
        return tuple(option_value(item) for item in value)
    if isinstance(value, dict):
        return {key: option_value(value[key]) for key in sorted(value)}
    return cast("ArgValue", value)


def variable_findings(table: Mapping[str, object]) -> Iterator[Finding]:
    """Given [env] as TOML has it, yield what is wrong with each of its keys."""
    for name, value in table.items():
        path = ("env", name)
        message = _variable_problem(name, value)
        if message:
            yield Finding(path, message)


def _variable_problem(name: str, value: object) -> str:
    if not _VARIABLE.fullmatch(name):
        option = "-" in name and _OPTION.fullmatch(name.lstrip("-"))
        return "is not the name of an environment variable" + (
            "; options of `vllm serve` belong in [args]"
            if option
            else ": letters, digits and underscore, no digit first"
        )
    if name in OWNED_VARIABLES:
        return OWNED_VARIABLES[name]
    secret = secret_in("", name) or secret_in(name, value)
    if secret:
        return (
            f"looks like a secret ({secret}), and every user can read the environment of a unit. "
            f"{WHERE_TO}"
        )
    return _variable_value_problem(name, value)


def _variable_value_problem(name: str, value: object) -> str:
    if isinstance(value, bool):
        return (
            f"{shown(value)} is refused: variables have no common word for it. "
            f'Write 0 or 1 as a string: {name} = "{int(value)}"'
        )
    if isinstance(value, int):
        return "" if abs(value) < _INT64 else "is a number of more than 64 bits"
    if not isinstance(value, str):
        number = shown(value).removesuffix(".0")  # 16.0 is meant as 16: few readers take a point
        hint = f'Write {name} = "{number}"' if isinstance(value, float) else "Write a string"
        return f"{shown(value)} is refused: variables hold strings. {hint}"
    if len(f"{name}={value}".encode()) >= _LONGEST_WORD:
        return "is longer than 128 KiB, more than any process can be given (execve(2))"
    try:
        refuse_control(value)
    except ValueError as error:
        return str(error)
    return ""


def variable_value(value: object) -> str:
    """Given a value of [env] without findings, return the string vLLM gets to see."""
    return str(value)
