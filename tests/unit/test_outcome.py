"""How an apply ends, judged from what history and systemd say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimisvc.deploy.history import RollbackRow, VerdictRow
from kimisvc.deploy.outcome import LOAD_ANEW, Evidence, Outcome, at_rest, judge
from kimisvc.errors import ExitStatus
from kimisvc.records.proof import Verdict, VerdictKind
from kimisvc.records.units import UnitState

ACTIVE = UnitState("s.service", "loaded", "active", "running")
INACTIVE = UnitState("g.service", "loaded", "inactive", "dead")
FAILED = replace(INACTIVE, active_state="failed", sub_state="failed")


def verdict(generation: int, kind: VerdictKind, at: float, reason: str = "why") -> VerdictRow:
    return VerdictRow(
        record=f"r{at}", sequence=int(at), invocation="i", generation=generation, profile="p",
        at=at, verdict=Verdict(kind, reason), decode_tok_s=None, ttft_s=None,
        engine_decode_tok_s=None, floor=None, goal=None, notes=(), accepted=kind.accepted,
    )  # fmt: skip


def evidence(
    verdicts: tuple[VerdictRow, ...] = (), rollbacks: tuple[RollbackRow, ...] = ()
) -> Evidence:
    return Evidence(2, verdicts, rollbacks, ACTIVE, INACTIVE, INACTIVE)


PASS, DEGRADED, FAIL, INCONCLUSIVE = (
    VerdictKind.PASS,
    VerdictKind.DEGRADED,
    VerdictKind.FAIL,
    VerdictKind.INCONCLUSIVE,
)
TO_1 = RollbackRow(20.0, 2, 1, "too slow", 20)
TO_NOTHING = RollbackRow(20.0, 2, None, "none was ever accepted", 20)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (evidence(), None),
        (evidence((verdict(1, PASS, 9.0),)), None),
        (evidence((verdict(2, PASS, 10.0),)), Outcome.ACCEPTED),
        (evidence((verdict(2, DEGRADED, 10.0),)), Outcome.ACCEPTED),
        (evidence((verdict(2, INCONCLUSIVE, 10.0),)), Outcome.INCONCLUSIVE),
        (evidence((verdict(2, FAIL, 10.0),)), None),
        (evidence((verdict(2, FAIL, 10.0),), (TO_NOTHING,)), Outcome.NOT_RESTORED),
        (evidence((), (TO_NOTHING,)), Outcome.NOT_RESTORED),
        (evidence((verdict(2, FAIL, 10.0),), (TO_1,)), None),
        (evidence((verdict(1, PASS, 30.0), verdict(2, FAIL, 10.0)), (TO_1,)), Outcome.ROLLED_BACK),
        (evidence((verdict(1, PASS, 30.0),), (TO_1,)), Outcome.ROLLED_BACK),
        (
            evidence((verdict(1, INCONCLUSIVE, 30.0), verdict(2, FAIL, 10.0)), (TO_1,)),
            Outcome.NOT_RESTORED,
        ),
        (evidence((verdict(1, FAIL, 30.0), verdict(2, FAIL, 10.0)), (TO_1,)), None),
        (
            evidence(
                (verdict(1, FAIL, 30.0), verdict(2, FAIL, 10.0)),
                (RollbackRow(31.0, 1, None, "is itself the last accepted one", 31), TO_1),
            ),
            Outcome.NOT_RESTORED,
        ),
        (evidence((verdict(1, PASS, 19.0), verdict(2, FAIL, 10.0)), (TO_1,)), None),
    ],
)
def test_judge(seen: Evidence, outcome: Outcome | None) -> None:
    ending = judge(seen)
    assert (ending and ending.outcome) == outcome


def test_a_good_verdict_on_a_start_that_runs_no_more_does_not_end_it() -> None:
    stale = replace(verdict(2, PASS, 10.0), accepted=False)
    assert judge(evidence((stale,))) is None


def test_a_rollback_unit_that_failed_once_is_tried_again() -> None:
    """A kill, a lock: systemd starts it anew in a minute, and it may have restored all the same."""
    waits = replace(INACTIVE, active_state="activating", sub_state="auto-restart")
    assert judge(replace(evidence((verdict(2, FAIL, 10.0),)), rollback=waits)) is None
    ending = judge(
        replace(evidence((verdict(2, FAIL, 10.0),)), rollback=replace(waits, restarts=1))
    )
    assert ending is not None
    assert ending.outcome is Outcome.NOT_RESTORED
    assert "tried again every minute" in ending.reason


def test_a_rollback_unit_that_failed_itself_ends_it() -> None:
    ending = judge(replace(evidence((verdict(2, FAIL, 10.0),)), rollback=FAILED))
    assert ending is not None
    assert ending.outcome is Outcome.NOT_RESTORED
    assert "journalctl" in ending.reason


@pytest.mark.parametrize(
    ("kind", "start", "state", "told"),
    [
        (FAIL, "i", "active", True),
        (FAIL, "i", "failed", False),  # any apply starts it anew
        (FAIL, "another", "active", False),  # not of what runs
        (INCONCLUSIVE, "i", "active", False),
    ],
)
def test_how_to_load_anew_is_said_where_what_failed_goes_on(
    kind: VerdictKind,
    start: str,
    state: str,
    told: bool,  # noqa: FBT001 - the expected answer
) -> None:
    runs = replace(ACTIVE, invocation_id=start, active_state=state)
    ending = judge(replace(evidence((verdict(2, kind, 10.0),), (TO_NOTHING,)), service=runs))
    assert ending is not None
    assert ending.reason.startswith("none was ever accepted")
    assert (LOAD_ANEW in ending.reason) is told


def test_what_was_restored_and_failed_too_is_loaded_anew_the_same_way() -> None:
    seen = evidence(
        (verdict(1, FAIL, 30.0), verdict(2, FAIL, 10.0)),
        (RollbackRow(31.0, 1, None, "is itself the last accepted one", 31), TO_1),
    )
    ending = judge(replace(seen, service=replace(ACTIVE, invocation_id="i")))
    assert ending is not None
    assert ending.reason.endswith(f"is itself the last accepted one; {LOAD_ANEW}")


def test_reasons_are_told_in_the_order_they_came() -> None:
    seen = evidence((verdict(1, PASS, 30.0), verdict(2, FAIL, 10.0, "wrong answer")), (TO_1,))
    ending = judge(seen)
    assert ending is not None
    assert ending.reason == "wrong answer; generation 1 restored and proven"


def test_a_clock_that_jumps_back_hides_no_verdict() -> None:
    early = replace(verdict(1, PASS, 30.0), at=-5.0)
    ending = judge(evidence((early, verdict(2, FAIL, 10.0)), (TO_1,)))
    assert ending is not None
    assert ending.outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize(
    ("seen", "rest"),
    [
        (evidence(), True),
        (replace(evidence(), service=FAILED), True),
        (replace(evidence(), gate=replace(INACTIVE, active_state="activating")), False),
        (replace(evidence(), gate=replace(INACTIVE, job=7)), False),
        (replace(evidence(), rollback=replace(INACTIVE, active_state="activating")), False),
        (replace(evidence(), service=replace(ACTIVE, active_state="activating")), False),
        (replace(evidence(), service=replace(ACTIVE, active_state="deactivating")), False),
        (replace(evidence(), service=replace(ACTIVE, active_state="reloading")), False),
        (replace(evidence(), service=replace(INACTIVE, job=7)), False),
    ],
)
def test_at_rest(seen: Evidence, rest: bool) -> None:  # noqa: FBT001 - the expected answer
    assert at_rest(seen) is rest


def test_exit_statuses_of_outcomes() -> None:
    assert {outcome: outcome.exit_status for outcome in Outcome} == {
        Outcome.UNCHANGED: ExitStatus.DONE,
        Outcome.RECORDED: ExitStatus.DONE,
        Outcome.STARTED: ExitStatus.DONE,
        Outcome.ACCEPTED: ExitStatus.DONE,
        Outcome.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
        Outcome.ROLLED_BACK: ExitStatus.ROLLED_BACK,
        Outcome.NOT_RESTORED: ExitStatus.NOT_RESTORED,
        Outcome.STOPPED: ExitStatus.FAILED,
        Outcome.BROKE: ExitStatus.FAILED,
        Outcome.SUPERSEDED: ExitStatus.FAILED,
    }
