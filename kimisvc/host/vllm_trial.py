"""What the tables and numbers of a vLLM take, by trying: sent along with `vllm_questions`.

Run by the Python that vLLM lives in, of any version: nothing but the standard
library is imported, and pydantic and vLLM by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import json
import re
import types
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

NONSENSE = "kimisvc-no-such-word"
_WORDS = ("", "auto", "none", "None", "default", "true", "false")
"""Words that a field may take beside those its type names."""
_NUMBERS = tuple(range(-1, 10))
_SAMPLES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "SWITCH": ((True,), (NONSENSE, 2, 1.5, [], ["a"], {})),
    "INTEGER": ((1, 8, 16, 1024), (NONSENSE, 1.5, [], ["a"], [1], {})),
    "NUMBER": ((0.5, 1.0, 2.5, 8.0), (NONSENSE, [], ["a"], [1], {})),
    "TEXT": ((NONSENSE, ""), (1, 1.5, True, [], ["a"], {})),
    "WORDS": ((), (NONSENSE, 987654, 1.5, [], ["a"], {})),
    "LIST": (([], [1], ["a"]), (NONSENSE, "1", 1, 1.5, True, {})),
    "TABLE": (({},), (NONSENSE, 1, 1.5, True, ["a"])),
}
"""Of each kind, values one of which such a field takes, and values that it refuses, all of them."""
_TYPES: dict[Any, str] = {
    bool: "SWITCH",
    int: "INTEGER",
    float: "NUMBER",
    str: "TEXT",
    list: "LIST",
    dict: "TABLE",
}


def field_names(config: Any) -> list[str]:
    """Given a dataclass, return the names of the fields it is made with."""
    return [field.name for field in dataclasses.fields(config) if field.init]


def table_value(config: Any) -> dict[str, Any]:
    """Given the dataclass of a table, return what its fields take, and those of tables within."""
    with contextlib.suppress(Exception):  # of another version: all else is told without it
        trial = _Trial.of(config)
        return {"fields": trial.fields(())} if trial else {}
    return {}


def number_value(action: argparse.Action, kind: str) -> dict[str, Any]:
    """Given a plain option, return the bounds of its number: those of the field behind it.

    vLLM groups its options by the dataclass they become fields of, and names the group after it.
    """
    if kind in ("FLAG", "JSON", "JSON_OR_TEXT") or action.nargs is not None or action.choices:
        return {}
    title = getattr(getattr(action, "container", None), "title", None)
    with contextlib.suppress(Exception):  # as above
        trial = _Trial.of(getattr(importlib.import_module("vllm.config"), title or "", None))
        told = trial.named(action.dest) if trial else {}
        numbers = all(re.fullmatch(r"-?\d+", word) for word in told.get("choices", ()))
        if numbers and (kind != "TEXT" or "choices" in told):
            return {
                name: told[name] for name in ("ge", "gt", "le", "lt", "choices") if name in told
            }
    return {}


@dataclasses.dataclass(frozen=True)
class _Trial:
    """Tries values in a dataclass of vLLM's, which is never made: a field too many goes along.

    What its types promise is only told where trying bears it out: vLLM reads
    values before it checks them.
    """

    config: Any
    adapter: Any
    error: Any

    @classmethod
    def of(cls, config: Any) -> _Trial | None:
        """Given a dataclass, return a trial; None where it would take a field too many."""
        if not _is_closed(config):
            return None
        with contextlib.suppress(Exception):
            pydantic = importlib.import_module("pydantic")
            return cls(config, pydantic.TypeAdapter(config), pydantic.ValidationError)
        return None

    def refuses(self, path: tuple[str, ...], value: Any) -> bool:
        """Whether a value is refused at a path for sure: as JSON and as Python's, and right there."""
        for name in reversed(path):
            value = {name: value, NONSENSE: 0}
        for validate, form in (
            (self.adapter.validate_python, value), (self.adapter.validate_json, json.dumps(value)),
        ):  # fmt: skip
            try:
                validate(form)
            except self.error as error:
                if all(one["loc"] != path for one in error.errors(include_url=False)):
                    return False
            except Exception:  # noqa: BLE001, S112 - raised by the reader of this very value
                continue
            else:
                return False
        return True

    def named(self, name: str) -> dict[str, Any]:
        """Given the name of a field, here or in a table within, return what it takes."""
        if name in self.config.__pydantic_fields__:
            return self.field((name,), self.config)
        for outer, declared in self.config.__pydantic_fields__.items():
            inner = _plain(declared.annotation)
            if _is_closed(inner) and name in inner.__pydantic_fields__:
                return self.field((outer, name), inner)
        return {}

    def fields(self, path: tuple[str, ...]) -> dict[str, Any]:
        """Given the path of a table, return what is told of its fields, by name."""
        config = (
            _plain(self.config.__pydantic_fields__[path[0]].annotation) if path else self.config
        )
        told = {name: self.field((*path, name), config) for name in field_names(config)}
        return told if path else {name: row for name, row in told.items() if row}

    def field(self, path: tuple[str, ...], config: Any) -> dict[str, Any]:
        """Given the path of a field and the dataclass it is in, return what it takes; {}: not sure."""
        declared = config.__pydantic_fields__.get(path[-1])
        plain = _plain(declared.annotation) if declared else None
        words = _candidates(plain)
        closed = len(path) == 1 and _is_closed(plain)
        kind = (
            "WORDS"
            if words
            else "TABLE"
            if closed
            else _TYPES.get(typing.get_origin(plain) or plain)
        )
        if kind is None:
            return {}
        right, wrong = _SAMPLES[kind]
        taken = [one for one in (*right, *words) if not self.refuses(path, one)]
        if not taken or not all(self.refuses(path, one) for one in wrong):
            return {}
        if kind == "WORDS":
            return {"kind": kind, **self._choices(path, taken)}
        if closed and self.refuses((*path, NONSENSE), 0):
            return {"kind": kind, "fields": self.fields(path)}
        numeric = kind in ("INTEGER", "NUMBER")
        return {"kind": kind, **(self._bounds(path, declared.metadata) if numeric else {})}

    def _choices(self, path: tuple[str, ...], taken: list[Any]) -> dict[str, Any]:
        texts = [word for word in taken if isinstance(word, str) and word]
        other = [word.swapcase() for word in texts] + [word.replace("_", "-") for word in texts]
        folds = any(word not in texts and not self.refuses(path, word) for word in other)
        choices = {str(word).lower() if folds else str(word): str(word) for word in reversed(taken)}
        rule = {"choice_rule": "ANY_CASE"} if folds else {}
        return {"choices": list(reversed(choices.values())), **rule}

    def _bounds(self, path: tuple[str, ...], metadata: Any) -> dict[str, float]:
        told: dict[str, float] = {}
        for name, beyond in (("ge", -1), ("gt", 0), ("le", 1), ("lt", 0)):
            for bound in (getattr(one, name, None) for one in metadata):
                if isinstance(bound, int | float) and self.refuses(path, bound + beyond):
                    told[name] = bound
        return told


