"""What status says where history cannot tell of the start that runs, and of one that failed and goes on."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_box import RUNS, SERVICE, Silent, Systemd, impatient, leave, two_generations

from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.follow import Begun, follow
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import (
    Accepted,
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    History,
    RollbackRow,
)
from kimisvc.deploy.history.schema import SCHEMA_VERSION
from kimisvc.deploy.outcome import LOAD_ANEW, Outcome
from kimisvc.deploy.redacting import READ_BEFORE
from kimisvc.deploy.rollback import for_unit
from kimisvc.deploy.status import read_status
from kimisvc.deploy.unkept import keep_rollback, take_rollbacks
from kimisvc.errors import KimisvcError
from kimisvc.observe.sources import HistoryReader
from kimisvc.records.proof import Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return impatient(two_generations(tmp_path, systemd, monkeypatch))


def ended(systemd: Systemd, state: str = "inactive", **more: object) -> None:
    systemd.gate = replace(
        systemd.gate,
        **{"active_state": state, "sub_state": "dead", **more},  # type: ignore[arg-type]
    )


def rows(box: Box) -> dict[str, str]:
    """The rows of status by their names; of those with the same name the first."""
    found: dict[str, str] = {}
    for line in status_text(read_status(box), box).splitlines():
        name, _, words = line.partition("  ")
        found.setdefault(name, words.strip())
    return found


def proven(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.PASS)
    settle(box)
    ended(systemd)


# ---------------------------------------------------------------- history that cannot tell


def test_a_history_that_is_gone_is_named_and_nothing_is_made_up(box: Box, systemd: Systemd) -> None:
    proven(box, systemd)
    assert (read_status(box).ready, rows(box)["ready"]) == (True, "yes")
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"], told["history"]) == (None, None, "missing")
    assert [line for line in told["drift"] if f"{box.layout.history} is not there" in line]
    said = rows(box)
    assert said["ready"] == "not known: what history held is lost"
    assert said["verdict"].startswith("not known: what history held is lost")


def flown(box: Box) -> None:
    box.history.add_canary(CanaryRow(1.0, RUNS, 2, "two", CanaryResult.MEASURED, 50.0))


def benched(box: Box) -> None:
    box.history.add_bench(
        BenchRow(1.0, RUNS, 2, "two", 8, 64, 0, 300.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0)
    )


def rolled_back(box: Box) -> None:
    assert keep_rollback(box, RollbackRow(1.0, 3, 2, "slow")) == ""


def looked_at(box: Box) -> None:
    box.history.add_record(leave(box, None, ready_at=0.0), Accepted.NO)


def applied(box: Box) -> None:
    """An apply after the loss, the gate of which was stopped: it says what was current before it."""
    box.history.begin_apply(ApplyRow(1.0, None, 2, 2, "two", "root", (), None, None))


@pytest.mark.parametrize("again", [flown, benched, rolled_back, looked_at, applied])
def test_a_history_that_was_made_anew_does_not_know_what_the_lost_one_did(
    box: Box, systemd: Systemd, again: Callable[[Box], None]
) -> None:
    proven(box, systemd)
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()
    again(box)
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"], told["history"]) == (None, None, "missing")
    assert [line for line in told["drift"] if f"{box.layout.history} was begun anew" in line]
    assert rows(box)["ready"] == "not known: what history held is lost"
    with pytest.raises(KimisvcError) as error:
        HistoryReader(box.layout).read()
    assert error.value.code == "history-missing"
    leave(box, VerdictKind.PASS, "r2")
    settle(box)
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"], told["history"]) == (True, "PASS", "read")
    assert HistoryReader(box.layout).read().verdicts


def test_a_history_that_was_set_aside_is_lost_too(box: Box, systemd: Systemd) -> None:
    proven(box, systemd)
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()
    box.layout.history.write_bytes(b"no database at all" * 100)
    assert box.history.mend(5.0) is not None
    rolled_back(box)
    assert status_json(read_status(box))["history"] == "missing"


def test_before_its_first_gate_has_judged_nothing_is_lost(box: Box) -> None:
    box.history.begin_apply(ApplyRow(1.0, None, 2, None, "two", "root", (), None, None))
    told = status_json(read_status(box))
    assert (told["ready"], told["history"]) == (False, "read")
    assert HistoryReader(box.layout).read().verdicts == ()


def test_a_history_that_never_was_is_missed_by_nobody(box: Box) -> None:
    box.layout.current.unlink()
    assert not [line for line in read_status(box).drift if str(box.layout.history) in line]


def newer(box: Box) -> None:
    db = sqlite3.connect(box.layout.history)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()


def folder(box: Box) -> None:
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()
    box.layout.history.mkdir()


@pytest.mark.parametrize("spoil", [newer, folder])
def test_of_a_history_that_cannot_be_read_nothing_is_said_but_that(
    box: Box, systemd: Systemd, spoil: object
) -> None:
    proven(box, systemd)
    assert callable(spoil)
    spoil(box)
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"], told["history"]) == (None, None, "unreadable")
    assert [line for line in told["drift"] if line.startswith("the history cannot be read")]
    said = rows(box)
    assert said["ready"] == "not known: the history cannot be read"
    assert said["verdict"] == "not known: the history cannot be read"


def test_what_does_not_run_or_loads_is_not_ready_whatever_history_says(
    box: Box, systemd: Systemd
) -> None:
    proven(box, systemd)
    newer(box)
    ended(systemd, "activating")
    assert read_status(box).ready is False
    ended(systemd)
    systemd.service = replace(systemd.service, active_state="failed")
    assert read_status(box).ready is False


def test_a_gate_that_was_stopped_has_shown_nothing(box: Box, systemd: Systemd) -> None:
    """It ends with status 0 then, as one that has accepted: history is there, and lacks it."""
    proven(box, systemd)
    systemd.service = replace(systemd.service, invocation_id="start-3")
    assert (read_status(box).ready, status_json(read_status(box))["history"]) == (None, "read")
    assert rows(box)["ready"] == "not known: no gate has seen it ready"
    assert "its gate ended without one" in rows(box)["verdict"]
    systemd.gate = replace(systemd.gate, job=7)
    assert read_status(box).ready is False  # it is about to look again


# ---------------------------------------------------------------- a full disk


def test_a_verdict_that_waits_for_room_is_told_and_marked(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise KimisvcError("history-unusable", "disk full")

    with monkeypatch.context() as disk:
        disk.setattr(History, "add_record", full)
        leave(box, VerdictKind.PASS, "gate-1", load_s=1.5)
        systemd.gate = replace(systemd.gate, invocation_id="gate-1")
        assert status_json(read_status(box))["verdict"] is None  # settle has not judged it
        with pytest.raises(KimisvcError):
            settle(box)
    ended(systemd)
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"], told["verdict_waits"]) == (True, "PASS", True)
    assert told["load_s"] == 1.5
    assert rows(box)["verdict"].endswith("; not kept in history yet")
    settle(box)
    told = status_json(read_status(box))
    assert (told["verdict"], told["verdict_waits"]) == ("PASS", False)
    assert "not kept" not in rows(box)["verdict"]


def test_a_verdict_that_waits_is_newer_than_what_history_has(box: Box, systemd: Systemd) -> None:
    proven(box, systemd)
    leave(box, VerdictKind.FAIL, "r2", ended_at=9.0)
    assert status_json(read_status(box))["verdict"] == "FAIL"
    leave(box, VerdictKind.PASS, "r3", ended_at=10.0, invocation="another")
    assert status_json(read_status(box))["verdict"] == "FAIL"


def test_a_start_whose_first_gate_was_cut_off_is_ready_by_the_one_that_waits(
    box: Box, systemd: Systemd
) -> None:
    leave(box, None, "r1", ready_at=0.0)
    settle(box)
    ended(systemd)
    assert status_json(read_status(box))["ready"] is not True
    leave(box, VerdictKind.PASS, "r2", ended_at=9.0)
    told = status_json(read_status(box))
    assert (told["ready"], told["verdict"]) == (True, "PASS")


def test_a_rollback_that_waits_for_room_is_the_last(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven(box, systemd)
    box.history.add_rollback(RollbackRow(40.0, 2, None, "last week"))
    waits = RollbackRow(50.0, 2, 1, "slow")

    def full(*_: object) -> None:
        raise KimisvcError("history-unusable", "disk full")

    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", full)
        keep_rollback(box, waits)
    told = read_status(box).last_rollback
    assert told is not None
    assert (told.reason, told.to_generation) == ("slow", 1)
    take_rollbacks(box)
    told = read_status(box).last_rollback
    assert told is not None
    assert (told.reason, told.sequence > 0) == ("slow", True)


@pytest.mark.parametrize("between", ["auto-restart", "auto-restart-queued"])
def test_between_two_starts_the_verdict_on_the_dead_one_is_none(
    box: Box, systemd: Systemd, between: str
) -> None:
    proven(box, systemd)
    assert status_json(read_status(box))["verdict"] == "PASS"
    systemd.service = replace(systemd.service, active_state="activating", sub_state=between)
    assert status_json(read_status(box))["verdict"] is None


def test_what_waits_is_told_without_secrets(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settle takes them out of what history keeps; this was not in its hands to the end."""
    monkeypatch.setenv("VLLM_API_KEY", "correct-horse-battery")
    said = Proof(Verdict(VerdictKind.FAIL, "it said correct-horse-battery"))
    leave(box, VerdictKind.FAIL, proof=said)
    ended(systemd, "failed")
    assert "correct-horse" not in status_text(read_status(box), box)


