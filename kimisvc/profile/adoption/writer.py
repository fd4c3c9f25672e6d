"""The draft of a profile as TOML: tables in the order of the format, comments beside and above."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kimisvc.profile.adoption.draft import Fate
from kimisvc.profile.problems import CONTROL
from kimisvc.profile.settings import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tomlkit.items import InlineTable, Item, Table

    from kimisvc.profile.adoption.draft import Draft, Entry

_WIDTH = 96
_TABLES = ("service", "vllm", "args", "env", "hardware")
_NEXT = (
    "Next: look it over, `kimisvc check FILE`, then `kimisvc apply FILE`. Say what it has to prove: "
    "[gate] decode_tok_s, and a [[golden]] question."
)


def written(draft: Draft, source: str) -> str:
    """Given a draft and what it was made of, return the profile as TOML, with its comments."""
    import tomlkit

    document = tomlkit.document()
    for line in _comments(f"Imported by kimisvc from {source}."):
        document.add(tomlkit.comment(line))
    for line in _comments(_NEXT):
        document.add(tomlkit.comment(line))
    for key, entry in _of(draft, ""):
        document.add(key, _item(entry))
    for line in _remarks(draft):
        document.add(tomlkit.comment(line) if line else tomlkit.nl())
    for name in _TABLES:
        pairs = _of(draft, name)
        if pairs:
            document.add(tomlkit.nl())
            document.add(name, _table(pairs))
    return document.as_string()


def _remarks(draft: Draft) -> Iterator[str]:
    """What became of all that is no key: first what the operator has to look at."""
    for fate in (Fate.UNCLEAR, Fate.DROPPED):
        notes = [note for note in draft.notes if note.fate is fate]
        if notes:
            yield ""
            yield f"{fate.value.capitalize()}:"
        for why in dict.fromkeys(note.why for note in notes):
            whats = ", ".join(note.what for note in notes if note.why == why)
            yield from _comments(f"{whats}: {why}", "  ")


def _table(pairs: list[tuple[str, Entry]]) -> Table:
    import tomlkit

    table = tomlkit.table()
    for key, entry in pairs:
        for line in _above(entry):
            table.add(tomlkit.comment(line))
        table.add(key, _item(entry))
    return table


def _of(draft: Draft, table: str) -> list[tuple[str, Entry]]:
    """Given a table, return its keys and entries: in the order of the format, or as they came."""
    found = {key: entry for (where, key), entry in draft.entries.items() if where == table}
    order = list(TABLES.get(table, {})) or list(found)
    return [(key, found[key]) for key in order if key in found]


def _above(entry: Entry) -> list[str]:
    """A comment too long to stand beside its value stands above it."""
    return _comments(entry.comment) if len(entry.comment) > _WIDTH // 2 else []


def _item(entry: Entry) -> Item:
    item = _toml(entry.value)
    if entry.comment and not _above(entry):
        item.comment(CONTROL.sub("?", entry.comment))
    return item


def _toml(value: object) -> Item:
    import tomlkit

    if isinstance(value, Mapping):
        table: InlineTable = tomlkit.inline_table()
        for key, item in value.items():
            table.append(key, _toml(item))
        return table
    if isinstance(value, Sequence) and not isinstance(value, str):
        array: Any = tomlkit.array()
        for item in value:
            array.append(_toml(item))
        result: Item = array
        return result
    plain: Item = tomlkit.item(value)
    return plain


def _comments(text: str, indent: str = "") -> list[str]:
    plain = CONTROL.sub("?", text)
    return textwrap.wrap(
        plain, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    " if indent else "",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
