"""How an apply ends that nobody follows: by what the gates say, of what failed and of what was restored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import Silent, Systemd, impatient, leave, no_server, two_generations

from kimisvc.cli.history_events import What, events, found
from kimisvc.deploy.apply import apply
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import ApplyRow, History, RollbackRow, Which
from kimisvc.deploy.rollback import Restoring, for_unit, take_unkept, to_generation
from kimisvc.deploy.unkept import waiting_rollbacks
from kimisvc.deploy.wish import Checks, Following, Reload, Wish
from kimisvc.errors import KimisvcError
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box

OPEN = (None, None)
ROLLED_BACK = ("rolled-back", 4)
NOT_RESTORED = ("not-restored", 5)
SUPERSEDED = ("superseded", 1)


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Generation 2 was applied in the place of 1, which is accepted, and left to its gate."""
    made = impatient(two_generations(tmp_path, systemd, monkeypatch))
    begin(made, 2)
    return made


def begin(box: Box, generation: int) -> int:
    name = ("one", "two", "three")[generation - 1]
    row = ApplyRow(5.0, None, generation, 1, name, "ann", (), None, None)
    return box.history.begin_apply(row)


def ended(box: Box) -> list[tuple[str | None, int | None]]:
    """How the applies ended, oldest first."""
    return [(row.outcome, row.exit) for row in reversed(box.history.applies())]


def judged(
    box: Box, systemd: Systemd, kind: VerdictKind | None, generation: int, **more: Any
) -> None:
    """A gate looks at what runs and ends, with a verdict or without, and is settled."""
    gate = f"gate-{len(box.history.verdicts()) + len(list(box.layout.gate.iterdir())) + 1}"
    leave(box, kind, gate, generation=generation, **more)
    fail = kind is VerdictKind.FAIL
    systemd.gate = replace(
        systemd.gate, active_state="failed" if fail else "inactive", sub_state="dead",
        invocation_id=gate, exec_main_status=5 if fail else 0,
    )  # fmt: skip
    settle(box)


def failed_and_rolled_back(box: Box, systemd: Systemd) -> None:
    judged(box, systemd, VerdictKind.FAIL, 2)
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, box.generations.current_number()) == (1, 1)


# ---------------------------------------------------------------- the gate of what was restored


def test_what_is_restored_has_proven_nothing_yet(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    assert ended(box) == [OPEN]


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (VerdictKind.PASS, ROLLED_BACK),
        (VerdictKind.DEGRADED, ROLLED_BACK),
        (VerdictKind.INCONCLUSIVE, NOT_RESTORED),
        (VerdictKind.FAIL, OPEN),  # its rollback unit comes after it
        (None, OPEN),  # cut off: its next gate will tell
    ],
)
def test_an_apply_that_was_rolled_back_ends_by_the_gate_of_what_was_restored(
    box: Box, systemd: Systemd, kind: VerdictKind | None, outcome: tuple[str | None, int | None]
) -> None:
    failed_and_rolled_back(box, systemd)
    judged(box, systemd, kind, 1)
    assert ended(box) == [outcome]