# ---------------------------------------------------------------- a start that failed and goes on


def test_how_a_start_that_failed_is_loaded_anew_is_said(box: Box, systemd: Systemd) -> None:
    box.generations.accept(box.generations.get(2))
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, "failed", exec_main_status=5)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation is None
    assert LOAD_ANEW not in row.reason  # history keeps why, and not what to do
    ending = follow(box, Begun(2, 0), Silent())
    assert ending.outcome is Outcome.NOT_RESTORED
    assert ending.reason.endswith(f"; {LOAD_ANEW}")
    assert "kimisvc apply --restart PROFILE" in status_text(read_status(box), box)
    systemd.rollback = replace(systemd.rollback, active_state="activating")
    assert LOAD_ANEW not in status_text(read_status(box), box)


def test_a_start_that_is_gone_gets_no_hint(box: Box, systemd: Systemd) -> None:
    box.generations.accept(box.generations.get(2))
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, "failed", exec_main_status=5)
    assert for_unit(box) is not None
    systemd.service = replace(systemd.service, active_state="inactive")
    assert LOAD_ANEW not in follow(box, Begun(2, 0), Silent()).reason
    assert LOAD_ANEW not in status_text(read_status(box), box)


def test_where_no_rollback_came_the_hint_is_given_too(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, "failed", exec_main_status=5)
    ending = follow(box, Begun(2, 0), Silent())
    assert "no rollback came" in ending.reason
    assert ending.reason.endswith(f"; {LOAD_ANEW}")


