"""Instances are found whatever else lies beside them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kimisvc.deploy.instances import begun, installed
from kimisvc.errors import HostError
from kimisvc.host import files
from kimisvc.records.units import Installation


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    state = tmp_path / "state"
    (state / "kimi" / "generations" / "0001").mkdir(parents=True)
    (state / "kimi" / "current").symlink_to("generations/0001")
    (state / "glm" / "generations").mkdir(parents=True)
    (state / "tried").mkdir()
    (state / "kimi-backup.tar.gz").touch()
    (state / "gone").symlink_to("nowhere")
    (state / "round").symlink_to("round")
    return Installation(Path("/opt/k/bin/kimisvc"), tmp_path / "units", state)


def test_a_file_beside_them_is_no_instance_and_no_error(place: Installation) -> None:
    assert installed(place) == ("kimi",)
    assert begun(place) == ("glm", "kimi")


def test_one_whose_generations_are_lost_is_there_while_its_unit_is(place: Installation) -> None:
    place.units.mkdir()
    (place.units / "kimisvc-tried.service").touch()
    assert begun(place) == ("glm", "kimi", "tried")


def test_a_folder_that_is_closed_is_passed_by(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lost+found is for all but root, who runs these tests too."""
    look = files.exists

    def closed(path: Path) -> bool:
        if path.parent.name == "glm":
            raise HostError("host", f"{path}: Permission denied")
        return look(path)

    monkeypatch.setattr(files, "exists", closed)
    assert begun(place) == ("kimi",)


@pytest.mark.parametrize(
    "name",
    [b"kimi.bak", b".hid", b"UP", b"a b", b"two\nlines", b"kimi\n", b"\xff", b"-x", b"x" * 33, "é".encode()],
)  # fmt: skip
def test_what_no_instance_can_be_called_is_none(place: Installation, name: bytes) -> None:
    shutil.copytree(place.state / "kimi", place.state / os.fsdecode(name), symlinks=True)
    assert installed(place) == ("kimi",)
    assert begun(place) == ("glm", "kimi")


def test_a_name_as_long_as_a_profile_may_give_it_is_one(place: Installation) -> None:
    (place.state / ("9-_" + "x" * 29) / "generations").mkdir(parents=True)
    assert begun(place)[0] == "9-_" + "x" * 29


def test_a_copy_of_an_instance_is_none_whatever_it_is_called(place: Installation) -> None:
    kimi = place.state / "kimi"
    manifest = kimi / "generations" / "0001" / "manifest.json"
    manifest.write_text('{"units": {"kimisvc-kimi.service": "d", "kimisvc.target": "d"}}')
    shutil.copytree(kimi, place.state / "kimi-old", symlinks=True)
    assert installed(place) == ("kimi",)
    assert begun(place) == ("glm", "kimi")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"units": 5}', '{"units": {}}'])
def test_one_that_does_not_say_whose_it_is_goes_by_its_name(place: Installation, text: str) -> None:
    """A damaged generation must not hide the instance whose service runs."""
    (place.state / "kimi" / "current" / "manifest.json").write_text(text)
    assert installed(place) == ("kimi",)


def test_a_place_that_cannot_be_listed_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    place = Installation(Path("/opt/k/bin/kimisvc"), tmp_path / "units", tmp_path / "state")
    with pytest.raises(HostError):
        installed(place)
