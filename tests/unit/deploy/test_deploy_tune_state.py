"""What lies beside the profiles that a search chooses from is somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.layout import Layout
from kimisvc.deploy.tune.state import forget_profiles, keep_profile
from kimisvc.records.units import Installation

if TYPE_CHECKING:
    from pathlib import Path


def test_only_candidates_of_the_search_before_are_forgotten(tmp_path: Path) -> None:
    place = Installation(tmp_path / "k", tmp_path / "units", tmp_path / "state", tmp_path / "run")
    layout = Layout(place, "kimi")
    keep_profile(layout, "ll.ring", "as written", "resolved")
    (layout.tune_profiles / "kept").mkdir()
    (layout.tune_profiles / "notes").touch()
    forget_profiles(layout)
    assert sorted(path.name for path in layout.tune_profiles.iterdir()) == ["kept", "notes"]
