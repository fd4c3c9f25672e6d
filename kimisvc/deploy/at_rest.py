"""How it ended where no row of the history says so: all has come to rest, or the disk is full.

Pure: `follow` looks, this decides from what is left on the box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import LOAD_ANEW, Ending, Evidence, Outcome
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.records.proof import Verdict


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on the box: the links on disk, and what was decided but is in no history.

    `unkept` are the newest verdicts that history could not take, by generation; `judged` is
    the newest on the start that runs; `last_words` are those of a gate that ended without one;
    `newest` is the gate whose verdict on what is current is the newest that waits ("": none).
    """

    current: int | None
    accepted: int | None
    unkept: Mapping[int, Verdict]
    judged: Verdict | None
    last_words: str = ""
    newest: str = ""


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
    begun = left.unkept.get(seen.generation)
    failed = begun.reason if begun else f"generation {seen.generation} failed"
    back = f"generation {current} restored" + (" and proven" if good else ", but not proven")
    return Ending(Outcome.ROLLED_BACK if good else Outcome.NOT_RESTORED, f"{failed}; {back}: {why}")


def ending_at_rest(seen: Evidence, left: Left) -> Ending:
    """How it ended where nothing comes any more: what is left says it, else the units do."""
    if left.current != seen.generation and not seen.rollbacks:
        why = f"generation {left.current} was applied since, in the place of {seen.generation}"
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
