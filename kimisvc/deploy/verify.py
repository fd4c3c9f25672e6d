"""Has systemd itself read units before they are installed."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.host import files, processes
from kimisvc.records.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kimisvc.records.units import UnitFile

_NOT_RUNNABLE = re.compile(r"Command (?P<program>/.+) is not executable\b")
"""What systemd-analyze says of a program that is missing or may not be run."""


def verify(units: tuple[UnitFile, ...]) -> tuple[Problem, ...]:
    """Given units, have systemd-analyze read them; return what it says of them.

    Its exit status is 0 for nearly everything that systemd would ignore, so
    what it writes is read instead (systemd#27540). What it says of a drop-in is
    a warning: those are the operator's, and systemd goes on without the line.
    """
    with _scratch() as folder:
        paths = []
        for unit in units:
            path = Path(folder) / unit.name
            files.write_atomic(path, unit.text, mode=0o644)
            paths.append(str(path))
        done = processes.run(
            ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *paths], timeout=60.0
        )
    named = {unit.name for unit in units}
    return tuple(
        Problem(
            f"systemd-analyze: {line.removeprefix(folder).strip('/')}",
            severity=Severity.WARNING
            if any(f"{name}.d/" in line for name in named)
            else Severity.ERROR,
        )
        for line in done.stderr.splitlines()
        if any(name in line for name in named)
    )


def news(verified: Iterable[Problem], known: Iterable[Problem]) -> tuple[Problem, ...]:
    """Given what systemd says of units and what the preflight found, return what that is new.

    A program that is missing or shut was found by the preflight, which says more
    of it: which folder on the way, and what to do. Only what refuses stands for it.
    """
    words = [one.message for one in known if one.severity is Severity.ERROR]
    return tuple(one for one in verified if not _is_told(one.message, words))


def _is_told(message: str, words: Iterable[str]) -> bool:
    found = _NOT_RUNNABLE.search(message)
    if found is None:
        return False
    program = Path(found["program"])
    named = tuple(f"{path}{end}" for path in (program, *program.parents) for end in (": ", " "))
    return any(one.startswith(named) for one in words)


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    try:
        with tempfile.TemporaryDirectory(prefix="kimisvc-verify-") as folder:
            yield folder
    except OSError as error:
        raise files.translated(error, Path(tempfile.gettempdir())) from error
