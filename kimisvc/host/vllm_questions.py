"""Asks a vLLM about itself, from inside: this file is run by the Python that vLLM lives in.

It imports nothing but the standard library, `vllm_trial`, which is sent along,
and, by name, vLLM. vLLM is not asked by its `--help`: that text is for people,
differs from version to version, and leaves out what options are called
besides. Its parser is built and looked at instead, and its variables are read
with sample values to see what becomes of them. Prints one line of JSON after
MARK; other lines are vLLM's own.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import json
import os
import re
import sys
from typing import Any

from kimisvc.host.vllm_trial import NONSENSE, field_names, number_value, table_value

MARK = "kimisvc-vllm-knowledge "
"""What the line of the answer begins with."""
_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
"""Where FlexibleArgumentParser has lived, newest first (moved in 0.12)."""
_LISTED = {
    "tool-call-parser": (
        ("vllm.tool_parsers", "ToolParserManager"),
        ("vllm.entrypoints.openai.tool_parsers", "ToolParserManager"),
    ),
    "reasoning-parser": (("vllm.reasoning", "ReasoningParserManager"),),
    "quantization": (("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"),),
    "load-format": (("vllm.model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER"),),
    "attention-backend": (("vllm.v1.attention.backends.registry", "AttentionBackendEnum"),),
}
"""Options whose words the parser does not say: where they are listed, newest place first."""
_OURS = "VLLM_"


def knowledge() -> dict[str, Any]:
    """Return what the vLLM of this Python knows. Raise whatever vLLM raises."""
    sys.argv = ["vllm", "serve", "--help"]  # without it vLLM leaves its help texts out
    _ensure_platform()
    serve = importlib.import_module("vllm.entrypoints.cli.serve")
    parser_class = _first_attribute([(name, "FlexibleArgumentParser") for name in _PARSERS])
    commands = parser_class().add_subparsers()
    parser = serve.cmd_init()[0].subparser_init(commands)
    envs = importlib.import_module("vllm.envs")
    return {
        "version": importlib.import_module("vllm").__version__,
        "options": options(parser),
        "variables": variables(envs.environment_variables),
    }


def _ensure_platform() -> None:
    """Where vLLM finds no device at all, let it take itself for its CPU build, to be asked."""
    platforms: Any = importlib.import_module("vllm.platforms")
    if platforms.current_platform.is_unspecified():
        platforms.current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()


def _first_attribute(places: Any) -> Any:
    for module, name in places:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"none of {places}")


# ---------------------------------------------------------------- options


def options(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Given vLLM's parser for `serve`, return a row for each of its options.

    Names are what the parser accepts, also those it hides from help.
    """
    spelled: dict[int, tuple[argparse.Action, list[str]]] = {}
    for written, action in parser._option_string_actions.items():  # noqa: SLF001 - says what help hides
        spelled.setdefault(id(action), (action, []))[1].append(written)
    return [
        _option(action, written)
        for action, written in spelled.values()
        if not isinstance(action, argparse._HelpAction | argparse._VersionAction)  # noqa: SLF001
        and any(name.startswith("--") for name in written)
    ]


def _option(action: argparse.Action, written: list[str]) -> dict[str, Any]:
    off = _negatives(action, written)
    names = [name for name in written if name not in off]
    main = next(name for name in names if name.startswith("--"))
    kind, extra = _kind(action)
    choices, rule = _choices(action, main.lstrip("-"))
    read_into = _read_into(action, main.lstrip("-"))
    row = {
        "name": main.lstrip("-"),
        "kind": kind,
        "choices": [*choices, *extra],
        "choice_rule": rule,
        "aliases": [name.lstrip("-") for name in names if name != main],
        "short": [name[1:] for name in names if not name.startswith("--")],
        "negatives": [name.lstrip("-") for name in off],
        "many": action.nargs in ("+", "*")
        or (isinstance(action.nargs, int) and action.nargs > 1)
        or isinstance(action, argparse._AppendAction),  # noqa: SLF001
        "fields": field_names(read_into) if read_into else [],
        "value": table_value(read_into) if read_into else number_value(action, kind),
        "unset": _takes_none(action.type),
        "default": _shown(action.default),
        "help": first_sentence(action.help),
    }
    plain = {
        "choice_rule": "EXACT",
        "many": False,
        "unset": False,
        "default": "",
        "help": "",
        "value": {},
    }
    return {key: value for key, value in row.items() if value != plain.get(key, [])}


def _negatives(action: argparse.Action, written: list[str]) -> list[str]:
    """The names that turn a flag off; newer vLLMs have --disable-x beside --no-enable-x."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return []
    named = getattr(action, "negative_option_strings", ())
    return [name for name in written if name.startswith("--no-") or name in named]


def _kind(action: argparse.Action) -> tuple[str, list[str]]:
    """What the option takes, and the words it takes beside numbers."""
    if action.nargs == 0:
        return "FLAG", []
    if type(action).__name__ == "LoRAParserAction":
        return "JSON_OR_TEXT", []
    convert = _unwrapped(action.type)
    name = getattr(convert, "__name__", "")
    if name == "human_readable_int_or_auto":
        return "SIZE", ["auto", "-1"]
    known = {
        "int": "INTEGER",
        "float": "NUMBER",
        "human_readable_int": "SIZE",
        "loads": "JSON",
        "parse_dataclass": "JSON",
        "union_dict_and_str": "JSON_OR_TEXT",
    }
    return known.get(name, "TEXT"), []


def _unwrapped(convert: Any) -> Any:
    """The function within vLLM's optional_type and parse_type, which hold it in a closure."""
    while getattr(convert, "__name__", "") in ("_optional_type", "_parse_type"):
        held = dict(zip(convert.__code__.co_freevars, convert.__closure__ or (), strict=False))
        if "return_type" not in held:
            break
        convert = held["return_type"].cell_contents
    return convert


