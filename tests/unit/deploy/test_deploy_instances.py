"""Instances are found whatever else lies beside them."""

from __future__ import annotations

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


def test_a_place_that_cannot_be_listed_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    place = Installation(Path("/opt/k/bin/kimisvc"), tmp_path / "units", tmp_path / "state")
    with pytest.raises(HostError):
        installed(place)
