"""rollback: back to the last accepted generation, once, and that one proven again.

Called by systemd after a failed gate or a service that gave up (`for_unit`),
or by an operator (`to_generation`). Restores unit by unit: where only the
gate differs, the model stays loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.apply import Following
from kimisvc.deploy.box import SWITCH_WAIT, Box, install, keep_copies, plan_for, set_going
from kimisvc.deploy.follow import Reporter, follow
from kimisvc.deploy.history import RollbackRow
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.records import OnFail, VerdictKind

if TYPE_CHECKING:
    from kimisvc.deploy.generations import Generation


def for_unit(box: Box) -> RollbackRow | None:
    """Given a box whose gate or service failed, restore what can be and return what was done.

    None: nothing has failed on the current generation. A failure of the one
    before can be reported after a new apply began, and a gate that was killed
    has shown nothing.
    """
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        current = box.generations.current()
        if current is None:
            raise KimisvcError("no-generation", f"{box.layout.instance} was never applied")
        if not _has_failed(box, current):
            return None
        accepted = box.generations.accepted()
        obstacle = _obstacle(current, accepted)
        why = _failure(box, current)
        if obstacle or accepted is None:
            row = RollbackRow(box.now(), current.number, None, f"{why}; {obstacle}")
            box.history.add_rollback(row)
            return row
        row = RollbackRow(box.now(), current.number, accepted.number, why)
        box.history.add_rollback(row)
        _restore(box, accepted)
        return row


def to_generation(
    box: Box, number: int | None, following: Following, reporter: Reporter
) -> Applied:
    """Given a number (None: the last accepted before this one), restore it and follow its gate."""
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.operator_lock):
        with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
            current = box.generations.current()
            target = box.generations.get(number) if number is not None else _earlier(box, current)
            since = box.history.sequence()
            reporter.step(f"restoring generation {target.label}")
            restarted = _restore(box, target)
        if not restarted:
            ending = Ending(Outcome.UNCHANGED, f"generation {target.label} runs and is accepted")
        elif following is Following.LEAVE:
            ending = Ending(Outcome.STARTED, "not waited for; follow with: kimisvc status --follow")
        else:
            ending = follow(box, target.number, since, reporter)
        return Applied(ending, target.number, current.number if current else None, restarted)


def _restore(box: Box, target: Generation) -> tuple[str, ...]:
    units = target.units()
    plan = plan_for(box, target.resolved(), units)
    keep_copies(box, plan)
    install(box, target, units)
    return set_going(box, plan)


def _earlier(box: Box, current: Generation | None) -> Generation:
    """The last accepted one, or, where that is what runs, the accepted one before it."""
    accepted = box.generations.accepted()
    if accepted is not None and current is not None and accepted.number != current.number:
        return accepted
    here = current.number if current else 0
    proven = {v.generation for v in box.history.verdicts() if v.verdict.kind.accepted}
    earlier = sorted((proven & set(box.generations.numbers())) - {here})
    if not earlier:
        raise KimisvcError(
            "nothing-to-restore",
            f"no other generation of {box.layout.instance} was ever accepted",
            hint="kimisvc history shows what there is; --to N takes any of them",
        )
    before = [number for number in earlier if number < here]
    return box.generations.get((before or earlier)[-1])


def _obstacle(current: Generation, accepted: Generation | None) -> str:
    """Why nothing is restored; empty when something can be."""
    if accepted is None:
        return "no generation was ever accepted, so there is nothing to go back to"
    if accepted.number == current.number:
        return f"generation {current.label} is itself the last accepted one; left as it is"
    if current.settings().service.on_fail is OnFail.KEEP:
        return 'the profile says on_fail = "keep"; left as it is'
    return ""


def _has_failed(box: Box, current: Generation) -> bool:
    """Whether the service gave up, or the gate of the start that runs said FAIL.

    A service that failed while it was stopped for a restart has that restart
    as its job; one that is inactive was stopped by somebody, who meant it.
    """
    service = box.systemd.state(box.layout.units.service)
    if service.active_state == "failed" and not service.job:
        return True
    newest = next(iter(box.history.verdicts(limit=1)), None)
    return (
        newest is not None
        and newest.generation == current.number
        and newest.invocation == service.invocation_id
        and newest.verdict.kind is VerdictKind.FAIL
    )


def _failure(box: Box, current: Generation) -> str:
    service = box.systemd.state(box.layout.units.service)
    if service.active_state == "failed":
        how = f"the service gave up ({service.result}, exit status {service.exec_main_status})"
        words = box.journal.tail(service.name, service.invocation_id, 1)
        return f"{how}; its last words: {words[-1].strip()}" if words else how
    newest = next(
        (v for v in box.history.verdicts(limit=5) if v.generation == current.number), None
    )
    return newest.verdict.reason if newest else "the gate ended without a verdict"