def _read_into(action: argparse.Action, name: str) -> Any:
    """The dataclass that the table of an option is read into; None where it has none."""
    convert = _unwrapped(action.type)
    read_into = None
    if getattr(convert, "__name__", "") == "parse_dataclass":
        read_into = next(iter(convert.__defaults__ or ()), None)
    elif name == "speculative-config":  # read as any table, and made into its dataclass later
        with contextlib.suppress(ImportError, AttributeError):
            read_into = importlib.import_module("vllm.config").SpeculativeConfig
    return read_into if dataclasses.is_dataclass(read_into) else None


def _takes_none(convert: Any) -> bool:
    return getattr(convert, "__name__", "") == "_optional_type"


def _choices(action: argparse.Action, name: str) -> tuple[list[str], str]:
    words = [
        str(word.value) if isinstance(word, enum.Enum) else str(word)
        for word in action.choices or ()
        if word not in (None, "None")
    ]
    if words:
        return words, "ANY_CASE" if _folds(action.type, words) else "EXACT"
    if name in _LISTED:
        with contextlib.suppress(Exception):
            return _listed(_first_attribute(_LISTED[name]))
    if isinstance(action.metavar, list | tuple):  # a string; these are the ones it knows itself
        return [str(word) for word in action.metavar], "OPEN"
    return [], "EXACT"


def _listed(holder: Any) -> tuple[list[str], str]:
    """The words of a registry, an enum, or a plain list. Plug-ins add to the registries."""
    if isinstance(holder, enum.EnumMeta):
        return sorted(holder.__members__), "ANY_CASE"
    words = holder.list_registered() if hasattr(holder, "list_registered") else holder
    return sorted(str(word) for word in words), "OPEN"


def _folds(convert: Any, words: list[str]) -> bool:
    """Whether the option takes its choices in any case."""
    with contextlib.suppress(Exception):
        return all(convert(word.upper()) in words for word in words)
    return False


def _shown(default: Any) -> str:
    if isinstance(default, enum.Enum):
        default = default.value
    if default is None or default == argparse.SUPPRESS:
        return ""
    plain = isinstance(default, bool | int | float | str)
    return str(default) if plain or default in ([], {}) else ""


def first_sentence(text: str | None) -> str:
    """Given a help text, return its first sentence on one line; "" where it has none."""
    if not text or text == argparse.SUPPRESS or text.startswith("\n\n"):
        return ""
    line = " ".join(text.split("\n\n")[0].replace("%%", "%").split())
    return re.split(r"(?<=[.:])\s(?=[A-Z`\-])", line)[0]


# ---------------------------------------------------------------- variables


def variables(readers: dict[str, Any]) -> dict[str, list[str]]:
    """Given vLLM's table of variables and how it reads them, return how each VLLM_* is read.

    A row is the name of a VariableReading, then the words it has to choose from.
    """
    return {
        name: _reading(name, read)
        for name, read in sorted(readers.items())
        if name.startswith(_OURS)
    }


def _reading(name: str, read: Any) -> list[str]:
    kept = os.environ.get(name)
    try:
        return _judged(lambda value: _tried(name, read, value))
    finally:
        os.environ.pop(name, None)
        if kept is not None:
            os.environ[name] = kept


def _tried(name: str, read: Any, value: str) -> Any:
    os.environ[name] = value
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return error


def _judged(tried: Any) -> list[str]:
    """Given what tries a value, return the name of a VariableReading, and words to choose from."""
    on, off, true, nonsense = (tried(value) for value in ("1", "0", "true", NONSENSE))
    if isinstance(nonsense, ValueError) and isinstance(on, ValueError):
        return _choice(tried, str(nonsense))
    switches = on is True and off is False
    if isinstance(nonsense, Exception):
        return ["SWITCH" if switches else _number(tried)]
    if switches:
        return ["NOT_ZERO" if nonsense is True else "TRUE" if true is True else "ONE"]
    return ["ONLY_TRUE" if true is True and on is False else "TEXT"]


def _number(tried: Any) -> str:
    whole = tried("2")
    if isinstance(whole, bool) or not isinstance(whole, int | float):
        return "TEXT"
    return "INTEGER" if isinstance(tried("2.5"), Exception) else "NUMBER"


def _choice(tried: Any, complaint: str) -> list[str]:
    """Given what vLLM says of a wrong word, return the right ones, if it takes one at a time."""
    listed = re.search(r"options:\s*\[(.*?)\]", complaint)
    words = list(dict.fromkeys(re.findall(r"'([^']*)'", listed[1] if listed else "")))
    if not words or not isinstance(tried(",".join(words[:2])), Exception):
        return ["TEXT"]
    folds = all(not isinstance(tried(word.swapcase()), Exception) for word in words)
    return ["WORD" if folds else "CHOICE", *words]


def main() -> None:
    """Print the answer. An argument names the folder vLLM lies in, where Python looks last."""
    sys.path += [folder for folder in sys.argv[1:] if folder not in sys.path]
    answer = json.dumps(knowledge(), ensure_ascii=True, sort_keys=True)
    sys.stdout.write(f"\n{MARK}{answer}\n")
