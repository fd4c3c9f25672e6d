"""Puts the questions to the Python of a vLLM, as nobody, and reads the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.foreign_text import printable
from kimisvc.host.unprivileged import NotRun, outcomes
from kimisvc.host.vllm_questions import MARK
from kimisvc.redaction import without_shapes

if TYPE_CHECKING:
    from kimisvc.host.processes import Finished

_PARTS = ("vllm_trial", "vllm_questions")
"""The modules that vLLM's Python runs, in the order they import each other; the last is begun."""
_BEGIN = """\
import sys, types
for name, text in {parts!r}:
    module = sys.modules["kimisvc.host." + name] = types.ModuleType("kimisvc.host." + name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


_LONGEST_LINE = 4096
"""So much of a line is looked at (characters); a traceback's last may hold a whole config."""
_MOST_SAID = 200
"""So much of it is told (characters)."""
NOTHING = "told nothing of what it was asked"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """That a vLLM told nothing of itself; `why` goes behind its name, and holds no secret."""

    why: str


def program() -> str:
    """Return the questions as one program for `python -c`, which needs nothing of kimisvc's."""
    folder = Path(__file__).parent
    parts = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _PARTS]
    return _BEGIN.format(parts=parts)


def ask(python: Path, packages: Path, timeout: float) -> Any:
    """Given a Python, the folder vLLM lies in, and a time limit (s), return what vLLM tells.

    As JSON has it; a NoAnswer if it is missing, ends badly, takes longer, or says
    something else: of several users who asked, what the last was told. Importing
    vLLM takes ten seconds and more.
    """
    # Isolated (-I), so that no folder of ours is looked into, and -B: nothing is written.
    argv = (str(python), "-I", "-B", "-c", program(), str(packages))
    environment = {**_QUIET, "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"}
    why = NOTHING
    for done in outcomes(argv, packages, timeout, environment):
        answer = None if isinstance(done, NotRun) else _answer(done.stdout)
        if not isinstance(done, NotRun) and done.status == 0 and answer is not None:
            return answer
        why = done.why if isinstance(done, NotRun) else _ending(done)
    return NoAnswer(why)


def _ending(done: Finished) -> str:
    """How it ended, and its last word: of a traceback that is the exception."""
    if done.status == 0:
        return NOTHING
    how = f"was ended by signal {-done.status}"
    if done.status > 0:
        how = f"ended with {done.status}"
    lines = (line.strip() for line in reversed(done.stderr.splitlines()))
    last = printable(next(filter(None, lines), "")[:_LONGEST_LINE])
    said = without_shapes(last)
    said = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}..."
    return f"{how}: {said}" if said else how


def _answer(output: str) -> Any:
    for line in output.splitlines():
        if line.startswith(MARK):
            try:
                return _printable(json.loads(line.removeprefix(MARK)))
            except (ValueError, RecursionError):
                return None
    return None


def _printable(told: Any) -> Any:
    """Given what somebody else's code told, return it fit for a terminal."""
    if isinstance(told, str):
        return "".join(letter if letter.isprintable() else "?" for letter in told)
    if isinstance(told, list):
        return [_printable(item) for item in told]
    if isinstance(told, dict):
        return {_printable(name): _printable(item) for name, item in told.items()}
    return told
