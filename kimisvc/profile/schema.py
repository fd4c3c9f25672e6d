"""The table of settings as a JSON Schema, for editors with a TOML language server. Pure.

Declared as draft-07, written with the keywords that it shares with draft 4:
Taplo (also the engine of Even Better TOML) documents draft 4, and its validator
follows `$schema`. A schema sees one file and one value at a time: what needs
more (extends, two keys that contradict each other) is left to `kimisvc check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimisvc.profile.nearest import header
from kimisvc.profile.options import OWNED_OPTIONS, OWNED_VARIABLES
from kimisvc.profile.settings import TABLES, Kind
from kimisvc.profile.values import rule_of
from kimisvc.records.vllm import ChoiceRule, OptionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kimisvc.profile.settings import Setting
    from kimisvc.records.vllm import VllmKnowledge, VllmOption

Node = dict[str, Any]
"""One schema within the schema."""

_CONTROL = r"\u0000-\u0008\u000a-\u001f\u007f-\u009f\u2028\u2029\ufdd0-\ufdef\ufffe\uffff"
_UNITS = "us|usec|µs|μs|ms|msec|s|sec|seconds?|m|min|minutes?|h|hr|hours?|d|days?|w|weeks?"
_SPAN = rf"[0-9]{{1,15}}(\.[0-9]{{1,15}})?\s*({_UNITS})"
_DURATION = rf"^\s*({_SPAN}(\s*{_SPAN})*|[0-9]{{1,15}}(\.[0-9]{{1,15}})?)\s*$"
_SIZE = r"^\s*(0|[0-9]{1,19}(\.[0-9]{1,15})?\s*(B|[KMGT](iB)?))\s*$"
_TARGET = r"^\s*(>\s*[0-9]+(\.[0-9]+)?\s*(~\s*[0-9]+(\.[0-9]+)?)?|[0-9]+(\.[0-9]+)?)\s*$"
_OPTION, _VARIABLE = r"^[A-Za-z][A-Za-z0-9._-]*$", r"^[A-Za-z_][A-Za-z0-9_]*$"
_ANY_OPTION = ["boolean", "integer", "number", "string", "array", "object"]
_TYPES: Mapping[OptionKind, list[str]] = {
    OptionKind.FLAG: ["boolean"],
    OptionKind.INTEGER: ["integer", "string"],
    OptionKind.SIZE: ["integer", "string"],
    OptionKind.NUMBER: ["number", "string"],
    OptionKind.TEXT: ["string", "number", "boolean"],
    OptionKind.JSON: ["object", "string", "array"],
    OptionKind.JSON_OR_TEXT: _ANY_OPTION,
}
_NEVER: Node = {"not": {}, "x-taplo": {"hidden": True}}
_FREE_WORDS = {
    "args": "Any option of `vllm serve`, without its dashes. true gives the option alone, false "
    "its no- form; an inline table becomes JSON.",
    "env": "Environment variables of vLLM, as strings. No secrets: they belong in the file that "
    "secrets_file names.",
}


def schema(knowledge: VllmKnowledge | None = None) -> Node:
    """Given what a vLLM knows, or nothing, return the JSON Schema of a profile.

    With it the options and variables of that vLLM are named, described and
    typed; others stay allowed, for another version may know them.
    """
    top = {key: _setting(row) for key, row in TABLES[""].items()}
    tables = {table: _table(table) for table in TABLES if table}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kimisvc profile",
        "description": "How one vLLM service is run, proven and measured.",
        "type": "object",
        "properties": {**top, **tables, "args": _args(knowledge), "env": _env(knowledge)},
        "additionalProperties": False,
        "required": ["schema"],
        "anyOf": [{"required": ["extends"]}, _complete()],
    }


def _complete() -> Node:
    """What a file has to say that extends no other: each required key of its tables."""
    properties = {
        table: {"required": [key for key, row in TABLES[table].items() if row.required]}
        for table in ("vllm", "canary")
    }
    return {"required": ["vllm"], "properties": properties}


def _table(table: str) -> Node:
    rows = TABLES[table]
    node: Node = {
        "type": "object",
        "description": f"{header(table)} of the profile: {', '.join(rows)}",
        "properties": {key: _setting(row) for key, row in rows.items()},
        "additionalProperties": False,
    }
    if table != "golden":
        return node
    node["required"] = [key for key, row in rows.items() if row.required]
    return {"type": "array", "items": node}


def _setting(row: Setting) -> Node:
    words = f"{row.help[0].upper()}{row.help[1:]}. Takes {rule_of(row)}."
    node: Node = {"description": words} | _KINDS[row.kind](row)
    if row.default is not None:
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        node["default"] = default
    return node


def _text(row: Setting) -> Node:
    """A string; an empty one unsets what an extended file sets, where that can be unset."""
    inner = row.pattern or rf"[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*"
    return {"type": "string", "pattern": f"^({inner}|)$" if row.default == "" else f"^({inner})$"}


def _path(row: Setting) -> Node:
    inner = rf"/[^{_CONTROL}]*"
    return {"type": "string", "pattern": f"^({inner}|)$" if row.default == "" else f"^{inner}$"}


def _bounds(row: Setting) -> Node:
    bounds = {"minimum": row.low, "maximum": row.high}
    return {
        name: int(bound) if bound == int(bound) else bound
        for name, bound in bounds.items()
        if bound is not None
    }


def _duration(row: Setting) -> Node:
    number = {"type": "number"} | _bounds(row)
    return {"anyOf": [{"type": "string", "pattern": _DURATION}, number]}


_KINDS: Mapping[Kind, Callable[[Setting], Node]] = {
    Kind.TEXT: _text,
    Kind.PATH: _path,
    Kind.INTEGER: lambda row: {"type": "integer"} | _bounds(row),
    Kind.NUMBER: lambda row: {"type": "number"} | _bounds(row),
    Kind.FLAG: lambda _: {"type": "boolean"},
    Kind.CHOICE: lambda row: {"enum": [choice.value for choice in row.choices or ()]},
    Kind.NAMES: lambda _: {"type": "array", "items": {"type": "string", "minLength": 1}},
    Kind.DURATION: _duration,
    Kind.SIZE: lambda _: {"anyOf": [{"type": "string", "pattern": _SIZE}, {"enum": [0]}]},
    Kind.TARGET: lambda _: {"anyOf": [{"type": "string", "pattern": _TARGET}, {"type": "number"}]},
}


def _args(knowledge: VllmKnowledge | None) -> Node:
    known = sorted(knowledge.options.items()) if knowledge else ()
    properties = {name: _option(option) for name, option in known}
    owned = {name: {"description": f"{name} {why}"} | _NEVER for name, why in OWNED_OPTIONS.items()}
    return _free("args", properties | owned, {_OPTION: {"type": _ANY_OPTION}})


def _option(option: VllmOption) -> Node:
    """One option. A list stays allowed wherever it takes several, a string where it counts."""
    words = [option.help.strip(), f"Default of vLLM: {option.default}" if option.default else ""]
    node: Node = {"description": "\n\n".join(word for word in words if word)}
    if not node["description"]:
        del node["description"]
    if option.many:
        return node | {"type": _ANY_OPTION}
    exact = option.choice_rule is ChoiceRule.EXACT and option.kind is OptionKind.TEXT
    if option.choices and exact:
        return node | {"anyOf": [{"enum": list(option.choices)}, {"type": ["number", "boolean"]}]}
    return node | {"type": _TYPES[option.kind]}


def _env(knowledge: VllmKnowledge | None) -> Node:
    known = sorted(knowledge.variables) if knowledge else ()
    words = f"Variable of vLLM {knowledge.version}." if knowledge else ""
    properties: dict[str, Node] = {
        name: {"description": words, "type": ["string", "integer"]} for name in known
    }
    owned = {
        name: {"description": f"{name} {why}"} | _NEVER for name, why in OWNED_VARIABLES.items()
    }
    return _free("env", properties | owned, {_VARIABLE: {"type": ["string", "integer"]}})


def _free(table: str, properties: dict[str, Node], patterns: dict[str, Node]) -> Node:
    """A table in which any name that could be one is a key."""
    return {
        "type": "object",
        "description": _FREE_WORDS[table],
        "properties": properties,
        "patternProperties": patterns,
        "additionalProperties": False,
    }


def text(knowledge: VllmKnowledge | None = None) -> str:
    """Given what a vLLM knows, or nothing, return the schema as a JSON file."""
    import json

    return json.dumps(schema(knowledge), indent=2, ensure_ascii=False) + "\n"
