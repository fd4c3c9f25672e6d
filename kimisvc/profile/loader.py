"""A profile file to a `Profile`, or to all of its problems at once.

First step of the path. Each file is judged key by key, the files are merged
along `extends` (the operator's file wins, key by key), the whole is judged
again, and only then is a finding given its file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kimisvc.errors import ProfileRefusedError
from kimisvc.profile.consistency import inconsistencies
from kimisvc.profile.lines import deep_tables, key_lines, line_of
from kimisvc.profile.nearest import header
from kimisvc.profile.problems import Finding, key_name
from kimisvc.profile.secret_signs import WHERE_TO, secrets_in_comments
from kimisvc.profile.settings import TABLES
from kimisvc.profile.sheets import Reading, sheet_of
from kimisvc.profile.sources import read_chain
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    HardwareSettings,
    ProbeSettings,
    Profile,
    ServiceSettings,
    VllmSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kimisvc.profile.problems import KeyPath
    from kimisvc.profile.sheets import Sheet
    from kimisvc.profile.sources import Chain, Source

_DEEP = "tables are one deep in a profile."
_OWN = {("schema",), ("extends",), ("name",)}
"""What a file says of itself alone; never taken from the file it extends."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a profile file.

    `profile` is None if any problem is an error. `sources` are all files that
    were looked at, the operator's first. `written` tells which of them sets
    each key, by number, and the path it has there.
    """

    profile: Profile | None
    problems: tuple[Problem, ...]
    sources: tuple[Source, ...]
    written: Mapping[KeyPath, tuple[int, KeyPath]]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, the operator's first."""
        return tuple(source.file for source in self.sources)

    @property
    def text(self) -> str:
        """The operator's file as written; "" if it could not be read."""
        return self.sources[0].text


@dataclass(frozen=True, slots=True)
class _Merged:
    """All files as one: values, what is spoiled, and which file writes what, and where."""

    values: dict[KeyPath, object] = field(default_factory=dict)
    spoiled: set[KeyPath] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    places: dict[KeyPath, tuple[int, KeyPath]] = field(default_factory=dict)


def nobody(draft: Profile) -> Iterable[Finding]:
    """Given a profile, find nothing: its text is checked, what it means elsewhere is not."""
    del draft
    return ()


def check(
    path: Path, shipped: Path, judges: Callable[[Profile], Iterable[Finding]] = nobody
) -> Checked:
    """Given a profile file and the folder of shipped profiles, return the profile or its problems.

    `judges` say what the world makes of it (`knowledge.court`). Never raise for
    anything the files hold or lack: each thing wrong is one Problem with file,
    line and key, in order.
    """
    chain = read_chain(path, shipped)
    sheets = [
        sheet_of(source.data) if source.data is not None else None for source in chain.sources
    ]
    placed: list[tuple[int, Finding]] = [
        (number, finding)
        for number, sheet in enumerate(sheets)
        if sheet
        for finding in sheet.findings
    ]
    if chain.broken:
        placed.append((len(sheets) - 1, chain.broken))
    merged = _merge(sheets)
    draft = _draft(merged, path)
    if chain.complete:
        findings = [
            *_missing(merged, path),
            *inconsistencies(draft, merged.spoiled),
            *judges(draft),
        ]
        placed += [
            _place(finding, merged)
            for finding in findings
            if merged.spoiled.isdisjoint((*finding.reads, *(path[:1] for path in finding.reads)))
        ]
    problems = _located(chain, placed)
    refused = any(problem.severity is Severity.ERROR for problem in problems)
    return Checked(
        profile=None if refused else draft,
        problems=problems,
        sources=chain.sources,
        written=MappingProxyType(merged.places),
    )


def restore(path: Path) -> Profile:
    """Given a resolved profile that kimisvc wrote, return the profile.

    Only its form is looked at. It was judged when it was applied; what later
    versions come to refuse must not take the ground from what runs. Raise
    ProfileRefusedError if it is damaged.
    """
    chain = read_chain(path, path.parent)
    (source,) = chain.sources[:1]
    if source.data is None:
        raise ProfileRefusedError(_located(chain, []))
    sheet = sheet_of(source.data, Reading.TRUSTING)
    merged = _merge([sheet])
    findings = [*sheet.findings, *_missing(merged, path)]
    errors = [(0, one) for one in findings if one.severity is Severity.ERROR]
    if errors:
        raise ProfileRefusedError(_located(chain, errors))
    return _draft(merged, path)


