"""status: which profile file to apply again, and which instances there are."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import Quiet, add_generation, box_at, profile

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.numbering import MANIFEST
from kimisvc.deploy.status import read_status
from kimisvc.host import files
from kimisvc.profile.resolved import to_toml
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.units import UnitState


def profile_row(box: Box) -> str:
    lines = status_text(read_status(box), box).splitlines()
    return (
        next(line for line in lines if line.startswith("profile ")).removeprefix("profile").strip()
    )


class Told(Quiet):
    """systemd, which says of the service what a test has it say."""

    def __init__(self, **service: Any) -> None:
        super().__init__()
        self.service = service

    def state(self, unit: str) -> UnitState:
        of_all = super().state(unit)
        return replace(of_all, **self.service) if unit == "kimisvc-kimi.service" else of_all


def unit_row(folder: Path, **service: Any) -> str:
    box = box_at(folder, Told(**service))
    box.generations.make_current(box.generations.get(add_generation(box, profile("mine"))))
    lines = status_text(read_status(box), box).splitlines()
    return next(line for line in lines if line.startswith("unit ")).removeprefix("unit").strip()


MASKED = "masked: it is not to run; systemctl unmask"


@pytest.mark.parametrize(
    ("enabled", "words"),
    [
        ("enabled", "it should run: kimisvc apply starts it"),
        ("", "it should run: kimisvc apply starts it"),
        ("disabled", "disabled: it is not to run; kimisvc apply would start it"),
        ("masked", f"{MASKED} kimisvc-kimi.service, and kimisvc apply would start it"),
        (
            "masked-runtime",
            f"{MASKED} --runtime kimisvc-kimi.service, and kimisvc apply would start it",
        ),
    ],
)
def test_what_was_retired_on_purpose_is_not_said_to_run(
    tmp_path: Path, enabled: str, words: str
) -> None:
    assert unit_row(tmp_path, enabled=enabled) == f"inactive (dead); {words}"


FAILED = {
    "active_state": "failed", "sub_state": "failed", "result": "exit-code", "exec_main_status": 1,
    "main_started_monotonic": 10.0, "main_ended_monotonic": 15.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "words"),
    [
        # Two starts, and a third that the start limit refused: NRestarts= is 2.
        (
            {**FAILED, "restarts": 2, "started_monotonic": 16.0},
            "1 automatic restart, and the start limit refused one more",
        ),
        (
            {**FAILED, "restarts": 1, "started_monotonic": 16.0},
            "0 automatic restarts, and the start limit refused one more",
        ),
        # The last start ended with the status that prevents another.
        ({**FAILED, "restarts": 1, "started_monotonic": 9.0}, "1 automatic restart"),
        ({"active_state": "active", "restarts": 2}, "2 automatic restarts"),
        # It waits for the next, or that loads: none was refused.
        (
            {**FAILED, "active_state": "activating", "restarts": 2, "started_monotonic": 16.0},
            "2 automatic restarts",
        ),
    ],
)
def test_a_restart_that_was_refused_is_not_told_as_one(
    tmp_path: Path, state: dict[str, Any], words: str
) -> None:
    said = unit_row(tmp_path, enabled="enabled", **state)
    assert said.partition(", ")[2].removeprefix("exit status 1; ").endswith(words)
    assert ("refused" in said) == ("refused" in words)
    without = unit_row(tmp_path, enabled="enabled", **{**state, "restarts": 0})
    assert "restart" not in without


def deny(monkeypatch: pytest.MonkeyPatch, hidden: Path) -> None:
    """Let nobody read there, as root, who may read all, cannot be kept from it."""
    whole = files.read_bytes

    def read_bytes(path: Path, *more: Any) -> bytes:
        if hidden in (path, *path.parents):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return whole(path, *more)

    monkeypatch.setattr(files, "read_bytes", read_bytes)


def test_the_file_that_was_applied_is_named(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    file = tmp_path / "mine.toml"
    file.write_text("as written")
    draft = Draft("mine", "as written", to_toml(profile("mine")), (), {}, str(file))
    box.generations.make_current(box.generations.add(draft, 1.0))
    assert profile_row(box) == f"mine ({file})"
    assert status_json(read_status(box))["profile_file"] == str(file)


def test_of_a_file_that_is_gone_what_was_kept_is_named_and_can_be_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box = box_at(tmp_path)
    gone = tmp_path / "gone.toml"
    draft = Draft("mine", "as written", to_toml(profile("mine")), (), {}, str(gone))
    box.generations.make_current(box.generations.add(draft, 1.0))
    kept = box.layout.generations / "0001" / "resolved.toml"
    assert profile_row(box) == f"mine ({kept}; {gone} is gone)"
    gone.write_text("another, which was rolled back, say")
    assert profile_row(box) == f"mine ({kept}; {gone} is not what it was)"
    assert status_json(read_status(box))["profile_file"] == str(kept)
    assert main(["check", str(kept)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("hidden", ["the file", "its folder"])
def test_a_file_that_may_not_be_read_is_not_said_to_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    box = box_at(tmp_path)
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "mine.toml"
    file.write_text("as written")
    draft = Draft("mine", "as written", to_toml(profile("mine")), (), {}, str(file))
    box.generations.make_current(box.generations.add(draft, 1.0))
    deny(monkeypatch, file if hidden == "the file" else file.parent)
    kept = box.layout.generations / "0001" / "resolved.toml"
    assert profile_row(box) == (
        f"mine ({kept}; {file} may not be read here, so whether it is what it was is not known)"
    )
    assert status_json(read_status(box))["profile_file"] == str(kept)


@pytest.mark.parametrize("content", [b"\xff", None])
def test_what_is_no_profile_any_more_is_another(tmp_path: Path, content: bytes | None) -> None:
    box = box_at(tmp_path)
    file = tmp_path / "mine.toml"
    file.mkdir() if content is None else file.write_bytes(content)
    draft = Draft("mine", "as written", to_toml(profile("mine")), (), {}, str(file))
    box.generations.make_current(box.generations.add(draft, 1.0))
    assert f"{file} is not what it was" in profile_row(box)


def test_a_unit_that_may_not_be_read_is_not_said_to_be_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_at(tmp_path)
    unit = UnitFile("kimisvc-kimi.service", "[Service]\n")
    draft = Draft("mine", "as written", to_toml(profile("mine")), (unit,), {})
    box.generations.make_current(box.generations.add(draft, 1.0))
    installed = box.layout.installed(unit.name)
    installed.write_text(unit.text)
    with monkeypatch.context() as others:
        deny(others, installed)
        found = read_status(box).drift
    assert f"{unit.name} may not be read here: {installed}: Permission denied" in found
    assert not [line for line in found if "edited" in line]
    installed.write_bytes(b"\xff\xfe[Unit]")
    assert f"{unit.name} was edited by hand" in read_status(box).drift


def test_a_generation_of_an_older_kimisvc_names_what_was_kept(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    made = box.generations.get(add_generation(box, profile("mine")))
    manifest = json.loads((made.path / MANIFEST).read_text())
    del manifest["file"]
    (made.path / MANIFEST).chmod(0o644)
    (made.path / MANIFEST).write_text(json.dumps(manifest))
    box.generations.make_current(box.generations.get(made.number))
    assert profile_row(box) == f"mine ({made.path / 'resolved.toml'})"


def test_an_instance_that_is_not_there_gets_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_at(tmp_path)
    monkeypatch.setattr(doors, "installation", lambda: box.layout.place)
    assert "instances" not in status_text(read_status(box), box)
    other = box.layout.place.state / "glm"
    other.mkdir()
    (other / "current").symlink_to("generations/0001")
    (other / "generations" / "0001").mkdir(parents=True)
    said = status_text(read_status(box), box)
    assert said.endswith(
        "nothing was ever applied here (kimisvc apply PROFILE); this box has the instances glm"
    )