def test_what_was_restored_and_fails_too_is_not_restored(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    judged(box, systemd, VerdictKind.FAIL, 1)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation is None
    assert ended(box) == [NOT_RESTORED]
    judged(box, systemd, VerdictKind.PASS, 1)  # a restart by hand: the apply has ended before it
    assert ended(box) == [NOT_RESTORED]


def test_what_was_restored_and_never_gets_to_a_gate_is_not_restored(
    box: Box, systemd: Systemd
) -> None:
    """Its secrets file is gone, say: no process ever comes to be."""
    failed_and_rolled_back(box, systemd)
    systemd.service = replace(
        systemd.service, active_state="failed", sub_state="failed", result="resources", restarts=2
    )
    assert for_unit(replace(box, journal=Journal())) is not None  # type: ignore[arg-type]  # plays it
    assert ended(box) == [NOT_RESTORED]


class Journal:
    """Has nothing to tell."""

    def tail(self, *_: object) -> tuple[str, ...]:
        return ()


def test_a_gate_that_was_cut_off_is_followed_by_one_that_tells(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    judged(box, systemd, None, 1, ready_at=0.0)
    assert ended(box) == [OPEN]
    judged(box, systemd, VerdictKind.PASS, 1)
    assert ended(box) == [ROLLED_BACK]


def test_a_proof_that_is_not_accepted_ends_nothing(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    judged(box, systemd, VerdictKind.PASS, 1, invocation="a start before")
    assert ended(box) == [OPEN]


def test_where_nothing_can_be_restored_the_apply_ends_at_once(box: Box, systemd: Systemd) -> None:
    box.layout.accepted.unlink()
    judged(box, systemd, VerdictKind.FAIL, 2)
    row = for_unit(box)
    assert row is not None
    assert row.to_generation is None
    assert ended(box) == [NOT_RESTORED]


# ---------------------------------------------------------------- other commands meanwhile


def test_another_apply_meanwhile_takes_its_place(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    one = box.generations.get(1)
    box.generations.add(Draft("three", "", one.resolved(), one.units(), {}), 1.0)
    begin(box, 3)
    assert ended(box) == [SUPERSEDED, OPEN]


def test_an_apply_of_what_is_restored_leaves_both_to_its_gate(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    begin(box, 1)
    assert ended(box) == [OPEN, OPEN]
    judged(box, systemd, VerdictKind.PASS, 1)
    assert ended(box) == [ROLLED_BACK, ("accepted", 0)]


def test_the_same_generation_again_by_hand_does_not_make_good_what_was_rolled_back(
    box: Box, systemd: Systemd
) -> None:
    failed_and_rolled_back(box, systemd)
    to_generation(box, Restoring(2, "root", Following.LEAVE), lambda _: (), Silent())
    judged(box, systemd, VerdictKind.PASS, 2)
    assert ended(box) == [SUPERSEDED, ("accepted", 0)]


def test_an_apply_that_is_followed_says_itself_how_it_ends(box: Box, systemd: Systemd) -> None:
    failed_and_rolled_back(box, systemd)
    box.history.end_apply(box.history.applies()[0].sequence, 9.0, "stopped", 1)
    judged(box, systemd, VerdictKind.PASS, 1)
    assert ended(box) == [("stopped", 1)]


# ---------------------------------------------------------------- a full disk

WRITES = ("add_record", "add_rollback", "judge_applies", "end_apply")


def full(*_: object) -> None:
    raise KimisvcError("history-unusable", "disk full")


@pytest.mark.parametrize("back", [90.0, 0.5])  # the clock was set back meanwhile, or was not
@pytest.mark.parametrize(
    ("kind", "outcome"), [(VerdictKind.PASS, ROLLED_BACK), (VerdictKind.FAIL, NOT_RESTORED)]
)
def test_what_waited_for_room_is_kept_in_the_order_in_which_it_came(
    box: Box,
    systemd: Systemd,
    monkeypatch: pytest.MonkeyPatch,
    kind: VerdictKind,
    outcome: tuple[str, int],
    back: float,
) -> None:
    with monkeypatch.context() as disk:
        for write in WRITES:
            disk.setattr(History, write, full)
        with pytest.raises(KimisvcError):
            judged(box, systemd, VerdictKind.FAIL, 2, at=50, invocation="start-2")
        for_unit(replace(box, now=lambda: back))
        systemd.service = replace(systemd.service, invocation_id="start-3")
        with pytest.raises(KimisvcError):
            judged(box, systemd, kind, 1, at=95, invocation="start-3")
        for_unit(replace(box, now=lambda: back + 9))
    assert ended(box) == [OPEN]
    take_unkept(box)
    assert waiting_rollbacks(box.layout) == ()
    told = [one.what for one in events(found(box.history, Which(), set(What)))]
    last = ["rollback"] if kind is VerdictKind.FAIL else []
    assert told == ["apply", "start", "FAIL", "rollback", "start", kind.value, *last]
    assert ended(box) == [outcome]


def test_a_rollback_that_waited_is_of_before_what_is_begun_by_hand(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(box, systemd, VerdictKind.FAIL, 2)
    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", full)
        for_unit(box)
    to_generation(box, Restoring(2, "root", Following.LEAVE), lambda _: (), Silent())
    judged(box, systemd, VerdictKind.PASS, 2)
    assert ended(box) == [SUPERSEDED, ("accepted", 0)]


def test_a_rollback_that_waited_does_not_end_the_apply_that_came_after_it(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be restored; the operator makes room and applies the same anew, and leaves."""
    box.layout.accepted.unlink()
    judged(box, systemd, VerdictKind.FAIL, 2)
    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", full)
        for_unit(box)
    assert [row.to_generation for row in waiting_rollbacks(box.layout)] == [None]
    current = box.generations.get(2)
    wish = Wish(
        current.settings(), "", current.resolved(), current.units(), "me",
        following=Following.LEAVE, reload=Reload.ALWAYS,
    )  # fmt: skip
    apply(
        box,
        wish,
        Checks(lambda _: (), lambda _: (), lambda: None, lambda _: {}, no_server),
        Silent(),
    )
    judged(box, systemd, VerdictKind.PASS, 2)
    assert ended(box) == [NOT_RESTORED, ("accepted", 0)]


def test_an_end_that_could_not_be_kept_is_kept_by_the_next_settle(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed_and_rolled_back(box, systemd)
    with monkeypatch.context() as disk:
        disk.setattr(History, "judge_applies", full)
        with pytest.raises(KimisvcError):
            judged(box, systemd, VerdictKind.PASS, 1)
    assert ended(box) == [OPEN]
    take_unkept(box)
    assert ended(box) == [ROLLED_BACK]
    assert [row.verdict.kind for row in box.history.verdicts()] == [
        VerdictKind.PASS, VerdictKind.FAIL,
    ]  # fmt: skip


def test_a_note_of_an_earlier_kimisvc_is_taken(box: Box) -> None:
    row = '{"at": 1.0, "from_generation": 2, "to_generation": 1, "reason": "slow", "sequence": 0}'
    (box.layout.runtime / "rollbacks.json").write_text(f"[{row}]")
    assert waiting_rollbacks(box.layout) == (RollbackRow(1.0, 2, 1, "slow"),)
    settle(box)
    assert [one.reason for one in box.history.rollbacks()] == ["slow"]
