"""What a command tells of what it began: never what was decided of another start or generation."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import SERVICE, Silent, Systemd, impatient, leave, no_server, two_generations

from kimisvc.cli.status import status_json
from kimisvc.deploy.apply import apply
from kimisvc.deploy.failure import has_failed
from kimisvc.deploy.follow import Begun, follow, resume
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import ApplyRow, History, RollbackRow, Which
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.rollback import for_unit, take_unkept
from kimisvc.deploy.status import read_status
from kimisvc.deploy.unkept import waiting_rollbacks
from kimisvc.deploy.wish import Checks, Reload, Wish
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import files
from kimisvc.observe import standing
from kimisvc.observe.snapshots import FilesView, HistoryView, Scene, UnitsView
from kimisvc.records.proof import Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.problems import Problem
    from kimisvc.records.profile import Profile


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return impatient(two_generations(tmp_path, systemd, monkeypatch))


def full(*_: object) -> None:
    raise KimisvcError("history-unusable", "disk full")


def ended(systemd: Systemd, **more: Any) -> None:
    systemd.gate = replace(systemd.gate, active_state="failed", sub_state="failed", **more)


def applied(box: Box, reload: Reload, meanwhile: Callable[[], None]) -> Outcome:
    """What an apply of generation 2 tells, where something happens while it looks at the host."""

    def preflight(_: Profile) -> tuple[Problem, ...]:
        meanwhile()
        return ()

    current = box.generations.get(2)
    wish = Wish(current.settings(), "", current.resolved(), current.units(), "me", reload=reload)
    checks = Checks(preflight, lambda _: (), lambda: None, lambda _: {}, no_server)
    return apply(box, wish, checks, Silent()).ending.outcome


# ---------------------------------------------------------------- a restart and the start it ends


@pytest.mark.parametrize("kind", [VerdictKind.PASS, VerdictKind.FAIL])
def test_a_restart_tells_nothing_of_the_start_that_it_ended(
    box: Box, systemd: Systemd, kind: VerdictKind
) -> None:
    systemd.gate = replace(systemd.gate, active_state="activating", sub_state="start")
    box.generations.accept(box.generations.get(2))

    def meanwhile() -> None:
        leave(box, kind)
        settle(box)
        ended(systemd, exec_main_status=5 if kind is VerdictKind.FAIL else 0)
        for_unit(box)

    assert (
        applied(box, Reload.ALWAYS, meanwhile) is Outcome.STOPPED
    )  # nothing comes: no new start here


def test_a_start_that_is_being_ended_is_not_accepted(box: Box, systemd: Systemd) -> None:
    """Its gate had judged it, and settled after the lock of the switch was free."""
    systemd.service = replace(systemd.service, active_state="deactivating", job=3)
    leave(box, VerdictKind.PASS)
    assert "or is being ended" in settle(box).note
    assert box.generations.sound_accepted() == box.generations.get(1)


def test_a_proof_that_is_cut_off_is_not_told_as_the_one_before(box: Box, systemd: Systemd) -> None:
    """The same start, of which a gate has said something long ago."""
    ended(systemd, invocation_id="gate-1")
    leave(box, VerdictKind.PASS, "gate-1")
    settle(box)
    assert box.generations.sound_accepted() == box.generations.get(2)
    assert applied(box, Reload.PROVE, lambda: None) is Outcome.STOPPED


# ---------------------------------------------------------------- another generation, the same start


def test_the_verdict_on_the_generation_before_is_not_that_of_this_one(
    box: Box, systemd: Systemd
) -> None:
    """A change of the gate alone keeps the model loaded."""
    one, two = box.generations.get(1), box.generations.get(2)
    box.generations.make_current(one)
    box.layout.installed(SERVICE).write_text(one.units()[0].text)
    leave(box, VerdictKind.PASS, generation=1, profile="one")
    settle(box)
    box.generations.make_current(two)
    box.layout.installed(SERVICE).write_text(two.units()[0].text)
    ended(systemd)
    assert status_json(read_status(box))["verdict"] is None
    box.generations.accept(two)  # nothing that runs depended on what changed
    assert status_json(read_status(box))["verdict"] == "PASS"


def test_a_failure_of_the_generation_before_is_not_told_of_the_accepted_one(
    box: Box, systemd: Systemd
) -> None:
    """A change of the gate alone failed, and was rolled back: the same start, whose new proof is to come."""
    one, two = box.generations.get(1), box.generations.get(2)
    box.generations.make_current(one)
    box.layout.installed(SERVICE).write_text(one.units()[0].text)
    good = Proof(Verdict(VerdictKind.PASS, "81 tok/s"))
    leave(box, VerdictKind.PASS, "r0", generation=1, profile="one", proof=good)
    settle(box)
    box.generations.make_current(two)
    box.layout.installed(SERVICE).write_text(two.units()[0].text)
    leave(box, VerdictKind.FAIL, proof=Proof(Verdict(VerdictKind.FAIL, "golden answer wrong")))
    settle(box)
    ended(systemd, exec_main_status=5)
    assert for_unit(box) is not None
    systemd.gate = replace(systemd.gate, active_state="activating", exec_main_status=0)
    told = status_json(read_status(box))
    assert (told["generation"], told["verdict"], told["reason"]) == (1, "PASS", "81 tok/s")
    units = UnitsView(systemd.service, systemd.gate, systemd.rollback)
    history = HistoryView(verdicts=box.history.verdicts())
    scene = Scene("kimi", units, FilesView(current=one, accepted=1), history)
    seen = standing.verdict(scene)
    assert seen is not None
    assert (seen.generation, seen.verdict) == (1, Verdict(VerdictKind.PASS, "81 tok/s"))
    assert standing.verdict(replace(scene, history=HistoryView())) is None


# ---------------------------------------------------------------- a rollback that was cut off


def restored(box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> int:
    """Generation 2 fails, the rollback to 1 breaks in the middle and is finished by its next try."""
    since = box.history.begin_apply(ApplyRow(50.0, None, 2, 1, "two", "me", (), None, None))
    leave(box, VerdictKind.FAIL, proof=Proof(Verdict(VerdictKind.FAIL, "golden answer wrong")))
    settle(box)
    ended(systemd, exec_main_status=5)
    with monkeypatch.context() as busy:
        busy.setattr(systemd, "reload", full)
        with pytest.raises(KimisvcError):
            for_unit(box)
    systemd.gate = replace(systemd.gate, active_state="activating", exec_main_status=0)
    assert for_unit(box) is not None
    return since


def proven(box: Box) -> None:
    good = Proof(Verdict(VerdictKind.PASS, "81 tok/s"))
    leave(box, VerdictKind.PASS, "r9", at=9, generation=1, profile="one", proof=good)
    settle(box)


def test_a_rollback_that_was_cut_off_and_finished_has_restored(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = restored(box, systemd, monkeypatch)
    ending = follow(replace(box, sleep=lambda _: proven(box)), Begun(2, since), Silent())
    assert ending.outcome is Outcome.ROLLED_BACK
    assert ending.reason == "golden answer wrong; generation 1 restored and proven"
    assert [row.outcome for row in box.history.applies()] == ["rolled-back"]
    told = read_status(box).last_rollback
    assert told is not None
    assert (told.from_generation, told.to_generation) == (2, 1)


def test_who_comes_while_what_was_restored_loads_is_told_the_same(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored(box, systemd, monkeypatch)
    done = resume(replace(box, sleep=lambda _: proven(box)), Silent())
    assert done is not None
    assert (done.generation, done.ending.outcome) == (2, Outcome.ROLLED_BACK)


def test_a_history_that_holds_a_finished_switch_tells_of_none(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier kimisvc wrote it: a row from a generation to itself."""
    since = restored(box, systemd, monkeypatch)
    box.history.add_rollback(RollbackRow(99.0, 1, 1, "a switch to it was cut off; finished"))
    ending = follow(replace(box, sleep=lambda _: proven(box)), Begun(2, since), Silent())
    assert ending.outcome is Outcome.ROLLED_BACK
    assert [(r.from_generation, r.to_generation) for r in box.history.rollbacks()] == [(2, 1)]
    assert box.history.find_rollbacks(Which(generation=1)) == box.history.rollbacks()


