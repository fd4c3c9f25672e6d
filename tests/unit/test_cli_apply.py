"""Dry runs of apply and tune: what would be done, what is in its way, and that nothing comes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from deploy_support import Quiet, box_at, profile
from gate_box import no_server

from kimisvc.cli import apply as command
from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.deploy.checks.inspection import warning
from kimisvc.deploy.wish import Checks
from kimisvc.host import locks, systemd
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Problem
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.profile import Profile

PORT = Problem("port 8000 is taken by python3", key="vllm.port")
MISSING = Problem("/opt/vllm: No such file or directory; install vLLM there")
REPEATED = Problem("systemd-analyze: x.service: Command /opt/vllm/bin/vllm is not executable: No")


class Opened(Quiet):
    """A systemd as the command opens it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Stage:
    """An empty box, and what its checks find."""

    def __init__(self, folder: Path) -> None:
        self.box = box_at(folder, Opened())
        self.path = folder / "mine.toml"
        self.path.write_text(to_toml(profile("mine")))
        self.host: tuple[Problem, ...] = ()
        self.of: dict[str, tuple[Problem, ...]] = {}
        self.units: tuple[Problem, ...] = ()

    def checks(self, _: Box) -> Checks:
        def never() -> None:
            raise AssertionError("a dry run prepares nothing")

        def facts(_: Profile) -> dict[str, str | float]:
            raise AssertionError("a dry run keeps nothing")

        def preflight(profile: Profile) -> tuple[Problem, ...]:
            return self.of.get(profile.name, self.host)

        return Checks(preflight, lambda _: self.units, never, facts, no_server)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)
    monkeypatch.setattr(systemd, "Systemd", Opened)
    monkeypatch.setattr(doors, "box", lambda *_: made.box)
    monkeypatch.setattr(
        doors, "units_of", lambda *_: (UnitFile("kimisvc-kimi.service", "[Unit]\n"),)
    )
    monkeypatch.setattr(command, "checks", made.checks)
    return made


def dry(
    stage: Stage, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, list[str]]:
    status = main(["apply", "--dry-run", str(stage.path), *options])
    out, err = capsys.readouterr()
    assert stage.box.generations.numbers() == ()
    return status, out, err.splitlines()


def test_nothing_in_the_way(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.host = (warning("is odd"),)
    status, out, err = dry(stage, capsys)
    assert (status, err) == (0, ["warning: is odd"])
    assert out.startswith("would do: start vLLM, then run the gate (first install)\n")


def test_what_would_refuse_refuses_behind_the_plan(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.host, stage.units = (PORT, MISSING), (REPEATED,)
    status, out, err = dry(stage, capsys)
    assert status == 7
    assert out.startswith("would do: start vLLM")
    assert err[-2:] == ["vllm.port: port 8000 is taken by python3", MISSING.message]
    status, _, err = dry(stage, capsys, "--anyway")
    assert status == 7  # with no program there is nothing to start, whatever is wished
    assert err[-1] == REPEATED.message
    stage.units = ()
    assert dry(stage, capsys, "--anyway")[0] == 0


def test_json_has_plan_and_reasons(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.host = (PORT, warning("is odd"))
    status, out, _ = dry(stage, capsys, "--json")
    answer: dict[str, Any] = json.loads(out)
    assert (status, answer["exit"], answer["outcome"]) == (7, 7, "planned")
    assert [one["severity"] for one in answer["problems"]] == ["error", "warning"]
    assert (answer["action"], answer["restarted"]) == ("restart", [])
    assert answer["refused"] == "preflight refused; nothing was touched"
    stage.host = ()
    status, out, _ = dry(stage, capsys, "--json")
    answer = json.loads(out)
    assert (status, answer["exit"], answer["problems"], answer["refused"]) == (0, 0, [], None)


def test_who_is_at_work_comes_before_what_the_host_says(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.host = (PORT, warning("is odd"))
    with locks.Lock(stage.box.layout.operator_lock):
        status, out, err = dry(stage, capsys)
        assert status == 75
        assert out.startswith("would do: start vLLM")
        assert err[0] == "vllm.port: port 8000 is taken by python3"
        assert err[1] == "warning: is odd"
        assert err[2].startswith("kimisvc: another kimisvc is at work on this instance (")
        status, out, _ = dry(stage, capsys, "--json")
        answer: dict[str, Any] = json.loads(out)
        assert (status, answer["exit"], len(answer["problems"])) == (75, 75, 2)
        assert answer["refused"].startswith("another kimisvc is at work on this instance (")
    assert dry(stage, capsys)[0] == 7


def test_a_dry_run_leaves_no_lock(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry(stage, capsys)[0] == 0
    assert not stage.box.layout.operator_lock.exists()
    stage.box.layout.operator_lock.write_text("the last one")
    assert dry(stage, capsys)[0] == 0
    assert stage.box.layout.operator_lock.read_text() == "the last one"
    with locks.Lock(stage.box.layout.operator_lock):
        pass


def test_what_runs_is_restarted(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.box = box_at(stage.path.parent, Opened(kimisvc_kimi="active"))
    assert dry(stage, capsys)[1].startswith("would do: restart vLLM, then run the gate")


def tuned(
    stage: Stage, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, list[str]]:
    other = stage.path.with_name("other.toml")
    other.write_text(to_toml(profile("other", env={"NCCL_PROTO": "Simple"})))
    status = main(["tune", "--dry-run", "--explore", str(stage.path), str(other), *options])
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


def test_a_search_that_the_host_refuses_is_refused_behind_what_it_would_try(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.host = (PORT, warning("is odd"))
    status, out, err = tuned(stage, capsys)
    assert status == 7
    assert "would try:\n  1. mine" in out
    assert err[-1:] == ["vllm.port: port 8000 is taken by python3"]  # once, though of both
    status, out, _ = tuned(stage, capsys, "--json")
    answer = json.loads(out)
    assert (status, answer["exit"]) == (7, 7)
    assert [one["severity"] for one in answer["problems"]["other"]] == ["error", "warning"]


def test_a_search_goes_on_where_the_host_refuses_one(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.of = {"other": (PORT,)}
    status, _, err = tuned(stage, capsys)
    assert (status, err[1:]) == (0, ["other: vllm.port: port 8000 is taken by python3"])
