"""How an apply or a rollback ends: judged from history and unit states, never from log text.

Pure. `judge` is asked again and again by `follow` until it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.errors import ExitStatus
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kimisvc.deploy.history.rows import RollbackRow, VerdictRow
    from kimisvc.records.units import UnitState


AT_WORK = ("activating", "deactivating", "reloading")
"""States in which systemd does or awaits something; a crash may end in a start anew."""


LOAD_ANEW = (
    "the start that failed goes on: kimisvc apply --restart PROFILE loads it anew"
    " (without --restart only its gate runs again)"
)
"""The hint where what failed its gate still runs: an apply leaves the model loaded."""


class Outcome(Enum):
    """What became of an apply; its words in JSON, history and metrics."""

    UNCHANGED = "unchanged"
    RECORDED = "recorded"
    STARTED = "started"
    ACCEPTED = "accepted"
    INCONCLUSIVE = "inconclusive"
    ROLLED_BACK = "rolled-back"
    NOT_RESTORED = "not-restored"
    STOPPED = "stopped"
    BROKE = "broke"
    SUPERSEDED = "superseded"

    @property
    def exit_status(self) -> ExitStatus:
        """The status a command ends with for it."""
        return {
            Outcome.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
            Outcome.ROLLED_BACK: ExitStatus.ROLLED_BACK,
            Outcome.NOT_RESTORED: ExitStatus.NOT_RESTORED,
            Outcome.STOPPED: ExitStatus.FAILED,
            Outcome.BROKE: ExitStatus.FAILED,
            Outcome.SUPERSEDED: ExitStatus.FAILED,
        }.get(self, ExitStatus.DONE)


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended: `verdict` is that of the generation asked for, None if it never got one."""

    outcome: Outcome
    reason: str
    verdict: VerdictRow | None = None
    restored: VerdictRow | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply or rollback did and how it ended. `copies`: units of no generation, kept aside."""

    ending: Ending
    generation: int
    previous: int | None = None
    restarted: tuple[str, ...] = ()
    before: VerdictRow | None = None
    copies: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known at one moment about what was begun: newest rows first, and the units.

    `ended` is the start that was ended for it: a verdict on that comes too late. `failed` is
    the start of which a gate said FAIL that history could not take yet ("": none).
    """

    generation: int
    verdicts: Sequence[VerdictRow]
    rollbacks: Sequence[RollbackRow]
    service: UnitState
    gate: UnitState
    rollback: UnitState
    ended: str = ""
    failed: str = ""


def judge(seen: Evidence) -> Ending | None:
    """Given the evidence, return how it ended; None while something is still at work."""
    verdict = next(
        (v for v in seen.verdicts if v.generation == seen.generation and _counts(seen, v)), None
    )
    rollback = first_rollback(seen)
    if rollback is not None:
        return _after_rollback(seen, verdict, rollback)
    if verdict is not None and verdict.verdict.kind.accepted:
        return Ending(Outcome.ACCEPTED, verdict.verdict.reason, verdict)
    if verdict is not None and verdict.verdict.kind is VerdictKind.INCONCLUSIVE:
        return Ending(Outcome.INCONCLUSIVE, verdict.verdict.reason, verdict)
    if _rollback_failed(seen.rollback):
        broke = f"the rollback unit itself failed: {_tried_again(seen.rollback)}"
        return Ending(Outcome.NOT_RESTORED, broke, verdict)
    return None


def first_rollback(seen: Evidence) -> RollbackRow | None:
    """Given the evidence, return the rollback of what was begun; None where none came."""
    ours = (row for row in reversed(seen.rollbacks) if row.from_generation == seen.generation)
    return next(ours, None)


def _rollback_failed(rollback: UnitState) -> bool:
    """Whether it failed more than once: it is tried again every minute, for as long as that takes.

    systemd counts a restart when it comes, so that none is counted while the first is waited for.
    """
    waits = rollback.sub_state == "auto-restart" and rollback.restarts > 0
    return rollback.active_state == "failed" or waits


def _tried_again(rollback: UnitState) -> str:
    again = "it is tried again every minute; " if rollback.active_state != "failed" else ""
    return f"{again}see journalctl -u {rollback.name}"


def _counts(seen: Evidence, verdict: VerdictRow) -> bool:
    """A good verdict that was not accepted proved a start that runs no more: another will come."""
    if seen.ended and verdict.invocation == seen.ended:
        return False
    return verdict.accepted or not verdict.verdict.kind.accepted


def at_rest(seen: Evidence) -> bool:
    """Whether none of the units does or awaits anything, so that no more evidence can come."""
    units = (seen.service, seen.gate, seen.rollback)
    return not any(unit.job or unit.active_state in AT_WORK for unit in units)


def awaits_room(seen: Evidence) -> bool:
    """Whether all is at rest but a rollback unit that awaits its next try.

    Where a verdict could not be kept, that is all the unit is still there for, as long as the
    disk is full.
    """
    if seen.rollback.sub_state != "auto-restart" or seen.rollback.job:
        return False
    return not any(unit.job or unit.active_state in AT_WORK for unit in (seen.service, seen.gate))


def _with_hint(why: str, seen: Evidence, verdict: VerdictRow | None) -> str:
    """Given why nothing was restored and the verdict on it, add how what failed is loaded anew.

    Only where it goes on: what gave up is started anew by any apply.
    """
    fail = verdict is not None and verdict.verdict.kind is VerdictKind.FAIL
    failed = (seen.failed, verdict.invocation if verdict and fail else "")
    runs = seen.service.invocation_id
    return f"{why}; {LOAD_ANEW}" if runs in filter(None, failed) and seen.service.goes_on else why


def _after_rollback(
    seen: Evidence, verdict: VerdictRow | None, rollback: RollbackRow
) -> Ending | None:
    failed = verdict.verdict.reason if verdict else rollback.reason
    if rollback.to_generation is None:
        why = _with_hint(rollback.reason, seen, verdict)
        return Ending(Outcome.NOT_RESTORED, why, verdict)
    restored = next(
        (
            v
            for v in seen.verdicts
            if v.generation == rollback.to_generation
            and v.sequence > rollback.sequence
            and _counts(seen, v)
        ),
        None,
    )
    back = f"generation {rollback.to_generation}"
    if restored is not None and restored.verdict.kind.accepted:
        return Ending(
            Outcome.ROLLED_BACK, f"{failed}; {back} restored and proven", verdict, restored
        )
    if restored is not None and restored.verdict.kind is VerdictKind.INCONCLUSIVE:
        why = f"{failed}; {back} restored, but not proven: {restored.verdict.reason}"
        return Ending(Outcome.NOT_RESTORED, why, verdict, restored)
    again = next((r for r in seen.rollbacks if r.from_generation == rollback.to_generation), None)
    if again is not None and again.sequence > rollback.sequence:
        why = f"{failed}; {back} was restored and failed too: {again.reason}"
        why = _with_hint(why, seen, restored)
        return Ending(Outcome.NOT_RESTORED, why, verdict, restored)
    if _rollback_failed(seen.rollback):
        why = f"{failed}; the rollback unit failed: {_tried_again(seen.rollback)}"
        return Ending(Outcome.NOT_RESTORED, why, verdict, restored)
    return None
