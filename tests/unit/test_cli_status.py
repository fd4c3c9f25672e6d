"""status: which profile file to apply again, and which instances there are."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import add_generation, box_at, profile

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.generations import MANIFEST, Draft
from kimisvc.deploy.status import read_status
from kimisvc.host import files
from kimisvc.profile.resolved import to_toml
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box


def profile_row(box: Box) -> str:
    lines = status_text(read_status(box), box).splitlines()
    return (
        next(line for line in lines if line.startswith("profile ")).removeprefix("profile").strip()
    )


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
