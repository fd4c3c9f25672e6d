"""As much of pydantic as the questions use, for dataclasses made up in tests; the real one is vLLM's."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from typing import Any

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

Loc = tuple[str, ...]


class ValidationError(Exception):
    """Says where a value was refused."""

    def __init__(self, locs: list[Loc]) -> None:
        self.locs = locs

    def errors(self, *, include_url: bool) -> list[dict[str, Any]]:
        assert include_url is False
        return [{"loc": loc} for loc in self.locs]


class TypeAdapter:
    """Judges a table by the types of a dataclass, and makes it where nothing is wrong."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def validate_python(self, table: dict[str, Any]) -> Any:
        found = list(_faults(self.config, table, ()))
        if found:
            raise ValidationError(found)
        return self.config(**table)

    def validate_json(self, text: str) -> Any:
        return self.validate_python(json.loads(text))


def like_pydantic(config: Any) -> Any:
    """Given a dataclass, return it with the attributes that pydantic gives one."""
    made: Any = dataclasses.dataclass(config)
    hints = typing.get_type_hints(made, include_extras=True)
    made.__pydantic_config__ = {"extra": "forbid"}
    made.__pydantic_fields__ = {
        field.name: types.SimpleNamespace(
            annotation=hints[field.name], metadata=field.metadata.get("bounds", [])
        )
        for field in dataclasses.fields(made)
    }
    return made


def bounded(default: Any, **bounds: float) -> Any:
    """Given a default and bounds (ge, gt, le, lt), return a field that has them."""
    metadata = {"bounds": [types.SimpleNamespace(**bounds)]}
    return dataclasses.field(default=default, metadata=metadata)


def _faults(config: Any, table: dict[str, Any], path: Loc) -> Iterator[Loc]:
    for name, value in table.items():
        field, here = config.__pydantic_fields__.get(name), (*path, name)
        inner = field.annotation if field else None
        if field and hasattr(inner, "__pydantic_fields__") and isinstance(value, dict):
            yield from _faults(inner, value, here)
        elif not field or not (_takes(inner, value) and _fits(field.metadata, value)):
            yield here


def _takes(annotation: Any, value: Any) -> bool:
    if annotation is Any:
        return True
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_takes(part, value) for part in typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Literal:
        return value in typing.get_args(annotation)
    if isinstance(annotation, enum.EnumMeta):  # by name in any case, as vLLM's validators read it
        members: dict[str, Any] = dict(annotation.__members__)
        read = members[value.upper()] if isinstance(value, str) else value
        return isinstance(read, int) and read in members.values()
    plain = typing.get_origin(annotation) or annotation
    if plain in (int, float):
        kinds: tuple[Any, ...] = (int,) if plain is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(plain, type) and isinstance(value, plain)


def _fits(bounds: list[Any], value: Any) -> bool:
    return all(
        value >= getattr(one, "ge", value) and value <= getattr(one, "le", value)
        and value > getattr(one, "gt", value - 1) and value < getattr(one, "lt", value + 1)
        for one in bounds
    )  # fmt: skip
