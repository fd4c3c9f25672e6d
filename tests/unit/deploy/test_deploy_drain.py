"""apply --drain: requests are waited for before a restart, and before anything is changed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from gate_box import Systemd, no_server, two_generations

from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.apply import apply
from kimisvc.deploy.follow import resume
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.status import read_status
from kimisvc.deploy.wish import Checks, Following, Reload, Wish
from kimisvc.errors import HostError, PreflightRefusedError
from kimisvc.host import locks
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.status import Status
    from kimisvc.deploy.traffic import Counting
    from kimisvc.records.profile import Profile
    from kimisvc.records.progress import Progress

BUSY = EngineCounters(1.0, 2.0, 3.0, 4.0, running=1.0, waiting=0.0)
IDLE = replace(BUSY, running=0.0)
PATIENCE = 30.0


@dataclass
class Told:
    """A reporter that keeps what it is told."""

    steps: list[str] = field(default_factory=list)

    def step(self, text: str) -> None:
        self.steps.append(text)

    def progress(self, progress: Progress) -> None:
        pass


@dataclass
class Server:
    """A server whose counters are told one after the other, the last for good."""

    answers: list[EngineCounters | Exception | None]
    look: Callable[[], None] = lambda: None

    def counters(self) -> EngineCounters | None:
        self.look()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    made = two_generations(tmp_path, systemd, monkeypatch)
    return replace(made, clock=lambda: now[0], sleep=sleep)


def wish(box: Box, reload: Reload, drain_s: float | None) -> Wish:
    current = box.generations.get(2)
    return Wish(
        current.settings(), "", current.resolved(), current.units(), "me",
        following=Following.LEAVE, reload=reload, drain_s=drain_s,
    )  # fmt: skip


def applied(
    box: Box,
    server: Callable[[Profile], Counting],
    reload: Reload = Reload.ALWAYS,
    drain_s: float | None = PATIENCE,
    found: tuple[Problem, ...] = (),
) -> list[str]:
    return drained(box, wish(box, reload, drain_s), server, found)


def drained(
    box: Box,
    wanted: Wish,
    server: Callable[[Profile], Counting],
    found: tuple[Problem, ...] = (),
) -> list[str]:
    told = Told()
    checks = Checks(lambda _: found, lambda _: (), lambda: None, lambda _: {}, server)
    done = apply(box, wanted, checks, told)
    assert done.ending.outcome is Outcome.STARTED
    return [step for step in told.steps if "requests" in step or "idle" in step]


def test_the_restart_comes_when_the_last_request_has_ended(box: Box, systemd: Systemd) -> None:
    def nothing_is_changed() -> None:
        assert systemd.asked == []
        assert box.history.applies() == ()

    server = Server([BUSY, BUSY, IDLE], nothing_is_changed)
    assert applied(box, lambda _: server) == [
        "waiting for requests on port 8000 to end, 30s at most; nothing is changed yet"
    ]
    assert len(server.answers) == 1
    assert systemd.asked != []


def test_when_patience_ends_it_restarts_all_the_same_and_says_so(
    box: Box, systemd: Systemd
) -> None:
    assert applied(box, lambda _: Server([BUSY]))[1:] == [
        "warning: port 8000 was not seen idle within 30s; restarting all the same"
    ]
    assert PATIENCE <= box.clock() < PATIENCE + 2
    assert systemd.asked != []


def test_a_server_that_is_down_is_not_waited_for(box: Box) -> None:
    gone = HostError("connection-refused", "nobody listens")
    assert len(applied(box, lambda _: Server([gone]))) == 1
    assert box.clock() == 0


@pytest.mark.parametrize("how", ["damaged", "of another kimisvc"])
def test_what_cannot_be_read_any_more_may_serve_all_the_same(box: Box, how: str) -> None:
    wanted = wish(box, Reload.ALWAYS, PATIENCE)
    resolved = next(box.layout.generations.glob("*2/resolved.toml"))
    resolved.chmod(0o644)
    text = resolved.read_text()
    resolved.write_text(
        text + "#\n" if how == "damaged" else text.replace("schema = 1", "schema = 9")
    )
    assert drained(box, wanted, lambda _: Server([BUSY]))[1:] == [
        "warning: port 8000 was not seen idle within 30s; restarting all the same"
    ]


def test_where_nothing_is_in_force_nobody_is_waited_for(box: Box) -> None:
    box.layout.current.unlink()
    assert applied(box, no_server) == []


def test_nobody_waits_unless_that_is_asked_for(box: Box) -> None:
    assert applied(box, no_server, drain_s=None) == []


def test_nobody_waits_where_nothing_is_restarted(box: Box) -> None:
    assert applied(box, no_server, Reload.PROVE) == []


def test_what_the_host_refuses_is_refused_at_once(box: Box, systemd: Systemd) -> None:
    with pytest.raises(PreflightRefusedError):
        applied(box, no_server, found=(Problem("port 8000 is taken"),))
    assert systemd.asked == []


def test_what_goes_while_it_waits_is_found_before_the_restart(box: Box, systemd: Systemd) -> None:
    odd, gone = Problem("is odd", severity=Severity.WARNING), Problem("vllm is not there any more")
    looks = iter([(odd,), (odd, gone)])
    told = Told()
    server = Server([BUSY, IDLE])
    checks = Checks(
        lambda _: next(looks), lambda _: (), lambda: None, lambda _: {}, lambda _: server
    )
    with pytest.raises(PreflightRefusedError) as caught:
        apply(box, wish(box, Reload.ALWAYS, PATIENCE), checks, told)
    assert caught.value.reasons == (gone,)
    assert told.steps.count("warning: is odd") == 1
    assert systemd.asked == []


def test_others_are_told_what_it_waits_for_and_wait_with_it(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Status] = []
    applied(box, lambda _: Server([BUSY, IDLE], lambda: seen.append(read_status(box))))
    who = seen[0].at_work
    assert who is not None
    assert f", PID {os.getpid()}, since " in who.who
    assert re.fullmatch(r"waits for requests to end, until \d\d:\d\d at most", who.waits)
    assert re.search(f"^at work +{re.escape(who.words)}$", status_text(seen[0], box), re.MULTILINE)
    assert status_json(seen[0])["at_work"] == who.words
    assert status_json(read_status(box))["at_work"] is None

    # One who follows waits with it, and for nothing once it has gone.
    looks = iter([who, who, replace(who, waits=""), None])
    monkeypatch.setattr(locks, "holder", lambda _: next(looks))
    systemd.gate = replace(systemd.gate, active_state="inactive", sub_state="dead")
    told = Told()
    assert resume(box, told) is None
    assert told.steps == [who.words]
    assert next(looks, "all were asked for") == "all were asked for"


def test_who_leaves_while_it_waits_has_changed_nothing(box: Box, systemd: Systemd) -> None:
    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        applied(box, lambda _: Server([BUSY], leave))
    assert systemd.asked == []
    assert box.history.applies() == ()
