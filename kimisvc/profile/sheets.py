"""One file's TOML data to the values it sets: each key by itself, before files are merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.profile.nearest import header, unknown_key, unknown_table
from kimisvc.profile.options import (
    option_findings,
    option_name,
    option_value,
    variable_findings,
    variable_value,
)
from kimisvc.profile.problems import Finding, KeyPath
from kimisvc.profile.settings import TABLES, Kind
from kimisvc.profile.values import doubted, parse, shown
from kimisvc.records.problems import Severity
from kimisvc.records.profile import GoldenQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.profile.settings import Setting


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a file sets, and the path it is written at there."""

    value: object
    written_at: KeyPath


@dataclass(frozen=True, slots=True)
class Sheet:
    """What one file sets: good values, the paths it spoils, the tables it opens, its findings."""

    values: dict[KeyPath, Given] = field(default_factory=dict)
    spoiled: set[KeyPath] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def refuse(self, path: KeyPath, message: str) -> None:
        """Given a key path and what is wrong there, note both."""
        self.spoiled.add(path)
        self.findings.append(Finding(path, message))


class Reading(Enum):
    """How the free tables are read: JUDGING an operator's, or TRUSTING what kimisvc wrote itself."""

    JUDGING = "judging"
    TRUSTING = "trusting"


def sheet_of(data: Mapping[str, object], reading: Reading = Reading.JUDGING) -> Sheet:
    """Given the data of one TOML file, return what it sets and all that is wrong with it."""
    sheet = Sheet()
    if "schema" not in data:
        sheet.refuse(("schema",), "is missing. Write schema = 1 as the first line")
    for name, value in data.items():
        if name in TABLES[""]:
            _take(sheet, "", name, value, reading)
        elif name == "golden":
            _take_golden(sheet, value, reading)
        elif name not in TABLES and name not in ("args", "env"):
            message = unknown_table(name) if isinstance(value, dict) else unknown_key("", name)
            sheet.refuse((name,), message)
        elif not isinstance(value, dict):
            many = isinstance(value, list) and value and isinstance(value[0], dict)
            message = "stands in a profile once" if many else f"{shown(value)} is not a table"
            sheet.refuse((name,), f"{message}. Write {header(name)}, and its keys below")
        else:
            sheet.tables.add(name)
            _take_table(sheet, name, value, reading)
    return sheet


def _take_table(sheet: Sheet, table: str, data: Mapping[str, object], reading: Reading) -> None:
    if table not in ("args", "env"):
        for key, raw in data.items():
            _take(sheet, table, key, raw, reading)
        return
    found: list[Finding] = []
    if reading is Reading.JUDGING:
        found += option_findings(data) if table == "args" else variable_findings(data)
    sheet.findings.extend(found)
    errors = {finding.path for finding in found if finding.severity is Severity.ERROR}
    for key, raw in data.items():
        path = (table, option_name(key) if table == "args" else key)
        if (table, key) in errors:
            sheet.spoiled.add(path)
        else:
            value = option_value(raw) if table == "args" else variable_value(raw)
            sheet.values[path] = Given(value, (table, key))


def _parsed(row: Setting, raw: object, reading: Reading) -> object:
    """The value of a key. Raise ValueError where it is none.

    A string that kimisvc wrote itself is taken as it is: what looks like a
    secret, or may not be shown, is a matter of whoever writes one.
    """
    try:
        return parse(row, raw)
    except ValueError:
        text = row.kind in (Kind.TEXT, Kind.PATH) and isinstance(raw, str)
        if reading is Reading.JUDGING or not text:
            raise
        return raw


def _take(sheet: Sheet, table: str, key: str, raw: object, reading: Reading) -> None:
    path = (table, key) if table else (key,)
    row = TABLES[table].get(key)
    if row is None:
        sheet.refuse(path, unknown_key(table, key))
        return
    if key == "schema" and isinstance(raw, int) and not isinstance(raw, bool) and raw != 1:
        message = f"{shown(raw)} is a format this kimisvc does not know. Write schema = 1"
        sheet.refuse(path, message)
        return
    try:
        sheet.values[path] = Given(_parsed(row, raw, reading), path)
    except ValueError as error:
        sheet.refuse(path, str(error))
        return
    doubt = doubted(row, raw)
    if doubt:
        sheet.findings.append(Finding(path, doubt, Severity.WARNING))


def _take_golden(sheet: Sheet, raw: object, reading: Reading) -> None:
    """Given what stands at `golden`, take its questions; all or none of them count."""
    sheet.tables.add("golden")
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        sheet.refuse(
            ("golden",), "each question is a table of its own. Write [[golden]] (double brackets)"
        )
        return
    before = len(sheet.findings)
    questions = [_question(sheet, number, item, reading) for number, item in enumerate(raw)]
    if len(sheet.findings) > before:
        sheet.spoiled.add(("golden",))
        return
    whole = tuple(question for question in questions if question)
    sheet.values[("golden",)] = Given(whole, ("golden",))


def _question(
    sheet: Sheet, number: int, data: Mapping[str, object], reading: Reading
) -> GoldenQuestion | None:
    rows = TABLES["golden"]
    values: dict[str, object] = {}
    for key, row in rows.items():
        if row.required and key not in data:
            message = f"is missing. Write {key} = {row.example}, for example"
            sheet.refuse(("golden", number, key), message)
    for key, raw in data.items():
        path = ("golden", number, key)
        if key not in rows:
            sheet.refuse(path, unknown_key("golden", key))
            continue
        try:
            values[key] = _parsed(rows[key], raw, reading)
        except ValueError as error:
            sheet.refuse(path, str(error))
    if not {"prompt", "expect"} <= values.keys():
        return None
    return GoldenQuestion(**values)  # type: ignore[arg-type] # each value has its row's type
