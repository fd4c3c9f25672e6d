"""What is rolled back and what is left as somebody wanted it; and what a rollback leaves that breaks."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from gate_box import ACTIVE, GATE, ROLLBACK, SERVICE, Silent, Systemd, leave, two_generations

from kimisvc.cli.rollback import _told
from kimisvc.deploy.checks.host import start_folder
from kimisvc.deploy.checks.inspection import Inspection
from kimisvc.deploy.failure import gave_up, reason
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import History
from kimisvc.deploy.owed import owed
from kimisvc.deploy.rollback import Restoring, for_unit, to_generation
from kimisvc.deploy.tune.state import Asked, Contender, Ended, TuneState, write_state
from kimisvc.deploy.wish import Following
from kimisvc.errors import (
    HostError,
    KimisvcError,
    LeftAtWorkError,
    LockedError,
    PreflightRefusedError,
)
from kimisvc.host import files, gpu, locks
from kimisvc.host.systemd import JobMode
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Profile, Risk, ServiceSettings, VllmSettings
from kimisvc.records.proof import VerdictKind
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return two_generations(tmp_path, systemd, monkeypatch)


# ---------------------------------------------------------------- giving up, and being stopped


ENDED_IN_IT = {"main_ended_monotonic": 11.0}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # Its last process ended, and it waited for no other: it was stopped and ended badly.
        ({"active_state": "failed", "restarts": 1, "main_ended_monotonic": 11.0}, False),
        ({"active_state": "failed", "restarts": 1, "result": "timeout", **ENDED_IN_IT}, False),
        (
            {"active_state": "failed", "exec_main_code": 1, "exec_main_status": 1, **ENDED_IN_IT},
            False,
        ),
        (
            {"active_state": "failed", "exec_main_code": 2, "exec_main_status": 9, **ENDED_IN_IT},
            False,
        ),
        # It waited for a restart after its last process, and got none.
        ({"active_state": "failed", "restarts": 2, "main_ended_monotonic": 9.0}, True),
        ({"active_state": "failed", "restarts": 2, "result": "timeout"}, True),
        ({"active_state": "failed", "restarts": 1, "main_ended_monotonic": 9.0, "job": 7}, False),
        # Its process hangs in the kernel, and SIGKILL did not end it: it was stopped in vain.
        ({"active_state": "failed", "result": "timeout", "main_started_monotonic": 10.1}, False),
        # No process ever came to be: no memory for one, or a file of variables is missing.
        ({"active_state": "failed", "restarts": 2, "result": "resources"}, True),
        # A start by hand was one too many.
        ({"active_state": "failed", "result": "start-limit-hit", **ENDED_IN_IT}, True),
        (
            {"active_state": "failed", "exec_main_code": 1, "exec_main_status": 2, **ENDED_IN_IT},
            True,
        ),
        (
            {"active_state": "failed", "exec_main_code": 2, "exec_main_status": 2, **ENDED_IN_IT},
            False,
        ),
        # A drop-in forbids restarts: it died, and nothing else would bring it back.
        ({"active_state": "failed", "restart": "no", "result": "exit-code", **ENDED_IN_IT}, True),
        (
            {
                "active_state": "failed",
                "restart": "on-abnormal",
                "result": "exit-code",
                **ENDED_IN_IT,
            },
            True,
        ),
        (
            {"active_state": "failed", "restart": "always", "result": "exit-code", **ENDED_IN_IT},
            False,
        ),
        ({"active_state": "failed", "restart": "no", "result": "timeout", **ENDED_IN_IT}, False),
        ({"active_state": "inactive", "restarts": 1}, False),
        ({"active_state": "active", "restarts": 1}, False),
    ],
)
def test_what_systemd_gave_up_is_told_from_what_was_stopped(
    state: dict[str, Any],
    expected: bool,  # noqa: FBT001 - the expected answer
) -> None:
    assert gave_up(replace(ACTIVE, started_monotonic=10.0, **state)) is expected


@pytest.mark.parametrize(
    ("state", "starts"),
    [
        ({"restarts": 2, "exec_main_status": 1, "main_ended_monotonic": 9.0}, "2 starts"),
        ({"restarts": 1, "exec_main_status": 1, "main_ended_monotonic": 9.0}, "1 start"),
        # No restart was tried, or the one that was came to this end: none was refused.
        ({"result": "resources"}, "1 start"),
        ({"exec_main_code": 1, "exec_main_status": 2, **ENDED_IN_IT}, "1 start"),
        ({"exec_main_code": 1, "exec_main_status": 2, "restarts": 1, **ENDED_IN_IT}, "2 starts"),
    ],
)
def test_what_gave_up_is_told_with_the_starts_it_had(
    box: Box, systemd: Systemd, state: dict[str, Any], starts: str
) -> None:
    failed = {"active_state": "failed", "result": "exit-code", "started_monotonic": 10.0, **state}
    systemd.service = replace(systemd.service, **failed)
    journal: Any = SimpleNamespace(tail=lambda *_: ())
    assert reason(replace(box, journal=journal), 2).startswith(
        f"the service gave up after {starts} ("
    )


# ---------------------------------------------------------------- a rollback that breaks


@pytest.mark.parametrize("broken", ["reload", "restart"])
def test_a_rollback_that_broke_in_the_middle_is_finished_by_the_next_try(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """systemd re-executed itself, say; its own memory of what failed is gone by then."""
    leave(box, VerdictKind.FAIL)
    settle(box)
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    calls: list[str] = []

    def breaks_once(*_: object) -> str:
        calls.append(broken)
        if len(calls) == 1:
            raise HostError("systemd-lost", "gone")
        return "job"

    for verb in ("reload", "restart", "enable", "stop"):
        monkeypatch.setattr(
            systemd, verb, breaks_once if verb == broken else lambda *_: "job", raising=False
        )
    with pytest.raises(HostError):
        for_unit(box)
    systemd.gate = replace(systemd.gate, active_state="inactive")
    row = for_unit(box)
    assert row is not None
    assert (box.generations.current_number(), row.to_generation) == (1, 1)
    assert _told(row) == "generation 1: a switch to it was cut off; finished"
    assert [(r.from_generation, r.to_generation) for r in box.history.rollbacks()] == [(2, 1)]
    assert owed(box.layout, 1) is None
    assert len(calls) == 2
    assert for_unit(box) is None


@pytest.mark.parametrize(("before", "enabled"), [("enabled", True), ("disabled", False)])
def test_what_an_operator_disabled_is_restored_and_stays_disabled(
    box: Box,
    systemd: Systemd,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    enabled: bool,  # noqa: FBT001 - the expected answer
) -> None:
    systemd.service = replace(systemd.service, enabled=before)
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    asked: list[object] = []
    monkeypatch.setattr(systemd, "enable", asked.append, raising=False)
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, bool(asked)) == (1, enabled)
    assert ("restart", GATE, JobMode.REPLACE) in systemd.asked


def test_what_was_stopped_since_its_gate_failed_stays_stopped(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.FAIL)
    settle(box)
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    systemd.service = replace(systemd.service, active_state="inactive", main_pid=0)
    assert for_unit(box) is None
    assert box.generations.current_number() == 2


@pytest.mark.parametrize("how", ["breaks", "interrupted"])
def test_a_rollback_by_hand_that_ends_early_says_what_becomes_of_it(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def restart(*_: object) -> str:
        if how == "breaks":
            raise HostError("systemd-lost", "gone")
        signal.raise_signal(signal.SIGINT)
        return "job"

    monkeypatch.setattr(systemd, "restart", restart)
    error = HostError if how == "breaks" else LeftAtWorkError
    with pytest.raises(error):
        to_generation(box, Restoring(1, "root"), lambda _: (), Silent())
    (row,) = box.history.applies()
    assert row.outcome == ("broke" if how == "breaks" else None)
    assert (row.generation, box.generations.current_number()) == (1, 1)


@pytest.mark.parametrize(
    "broken", [("begin_apply",), ("begin_apply", "mend", "sequence", "end_apply")]
)
def test_a_history_that_cannot_be_written_stops_no_rollback_by_hand(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    def full(*_: object) -> None:
        raise KimisvcError("history-unusable", "disk full")

    class Heard(Silent):
        def __init__(self) -> None:
            self.steps: list[str] = []

        def step(self, text: str) -> None:
            self.steps.append(text)

    for verb in broken:
        monkeypatch.setattr(History, verb, full)
    heard = Heard()
    done = to_generation(box, Restoring(1, "root", Following.LEAVE), lambda _: (), heard)
    assert (done.generation, box.generations.current_number()) == (1, 1)
    assert [row[:2] for row in systemd.asked if row[0] == "restart"] == [("restart", GATE)]
    assert "warning: this rollback is not kept in history: disk full" in heard.steps
    monkeypatch.setattr(systemd, "restart", full)
    with pytest.raises(KimisvcError, match="disk full"):  # and one that breaks says what of
        to_generation(box, Restoring(2, "root", Following.LEAVE), lambda _: (), heard)


@pytest.mark.parametrize(
    ("before", "restarted"), [("active", (GATE,)), ("inactive", (SERVICE, GATE))]
)
def test_the_row_of_a_rollback_by_hand_says_what_it_restarted(
    box: Box, systemd: Systemd, before: str, restarted: tuple[str, ...]
) -> None:
    systemd.service = replace(systemd.service, active_state=before)
    done = to_generation(box, Restoring(1, "root", Following.LEAVE), lambda _: (), Silent())
    (row,) = box.history.applies()
    assert row.restarted == done.restarted == restarted


def test_the_host_is_asked_before_the_switch_is_locked(box: Box, systemd: Systemd) -> None:
    """A gate that ends meanwhile has to be settled."""
    systemd.service = replace(systemd.service, active_state="inactive")
    asked: list[str] = []

    def preflight(_: Profile) -> tuple[Problem, ...]:
        with locks.Lock(box.layout.switch_lock):
            asked.append("free")
        return ()

    wish = Restoring(1, "root", Following.LEAVE)
    to_generation(box, wish, preflight, Silent())
    assert asked == ["free"]


def test_a_gate_that_comes_to_no_end_in_its_time_has_failed(box: Box, systemd: Systemd) -> None:
    """Answers that trickle keep it busy for ever; SIGTERM at the deadline lets it end with 0."""
    systemd.gate = replace(systemd.gate, active_state="failed", result="timeout")
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, row.reason) == (1, AN_END)


AN_END = "the gate came to no end within its deadline"


def late(systemd: Systemd, invocation: str) -> None:
    systemd.gate = replace(
        systemd.gate, active_state="failed", result="timeout", invocation_id=invocation
    )


@pytest.mark.parametrize("kept", ["settled", "left"])
def test_a_settle_that_takes_too_long_is_no_gate_without_an_end(
    box: Box, systemd: Systemd, kept: str
) -> None:
    leave(box, VerdictKind.INCONCLUSIVE, "gate-1")
    if kept == "settled":
        settle(box)
    late(systemd, "gate-1")
    assert for_unit(box) is None
    assert box.generations.current_number() == 2


@pytest.mark.parametrize("ended_at", [40.0, 90.0])
def test_a_verdict_of_an_earlier_gate_does_not_speak_for_one_without_an_end(
    box: Box, systemd: Systemd, ended_at: float
) -> None:
    """By the clock of its day it may have come later: that was set back since."""
    leave(box, VerdictKind.INCONCLUSIVE, "gate-1", ended_at=ended_at)
    settle(box)
    late(systemd, "gate-2")
    systemd.gate = replace(systemd.gate, started_at=50.0)
    row = for_unit(box)
    assert row is not None
    assert row.reason == AN_END


def test_a_rollback_that_waits_for_its_next_try_is_over_when_units_are_started_anew(
    box: Box, systemd: Systemd
) -> None:
    systemd.rollback = replace(
        systemd.rollback, active_state="activating", sub_state="auto-restart"
    )
    to_generation(box, Restoring(1, "root", Following.LEAVE), lambda _: (), Silent())
    assert ("stop", ROLLBACK) in systemd.asked


def test_the_rollback_unit_does_not_stop_itself(box: Box, systemd: Systemd) -> None:
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    systemd.rollback = replace(systemd.rollback, active_state="activating", sub_state="start")
    assert for_unit(box) is not None
    assert ("stop", ROLLBACK) not in systemd.asked


# ---------------------------------------------------------------- damaged, and lost


def test_a_number_is_never_given_twice(box: Box) -> None:
    made = box.generations.get(2)
    draft = Draft("three", "", made.resolved(), made.units(), {})
    shutil.rmtree(made.path)
    assert box.generations.add(draft, 1.0).number == 3  # current points at 2
    assert box.generations.add(draft, 1.0, last=9).number == 10


def test_a_profile_that_is_not_what_was_written_cannot_be_restored(box: Box) -> None:
    path = box.generations.get(1).path / "resolved.toml"
    assert box.generations.is_whole(1)
    path.chmod(0o644)
    path.write_text(path.read_text() + "# edited\n")
    assert not box.generations.is_whole(1)
    with pytest.raises(KimisvcError, match="is not what kimisvc wrote"):
        box.generations.get(1).settings()


def test_a_generation_is_on_disk_before_it_is_current(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    whole = files.sync_folder

    def sync(path: Path) -> None:
        synced.append(path)
        whole(path)

    monkeypatch.setattr(files, "sync_folder", sync)
    made = box.generations.get(2)
    box.generations.add(Draft("three", "", made.resolved(), made.units(), {}), 1.0)
    assert synced[-1] == box.layout.generations


WRITES = Profile(
    "writes", VllmSettings("/opt/vllm/bin/vllm", "/srv/model"),
    env={"VLLM_CACHE_ROOT": "/mnt/x", "NCCL_DEBUG_FILE": "/mnt/logs/nccl"},
)  # fmt: skip
OPENS = "ReadWritePaths=/mnt/x -/mnt/logs"


def that_writes(box: Box, directive: str, profile: Profile = WRITES) -> Restoring:
    """A generation whose profile names folders to be written, to go back to by hand."""
    unit = UnitFile(SERVICE, f"[Service]\n{directive}\n")
    made = box.generations.add(Draft("writes", "", to_toml(profile), (unit,), {}), 1.0)
    return Restoring(made.number, "root", Following.LEAVE)


def test_what_runs_is_not_stopped_for_a_unit_whose_folder_is_gone(
    box: Box, systemd: Systemd
) -> None:
    gone = Problem("the service could not write there", key="env.VLLM_CACHE_ROOT")
    with pytest.raises(PreflightRefusedError):
        to_generation(box, that_writes(box, OPENS), lambda _: (gone,), Silent())
    assert not [asked for asked in systemd.asked if asked[0] in ("restart", "stop")]


@pytest.mark.parametrize(
    ("directive", "key"),
    [
        (OPENS, "env.NCCL_DEBUG_FILE"),  # it does without
        ("Nice=1", "env.VLLM_CACHE_ROOT"),  # of a kimisvc that opened nothing
    ],
)
def test_a_folder_that_ends_no_start_keeps_nobody_from_going_back(
    box: Box, directive: str, key: str
) -> None:
    gone = Problem("the service could not write there", key=key)
    wish = that_writes(box, directive)
    to_generation(box, wish, lambda _: (gone,), Silent())
    assert box.generations.current_number() == wish.number


def test_what_runs_is_not_stopped_for_a_start_in_a_folder_that_is_gone(
    box: Box, systemd: Systemd
) -> None:
    """It would end with 200/CHDIR."""
    profile = replace(WRITES, service=ServiceSettings(working_directory="/nowhere/x"))

    def preflight(wanted: Profile) -> tuple[Problem, ...]:
        about = Inspection(wanted, box.layout.place, gpu.NoGpus(gpu.reason("none")))
        return tuple(one for one in start_folder(about) if isinstance(one, Problem))

    wish = that_writes(box, "WorkingDirectory=/nowhere/x", profile)
    with pytest.raises(PreflightRefusedError) as caught:
        to_generation(box, wish, preflight, Silent())
    assert [one.key for one in caught.value.reasons] == ["service.working_directory"]
    assert not [asked for asked in systemd.asked if asked[0] in ("restart", "stop")]
    assert box.generations.current_number() == 2


# ---------------------------------------------------------------- during a search

SEARCH = TuneState("kimi", 1.0, Asked(target=">40~50"), (Contender("two", Risk.SAFE, 0),))


def test_a_rollback_by_hand_waits_for_the_end_of_a_search(box: Box, systemd: Systemd) -> None:
    """It would be undone within seconds."""
    wish = Restoring(1, "root", Following.LEAVE)
    write_state(box.layout, SEARCH)
    with (
        locks.Lock(box.layout.operator_lock),  # the search has it, and that is not what is told
        pytest.raises(LockedError, match="a search for the best profile of kimi is under way"),
    ):
        to_generation(box, wish, lambda _: (), Silent())
    assert not box.history.applies()
    assert (systemd.asked, box.generations.current_number()) == ([], 2)
    write_state(box.layout, replace(SEARCH, ended=Ended(9.0, "cancelled", "", "", 1)))
    to_generation(box, wish, lambda _: (), Silent())
    assert box.generations.current_number() == 1


def test_a_search_that_begins_before_the_lock_is_had_is_seen_too(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lock(locks.Lock):
        def __enter__(self) -> Self:
            write_state(box.layout, SEARCH)
            return super().__enter__()

    monkeypatch.setattr(locks, "Lock", Lock)
    with pytest.raises(LockedError, match="under way"):
        to_generation(box, Restoring(1, "root", Following.LEAVE), lambda _: (), Silent())
    assert (systemd.asked, box.generations.current_number()) == ([], 2)


def test_what_failed_in_a_search_is_rolled_back_by_its_unit(box: Box, systemd: Systemd) -> None:
    write_state(box.layout, SEARCH)
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, box.generations.current_number()) == (1, 1)
