"""What a row of the settings says it becomes is what rendering makes of it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from systemd_reading import assignments

from kimisvc.profile.settings import SETTINGS, Setting
from kimisvc.records.profile import CanarySettings, GoldenQuestion, Profile, VllmSettings
from kimisvc.records.units import Installation
from kimisvc.render.units import render
from kimisvc.shipped import shipped

PLACE = Installation(Path("/opt/kimisvc/bin/kimisvc"))
TEMPLATES = {path.name: path.read_text() for path in shipped("units").iterdir()}
PLAIN = Profile(
    "plain",
    VllmSettings("/opt/vllm/bin/vllm", "/srv/model"),
    golden=(GoldenQuestion("what", "that"),),
    canary=CanarySettings(60.0),
)
NEVER_SEEN_HERE = ("Description", "SyslogIdentifier", "ExecStartPost")
"""Directives that carry names for people; a row need not say so."""
RENDERED = [row for row in SETTINGS if row.becomes and (row.table or row.key != "name")]


def directives(profile: Profile) -> set[tuple[str, str]]:
    """Every (directive, value) of the service's own unit, of deadlines, and of the canary's timer."""
    service, gate, _, _, canary, timer = render(profile, TEMPLATES, PLACE)
    own = {(name, value) for _, name, value in assignments(service.text)}
    return (
        own
        | {
            (name, f"gate: {value}")
            for _, name, value in assignments(gate.text)
            if name == "TimeoutStartSec"
        }
        | {
            (name, f"canary: {value}")
            for unit, only in ((canary, "TimeoutStartSec"), (timer, ""))
            for where, name, value in assignments(unit.text)
            if name == only or (not only and where == "Timer")
        }
    )


def other(row: Setting, value: object) -> Any:
    """Another value of the same kind."""
    if isinstance(value, Enum):
        return next(one for one in type(value) if one is not value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if row.key == "instance":
        return "other"
    return "/srv/other" if isinstance(value, str) else value


def changed(row: Setting) -> Profile:
    if not row.table:
        return replace(PLAIN, **{row.key: other(row, getattr(PLAIN, row.key))})
    if row.table == "golden":
        (question,) = PLAIN.golden
        return replace(
            PLAIN,
            golden=(replace(question, **{row.key: other(row, getattr(question, row.key))}),),
        )
    record = getattr(PLAIN, row.table)
    value = other(row, getattr(record, row.key))
    return replace(PLAIN, **{row.table: replace(record, **{row.key: value})})


@pytest.mark.parametrize("row", RENDERED, ids=lambda row: f"{row.table}.{row.key}")
def test_a_row_names_the_directives_that_carry_it(row: Setting) -> None:
    said = set(re.findall(r"(\w+)=", row.becomes))
    differ = {name for name, _ in directives(PLAIN) ^ directives(changed(row))}
    if row.key == "instance":
        assert said <= differ
    else:
        assert said == differ - set(NEVER_SEEN_HERE)


def test_every_row_but_two_says_what_it_becomes() -> None:
    assert [row.key for row in SETTINGS if not row.becomes] == ["schema", "extends"]
    assert {field.name for field in fields(Setting)} >= {"becomes"}