# ---------------------------------------------------------------- drop-ins


def test_a_drop_in_that_was_changed_since_the_start_is_marked(
    box: Box, systemd: Systemd, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.conf" for name in ("old", "new", "moved", "gone")]
    for path in paths[:3]:
        path.write_text("[Service]\n")
    begun = paths[0].stat().st_ctime + READ_BEFORE
    os.utime(paths[1], (begun + 1, begun + 1))
    while paths[2].stat().st_ctime <= begun:  # the clock of files goes in ticks
        os.utime(paths[2], (100.0, 100.0))  # moved into its place, it keeps its age
    old, new, moved, gone = map(str, paths)
    systemd.service = replace(
        systemd.service, name=SERVICE, drop_ins=(old, new, moved, gone), main_started_at=begun
    )
    # The clock of today agrees with what was noted.
    box = replace(box, now=lambda: begun, clock=lambda: systemd.service.main_started_monotonic)
    told = status_json(read_status(box))
    assert (told["drop_ins"], told["drop_ins_changed_since_start"]) == (
        [old, new, moved, gone],
        [new, moved],
    )
    said = status_text(read_status(box), box)
    assert f"{new} (changed since the start: if its text was, that takes effect at" in said
    assert f"{old} (" not in said
    assert "not in effect" not in said  # a chmod or a backup by hard links looks like that, too
    systemd.service = replace(systemd.service, active_state="inactive")
    assert status_json(read_status(box))["drop_ins_changed_since_start"] == []
