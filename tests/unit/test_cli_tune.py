"""tune at the command line: what it keeps of a profile, and what it tells of a search that stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from deploy_support import Quiet, add_generation, box_at, profile

from kimisvc.cli import doors
from kimisvc.cli import tune as command
from kimisvc.cli.main import main
from kimisvc.cli.status import status_text
from kimisvc.deploy.status import read_status
from kimisvc.deploy.tune import beforehand, search
from kimisvc.deploy.tune.state import read_state
from kimisvc.errors import HostError
from kimisvc.host import locks, systemd
from kimisvc.profile.resolved import to_toml
from kimisvc.records.proof import EngineCounters
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.tune.world import World


class InUse:
    """A server that always answers somebody."""

    def counters(self) -> EngineCounters:
        return EngineCounters(0, 0, 0, 0, 1.0, 0)


class Opened(Quiet):
    """A systemd as the command opens it, which takes what is asked of it and does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def reload(self) -> None:
        return

    def enable(self, names: tuple[str, ...]) -> None:
        del names

    def disable(self, names: tuple[str, ...]) -> None:
        del names

    def reset_failed(self, name: str) -> None:
        del name

    def start(self, name: str) -> None:
        self.states[name.removesuffix(".service")] = "active"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    made = box_at(tmp_path, Opened())
    monkeypatch.setattr(systemd, "Systemd", Opened)
    monkeypatch.setattr(doors, "box", lambda *_: made)
    monkeypatch.setattr(doors, "need_root", lambda _: None)
    monkeypatch.setattr(doors, "instance_or_default", lambda _: "kimi")
    monkeypatch.setattr(
        doors, "units_of", lambda *_: (UnitFile("kimisvc-kimi.service", "[Unit]\n"),)
    )
    monkeypatch.setattr(command, "_unit", lambda _: UnitFile(made.layout.tune_unit, "[Unit]\n"))
    return made


def begun(folder: Path) -> int:
    """Begin a search of two profiles that are named as seen from their folder."""
    for name in ("base", "ll"):
        one = profile(name, env={"NCCL_PROTO": "LL"} if name == "ll" else {})
        (folder / f"{name}.toml").write_text(to_toml(one))
    return main(["tune", "--explore", "--no-follow", "base.toml", "ll.toml"])


def test_the_file_of_a_candidate_comes_back_with_its_wish(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert begun(tmp_path) == 0, capsys.readouterr().err
    state = read_state(box.layout)
    assert state is not None
    assert state.file_of("ll") == str(tmp_path / "ll.toml")  # wherever the unit may look from
    worlds: list[Any] = []
    monkeypatch.setattr(search, "search", worlds.append)
    assert main(["tune", "--unit"]) == 0
    world: World = worlds[0]
    assert (
        world.wish_of(profile("ll"), "text", "/etc/kimisvc/ll.toml").file == "/etc/kimisvc/ll.toml"
    )


def test_a_search_whose_unit_has_died_is_told_as_that_everywhere(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert begun(tmp_path) == 0
    made = add_generation(box, profile("old"))
    box.generations.make_current(box.generations.get(made))
    assert "search      under way" in status_text(read_status(box), box)
    capsys.readouterr()
    assert main(["tune", "--status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped"] is None

    box.systemd.states["kimisvc-kimi-tune"] = "failed"  # type: ignore[attr-defined]  # a stand-in
    again = "systemctl start kimisvc-kimi-tune.service goes on"
    row = next(x for x in status_text(read_status(box), box).splitlines() if x.startswith("search"))
    assert "not at its end, and its unit kimisvc-kimi-tune.service is failed" in row
    assert again in row
    assert main(["tune", "--status"]) == 0
    said = capsys.readouterr().out
    assert "stopped: its unit kimisvc-kimi-tune.service is failed" in said
    assert again in said
    assert main(["tune", "--status", "--json"]) == 0
    assert again in json.loads(capsys.readouterr().out)["stopped"]
    with locks.Lock(box.layout.operator_lock):  # a search holds it, and has more to say
        assert main(["apply", "base.toml"]) == 75
    assert again in capsys.readouterr().err


def test_a_unit_that_systemd_does_not_take_is_no_search(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise HostError("systemd", "no")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(box.systemd, "reload", refuse)
    assert begun(tmp_path) == 1
    assert read_state(box.layout) is None


def test_a_dry_run_says_that_the_server_is_in_use_and_ends_as_the_search_would(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    box.generations.make_current(box.generations.get(add_generation(box, profile("old"))))
    box.systemd.states["kimisvc-kimi"] = "active"  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setattr(doors, "api", lambda _: InUse())
    monkeypatch.setattr(beforehand, "in_the_way", lambda *_: ())
    assert begun(tmp_path) == 1
    refused = capsys.readouterr().err
    assert "the server is in use" in refused
    words = ("tune", "--explore", "base.toml", "ll.toml", "--dry-run")
    assert main([*words]) == 1
    said = capsys.readouterr()
    assert "would try:" in said.out
    assert said.err == refused
    assert main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "the server is in use" in told["refused"]
    assert told["exit"] == 1
    assert main([*words, "--drain", "1min", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] is None
    with locks.Lock(box.layout.operator_lock):
        assert main([*words, "--drain", "1min", "--json"]) == 75
        assert "another kimisvc" in json.loads(capsys.readouterr().out)["refused"]
    assert read_state(box.layout) is None
