"""How it ended where no row of the history says so: all has come to rest, or the disk is full.

Pure: `follow` looks, this decides from what is left on the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import (
    LOAD_ANEW,
    Ending,
    Evidence,
    Outcome,
    awaits_room,
    first_rollback,
)
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.deploy.plan import Action
    from kimisvc.records.proof import Verdict


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on the box: the links on disk, and what was decided but is in no history.

    `unkept` are the newest verdicts that history could not take, by generation; `judged` is
    the newest on the start that runs; `last_words` are those of a gate that ended without one;
    `newest` is the gate whose verdict on what is current is the newest that waits ("": none);
    `owed` is what the last switch has not done yet.
    """

    current: int | None
    accepted: int | None
    unkept: Mapping[int, Verdict]
    judged: Verdict | None
    last_words: str = ""
    newest: str = ""
    owed: Action | None = None


def ending_unkept(seen: Evidence, left: Left) -> Ending | None:
    """How it ended by what history could not take; None where that says nothing."""
    current = left.current
    verdict = left.unkept.get(current) if current is not None else None
    if verdict is None or current is None:
        return None
    good = verdict.kind.accepted and left.accepted == current
    why = f"{verdict.reason}; not kept in history: it could not be written"
    if current == seen.generation:
        outcome = Outcome.ACCEPTED if good else Outcome.INCONCLUSIVE
        return None if verdict.kind is VerdictKind.FAIL else Ending(outcome, why)
    rollback = first_rollback(seen)
    if rollback is None or not _is_restored(seen, current):
        return None  # somebody applied it
    if verdict.kind is VerdictKind.FAIL and _is_given_up(seen, current):
        return None  # the rollback of it says more
    failed = (left.unkept.get(seen.generation) or rollback).reason
    back = f"generation {current} restored" + (" and proven" if good else ", but not proven")
    return Ending(Outcome.ROLLED_BACK if good else Outcome.NOT_RESTORED, f"{failed}; {back}: {why}")


def _is_restored(seen: Evidence, generation: int | None) -> bool:
    """Whether a rollback made a generation the current one."""
    return any(row.to_generation == generation for row in seen.rollbacks)


def _is_given_up(seen: Evidence, generation: int) -> bool:
    """Whether a rollback left a generation as it is, having nothing to go back to."""
    of_it = (row for row in seen.rollbacks if row.from_generation == generation)
    return any(row.to_generation is None for row in of_it)


def ending_cut_off(seen: Evidence, left: Left) -> Ending | None:
    """How it ended where a rollback unit fails for want of room alone; None where that is not so.

    What was to be restored is, and its gate was ended before it said anything.
    """
    return _not_proven(seen, left) if awaits_room(seen) else None


def _not_proven(seen: Evidence, left: Left) -> Ending | None:
    """What was begun was rolled back in whole, and no verdict on what was restored comes any more."""
    rollback = first_rollback(seen)
    if rollback is None or left.current is None or left.owed is not None:
        return None
    if rollback.to_generation != left.current:
        return None
    back = f"generation {left.current} restored, but not proven"
    why = f"{rollback.reason}; {back}: {_without_a_verdict(seen, left)}"
    return Ending(Outcome.NOT_RESTORED, why)


def ending_at_rest(seen: Evidence, left: Left) -> Ending:
    """How it ended where nothing comes any more: what is left says it, else the units do."""
    cut_off = _not_proven(seen, left)
    if cut_off is not None:
        return cut_off
    if left.current != seen.generation and not _is_restored(seen, left.current):
        why = f"generation {left.current} was applied since, in the place of {seen.generation}"
        if left.current is None:
            why = f"which generation of {seen.service.name} is in force is not known any more"
        return Ending(Outcome.SUPERSEDED, why)
    judged = left.judged if seen.service.invocation_id != seen.ended else None
    if judged is not None and judged.kind is VerdictKind.FAIL:
        none = f"{judged.reason}; no rollback came: see systemctl status {seen.rollback.name}"
        if seen.service.goes_on:
            none += f"; {LOAD_ANEW}"
        return Ending(Outcome.NOT_RESTORED, none)
    if judged is not None and judged.kind.accepted and left.accepted == seen.generation:
        return Ending(Outcome.ACCEPTED, judged.reason)
    return Ending(Outcome.STOPPED, _without_a_verdict(seen, left))


def _without_a_verdict(seen: Evidence, left: Left) -> str:
    service = seen.service
    if service.active_state == "active":
        said = f"; its last words: {left.last_words}" if left.last_words else ""
        how = f" ({seen.gate.result})" if seen.gate.result not in ("", "success") else ""
        return (
            f"the gate ended without a verdict{how}: kimisvc apply runs it again"
            f" (journalctl -u {seen.gate.name}){said}"
        )
    if service.result not in ("", "success"):
        return f"the service ended ({service.result}) and nothing came after it"
    return f"the service is {service.active_state}; was it stopped by hand?"
