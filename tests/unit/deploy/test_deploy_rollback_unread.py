"""A rollback by hand while history cannot be read, or written: only its own verdict is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import GATE, SERVICE, Silent, Systemd, impatient, leave, two_generations

from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import History, RollbackRow
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.rollback import Restoring, for_unit, to_generation
from kimisvc.errors import KimisvcError
from kimisvc.records.proof import Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.outcome import Ending

OLD, NEW = "81 tok/s last year", "80 tok/s today"
MINUTE = 60.0


def full(*_: object) -> None:
    raise KimisvcError("history-unusable", "disk full")


@dataclass
class Played:
    """A box whose generation 1 was accepted long ago, and what becomes of a rollback to it."""

    box: Box
    systemd: Systemd
    monkeypatch: pytest.MonkeyPatch
    moment: float = 0.0
    events: list[Callable[[], None]] = field(default_factory=list)

    def judged(self, kind: VerdictKind, why: str, gate: str, generation: int = 1) -> None:
        """A gate judges the start that runs and ends; settle takes its record, if history can."""
        state = "failed" if kind is VerdictKind.FAIL else "inactive"
        status = 5 if kind is VerdictKind.FAIL else 0
        self.systemd.gate = replace(
            self.systemd.gate, active_state=state, sub_state="dead", invocation_id=gate,
            exec_main_status=status, started_monotonic=self.systemd.service.started_monotonic + 1,
        )  # fmt: skip
        leave(
            self.box, kind, gate, generation=generation, profile=("one", "two")[generation - 1],
            invocation=self.systemd.service.invocation_id, proof=Proof(Verdict(kind, why)),
        )  # fmt: skip
        try:
            settle(self.box)
        except KimisvcError:
            self.systemd.gate = replace(self.systemd.gate, active_state="failed")

    def cut_off(self, gate: str = "gate-9") -> None:
        """A gate ends without a word."""
        self.systemd.gate = replace(
            self.systemd.gate, active_state="failed", sub_state="failed", invocation_id=gate,
            result="signal",
        )  # fmt: skip

    def tick(self, seconds: float) -> None:
        self.moment += seconds
        assert self.moment < 2 * MINUTE, "it is followed for ever"
        if self.events:
            self.events.pop(0)()

    def restart(self, unit: str, *_: object) -> str:
        self.systemd.asked.append(("restart", unit))
        if unit == SERVICE:
            running = replace(
                self.systemd.service, active_state="active", sub_state="running",
                invocation_id="start-9", started_monotonic=500.0,
            )  # fmt: skip
            self.systemd.service = running
        self.systemd.gate = replace(
            self.systemd.gate, active_state="activating", sub_state="start", invocation_id="gate-8",
            exec_main_status=0,
        )  # fmt: skip
        return "job"

    def followed(self, reads_failing: int, *events: Callable[[], None]) -> Ending:
        """How a rollback to generation 1 is told, whose history cannot be read at first."""
        whole, left = History.sequence, [None] * reads_failing

        def sequence(history: History) -> int:
            if left:
                left.pop()
                full()
            return whole(history)

        self.events = list(events)
        with self.monkeypatch.context() as disk:
            disk.setattr(History, "begin_apply", full)
            disk.setattr(History, "sequence", sequence)
            return to_generation(self.box, Restoring(1, "root"), lambda _: (), Silent()).ending


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """The start that runs was loaded for generation 1, and kept when 2 asked another question."""
    systemd = Systemd()
    made = Played(two_generations(tmp_path, systemd, monkeypatch), systemd, monkeypatch)
    journal: Any = SimpleNamespace(tail=lambda *_: ())
    made.box = replace(
        impatient(made.box), journal=journal, clock=lambda: made.moment, sleep=made.tick
    )
    monkeypatch.setattr(systemd, "restart", made.restart)
    one, two = made.box.generations.get(1), made.box.generations.get(2)
    made.box.generations.make_current(one)
    made.box.layout.installed(SERVICE).write_text(one.units()[0].text)
    made.judged(VerdictKind.PASS, OLD, "gate-1")
    made.box.history.add_rollback(RollbackRow(50.0, 1, 2, "long ago"))
    made.box.generations.make_current(two)
    made.box.layout.installed(SERVICE).write_text(two.units()[0].text)
    made.judged(VerdictKind.PASS, "two is fine", "gate-2", generation=2)
    assert [row.verdict.reason for row in made.box.history.verdicts()] == ["two is fine", OLD]
    # The gate that is at work now is that of 2, and is begun anew for another generation.
    systemd.gate = replace(
        systemd.gate, active_state="activating", sub_state="start", invocation_id="gate-3"
    )
    return made


@pytest.fixture(params=["loaded anew", "kept"])
def either(request: pytest.FixtureRequest, played: Played) -> Played:
    """What runs is loaded anew for the rollback, or stays."""
    if request.param == "loaded anew":
        played.systemd.service = replace(played.systemd.service, active_state="inactive")
    return played


@pytest.mark.parametrize("reads_failing", [0, 1, 4, 10**6])
def test_a_gate_that_is_cut_off_leaves_no_verdict_of_long_ago(
    either: Played, reads_failing: int
) -> None:
    ending = either.followed(reads_failing, either.cut_off)
    assert ending.outcome is Outcome.STOPPED
    assert ending.reason.startswith("the gate ended without a verdict (signal)")
    asked = [row[1] for row in either.systemd.asked if row[0] == "restart"]
    assert asked[-1] in (SERVICE, GATE)


@pytest.mark.parametrize("reads_failing", [0, 1, 4])
def test_its_own_verdict_is_told_though_history_could_not_be_read_at_first(
    either: Played, reads_failing: int
) -> None:
    ending = either.followed(reads_failing, lambda: either.judged(VerdictKind.PASS, NEW, "gate-9"))
    assert (ending.outcome, ending.reason) == (Outcome.ACCEPTED, NEW)


@pytest.mark.parametrize("reads_failing", [0, 4])
def test_what_the_gate_before_said_in_the_end_is_not_told_of_it(
    either: Played, reads_failing: int
) -> None:
    """Its record comes after the rollback has begun, and is that of the gate that was ended for it."""
    late = either.followed(
        reads_failing, lambda: either.judged(VerdictKind.PASS, "of before", "gate-3")
    )
    assert late.outcome is Outcome.STOPPED


@pytest.mark.parametrize("reads_failing", [0, 1, 4])
def test_a_gate_at_work_that_is_followed_is_its_own(played: Played, reads_failing: int) -> None:
    one = played.box.generations.get(1)
    played.box.generations.make_current(one)
    played.box.layout.installed(SERVICE).write_text(one.units()[0].text)
    ending = played.followed(reads_failing, lambda: played.judged(VerdictKind.PASS, NEW, "gate-3"))
    assert (ending.outcome, ending.reason) == (Outcome.ACCEPTED, NEW)
    assert not [row for row in played.systemd.asked if row[0] == "restart"]


def test_what_fails_is_told_with_what_was_restored(either: Played) -> None:
    """The verdict is in history before that can be read, the rollback after it."""
    either.box.generations.accept(either.box.generations.get(2))

    def fails() -> None:
        either.judged(VerdictKind.FAIL, "golden answer wrong", "gate-9")

    def back() -> None:
        assert for_unit(either.box) is not None

    def proven() -> None:
        either.judged(VerdictKind.PASS, NEW, "gate-10", generation=2)

    ending = either.followed(2, fails, back, proven)
    assert ending.outcome is Outcome.ROLLED_BACK
    assert ending.reason == "golden answer wrong; generation 2 restored and proven"


@pytest.mark.parametrize("kind", [VerdictKind.PASS, VerdictKind.INCONCLUSIVE])
def test_a_verdict_that_waits_for_room_is_told_before_the_disk_has_any(
    either: Played, kind: VerdictKind
) -> None:
    """The rollback unit fails for as long as history cannot take it, and is tried every minute."""
    either.monkeypatch.setattr(History, "add_record", full)

    def judged() -> None:
        either.judged(kind, NEW, "gate-9")
        either.systemd.rollback = replace(
            either.systemd.rollback, active_state="activating", sub_state="auto-restart"
        )

    ending = either.followed(0, judged)
    accepted = kind is VerdictKind.PASS
    assert ending.outcome is (Outcome.ACCEPTED if accepted else Outcome.INCONCLUSIVE)
    assert ending.reason == f"{NEW}; not kept in history: it could not be written"
    assert either.moment < MINUTE / 4


def test_a_verdict_that_waits_since_before_is_not_that_of_this_rollback(either: Played) -> None:
    either.monkeypatch.setattr(History, "add_record", full)
    leave(either.box, VerdictKind.PASS, "gate-1b", generation=1, profile="one",
          invocation=either.systemd.service.invocation_id)  # fmt: skip
    assert either.followed(0, either.cut_off).outcome is Outcome.STOPPED


def test_a_rollback_that_waits_for_its_next_try_is_waited_for(played: Played) -> None:
    """What waits is of another gate than the last: the rollback itself has broken, and goes on."""
    played.monkeypatch.setattr(History, "add_record", full)

    def fails() -> None:
        played.judged(VerdictKind.INCONCLUSIVE, "not known", "gate-9")
        played.cut_off("gate-10")
        played.systemd.rollback = replace(
            played.systemd.rollback, active_state="activating", sub_state="auto-restart"
        )

    def tried() -> None:
        if played.moment < MINUTE:
            played.events.append(tried)
            return
        played.systemd.rollback = replace(
            played.systemd.rollback, active_state="inactive", sub_state="dead"
        )

    played.followed(0, fails, tried)
    assert played.moment > MINUTE
