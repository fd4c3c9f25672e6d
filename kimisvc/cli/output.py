"""How answers are written: tables for people, JSON for programs. stdout is the answer."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kimisvc.errors import KimisvcError, PreflightRefusedError, ProfileRefusedError
from kimisvc.foreign_text import printable, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimisvc.deploy.history import CanaryRow, VerdictRow
    from kimisvc.records.problems import Problem
    from kimisvc.records.proof import Interval


def emit_json(value: Any) -> None:
    """Given any JSON value, print it as the answer, also a path that is no text."""
    click.echo(well_formed(json.dumps(value, indent=2, ensure_ascii=False)))


def place_for(output: str | Path) -> Path:
    """Given where a file is wanted, return where it is to be written: links are followed.

    Raise KimisvcError where something else than a plain file is: a device, say, would be
    replaced by a file, for everybody on the box.
    """
    place = Path(output).absolute()
    try:
        place = place.resolve()
        odd = place.exists() and not place.is_file()
    except (OSError, RuntimeError) as error:  # a link that leads to itself, a closed folder
        raise KimisvcError("not-a-file", f"{output} cannot be written: {error}") from error
    if odd:
        raise KimisvcError("not-a-file", f"{output} is there, and is no plain file")
    return place


SHORT = 10.0
"""Below this many seconds a tenth of one matters."""


def hushed(text: str) -> str:
    """Given words that are not all ours (errors of programs, edited units), take secrets out.

    Those of the operator's environment by their values, all others by their looks.
    """
    from kimisvc.profile.secret_signs import secrets_named
    from kimisvc.redaction import Redactor

    return Redactor.of(secrets_named(os.environ))(text)


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    """Given problems, return a line each: file:line: key: severity: message.

    Key and message are looked through apart: joined, `HF_TOKEN: looks` is taken
    for a token and its value.
    """
    from kimisvc.profile.problems import format_problem

    return [format_problem(_hushed_problem(problem)) for problem in problems]


def _hushed_problem(problem: Problem) -> Problem:
    return replace(problem, key=hushed(problem.key), message=hushed(problem.message))


def problem_json(problem: Problem) -> dict[str, Any]:
    """Given a problem, return its JSON object, as DESIGN fixes it."""
    told = _hushed_problem(problem)
    return {
        "file": told.file,
        "line": told.line,
        "key": told.key,
        "severity": told.severity.value,
        "message": told.message,
    }


def error_json(error: KimisvcError) -> dict[str, Any]:
    """Given why a command did nothing or broke off, return its JSON object.

    It has the keys of an apply that never began, so that a program reads one form.
    """
    if isinstance(error, ProfileRefusedError):
        problems = error.problems
    else:
        problems = error.reasons if isinstance(error, PreflightRefusedError) else ()
    return {
        "outcome": error.code,
        "verdict": None,
        "reason": hushed(error.message),
        "hint": error.hint,
        "problems": [problem_json(problem) for problem in problems],
        "generation": None,
        "previous_generation": None,
        "restarted": [],
        "exit": int(error.exit_status),
    }


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Given rows of cells, return them in aligned columns, each row on one line."""
    everything = [
        [printable(cell) for cell in row] for row in ((header, *rows) if header else rows)
    ]
    if not everything:
        return ""
    widths = [max(len(row[i]) for row in everything) for i in range(len(everything[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in everything
    ]
    return "\n".join(lines)


def speed(interval: Interval | None) -> str:
    """Given a decode throughput, return it with its interval: `81.4 tok/s (81.1 to 81.7)`."""
    if interval is None:
        return "not measured"
    low = max(0.0, interval.low)  # no speed is negative, however little is known of it
    return f"{interval.mean:.4g} tok/s ({low:.4g} to {interval.high:.4g})"


def canary_words(row: CanaryRow) -> str:
    """Given a canary, return what became of it: `measured 81.4 tok/s (81.1 to 81.7), TTFT 0.050 s`."""
    what = row.result.value.replace("_", " ")
    if row.decode_tok_s is None:
        return f"{what}: {row.reason}" if row.reason else what
    known = row.low is not None and row.high is not None
    interval = f" ({row.low:.4g} to {row.high:.4g})" if known else ""
    ttft = f", TTFT {row.ttft_s:.3f} s" if row.ttft_s is not None else ""
    return f"{what} {row.decode_tok_s:.4g} tok/s{interval}{ttft}"


LAST = 253_370_764_800.0
"""The first moment of the year 9999; what a broken record dates later is written as that."""


def moment(at: float) -> str:
    """Given a moment, return it in local time, as ISO 8601 to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(max(at, 0.0), LAST)))


def span(seconds: float) -> str:
    """Given seconds, return them short: `36m 05s`, `41s`, `0.4s`."""
    if seconds < SHORT:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def verdict_json(row: VerdictRow | None) -> dict[str, Any]:
    """Given a verdict of the history, return the keys that every JSON answer shares."""
    speed_seen = row.decode_tok_s if row else None
    return {
        "verdict": row.verdict.kind.value if row else None,
        "reason": row.verdict.reason if row else None,
        "decode_tok_s": speed_seen.mean if speed_seen else None,
        "decode_tok_s_low": speed_seen.low if speed_seen else None,
        "decode_tok_s_high": speed_seen.high if speed_seen else None,
        "ttft_s": row.ttft_s if row else None,
        "engine_decode_tok_s": row.engine_decode_tok_s if row else None,
    }