# ---------------------------------------------------------------- nothing comes any more


def test_a_fail_that_no_rollback_follows_is_told_as_one(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, exec_main_status=5)
    ending = follow(box, Begun(2, 0), Silent())
    assert ending.outcome is Outcome.NOT_RESTORED
    assert ending.reason.startswith("because; no rollback came")


def test_who_follows_what_was_replaced_is_told_so(box: Box, systemd: Systemd) -> None:
    ended(systemd)
    ending = follow(box, Begun(1, 0), Silent())
    assert (ending.outcome, ending.reason) == (
        Outcome.SUPERSEDED, "generation 2 was applied since, in the place of 1",
    )  # fmt: skip


def test_who_comes_after_the_verdict_is_told_it(box: Box, systemd: Systemd) -> None:
    leave(box, VerdictKind.PASS)
    settle(box)
    ended(systemd)
    ending = follow(box, Begun(2, box.history.sequence()), Silent())
    assert (ending.outcome, ending.reason) == (Outcome.ACCEPTED, "because")


# ---------------------------------------------------------------- a full disk


def test_a_success_is_never_told_as_the_reason_of_a_failure(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(box, VerdictKind.PASS, proof=Proof(Verdict(VerdictKind.PASS, "81.4 tok/s")))
    settle(box)
    monkeypatch.setattr(History, "add_record", full)
    wrong = Proof(Verdict(VerdictKind.FAIL, "golden answer wrong"))
    leave(box, VerdictKind.FAIL, name="r2", at=2, proof=wrong)
    with pytest.raises(KimisvcError):
        settle(box)
    ended(systemd, exec_main_status=5)
    row = for_unit(box)
    assert row is not None
    assert row.reason.startswith("golden answer wrong; generation 2")


def test_a_record_that_waits_does_not_speak_for_another_start(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(systemd, result="timeout", invocation_id="gate-2")
    monkeypatch.setattr(History, "add_record", full)
    leave(box, VerdictKind.PASS, name="old", invocation="start-1", generation=1, ended_at=60.0)
    assert has_failed(box)


@pytest.mark.parametrize("tries", [1, 5])
def test_a_rollback_that_is_tried_again_is_told_once(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, exec_main_status=5)

    whole = files.write_atomic

    def no_space(path: Path, text: str, mode: int = 0o644) -> None:
        if not path.is_relative_to(box.layout.runtime):  # in memory
            raise HostError("file-error", "no space left")
        whole(path, text, mode)

    with monkeypatch.context() as etc:
        etc.setattr(files, "write_atomic", no_space)
        for _ in range(tries):
            with pytest.raises(HostError):
                for_unit(box)
    assert [row.to_generation for row in box.history.rollbacks()] == [1]


@pytest.mark.parametrize("again", ["service", "gate"])
def test_the_next_failure_is_told_though_the_clock_was_set_back(
    box: Box, systemd: Systemd, again: str
) -> None:
    box.generations.accept(box.generations.get(2))
    ended(systemd, exec_main_status=5, started_at=4900.0, invocation_id="gate-1")
    for_unit(replace(box, now=lambda: 5000.0))
    since = box.history.begin_apply(ApplyRow(800.0, None, 2, 2, "two", "me", (), None, None))
    unit = replace(getattr(systemd, again), invocation_id="another", started_at=900.0)
    setattr(systemd, again, unit)
    earlier = replace(box, now=lambda: 1000.0)
    for_unit(earlier)
    for_unit(earlier)  # and once
    assert [row.at for row in box.history.rollbacks()] == [1000.0, 5000.0]
    assert follow(box, Begun(2, since), Silent()).outcome is Outcome.NOT_RESTORED
    assert [row.outcome for row in box.history.applies()] == ["not-restored"]


def test_a_service_that_gives_up_after_a_fail_that_kept_it_is_told(
    box: Box, systemd: Systemd
) -> None:
    """No start comes in between: what failed tells the one from the other."""
    box.generations.accept(box.generations.get(2))
    ended(systemd, exec_main_status=5, invocation_id="gate-1")
    for_unit(box)
    systemd.service = replace(
        systemd.service, active_state="failed", sub_state="failed", result="exit-code",
        exec_main_code=1, exec_main_status=1, restarts=3, main_started_monotonic=10.0,
        main_ended_monotonic=15.0, started_monotonic=20.0,
    )  # fmt: skip
    journal: Any = SimpleNamespace(tail=lambda *_: ())
    later = replace(box, journal=journal)
    row = for_unit(later)
    for_unit(later)  # and once
    assert row is not None
    assert row.reason.startswith("the service gave up after 3 starts (exit-code")
    kept = [one.reason for one in box.history.rollbacks()]
    assert kept[0] == row.reason
    assert [one.split(";")[0] for one in kept[1:]] == ["the gate said FAIL"]


def test_a_note_of_what_was_told_that_cannot_be_written_stops_no_rollback(
    box: Box, systemd: Systemd
) -> None:
    ended(systemd, exec_main_status=5)
    (box.layout.runtime / "told.json").mkdir()
    assert for_unit(box) is not None
    assert box.generations.current_number() == 1


def test_a_rollback_that_waits_is_told_once_and_closes_its_apply(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.generations.accept(box.generations.get(2))
    leave(box, VerdictKind.FAIL)
    settle(box)
    ended(systemd, exec_main_status=5)
    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", full)
        for _ in range(3):
            for_unit(box)
    assert len(waiting_rollbacks(box.layout)) == 1
    ended(systemd)
    take_unkept(box)
    assert [row.to_generation for row in box.history.rollbacks()] == [None]
