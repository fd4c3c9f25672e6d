"""The table of settings agrees with the records it fills, and with itself."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

import pytest

from kimisvc.profile.reference import reference
from kimisvc.profile.settings import SETTINGS, TABLES, Kind, Setting
from kimisvc.profile.values import parse
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    HardwareSettings,
    ProbeSettings,
    Profile,
    ServiceSettings,
    VllmSettings,
)

if TYPE_CHECKING:
    from dataclasses import Field

RECORDS = {
    "": Profile,
    "service": ServiceSettings,
    "vllm": VllmSettings,
    "hardware": HardwareSettings,
    "probe": ProbeSettings,
    "gate": GateSettings,
    "golden": GoldenQuestion,
    "canary": CanarySettings,
}
NO_FIELD = {"schema", "extends"}
NO_ROW = {"service", "vllm", "args", "env", "hardware", "probe", "gate", "golden", "canary"}


def rows() -> list[Setting]:
    return [row for row in SETTINGS if row.key not in NO_FIELD]


def field_of(row: Setting) -> Field[object]:
    return next(field for field in fields(RECORDS[row.table]) if field.name == row.key)


def name_of(row: Setting) -> str:
    return f"{row.table}.{row.key}"


def test_every_field_of_a_record_has_a_row_and_every_row_a_field() -> None:
    for table, record in RECORDS.items():
        names = {field.name for field in fields(record)}
        assert names - (NO_ROW if record is Profile else set()) == TABLES[table].keys() - NO_FIELD


@pytest.mark.parametrize("row", rows(), ids=name_of)
def test_the_default_of_a_row_is_the_default_of_its_record(row: Setting) -> None:
    default = field_of(row).default
    if row.required or row.key == "name":
        assert default is MISSING
        assert row.default is None
    elif row.default is None:
        assert default is None
    else:
        raw = list(row.default) if isinstance(row.default, tuple) else row.default
        assert parse(row, raw) == default


@pytest.mark.parametrize("row", SETTINGS, ids=name_of)
def test_the_example_of_a_row_is_toml_that_the_row_takes(row: Setting) -> None:
    raw = tomllib.loads(f"value = {row.example}")["value"]
    parse(row, raw)


def test_no_key_has_two_rows() -> None:
    names = [(row.table, row.key) for row in SETTINGS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", SETTINGS, ids=name_of)
def test_choices_and_patterns_stand_only_where_the_kind_reads_them(row: Setting) -> None:
    assert (row.choices is not None) == (row.kind is Kind.CHOICE)
    assert not row.pattern or row.kind is Kind.TEXT
    assert bool(row.pattern) == bool(row.rule)


@pytest.mark.parametrize("row", SETTINGS, ids=name_of)
def test_the_reference_has_every_key_with_its_help(row: Setting) -> None:
    assert any(f"| `{row.key}` | {row.help} |" in line for line in reference().splitlines())
