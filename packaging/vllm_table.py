# ruff: noqa: INP001  a script of its own, not a module of a package
"""Write the table of what the newest vLLM knows, for boxes and laptops without one to ask.

    packaging/vllm_table.py PYTHON WHEEL [FOLDER ...] > kimisvc/profile/knowledge/vllm/table.json

vLLM is asked itself, by the questions that kimisvc asks an installed one
(kimisvc/host/vllm_questions.py), so both speak alike; kimisvc's own Python runs this. The wheel of
vLLM is for GPUs and does not run here, but building its parser needs none of its compiled parts:
its Python files are put before the vLLM of PYTHON, a CPU environment of a near version that brings
what they import. FOLDERs hold what the newer one needs besides (`pip install --target FOLDER
orjson`, for 0.33.0).
It has no CUDA device to look at: defaults that depend on one are as on a CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from kimisvc.host.vllm_inspect import program
from kimisvc.host.vllm_questions import MARK


def table(python: Path, wheel: Path, folders: list[str]) -> str:
    """Given a Python, a wheel of vLLM and folders of further packages, return the table."""
    with tempfile.TemporaryDirectory() as source:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(source, [n for n in archive.namelist() if n.endswith(".py")])
        done = subprocess.run(
            [python, "-B", "-c", program()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([source, *folders]), "HOME": source},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=source,
        )
    line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
    return laid_out(json.loads(line.removeprefix(MARK)))


def laid_out(told: dict[str, object]) -> str:
    """Given the answer, return it as JSON with a line for each option, so that a change is seen."""
    parts = [f'"version": {json.dumps(told["version"])}']
    for name, brackets in (("options", "[]"), ("variables", "{}")):
        rows = told[name]
        lines = (
            [json.dumps(row, sort_keys=True) for row in rows]
            if isinstance(rows, list)
            else [f"{json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]  # type: ignore[attr-defined]
        )
        body = ",\n".join(lines)
        parts.append(f'"{name}": {brackets[0]}\n{body}\n{brackets[1]}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
