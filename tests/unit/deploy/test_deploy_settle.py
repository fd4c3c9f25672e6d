"""What root makes of a gate's record: when it counts, when it does not, and what is asked of systemd."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from kimisvc.deploy.box import Box
from kimisvc.deploy.gate.record import GateRecord, to_json
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import History
from kimisvc.deploy.layout import Layout
from kimisvc.deploy.owed import owe, owed, settle_debt
from kimisvc.deploy.plan import Action
from kimisvc.deploy.rollback import _gave_up, for_unit
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import processes
from kimisvc.host.processes import LISTENING, PortOwner
from kimisvc.host.systemd import JobMode
from kimisvc.profile.resolved import to_toml
from kimisvc.records import (
    Installation,
    Profile,
    Proof,
    UnitFile,
    UnitState,
    Verdict,
    VerdictKind,
    VllmSettings,
)

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = "kimisvc-kimi.service"
GATE = "kimisvc-kimi-gate.service"
RUNS = "start-2"
ACTIVE = UnitState(SERVICE, "loaded", "active", "running", invocation_id=RUNS)


@dataclass
class Systemd:
    """Plays systemd: the states that a test sets, and what was asked of it."""

    service: UnitState = field(default_factory=lambda: replace(ACTIVE, started_monotonic=10.0))
    gate: UnitState = field(
        default_factory=lambda: UnitState(
            GATE, "loaded", "deactivating", "stop-post", started_monotonic=11.0
        )
    )
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def state(self, unit: str) -> UnitState:
        return self.service if unit == SERVICE else self.gate

    def version(self) -> str:
        return "252"

    def restart(self, unit: str, mode: JobMode = JobMode.REPLACE) -> str:
        self.asked.append(("restart", unit, mode))
        return "job"

    def reset_failed(self, unit: str) -> None:
        self.asked.append(("reset-failed", unit))


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Generation 2 is current and installed, 1 is accepted; our own service has the port."""
    place = Installation(
        tmp_path / "kimisvc", tmp_path / "units", tmp_path / "state", tmp_path / "run"
    )
    place.units.mkdir()
    box = Box(Layout(place, "kimi"), systemd, now=lambda: 100.0)  # type: ignore[arg-type]  # plays it
    box.layout.gate.mkdir(parents=True)
    for name in ("one", "two"):
        profile = Profile(name, VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))
        unit = UnitFile(SERVICE, f"[Service]\n# {name}\n")
        made = box.generations.add(Draft(name, "", to_toml(profile), (unit,), {}), 1.0)
        box.layout.installed(SERVICE).write_text(unit.text)
    box.generations.make_current(made)
    box.generations.accept(box.generations.get(1))
    owns(monkeypatch, PortOwner(7, "vllm", SERVICE))
    return box


def owns(monkeypatch: pytest.MonkeyPatch, *owners: PortOwner) -> None:
    monkeypatch.setattr(processes, "port_owners", lambda _port, _host: owners)


def leave(
    box: Box, kind: VerdictKind | None, name: str = "r1", at: int = 1, **more: Any
) -> GateRecord:
    """Leave a record as the gate does."""
    proof = Proof(Verdict(kind, "because")) if kind else None
    record = GateRecord(
        record=name, generation=2, profile="two", model="/srv/model", invocation=RUNS,
        service_started_at=1.0, began_at=2.0, ended_at=3.0, ready_at=2.5, proof=proof,
    )  # fmt: skip
    record = replace(record, **more)
    path = box.layout.record(name)
    path.write_text(to_json(record))
    os.utime(path, (at, at))
    return record


def accepted(box: Box) -> int | None:
    found = box.generations.accepted()
    return found.number if found else None


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_what_was_proven_is_accepted_and_nothing_else(box: Box, kind: VerdictKind) -> None:
    leave(box, kind)
    assert settle(box).verdict == Verdict(kind, "because")
    assert accepted(box) == (2 if kind.accepted else 1)
    (row,) = box.history.verdicts()
    assert (row.verdict.kind, row.accepted) == (kind, kind.accepted)
    assert list(box.layout.gate.iterdir()) == []


@pytest.mark.parametrize(
    ("owners", "who"),
    [
        ((PortOwner(9, "vllm", "docker-x.scope"),), "docker-x.scope"),
        ((PortOwner(0, "a process of another user", ""),), "a process of another user"),
        ((PortOwner(7, "vllm", SERVICE), PortOwner(9, "nginx", "nginx.service")), "nginx"),
        ((), "nobody any more"),
        ((PortOwner(7, "vllm", SERVICE, "told to serve there"),), "nobody any more"),
    ],
)
def test_a_strangers_answers_prove_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch, owners: tuple[PortOwner, ...], who: str
) -> None:
    owns(monkeypatch, *owners)
    leave(box, VerdictKind.PASS)
    verdict = settle(box).verdict
    assert verdict is not None
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert who in verdict.reason
    assert accepted(box) == 1


def test_who_connects_to_the_port_is_no_stranger(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    near = PortOwner(9, "curl", "session-1.scope", "as the near end of a connection")
    owns(monkeypatch, PortOwner(7, "vllm", SERVICE, LISTENING), near)
    leave(box, VerdictKind.PASS)
    settle(box)
    assert accepted(box) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generation": 1}, "not the current one"),
        ({"invocation": "start-1"}, "runs no more"),
    ],
)
def test_a_proof_of_something_else_is_kept_and_not_accepted(
    box: Box, change: dict[str, Any], words: str
) -> None:
    leave(box, VerdictKind.PASS, **change)
    settled = settle(box)
    assert words in settled.note
    assert accepted(box) == 1
    assert len(box.history.verdicts()) == 1


