"""What was found wrong inside one profile, before and after a line number is known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kimisvc.foreign_text import printable
from kimisvc.records.problems import Problem, Severity

KeyPath = tuple[str | int, ...]
"""Where in a document: ("gate", "max_ttft"), ("golden", 0, "expect"), ("name",)."""

BIDI = "\u202a-\u202e\u2066-\u2069"
"""They change the order in which a line is shown, so that it reads other than it is (UAX 9)."""
CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{BIDI}]")
"""Characters that would end or hide a line in a log or a terminal."""
NONCHARACTERS = "\ufdd0-\ufdef" + "".join(
    chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)
)
"""Unicode 23.7: no text has them, and systemd takes a line that does for broken UTF-8 and drops it."""
UNWRITABLE = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029{BIDI}{NONCHARACTERS}]")
"""What no value may hold. A tab is none of it: systemd carries one wherever a blank may stand."""

_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that knows its key but not yet its file and line.

    `or_at` names further keys the same problem may be shown at: the first of
    all that stands in the operator's own file is taken. `reads` are further keys
    it was made from: it says nothing true where one of them is spoiled, and so
    missing in the draft.
    """

    path: KeyPath
    message: str
    severity: Severity = Severity.ERROR
    or_at: tuple[KeyPath, ...] = ()
    reads: tuple[KeyPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file, not with a value in it: its line (0: none), and the key if known."""

    line: int
    message: str
    key: str = ""


def key_name(path: KeyPath) -> str:
    """Given a key path, return it as problems name it: gate.max_ttft, golden[0].expect."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            shown = CONTROL.sub("?", part)
            if len(shown) > _LONGEST_NAME:
                shown = f"{shown[:_LONGEST_NAME]}..."
            name += f".{shown}" if name else shown
    return name


def format_problem(problem: Problem) -> str:
    """Given a problem, return its line: `profiles/kimi.toml:14: gate.max_tftt: unknown key.`."""
    file = printable(problem.file)
    where = f"{file}:{problem.line}" if problem.line else file
    parts = [where, problem.key, problem.message]
    if problem.severity is Severity.WARNING:
        parts.insert(1, "warning")
    return ": ".join(part for part in parts if part)
