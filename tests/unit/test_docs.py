"""What the documents say is what the code does."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import pytest

from kimisvc.cli import doors
from kimisvc.cli.main import COMMANDS, FOR_UNITS, kimisvc
from kimisvc.errors import ExitStatus
from kimisvc.profile.reference import reference
from kimisvc.shipped import shipped

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
ALERTS = (REPOSITORY / "docs" / "alerts.md").read_text()


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


def spans(text: str) -> list[str]:
    """What stands between backticks, on one line."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", plain)]


def test_an_operator_can_type_every_command_of_the_alerts() -> None:
    """With a value for each placeholder; and on a box of several instances, too."""
    typed = [span for span in spans(ALERTS) if span.startswith("kimisvc ")]
    assert len(typed) > 10
    for span in typed:
        name, *words = shlex.split(span.replace("KIMI", "kimi").replace("--to N", "--to 3"))[1:]
        command = kimisvc.get_command(click.Context(kimisvc), name)
        assert command is not None, span
        made = command.make_context(name, words)  # raises a usage error for what is missing
        if "profile" not in made.params or made.params["profile"] is None:
            asks = any(one.name == "instance" for one in command.params)
            assert not asks or made.params["instance"] == "kimi", span


def test_every_command_of_the_alerts_is_whole() -> None:
    assert sum(span.startswith(("curl ", "systemctl ")) for span in spans(ALERTS)) > 10
    for span in spans(ALERTS):
        if span.startswith("curl "):
            assert " http://127.0.0.1:PORT/" in span
        if span.startswith(("systemctl ", "journalctl ")):
            assert re.search(r" kimisvc-(KIMI|exporter)[\w-]*\.(service|timer)", span), span


def test_every_alert_says_what_ends_it() -> None:
    sections = ALERTS.split("\n## ")[1:]
    assert [one.splitlines()[0] for one in sections if "\nEnds: " not in one] == []


def test_the_alerts_say_how_to_point_the_runbook_at_a_copy() -> None:
    (found,) = re.findall(
        r"^sed -i 's\|([^|]+)\|([^|]+)\|' kimisvc.rules.yml$", ALERTS, re.MULTILINE
    )
    rules = (REPOSITORY / "packaging" / "prometheus" / "kimisvc.rules.yml").read_text()
    was, becomes = found
    assert rules.count(was) == rules.count("runbook:")
    assert becomes.startswith("runbook: https://")


def test_the_readme_writes_a_profile_where_its_bare_name_is_looked_for() -> None:
    (file,) = re.findall(r"^ *# (/\S+\.toml)$", README, re.MULTILINE)
    assert Path(file).parent == doors.LOCAL_PROFILES
    assert f"mkdir -p {doors.LOCAL_PROFILES}" in README
    assert f"sudo kimisvc apply {Path(file).stem}\n" in README