def test_what_is_not_what_lies_on_disk_is_not_accepted(box: Box) -> None:
    box.layout.installed(SERVICE).write_text("[Service]\n# by hand\n")
    leave(box, VerdictKind.PASS)
    assert "units on disk" in settle(box).note
    assert accepted(box) == 1


def test_nothing_is_accepted_while_a_restart_is_owed(box: Box) -> None:
    owe(box.layout, Action.RESTART, 2)
    leave(box, VerdictKind.PASS)
    assert "units on disk" in settle(box).note
    assert accepted(box) == 1
    settle_debt(box.layout)
    leave(box, VerdictKind.PASS, "r2")
    settle(box)
    assert accepted(box) == 2


def test_the_last_word_of_several_counts(box: Box) -> None:
    """A good record that could not be kept in time, and a bad one of the same start after it."""
    leave(box, VerdictKind.PASS, "r1", at=1)
    leave(box, VerdictKind.FAIL, "r2", at=2)
    verdict = settle(box).verdict
    assert verdict is not None
    assert verdict.kind is VerdictKind.FAIL
    assert accepted(box) == 1
    kept = [(row.verdict.kind, row.accepted) for row in box.history.verdicts()]
    assert kept == [(VerdictKind.FAIL, False), (VerdictKind.PASS, False)]


def test_what_cannot_be_kept_hinders_no_acceptance(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(box, VerdictKind.INCONCLUSIVE, "r1", at=1)
    leave(box, VerdictKind.PASS, "r2", at=2)

    def full(*_: object) -> None:
        raise KimisvcError("history-unusable", "the disk is full")

    monkeypatch.setattr(History, "add_record", full)
    with pytest.raises(KimisvcError, match="full"):
        settle(box)
    assert accepted(box) == 2
    assert len(list(box.layout.gate.iterdir())) == 2  # for the next settle


def test_a_record_that_is_none_is_thrown_away(box: Box) -> None:
    box.layout.record("r1").write_text("{")
    assert settle(box).verdict is None
    assert list(box.layout.gate.iterdir()) == []


# ---------------------------------------------------------------- a start that no gate looks at


@pytest.mark.parametrize(
    ("service", "again"),
    [
        ({"started_monotonic": 10.0}, False),
        ({"started_monotonic": 12.0}, True),
        ({"active_state": "activating", "sub_state": "auto-restart"}, True),
        ({"active_state": "deactivating", "started_monotonic": 12.0}, False),
        ({"active_state": "inactive", "started_monotonic": 12.0}, False),
        ({"active_state": "failed", "started_monotonic": 12.0}, False),
    ],
)
def test_a_start_that_came_meanwhile_gets_a_gate(
    box: Box,
    systemd: Systemd,
    service: dict[str, Any],
    again: bool,  # noqa: FBT001 - expected
) -> None:
    systemd.service = replace(systemd.service, **service)
    settle(box)
    wanted = [("restart", GATE, JobMode.FAIL)]  # never over a stop that waits
    assert [one for one in systemd.asked if one[0] == "restart"] == (wanted if again else [])


# ---------------------------------------------------------------- what is owed


def test_a_debt_is_of_the_generation_it_was_made_for(box: Box) -> None:
    assert owed(box.layout, 2) is None
    owe(box.layout, Action.GATE, 3)
    assert owed(box.layout, 3) is Action.GATE
    assert owed(box.layout, 2) is None  # the switch ended before 3 became the current one
    assert owed(box.layout, None) is None


@pytest.mark.parametrize(
    "note", ["", "{", "[]", '{"action": "RESTART"}', '{"action": "X", "generation": 2}']
)
def test_half_a_note_owes_the_safe_thing(box: Box, note: str) -> None:
    (box.layout.runtime / "owed.json").write_text(note)
    assert owed(box.layout, 2) is Action.RESTART


def test_a_note_that_is_no_text_owes_the_safe_thing(box: Box) -> None:
    (box.layout.runtime / "owed.json").write_bytes(b"\xff\xfe")
    assert owed(box.layout, 2) is Action.RESTART


# ---------------------------------------------------------------- giving up, and being stopped


@pytest.mark.parametrize(
    ("state", "gave_up"),
    [
        ({"active_state": "failed", "restarts": 1}, True),
        ({"active_state": "failed", "restarts": 1, "result": "timeout"}, False),
        ({"active_state": "failed", "exec_main_code": 1, "exec_main_status": 2}, True),
        ({"active_state": "failed", "exec_main_code": 2, "exec_main_status": 2}, False),
        ({"active_state": "failed", "exec_main_code": 2, "exec_main_status": 9}, False),
        ({"active_state": "failed", "exec_main_code": 1, "exec_main_status": 1}, False),
        ({"active_state": "failed", "restarts": 1, "job": 7}, False),
        ({"active_state": "inactive", "restarts": 1}, False),
        ({"active_state": "active", "restarts": 1}, False),
    ],
)
def test_what_systemd_gave_up_is_told_from_what_was_stopped(
    state: dict[str, Any],
    gave_up: bool,  # noqa: FBT001 - the expected answer
) -> None:
    assert _gave_up(replace(ACTIVE, **state)) is gave_up


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
    for verb in ("reload", "stop"):
        monkeypatch.setattr(systemd, verb, lambda *_: "job", raising=False)
    asked: list[object] = []
    monkeypatch.setattr(systemd, "enable", asked.append, raising=False)
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, bool(asked)) == (1, enabled)
    assert ("restart", GATE, JobMode.REPLACE) in systemd.asked
