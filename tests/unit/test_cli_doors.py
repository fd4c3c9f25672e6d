"""Which units a profile becomes here: with buckets where vLLM takes them and nothing restarts for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimisvc.cli import doors
from kimisvc.deploy.generations import Draft, Generations
from kimisvc.deploy.layout import Layout
from kimisvc.records import Installation, Profile, VllmSettings
from kimisvc.render.buckets import OPTION
from kimisvc.vllm_records import KnownFrom, OptionKind, VllmKnowledge, VllmOption

PROFILE = Profile("mine", VllmSettings("/opt/vllm/bin/vllm", "/srv/models/Kimi"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    made = Installation(Path("/opt/k/bin/kimisvc"), tmp_path / "units", tmp_path / "state")
    monkeypatch.setattr(doors, "installation", lambda: made)
    return made


def installed_vllm(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    known = VllmKnowledge(
        "1", KnownFrom.ASKED, {n: VllmOption(n, OptionKind.JSON) for n in options}, frozenset()
    )
    monkeypatch.setattr(doors, "knowledge", lambda _: known)


def service(profile: Profile = PROFILE) -> str:
    return doors.units_of(profile)[0].text


@pytest.mark.usefixtures("place")
def test_buckets_are_asked_of_a_vllm_that_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_vllm(monkeypatch, OPTION)
    assert f"--{OPTION} " in service()
    installed_vllm(monkeypatch, "max-model-len")
    assert OPTION not in service()


def test_an_upgrade_of_vllm_starts_no_service_anew(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_vllm(monkeypatch)
    before = doors.units_of(PROFILE)
    generations = Generations(Layout(place, "kimi"))
    generations.make_current(generations.add(Draft("mine", "", "", before, {}), 1.0))
    installed_vllm(monkeypatch, OPTION)
    assert doors.units_of(PROFILE) == before


def test_damaged_state_hinders_nobody_from_rendering(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_vllm(monkeypatch, OPTION)
    (place.state / "kimi").mkdir(parents=True)
    (place.state / "kimi" / "current").write_text("no symlink")
    assert OPTION in service()
