"""A `Profile` back to TOML: whole, flat, and the same bytes for the same profile."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kimisvc.profile.settings import TABLES
from kimisvc.profile.values import spelled, toml, toml_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.profile.settings import Setting
    from kimisvc.records.profile import Profile

HEADER = "# resolved by kimisvc"


def to_toml(profile: Profile) -> str:
    """Given a profile, return it as one TOML file that `load` reads back to an equal profile.

    Every key is written, defaults too, so that a later kimisvc with other
    defaults still reads the same; only what is not set is left out. Options,
    variables and the keys of inline tables are in order of their names.
    """
    lines = [HEADER]
    for header, pairs in _sections(profile):
        lines += ["", header] if header else []
        lines += [f"{toml_key(key)} = {value}" for key, value in pairs]
    return "\n".join(lines) + "\n"


def digest(profile: Profile) -> str:
    """Given a profile, return the sha256 of its resolved form, in hexadecimal."""
    return hashlib.sha256(to_toml(profile).encode()).hexdigest()


def flattened(profile: Profile) -> dict[str, str]:
    """Given a profile, return every set key and its value as TOML: {"service.starts": "2"}."""
    flat: dict[str, str] = {}
    questions = 0
    for header, pairs in _sections(profile):
        table = header.strip("[]")
        if table == "golden":
            table = f"golden[{questions}]"
            questions += 1
        flat |= {f"{table}.{key}" if table else key: value for key, value in pairs}
    return flat


def _sections(profile: Profile) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Given a profile, yield each table's header ("" for the top) and its keys with TOML values."""
    top = {row.key: row for row in TABLES[""].values() if row.key not in ("schema", "extends")}
    yield "", [("schema", "1"), *_pairs(top, profile)]
    for table in ("service", "vllm"):
        yield f"[{table}]", _pairs(TABLES[table], getattr(profile, table))
    yield "[args]", [(name, toml(profile.args[name])) for name in sorted(profile.args)]
    yield "[env]", [(name, toml(profile.env[name])) for name in sorted(profile.env)]
    for table in ("hardware", "probe", "gate"):
        yield f"[{table}]", _pairs(TABLES[table], getattr(profile, table))
    if profile.canary is not None:
        yield "[canary]", _pairs(TABLES["canary"], profile.canary)
    for question in profile.golden:
        yield "[[golden]]", _pairs(TABLES["golden"], question)


def _pairs(rows: Mapping[str, Setting], record: object) -> list[tuple[str, str]]:
    """Given the rows of a table and its record, return each set key with its value as TOML."""
    values = ((row, getattr(record, key)) for key, row in rows.items())
    return [(row.key, spelled(row, value)) for row, value in values if value is not None]