def _is_closed(config: Any) -> bool:
    """Whether a dataclass of pydantic's refuses fields that it does not have."""
    rules = getattr(config, "__pydantic_config__", None) or {}
    return hasattr(config, "__pydantic_fields__") and rules.get("extra") == "forbid"


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The types an annotation is one of, but None."""
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    parts = typing.get_args(annotation) if union else (annotation,)
    return tuple(part for part in parts if part is not types.NoneType)


def _plain(annotation: Any) -> Any:
    """The one type of an annotation, beside None; several words lists are one; else None."""
    parts = _parts(annotation)
    if len(parts) == 1:
        return parts[0]
    words = all(typing.get_origin(part) is typing.Literal for part in parts)
    return typing.Union[parts] if words and parts else None  # noqa: UP007 - made of a tuple


def _candidates(plain: Any) -> list[Any]:
    """The words and numbers that a type of words may take; [] for another type."""
    told: list[Any] = []
    for part in _parts(plain):
        if isinstance(part, enum.EnumMeta):
            members: dict[str, Any] = dict(part.__members__)
            for name, member in members.items():
                told += [name, getattr(member, "value", None)]
        elif typing.get_origin(part) is typing.Literal:
            told += typing.get_args(part)
        else:
            return []
    known = [word for word in told if isinstance(word, str | int) and not isinstance(word, bool)]
    return list(dict.fromkeys([*known, *_WORDS, *_NUMBERS]))