def _merge(sheets: list[Sheet | None]) -> _Merged:
    """Given the sheets, the operator's first, return them as one; the earlier file wins."""
    merged = _Merged()
    for number, sheet in reversed(list(enumerate(sheets))):
        if sheet is None:
            continue
        merged.tables.update(sheet.tables)
        for path, given in sheet.values.items():
            if number and path in _OWN:
                continue
            merged.values[path] = given.value
            merged.places[path] = (number, given.written_at)
            merged.spoiled.discard(path)
        spoiled = sheet.spoiled - _OWN if number else sheet.spoiled
        for path in spoiled:
            merged.values.pop(path, None)
            merged.spoiled.add(path)
            merged.places[path] = (number, path)
    return merged


def _draft(merged: _Merged, path: Path) -> Profile:
    """Given the merged values, return the profile they make; a missing value is its default.

    Where a required value is missing or spoiled the draft is not fit for use,
    only for the rules that do not read that value.
    """
    tables: dict[str, dict[str, Any]] = {}
    for key_path in sorted(merged.values, key=key_name):
        table = str(key_path[0]) if len(key_path) > 1 else ""
        tables.setdefault(table, {})[str(key_path[-1])] = merged.values[key_path]
    top = {key: value for key, value in tables.get("", {}).items() if (key,) not in _OWN}
    canary = tables.get("canary", {})
    return Profile(
        **top,
        name=str(merged.values.get(("name",), path.stem)),
        vllm=VllmSettings(**{"executable": "", "model": ""} | tables.get("vllm", {})),
        service=ServiceSettings(**tables.get("service", {})),
        args=tables.get("args", {}),
        env=tables.get("env", {}),
        hardware=HardwareSettings(**tables.get("hardware", {})),
        probe=ProbeSettings(**tables.get("probe", {})),
        gate=GateSettings(**tables.get("gate", {})),
        canary=CanarySettings(**canary) if "every" in canary else None,
    )


def _missing(merged: _Merged, path: Path) -> Iterator[Finding]:
    """Given the merged values, yield each required key that no file sets."""
    for table in ("vllm", "canary"):
        if (table,) in merged.spoiled or (table == "canary" and table not in merged.tables):
            continue
        for key, row in TABLES[table].items():
            key_path = (table, key)
            if row.required and key_path not in merged.values and key_path not in merged.spoiled:
                message = (
                    f"is missing. Write {key} = {row.example}, for example, in {header(table)}"
                )
                yield Finding(key_path, message)
    named = {("name",)} & (merged.values.keys() | merged.spoiled)
    if not named and not re.fullmatch(TABLES[""]["name"].pattern, path.stem):
        yield Finding(
            ("name",),
            "is missing, and the name of the file cannot stand for it "
            f'({TABLES[""]["name"].rule}). Write name = "..."',
        )


def _place(finding: Finding, merged: _Merged) -> tuple[int, Finding]:
    """Given a finding on the merged values, return the number of the file that writes its key.

    Of several keys the one in the file nearest to the operator is named; a
    question of [[golden]] is where its table of questions is.
    """
    candidates = [
        (*merged.places[known], path)
        for path in (finding.path, *finding.or_at)
        for known in (path, path[:1])
        if known in merged.places
    ]
    if not candidates:
        return 0, finding
    number, written, path = min(candidates, key=lambda candidate: candidate[0])
    shown = path if len(path) > len(written) else written
    return number, Finding(shown, finding.message, finding.severity)


def _located(chain: Chain, placed: list[tuple[int, Finding]]) -> tuple[Problem, ...]:
    """Given findings and the number of the file of each, return them as problems, in order."""
    problems: list[Problem] = []
    for number, source in enumerate(chain.sources):
        name = str(source.file)
        here = [Problem(fault.message, name, fault.line, fault.key) for fault in source.faults]
        if source.data is not None:
            here += [  # under other tables such a key is an unknown one, and said to be so
                Problem(f"{_DEEP} Write {path[1]} = ... in [args]", name, line, key_name(path))
                for path, line in deep_tables(source.text)
                if path[0] == "args"
            ]
        findings = [finding for owner, finding in placed if owner == number]
        lines = key_lines(source.text) if findings else {}
        here += [
            Problem(
                finding.message,
                name,
                line_of(finding.path, lines),
                key_name(finding.path),
                finding.severity,
            )
            for finding in findings
        ]
        named = {problem.line for problem in here}
        here += [
            Problem(f"a comment holds what looks like a secret ({what}). {WHERE_TO}", name, line)
            for line, what in secrets_in_comments(source.text)
            if line not in named
        ]
        problems += sorted(here, key=lambda problem: problem.line)
    return tuple(dict.fromkeys(problems))
