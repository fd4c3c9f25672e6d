"""What the documents say is what the code does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from kimisvc.cli.main import COMMANDS, FOR_UNITS, kimisvc
from kimisvc.errors import ExitStatus
from kimisvc.profile.reference import reference
from kimisvc.shipped import shipped

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()


def test_the_reference_of_keys_is_made_from_the_table() -> None:
    path = REPOSITORY / "docs" / "profile.md"
    if os.environ.get("KIMISVC_REGENERATE_DOCS") == "yes" and "CI" not in os.environ:
        path.write_text(reference())
        pytest.fail("docs/profile.md is written anew; run again without the variable")
    assert path.read_text() == reference()


def test_the_readme_names_every_command_and_no_other() -> None:
    table = README.split("### Commands")[1].split("###")[0]
    named = re.findall(r"^\| `kimisvc (\w+)", table, re.MULTILINE)
    assert named == [name for name in COMMANDS if name not in FOR_UNITS]


def test_the_readme_names_every_option_of_apply_and_status() -> None:
    for name in ("apply", "status", "rollback", "render"):
        command = kimisvc.get_command(click.Context(kimisvc), name)
        assert command is not None
        options = {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.hidden
            for option in parameter.opts
            if option.startswith("--")
        } - {"--instance", "--json", "--output"}
        for option in options:
            assert f"`{option}" in README, f"{name} {option}"


def test_the_readme_names_every_exit_status() -> None:
    table = README.split("### Exit statuses")[1].split("###")[0]
    named = [int(status) for status in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert named == sorted(int(status) for status in ExitStatus)


def test_the_readme_names_every_shipped_profile() -> None:
    for path in shipped("profiles").glob("*.toml"):
        assert f"`{path.stem}`" in README


def test_contributing_names_every_room() -> None:
    package = REPOSITORY / "kimisvc"
    rooms = {p.name for p in package.iterdir() if (p / "__init__.py").exists()}
    modules = {p.stem for p in package.glob("*.py")} - {"__init__", "__main__"}
    for name in rooms:
        assert f"`{name}/`" in CONTRIBUTING
    for name in modules:
        assert f"`{name}`" in CONTRIBUTING


def test_the_path_of_every_module_that_contributing_names_exists() -> None:
    for name in re.findall(
        r"`((?:deploy|profile|measure|render|tests)/[\w/]+(?:\.py)?)`", CONTRIBUTING
    ):
        base = REPOSITORY if name.startswith("tests/") else REPOSITORY / "kimisvc"
        path = base / name
        assert path.exists() or path.with_suffix(".py").exists(), name
