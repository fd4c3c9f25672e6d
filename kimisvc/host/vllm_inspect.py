"""Puts the questions to the Python of a vLLM, as nobody, and reads the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kimisvc.host.unprivileged import outcomes
from kimisvc.host.vllm_questions import MARK

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


def program() -> str:
    """Return the questions as one program for `python -c`, which needs nothing of kimisvc's."""
    folder = Path(__file__).parent
    parts = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _PARTS]
    return _BEGIN.format(parts=parts)


def ask(python: Path, packages: Path, timeout: float) -> Any:
    """Given a Python, the folder vLLM lies in, and a time limit (s), return what vLLM tells.

    As JSON has it; None if there is no answer: it is missing, ends badly, takes
    longer, or says something else. Importing vLLM takes ten seconds and more.
    """
    # Isolated (-I), so that no folder of ours is looked into, and -B: nothing is written.
    argv = (str(python), "-I", "-B", "-c", program(), str(packages))
    environment = {**_QUIET, "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"}
    for done in outcomes(argv, packages, timeout, environment):
        answer = _answer(done.stdout)
        if done.status == 0 and answer is not None:
            return answer
    return None


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
