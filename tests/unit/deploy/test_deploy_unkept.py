"""What history could not take: it waits, is told of, and is taken later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_box import Silent, Systemd, impatient, leave, two_generations

from kimisvc.deploy.follow import Begun, follow
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import History, RollbackRow
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.rollback import for_unit, take_unkept
from kimisvc.deploy.status import read_status
from kimisvc.deploy.unkept import (
    keep_rollback,
    take_rollbacks,
    waiting_records,
    waiting_rollbacks,
)
from kimisvc.errors import KimisvcError
from kimisvc.records.proof import Proof, Verdict, VerdictKind
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box

LACKS = "history lacks what a gate or a rollback did: it could not be written then"


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return impatient(two_generations(tmp_path, systemd, monkeypatch))


class Full:
    """A disk on which history cannot be written, until there is room again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._whole = {name: getattr(History, name) for name in ("add_record", "add_rollback")}
        self._monkeypatch = monkeypatch
        for name in self._whole:
            monkeypatch.setattr(History, name, self._breaks)

    def room_again(self) -> None:
        for name, whole in self._whole.items():
            self._monkeypatch.setattr(History, name, whole)

    @staticmethod
    def _breaks(*_: object) -> None:
        raise KimisvcError("history-unusable", "disk full")


def gate_ended(systemd: Systemd, **more: object) -> None:
    systemd.gate = replace(
        systemd.gate,
        **{"active_state": "failed", "sub_state": "failed", **more},  # type: ignore[arg-type]
    )


def test_a_rollback_on_a_full_disk_is_told_now_and_kept_later(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full(monkeypatch)
    leave(box, VerdictKind.FAIL)
    with pytest.raises(KimisvcError, match="disk full"):
        settle(box)
    gate_ended(systemd, exec_main_status=5)
    row = for_unit(box)
    assert row is not None
    assert "not kept in history: disk full" in row.reason
    gate_ended(systemd, exec_main_status=0)
    leave(box, VerdictKind.PASS, "r2", at=2, generation=1, ended_at=9.0)
    with pytest.raises(KimisvcError, match="disk full"):
        take_unkept(box)  # systemd tries the rollback unit again in a minute
    assert LACKS in read_status(box).drift
    ending = follow(box, Begun(2, 0), Silent())
    assert (ending.outcome, box.generations.current_number()) == (Outcome.ROLLED_BACK, 1)
    assert "generation 1 restored and proven" in ending.reason

    full.room_again()
    take_unkept(box)
    assert [r.to_generation for r in box.history.rollbacks()] == [1]
    assert [v.verdict.kind for v in box.history.verdicts()] == [VerdictKind.PASS, VerdictKind.FAIL]
    assert (waiting_rollbacks(box.layout), waiting_records(box.layout)) == ((), ())
    assert LACKS not in read_status(box).drift


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(VerdictKind.PASS, Outcome.ACCEPTED), (VerdictKind.INCONCLUSIVE, Outcome.INCONCLUSIVE)],
)
def test_a_verdict_on_a_full_disk_is_told_now(
    box: Box,
    systemd: Systemd,
    monkeypatch: pytest.MonkeyPatch,
    kind: VerdictKind,
    outcome: Outcome,
) -> None:
    Full(monkeypatch)
    leave(box, kind)
    with pytest.raises(KimisvcError):
        settle(box)
    gate_ended(systemd)
    ending = follow(box, Begun(2, 0), Silent())
    assert ending.outcome is outcome
    assert ending.reason == "because; not kept in history: it could not be written"


def test_of_two_verdicts_that_wait_the_one_of_the_last_gate_is_told(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back between them."""
    Full(monkeypatch)
    leave(box, VerdictKind.INCONCLUSIVE, "gate-1", ended_at=90.0)
    wrong = Proof(Verdict(VerdictKind.FAIL, "golden answer wrong"))
    leave(box, VerdictKind.FAIL, "gate-2", ended_at=40.0, proof=wrong)
    gate_ended(systemd, exec_main_status=5, invocation_id="gate-2")
    ending = follow(box, Begun(2, 0), Silent())
    assert (ending.outcome, ending.reason[:19]) == (Outcome.NOT_RESTORED, "golden answer wrong")
    row = for_unit(box)
    assert row is not None
    assert row.reason.startswith("golden answer wrong")


def test_nothing_is_taken_from_a_gate_at_work(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.PASS)
    systemd.gate = UnitState(systemd.gate.name, "loaded", "activating", "start")
    take_unkept(box)
    assert len(waiting_records(box.layout)) == 1
    assert box.history.verdicts() == ()


def test_half_a_note_is_a_row_less(box: Box) -> None:
    (box.layout.runtime / "rollbacks.json").write_text("[{")
    assert waiting_rollbacks(box.layout) == ()


def test_what_history_took_before_the_disk_was_full_again_does_not_come_twice(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Full(monkeypatch)
    for at in (1.0, 2.0, 3.0):
        keep_rollback(box, RollbackRow(at, 2, 1, "why"))
    full.room_again()
    whole, left = History.add_rollback, [1]

    def room_for_one(history: History, row: RollbackRow) -> None:
        if not left:
            raise KimisvcError("history-unusable", "disk full")
        left.pop()
        whole(history, row)

    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", room_for_one)
        with pytest.raises(KimisvcError):
            take_rollbacks(box)
    assert [row.at for row in waiting_rollbacks(box.layout)] == [2.0, 3.0]
    take_rollbacks(box)
    assert [row.at for row in box.history.rollbacks()] == [3.0, 2.0, 1.0]
    assert waiting_rollbacks(box.layout) == ()
