"""What is told of a rollback that waits for room on the disk: that it came, why, and what it left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import SERVICE, Silent, Systemd, leave, no_server, two_generations

from kimisvc.deploy.apply import apply
from kimisvc.deploy.follow import Begun, follow, resume, rollbacks_before
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import ApplyRow, History, RollbackRow
from kimisvc.deploy.outcome import LOAD_ANEW, Outcome
from kimisvc.deploy.owed import owe
from kimisvc.deploy.plan import Action
from kimisvc.deploy.rollback import Restoring, for_unit, take_unkept, to_generation
from kimisvc.deploy.tune.begun import was_begun
from kimisvc.deploy.tune.state import Pending
from kimisvc.deploy.unkept import keep_rollback, rollbacks_after, waiting_rollbacks
from kimisvc.deploy.wish import Checks, Wish
from kimisvc.errors import KimisvcError
from kimisvc.records.proof import Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.outcome import Ending

WRONG = "golden answer wrong"
NONE_CAME = "the gate ended without a verdict (signal): kimisvc apply runs it again"
WRITES = ("add_record", "add_rollback", "close_applies", "end_apply")


class Heard(Silent):
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


@dataclass
class Played:
    """A box whose generation 2 runs on a disk that is full, and what happens to it, tick by tick."""

    box: Box
    systemd: Systemd
    monkeypatch: pytest.MonkeyPatch
    moment: float = 0.0
    events: list[Callable[[], None]] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    whole: dict[str, Any] = field(default_factory=dict)

    def fill(self) -> None:
        def full(*_: object) -> None:
            raise KimisvcError("history-unusable", "disk full")

        for name in WRITES:
            self.whole[name] = getattr(History, name)
            self.monkeypatch.setattr(History, name, full)

    def make_room(self) -> None:
        for name, write in self.whole.items():
            self.monkeypatch.setattr(History, name, write)

    def tick(self, seconds: float) -> None:
        self.moment += seconds
        assert self.moment < 120, "it is followed for ever"
        if self.events:
            self.events.pop(0)()

    def restart(self, unit: str, *_: object) -> str:
        if unit == SERVICE:
            self.systemd.service = replace(
                self.systemd.service, active_state="active", sub_state="running",
                invocation_id="start-3", started_monotonic=500.0,
            )  # fmt: skip
        self.gate("activating", "start", "gate-9")
        return "job"

    def gate(self, active: str, sub: str, invocation: str, **more: Any) -> None:
        self.systemd.gate = replace(
            self.systemd.gate, active_state=active, sub_state=sub, invocation_id=invocation,
            exec_main_status=more.pop("status", 0), result=more.pop("result", "success"),
            started_monotonic=self.systemd.service.started_monotonic + 1,
        )  # fmt: skip

    def judged(self, kind: VerdictKind, why: str, gate: str, generation: int = 2) -> None:
        """A gate judges what runs, and settle does with its record what it can."""
        fail = kind is VerdictKind.FAIL
        self.gate("failed" if fail else "inactive", "dead", gate, status=5 if fail else 0)
        leave(
            self.box, kind, gate, generation=generation, profile=("one", "two")[generation - 1],
            invocation=self.systemd.service.invocation_id, proof=Proof(Verdict(kind, why)),
        )  # fmt: skip
        try:
            settle(self.box)
        except KimisvcError:
            self.systemd.gate = replace(self.systemd.gate, active_state="failed")

    def fails(self) -> RollbackRow:
        """Generation 2 fails at its golden question, and the rollback unit does its work."""
        self.judged(VerdictKind.FAIL, WRONG, "gate-2")
        row = for_unit(self.box)
        assert row is not None
        return row

    def cut_off(self) -> None:
        """The gate that is at work is killed; the rollback unit finds nothing to do."""
        self.gate("failed", "failed", "gate-9", result="signal")
        assert for_unit(self.box) is None

    def tried_again(self, restarts: int = 1) -> None:
        """The rollback unit waits for its next try, as what waits could not be put into history."""
        with pytest.raises(KimisvcError, match="disk full"):
            take_unkept(self.box)
        self.systemd.rollback = replace(
            self.systemd.rollback, active_state="activating", sub_state="auto-restart",
            restarts=restarts,
        )  # fmt: skip

    def begun(self) -> Begun:
        """What an apply of generation 2 has begun."""
        return Begun(
            2, self.box.history.sequence(), before=frozenset(), waited=rollbacks_before(self.box)
        )

    def followed(self, *events: Callable[[], Any], begun: Begun | None = None) -> Ending:
        self.events = list(events)
        return follow(self.box, begun or self.begun(), self.heard)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    systemd = Systemd()
    made = Played(two_generations(tmp_path, systemd, monkeypatch), systemd, monkeypatch)
    journal: Any = SimpleNamespace(tail=lambda *_: ())
    made.box = replace(made.box, journal=journal, clock=lambda: made.moment, sleep=made.tick)
    monkeypatch.setattr(systemd, "restart", made.restart)
    made.gate("activating", "start", "gate-2")
    made.fill()
    return made


@pytest.fixture(params=["loaded anew", "kept"])
def either(request: pytest.FixtureRequest, played: Played) -> Played:
    """A rollback to generation 1 loads it anew, or only its gate differs."""
    if request.param == "loaded anew":
        owe(played.box.layout, Action.RESTART, 2)
    return played


# ---------------------------------------------------------------- nothing to go back to


@pytest.mark.parametrize("tries", [None, 0, 1, 7])
def test_why_nothing_was_restored_is_told_and_not_that_the_unit_is_tried_again(
    played: Played, tries: int | None
) -> None:
    played.box.generations.accept(played.box.generations.get(2))

    def fails() -> None:
        played.fails()
        if tries is not None:
            played.tried_again(tries)

    ending = played.followed(fails)
    left = "generation 2 (two) is itself the last accepted one; left as it is"
    assert (ending.outcome, ending.reason) == (
        Outcome.NOT_RESTORED, f"{WRONG}; {left}; {LOAD_ANEW}",
    )  # fmt: skip


def test_what_does_not_go_on_has_no_start_to_be_loaded_anew(played: Played) -> None:
    played.box.generations.accept(played.box.generations.get(2))
    begun = played.begun()
    played.fails()
    played.systemd.service = replace(played.systemd.service, active_state="failed")
    assert LOAD_ANEW not in played.followed(begun=begun).reason


# ---------------------------------------------------------------- another was restored


@pytest.mark.parametrize("tries", [None, 0, 1])
def test_a_restored_generation_whose_gate_is_cut_off_was_restored_and_not_applied(
    either: Played, tries: int | None
) -> None:
    def cut_off() -> None:
        either.cut_off()
        if tries is not None:
            either.tried_again(tries)

    def again() -> None:
        either.systemd.rollback = replace(either.systemd.rollback, restarts=1)

    ending = either.followed(either.fails, cut_off, *([] if tries is None else [again]))
    assert ending.outcome is Outcome.NOT_RESTORED
    assert ending.reason.startswith(f"{WRONG}; generation 1 restored, but not proven: {NONE_CAME}")
    assert either.heard.steps == [f"rolling back to generation 1: {WRONG}"]


def test_the_same_is_told_where_history_has_the_rollback(either: Played) -> None:
    either.make_room()
    ending = either.followed(either.fails, either.cut_off)
    assert ending.outcome is Outcome.NOT_RESTORED
    assert ending.reason.startswith(f"{WRONG}; generation 1 restored, but not proven: {NONE_CAME}")


def test_a_rollback_that_broke_in_the_middle_has_restored_nothing_yet(either: Played) -> None:
    """Its row waits, and its unit is tried again for another reason than room."""

    def breaks() -> None:
        either.fails()
        owe(either.box.layout, Action.RESTART, 1)
        either.cut_off()
        either.systemd.rollback = replace(
            either.systemd.rollback, active_state="activating", sub_state="auto-restart", restarts=1
        )

    either.monkeypatch.setattr("kimisvc.deploy.rollback.unfinished_switch", lambda *_: None)
    ending = either.followed(breaks)
    assert ending.outcome is Outcome.NOT_RESTORED
    assert ending.reason.startswith(f"{WRONG}; the rollback unit failed: it is tried again")


def test_what_gave_up_and_was_rolled_back_is_told_with_its_reason(played: Played) -> None:
    """No gate left a record of it: the rollback that waits alone tells why."""

    def gives_up() -> None:
        played.gate("inactive", "dead", "gate-2")
        played.systemd.service = replace(
            played.systemd.service, active_state="failed", sub_state="failed", result="exit-code",
            exec_main_code=1, exec_main_status=2, restarts=0, main_ended_monotonic=15.0,
        )  # fmt: skip
        assert for_unit(played.box) is not None

    def proven() -> None:
        played.judged(VerdictKind.PASS, "81 tok/s", "gate-9", generation=1)

    ending = played.followed(gives_up, proven)
    assert ending.outcome is Outcome.ROLLED_BACK
    assert ending.reason.startswith("the service gave up after 1 start (exit-code, exit status 2)")
    assert "generation 1 restored and proven: 81 tok/s; not kept in history" in ending.reason


def test_what_was_restored_and_failed_too_is_told_as_both(either: Played) -> None:
    def fails_too() -> None:
        either.judged(VerdictKind.FAIL, "slow", "gate-9", generation=1)
        assert for_unit(either.box) is not None

    ending = either.followed(either.fails, fails_too)
    why = "slow; generation 1 (one) is itself the last accepted one; left as it is"
    both = f"{WRONG}; generation 1 was restored and failed too: {why}; {LOAD_ANEW}"
    assert (ending.outcome, ending.reason) == (Outcome.NOT_RESTORED, both)


def test_room_that_comes_meanwhile_tells_nothing_twice(either: Played) -> None:
    def room() -> None:
        either.make_room()
        either.judged(VerdictKind.PASS, "81 tok/s", "gate-9", generation=1)

    ending = either.followed(either.fails, room)
    assert (ending.outcome, ending.reason) == (
        Outcome.ROLLED_BACK, f"{WRONG}; generation 1 restored and proven",
    )  # fmt: skip
    assert either.heard.steps == [f"rolling back to generation 1: {WRONG}"]
    assert waiting_rollbacks(either.box.layout) == ()


def test_what_was_applied_since_is_still_told_as_that(played: Played) -> None:
    ending = played.followed(
        lambda: played.judged(VerdictKind.INCONCLUSIVE, "not known", "gate-2"),
        begun=replace(played.begun(), generation=1),
    )
    assert (ending.outcome, ending.reason) == (
        Outcome.SUPERSEDED, "generation 2 was applied since, in the place of 1",
    )  # fmt: skip


def test_what_was_applied_after_the_rollback_was_not_restored_by_it(played: Played) -> None:
    def applied() -> None:
        played.fails()
        one = played.box.generations.get(1)
        three = Draft("three", "", one.resolved(), one.units(), {})
        played.box.generations.make_current(played.box.generations.add(three, 1.0))
        played.cut_off()

    ending = played.followed(applied)
    assert (ending.outcome, ending.reason) == (
        Outcome.SUPERSEDED, "generation 3 was applied since, in the place of 2",
    )  # fmt: skip


# ---------------------------------------------------------------- what waited before


def test_a_rollback_that_waits_since_before_is_not_that_of_what_is_begun(played: Played) -> None:
    """Nor when history takes it at last: it comes after the apply there."""
    keep_rollback(played.box, RollbackRow(50.0, 2, 1, "last week"))
    begun = played.begun()
    assert begun.waited == frozenset({RollbackRow(50.0, 2, 1, "last week")})

    def proven() -> None:
        played.make_room()
        played.judged(VerdictKind.PASS, "81 tok/s", "gate-2")

    ending = played.followed(proven, begun=begun)
    assert (ending.outcome, ending.reason) == (Outcome.ACCEPTED, "81 tok/s")
    assert [row.reason for row in played.box.history.rollbacks(begun.since or 0)] == ["last week"]


def test_an_apply_knows_what_waited_before_it(played: Played) -> None:
    """And it is told that this profile was rejected, which history takes as the first."""
    keep_rollback(played.box, RollbackRow(40.0, 2, None, "wrong last year"))
    keep_rollback(played.box, RollbackRow(50.0, 2, 1, "too slow last week"))
    played.systemd.service = replace(played.systemd.service, active_state="inactive")
    two = played.box.generations.get(2)
    wish = Wish(two.settings(), "", two.resolved(), two.units(), "me")
    checks = Checks(lambda _: (), lambda _: (), lambda: None, lambda _: {}, no_server)
    with pytest.raises(KimisvcError, match="disk full"):
        apply(played.box, wish, checks, played.heard)
    assert played.systemd.service.active_state == "inactive"
    assert not played.box.history.applies()
    played.make_room()
    played.events = [
        lambda: None,
        lambda: played.judged(VerdictKind.INCONCLUSIVE, "not known", "gate-9"),
    ]
    ending = apply(played.box, wish, checks, played.heard).ending
    assert ending.outcome is Outcome.INCONCLUSIVE
    assert "warning: this profile was rejected before: too slow last week" in played.heard.steps


def test_a_rollback_by_hand_knows_what_waited_before_it(played: Played) -> None:
    keep_rollback(played.box, RollbackRow(50.0, 1, None, "too slow last week"))
    played.events = [lambda: played.judged(VerdictKind.PASS, "81 tok/s", "gate-9", generation=1)]
    wish = Restoring(1, "root")
    ending = to_generation(played.box, wish, lambda _: (), played.heard).ending
    assert (ending.outcome, ending.reason[:8]) == (Outcome.ACCEPTED, "81 tok/s")


# ---------------------------------------------------------------- who comes later


def test_who_comes_while_what_was_restored_loads_is_told_of_what_was_begun(played: Played) -> None:
    played.make_room()
    played.box.history.begin_apply(ApplyRow(50.0, None, 2, 1, "two", "me", (), None, None))
    played.fill()
    keep_rollback(played.box, RollbackRow(40.0, 2, 1, "last week"))
    played.fails()
    played.events = [lambda: played.judged(VerdictKind.PASS, "81 tok/s", "gate-9", generation=1)]
    done = resume(played.box, played.heard)
    assert done is not None
    assert (done.generation, done.ending.outcome) == (2, Outcome.ROLLED_BACK)
    assert done.ending.reason.startswith(f"{WRONG}; generation 1 restored and proven")


def test_who_comes_while_a_gate_is_at_work_again_is_told_of_that_one(played: Played) -> None:
    """What was left as it is crashed since, say, and is proven anew."""
    played.box.generations.accept(played.box.generations.get(2))
    played.fails()
    played.gate("activating", "start", "gate-3")
    played.events = [lambda: played.judged(VerdictKind.PASS, "81 tok/s", "gate-3")]
    done = resume(played.box, played.heard)
    assert done is not None
    assert (done.generation, done.ending.outcome) == (2, Outcome.ACCEPTED)


def test_who_comes_after_what_was_restored_has_been_judged_is_told_of_its_next_gate(
    played: Played,
) -> None:
    played.fails()
    played.judged(VerdictKind.PASS, "81 tok/s", "gate-9", generation=1)
    played.gate("activating", "start", "gate-10")
    played.events = [lambda: played.judged(VerdictKind.PASS, "80 tok/s", "gate-10", generation=1)]
    done = resume(played.box, played.heard)
    assert done is not None
    assert (done.generation, done.ending.outcome) == (1, Outcome.ACCEPTED)
    assert done.ending.reason.startswith("80 tok/s")


# ---------------------------------------------------------------- its place, and who asks for it


def test_what_waits_is_newer_than_what_history_has(played: Played) -> None:
    played.make_room()
    played.box.history.add_rollback(RollbackRow(1.0, 2, 1, "kept"))
    played.fill()
    for at in (2.0, 3.0):
        keep_rollback(played.box, RollbackRow(at, 2, 1, "waits"))
    found = rollbacks_after(played.box, 0)
    assert [(row.at, row.sequence) for row in found] == [(3.0, 3), (2.0, 2), (1.0, 1)]
    assert [row.at for row in rollbacks_after(played.box, 1)] == [3.0, 2.0]
    assert [row.at for row in rollbacks_after(played.box, None)] == [3.0, 2.0]


def test_what_history_has_just_taken_is_there_once(played: Played) -> None:
    """It is in both until its note is written anew."""
    row = RollbackRow(2.0, 2, 1, "taken")
    keep_rollback(played.box, row)
    played.make_room()
    played.box.history.add_rollback(row)
    assert [(one.at, one.sequence) for one in rollbacks_after(played.box, 0)] == [(2.0, 1)]


def test_a_start_of_a_search_that_was_rolled_back_was_begun(played: Played) -> None:
    played.make_room()
    since = played.box.history.sequence()
    played.box.history.begin_apply(ApplyRow(50.0, None, 2, 1, "two", "tune", (), None, None))
    played.fill()
    resolved = played.box.generations.get(2).resolved()
    (row,) = played.box.history.applies()
    played.fails()
    assert played.box.generations.current_number() == 1
    assert was_begun(played.box, row, resolved, Pending("two", since, 50.0))
