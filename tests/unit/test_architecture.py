"""Dependence points inwards: the import table of CONTRIBUTING, held over every module."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(__file__).parents[2] / "kimisvc"

INNERMOST = {"environment_file", "errors", "foreign_text", "records", "redaction"}
DOORS = {"host"}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "errors": {"records"},  # for the annotation of ProfileRefusedError only
    "records": set(),
    "environment_file": set(),
    "foreign_text": set(),
    "redaction": set(),
    "shipped": set(),
    "profile": INNERMOST,
    "render": INNERMOST,
    "host": INNERMOST,
    "measure": INNERMOST,
    "deploy": INNERMOST | DOORS | {"__init__", "profile", "render", "measure"},
    "observe": INNERMOST | DOORS | {"deploy"},
    "cli": INNERMOST
    | DOORS
    | {"__init__", "shipped", "profile", "render", "measure", "deploy", "observe"},
    "__main__": {"cli"},
}
ONE_DOOR = {
    "pystemd": {"host/systemd.py"},
    "http": {"host/http_once.py"},
    "pynvml": {"host/gpu.py"},
    "psutil": {"host/processes.py"},
    "subprocess": {"host/processes.py", "host/journal.py", "host/systemd_apart.py"},
    "sqlite3": {"deploy/history/__init__.py", "deploy/history/file.py"},
    "click": None,  # cli only
    "vllm": set(),
    "torch": set(),
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            if node.module == "kimisvc":
                names |= {f"kimisvc.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    here = room(path)
    allowed = MAY_IMPORT[here] | {here}
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "kimisvc":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target == "__version__":
            target = "__init__"
        if target == "__init__" and len(parts) == 1:
            continue  # `from kimisvc import x`: x is judged by its own name
        assert target in allowed, f"{path}: {here} may not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_world_has_one_door(path: Path) -> None:
    where = str(path.relative_to(PACKAGE))
    for name in imports(path):
        top = name.split(".")[0]
        if top not in ONE_DOOR:
            continue
        doors = ONE_DOOR[top]
        if doors is None:
            assert where.startswith("cli/"), f"{where}: only cli may import {top}"
        else:
            assert where in doors, f"{where}: {top} is reached through {sorted(doors) or 'no door'}"


def test_every_room_of_the_package_is_in_the_table() -> None:
    rooms = {room(p) for p in modules()}
    assert rooms <= set(MAY_IMPORT), rooms - set(MAY_IMPORT)


def test_no_module_leads_back_to_itself() -> None:
    """Imports for types alone count too: who reads one has to know the other."""
    names = {_name(path): path for path in modules()}
    arrows = {name: {_of(one, names) for one in imports(path)} for name, path in names.items()}
    assert list(_circles({name: to - {"", name} for name, to in arrows.items()})) == []


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def _of(imported: str, names: Mapping[str, Path]) -> str:
    """The module of ours that an import names, or the one that holds what it names."""
    parent = imported.rpartition(".")[0]
    return next((name for name in (imported, parent) if name in names), "")


def _circles(arrows: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield what is left when all that lead nowhere further are taken away, again and again."""
    left = dict(arrows)
    while ends := [name for name, to in left.items() if not to & set(left)]:
        for name in ends:
            del left[name]
    yield from left
