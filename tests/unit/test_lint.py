"""The style of the house, held by its tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SOURCES = ("kimisvc", "tests", "packaging", "packaging/sandbox", "packaging/demo")


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--no-cache", "--output-format=concise", *SOURCES),
        ("ruff", "format", "--check", "--no-cache", *SOURCES),
        ("mypy", "--no-error-summary"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_tools_have_nothing_to_say(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [BIN / command[0], *command[1:]],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
