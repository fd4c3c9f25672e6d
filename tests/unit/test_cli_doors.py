"""Which units a profile becomes here: with buckets where vLLM takes them and nothing restarts for it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.deploy.generations import Draft, Generations
from kimisvc.deploy.layout import Layout
from kimisvc.records.profile import GateSettings, Profile, SpeedTarget, VllmSettings
from kimisvc.records.units import Installation
from kimisvc.records.vllm import KnownFrom, OptionKind, VllmKnowledge, VllmOption
from kimisvc.render.buckets import OPTION

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.usefixtures("place")
def test_what_kimisvc_asks_for_is_explained_as_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed_vllm(monkeypatch, OPTION)
    main(["explain", written(tmp_path, "/srv/models/Kimi"), "--json"])
    told = json.loads(capsys.readouterr().out)["settings"]
    (row,) = [one for one in told if one["key"] == OPTION]
    assert row["origin"] == "default of kimisvc"
    assert row["becomes"].startswith(f"--{OPTION} ")


def test_an_upgrade_of_vllm_starts_no_service_anew(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_vllm(monkeypatch)
    before = doors.units_of(PROFILE)
    generations = Generations(Layout(place, "kimi"))
    generations.make_current(generations.add(Draft("mine", "", "", before, {}), 1.0))
    installed_vllm(monkeypatch, OPTION)
    assert doors.units_of(PROFILE) == before


def test_another_target_starts_no_service_anew_for_its_buckets(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aiming(floor: float, goal: float) -> Profile:
        return replace(PROFILE, gate=GateSettings(SpeedTarget(floor, goal)))

    installed_vllm(monkeypatch, OPTION)
    before = doors.units_of(aiming(81, 85))
    generations = Generations(Layout(place, "kimi"))
    generations.make_current(generations.add(Draft("mine", "", "", before, {}), 1.0))
    after = doors.units_of(aiming(46, 49))
    assert after != before
    assert after[0] == before[0]
    assert service(replace(aiming(46, 49), args={"max-model-len": 1})).count("0.021739") == 1


def test_damaged_state_hinders_nobody_from_rendering(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_vllm(monkeypatch, OPTION)
    (place.state / "kimi").mkdir(parents=True)
    (place.state / "kimi" / "current").write_text("no symlink")
    assert OPTION in service()


def written(tmp_path: Path, model: Path | str) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(
        f'schema = 1\nname = "mine"\n[vllm]\nexecutable = "/opt/v/bin/vllm"\nmodel = "{model}"\n'
    )
    return str(file)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (os.mkfifo, "config.json is no regular file but a named pipe; vLLM could not read"),
        (os.mkdir, "config.json Is a directory; vLLM could not read"),
        (lambda path: path.write_text('{\n"a": }\n'), "config.json:2 is no JSON: Expecting value"),
        (lambda path: path.write_text("[]"), "config.json holds no JSON object"),
        (lambda path: path.write_bytes(b"\xff"), "config.json"),
    ],
)
def test_a_config_that_cannot_be_read_is_no_config_to_be_silent_of(
    tmp_path: Path, spoil: Callable[[Path], object], says: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    spoil(model / "config.json")
    found = doors.checked(written(tmp_path, model))
    (problem,) = found.problems
    assert found.profile is None
    assert (problem.line, problem.key) == (5, "vllm.model")
    assert says in problem.message


def test_a_model_that_is_not_here_is_the_preflights_business(tmp_path: Path) -> None:
    model = tmp_path / "model"
    for name in (model, "org/model", f"{model}/{'x' * 300}"):
        assert doors.checked(written(tmp_path, name)).problems == ()
    model.mkdir()
    assert doors.checked(written(tmp_path, model)).problems == ()
    (model / "config.json").symlink_to("nowhere")
    assert doors.checked(written(tmp_path, model)).problems == ()
    (model / "config.json").unlink()
    (model / "config.json").write_text("{}")
    assert doors.checked(written(tmp_path, model)).problems == ()


def test_an_instance_that_this_box_never_had_is_refused_with_those_it_has(
    place: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doors.instance_or_default("kimi") == "kimi"  # a fresh box: its first is to come
    for name in ("kimi", "glm"):
        generations = place.state / name / "generations" / "0001"
        generations.mkdir(parents=True)
        (place.state / name / "current").symlink_to(generations)
    (place.state / "tried").mkdir()
    (place.state / "kimi-backup.tar.gz").touch()
    assert doors.instance_or_default("tried") == "tried"
    with pytest.raises(click.BadParameter) as refused:
        doors.instance_or_default("kimmi")
    said = "this box has no instance 'kimmi', it has glm, kimi; did you mean kimi?"
    assert refused.value.message == said
    for command in ("history", "report"):
        assert main([command, "--instance", "kimmi"]) == 2, command
        assert said in capsys.readouterr().err


def test_one_command_asks_a_vllm_once_though_no_answer_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*_: object, asking: Callable[[], None]) -> VllmKnowledge:
        asking()
        return VllmKnowledge("1", KnownFrom.ASKED, {}, frozenset())

    monkeypatch.setattr("kimisvc.host.vllm_binary.knowledge", answer)
    for _ in range(2):
        main(["explain", written(tmp_path, "/srv/models/Kimi")])
        assert capsys.readouterr().err.count("asking /opt/v/bin/vllm") == 1
