"""systemd asked from a process apart: it answers, fails, hangs, dies; we never wait for longer."""

from __future__ import annotations

import io
import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from kimisvc.errors import HostError
from kimisvc.host import systemd_apart
from kimisvc.host.systemd_apart import SystemdApart, serve
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = UnitState("a.service", "loaded", "active", "running", drop_ins=("/etc/x.conf",), restarts=3)
TOLD = json.dumps({"units": [asdict(STATE)]})


def playing(script: str) -> SystemdApart:
    """A process that runs this for every question `line`."""
    loop = f"import sys, time, os\nfor line in sys.stdin:\n    {script}\n    sys.stdout.flush()\n"
    return SystemdApart((sys.executable, "-c", loop))


@pytest.fixture
def closing() -> Iterator[list[SystemdApart]]:
    made: list[SystemdApart] = []
    yield made
    for one in made:
        one.close()


def test_states_come_back_as_they_were_told(closing: list[SystemdApart]) -> None:
    apart = playing(f"print({TOLD!r})")
    closing.append(apart)
    assert apart.states(["a.service"], 20.0) == {"a.service": STATE}


def test_the_process_is_kept_from_question_to_question(closing: list[SystemdApart]) -> None:
    apart = playing(f"print({TOLD!r}.replace('running', str(os.getpid())))")
    closing.append(apart)
    subs = {apart.states(["a.service"], 20.0)["a.service"].sub_state for _ in range(3)}
    assert len(subs) == 1


def test_one_that_hangs_is_killed_and_the_next_question_makes_another(
    closing: list[SystemdApart], tmp_path: Path
) -> None:
    once = tmp_path / "once"
    apart = playing(
        f"os.path.exists({str(once)!r}) or (open({str(once)!r}, 'w'), time.sleep(1000))"
        f"; print({TOLD!r})"
    )
    closing.append(apart)
    with pytest.raises(HostError) as error:
        apart.states(["a.service"], 5.0)  # long enough for a Python to start and hang
    assert error.value.code == "systemd-timeout"
    assert apart.states(["a.service"], 20.0) == {"a.service": STATE}


def test_half_an_answer_is_none(closing: list[SystemdApart]) -> None:
    apart = playing("sys.stdout.write('{'); sys.stdout.flush(); time.sleep(1000)")
    closing.append(apart)
    with pytest.raises(HostError) as error:
        apart.states(["a.service"], 0.7)
    assert error.value.code == "systemd-timeout"


@pytest.mark.parametrize("script", ["sys.exit(1)", "print('nonsense')", "print('{}')",
                                    "print('{\"units\": [{\"name\": 1}]}')"])  # fmt: skip
def test_one_that_dies_or_answers_nonsense(script: str, closing: list[SystemdApart]) -> None:
    apart = playing(script)
    closing.append(apart)
    for _ in range(2):
        with pytest.raises(HostError) as error:
            apart.states(["a.service"], 20.0)
        assert error.value.code == "systemd-lost"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(HostError) as error:
        SystemdApart(("/no/such/python",)).states(["a.service"], 5.0)
    assert error.value.code == "systemd-lost"


def test_what_systemd_refused_is_told_as_the_door_tells_it(closing: list[SystemdApart]) -> None:
    told = json.dumps({"code": "systemd-unreachable", "message": "no bus", "hint": "start it"})
    apart = playing(f"print({told!r})")
    closing.append(apart)
    with pytest.raises(HostError) as error:
        apart.states(["a.service"], 20.0)
    assert (error.value.code, error.value.message, error.value.hint) == (
        "systemd-unreachable", "no bus", "start it",
    )  # fmt: skip


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
def test_the_real_process_says_that_there_is_no_systemd(closing: list[SystemdApart]) -> None:
    apart = SystemdApart()
    closing.append(apart)
    with pytest.raises(HostError) as error:
        apart.states(["a.service"], 60.0)
    assert error.value.code == "no-systemd"


def test_others_run_on_while_it_waits(closing: list[SystemdApart]) -> None:
    apart = playing("time.sleep(1000)")
    closing.append(apart)
    ran = threading.Event()
    threading.Timer(0.05, ran.set).start()
    with pytest.raises(HostError):
        apart.states(["a.service"], 0.7)
    assert ran.is_set()


class Door:
    """Plays the door to systemd in the process apart; `broken` names units it fails on."""

    opened = closed = 0

    def __enter__(self) -> Self:
        Door.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        Door.closed += 1

    def state(self, unit: str) -> UnitState:
        if unit == "broken":
            raise HostError("systemd-unreachable", "the bus is gone", hint="start it")
        return UnitState(unit, "loaded", "active", "running")


def test_serving_keeps_its_connection_and_makes_a_new_one_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kimisvc.host.systemd.Systemd", Door)
    Door.opened = Door.closed = 0
    questions = io.StringIO('["a", "b"]\n["a"]\n["broken"]\n["a"]\n')
    answers = io.StringIO()
    serve(questions, answers)
    told: list[dict[str, Any]] = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [[one["name"] for one in said.get("units", ())] for said in told] == [
        ["a", "b"], ["a"], [], ["a"],
    ]  # fmt: skip
    assert told[2] == {
        "code": "systemd-unreachable",
        "message": "the bus is gone",
        "hint": "start it",
    }
    assert (Door.opened, Door.closed) == (2, 1)
    assert systemd_apart.COMMAND[0] == sys.executable
