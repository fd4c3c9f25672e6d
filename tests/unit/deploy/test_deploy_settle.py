"""What root makes of a gate's record: when it counts, when it does not, and what is asked of systemd."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import GATE, SERVICE, Systemd, leave, owns, two_generations

from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import History
from kimisvc.deploy.owed import owe, owed, settle_debt
from kimisvc.deploy.plan import Action
from kimisvc.errors import KimisvcError
from kimisvc.host.processes import LISTENING, PortOwner
from kimisvc.host.systemd import JobMode
from kimisvc.records.proof import Verdict, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return two_generations(tmp_path, systemd, monkeypatch)


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


def test_the_gate_that_has_just_ended_has_the_last_word_whatever_the_clock_says(
    box: Box, systemd: Systemd
) -> None:
    """It was set back after the record that could not be kept in time."""
    systemd.gate = replace(systemd.gate, invocation_id="gate-2")
    leave(box, VerdictKind.FAIL, "gate-1", at=2000)
    leave(box, VerdictKind.PASS, "gate-2", at=1000)
    verdict = settle(box).verdict
    assert verdict is not None
    assert verdict.kind is VerdictKind.PASS
    assert accepted(box) == 2


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


def test_a_folder_among_the_records_keeps_none_from_being_taken(box: Box) -> None:
    """The gate is unprivileged, and may leave what it likes there."""
    (box.layout.gate / "record-0.json" / "x").mkdir(parents=True)
    os.utime(box.layout.gate / "record-0.json", (0, 0))
    leave(box, VerdictKind.PASS)
    for _ in range(2):
        settle(box)
    assert accepted(box) == 2
    assert [row.verdict.kind for row in box.history.verdicts()] == [VerdictKind.PASS]


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


def test_a_proof_that_was_accepted_before_history_was_full_is_kept_as_accepted(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(box, VerdictKind.PASS, "r1", at=1)
    with monkeypatch.context() as full:
        full.setattr(History, "add_record", breaks)
        with pytest.raises(KimisvcError):
            settle(box)
    assert box.generations.sound_accepted() == box.generations.get(2)
    leave(box, VerdictKind.INCONCLUSIVE, "r2", at=2)
    settle(box)
    kept = {v.verdict.kind: v.accepted for v in box.history.verdicts()}
    assert kept == {VerdictKind.PASS: True, VerdictKind.INCONCLUSIVE: False}


def breaks(*_: object) -> None:
    raise KimisvcError("history-unusable", "full")
