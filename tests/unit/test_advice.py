"""What kimisvc advises names the instance: without one a command takes another where there are several."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kimisvc

ROOT = Path(kimisvc.__file__).parent
SPOKEN = [
    path for room in ("cli", "deploy", "host", "observe") for path in (ROOT / room).rglob("*.py")
]
COMMAND = re.compile(
    r"kimisvc (?:status|rollback|history|tune --(?:cancel|follow|status))\b(?P<rest>.*)"
)


def said(path: Path) -> list[str]:
    """The texts of a module that are no docstrings; what is filled in stands as {}."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    parts = {
        id(one) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for one in node.values
    }
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(
                one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "{}"
                for one in node.values
            ))  # fmt: skip
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts += [node.value] if id(node) not in silent | parts else []
    return texts


def test_the_rule_sees_what_it_is_for(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""kimisvc status"""\nA = f"see kimisvc status --follow{1}"\nB = "kimisvc rollback"\n'
    )
    assert [text for text in said(module) if COMMAND.search(text)] == [
        "see kimisvc status --follow{}", "kimisvc rollback",
    ]  # fmt: skip


@pytest.mark.parametrize("path", SPOKEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_that_is_advised_names_its_instance(path: Path) -> None:
    found = [hit for text in said(path) for hit in COMMAND.finditer(text)]
    assert [hit.group() for hit in found if "--instance" not in hit["rest"]] == []
