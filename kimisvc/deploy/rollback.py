"""rollback: back to the last accepted generation, once, and that one proven again.

Called by systemd after a failed gate or a service that gave up (`for_unit`),
or by an operator (`to_generation`). Restores unit by unit: where only the
gate differs, the model stays loaded.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.apply import Following, keep_ending, wait_for
from kimisvc.deploy.box import SWITCH_WAIT, AtBoot, Box, is_installed, keep_copies, plan_for, switch
from kimisvc.deploy.history import ApplyRow, RollbackRow
from kimisvc.deploy.outcome import Applied, Outcome
from kimisvc.deploy.owed import owed
from kimisvc.deploy.plan import Action
from kimisvc.deploy.redacting import last_words
from kimisvc.errors import ExitStatus, KimisvcError, PreflightRefusedError
from kimisvc.host import files
from kimisvc.records import OnFail, Severity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.generations import Generation
    from kimisvc.records import Problem, Profile, UnitState

EXITED = 1
"""CLD_EXITED of sigaction(2): the process ended by itself, with a status."""
ENDS_A_START = (
    "vllm.executable",
    "vllm.model",
    "vllm.port",
    "service.user",
    "service.secrets_file",
)
"""What a start cannot do without. What only spoils a figure must not keep an operator from going back."""
OPTION_REFUSED = 2
"""argparse's status for an option that vLLM refuses; RestartPreventExitStatus= of the service."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What an operator wants restored (None: the last accepted before what runs), and how."""

    number: int | None
    actor: str
    following: Following = Following.FOLLOW


def for_unit(box: Box) -> RollbackRow | None:
    """Given a box whose gate or service failed, restore what can be and return what was done.

    None: nothing has failed on the current generation. A failure of the one
    before can be reported after a new apply began, and a gate that was killed
    has shown nothing. What an operator disabled stays disabled. What is
    restored does not depend on the history: where that cannot be written, the
    row says so and is returned all the same.
    """
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        current = box.generations.current_number()
        if current is None:
            raise KimisvcError("no-generation", f"{box.layout.instance} was never applied")
        unfinished = _unfinished(box, current)
        if unfinished is not None:
            _restore(box, unfinished, AtBoot.AS_IT_WAS)
            row = RollbackRow(box.now(), current, current, "a switch to it was cut off; finished")
            with contextlib.suppress(KimisvcError):
                box.history.add_rollback(row)
            return row
        if not _has_failed(box):
            return None
        why = _failure(box, current)
        accepted = _proven(box, current)
        obstacle = _obstacle(box, current, accepted)
        if obstacle or accepted is None:
            row = RollbackRow(box.now(), current, None, f"{why}; {obstacle}")
            outcome = Outcome.NOT_RESTORED
        else:
            restored = _restore(box, accepted, AtBoot.AS_IT_WAS)
            kept = "".join(f"; a hand-edited unit is kept as {copy}" for copy in restored.copies)
            row = RollbackRow(box.now(), current, accepted.number, why + kept)
            outcome = Outcome.ROLLED_BACK
        try:
            box.history.mend(box.now())
            box.history.add_rollback(row)
            box.history.close_applies(current, box.now(), outcome.value, outcome.exit_status)
        except KimisvcError as error:
            return replace(row, reason=f"{row.reason}; not kept in history: {error.message}")
        return row


def _unfinished(box: Box, current: int) -> Generation | None:
    """The accepted generation, where it is current already and its restart is still owed.

    So a rollback that broke in the middle is found by the next try: what failed
    was forgotten when it began, and nothing else would start what was restored.
    """
    accepted = box.generations.sound_accepted()
    if accepted is None or accepted.number != current or owed(box.layout, current) is None:
        return None
    return accepted


def to_generation(
    box: Box,
    wish: Restoring,
    preflight: Callable[[Profile], tuple[Problem, ...]],
    reporter: Reporter,
) -> Applied:
    """Given a wish, restore its generation and follow the gate.

    Raise PreflightRefusedError where the host would not run it any more (its
    model was removed, say): what runs now is not stopped for that.
    """
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.operator_lock):
        with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
            box.history.mend(box.now())
            previous = box.generations.current_number()
            number = wish.number
            target = box.generations.get(number) if number is not None else _earlier(box, previous)
            _refuse(box, target, preflight)
            since = box.history.sequence()
            reporter.step(f"restoring generation {target.label}")
            row = ApplyRow(
                box.now(), None, target.number, previous, target.profile, wish.actor, (), None, None
            )
            begun = box.history.begin_apply(row)
            restored = _restore(box, target, AtBoot.ENABLED)
        ending = wait_for(box, target, restored.action, since, wish.following, reporter)
        keep_ending(box, begun, ending)
        return Applied(ending, target.number, previous, restored.restarted, None, restored.copies)


def _refuse(
    box: Box, target: Generation, preflight: Callable[[Profile], tuple[Problem, ...]]
) -> None:
    if plan_for(box, target.resolved(), target.units()).action is not Action.RESTART:
        return
    reasons = [
        problem
        for problem in preflight(target.settings())
        if problem.severity is Severity.ERROR and problem.key in ENDS_A_START
    ]
    if reasons:
        raise PreflightRefusedError(reasons)


@dataclass(frozen=True, slots=True)
class _Restored:
    """What a restore did: the action, the units started anew, the copies of hand edits."""

    action: Action
    restarted: tuple[str, ...]
    copies: tuple[Path, ...]


def _restore(box: Box, target: Generation, at_boot: AtBoot) -> _Restored:
    """Make a generation the installed one, restarting no more than differs."""
    units = target.units()
    plan = plan_for(box, target.resolved(), units)
    copies = keep_copies(box, plan)
    return _Restored(plan.action, switch(box, plan, target, units, at_boot), copies)


def _proven(box: Box, current: int) -> Generation | None:
    """The last accepted one; where that is damaged, the newest other that was proven."""
    accepted = box.generations.sound_accepted()
    if accepted is not None and box.generations.is_whole(accepted.number):
        return accepted
    if not box.layout.accepted.is_symlink():
        return None
    try:
        others = _proven_before(box, current)
    except KimisvcError:
        return None  # the history is gone as well
    # Only one before it: to and fro between two that both fail there would be no end.
    before = [number for number in others if number < current]
    return box.generations.get(before[-1]) if before else None


def _earlier(box: Box, current: int | None) -> Generation:
    """The last accepted one, or, where that is what runs, the accepted one before it."""
    accepted = box.generations.sound_accepted()
    if current is not None and (unfinished := _unfinished(box, current)) is not None:
        return unfinished
    if (
        accepted is not None
        and accepted.number != current
        and box.generations.is_whole(accepted.number)
    ):
        return accepted
    earlier = _proven_before(box, current or 0)
    if not earlier:
        raise KimisvcError(
            "nothing-to-restore",
            f"no other generation of {box.layout.instance} was ever accepted and is whole",
            hint="kimisvc history shows what there is; --to N takes any of them",
        )
    return box.generations.get(earlier[-1])


def _proven_before(box: Box, here: int) -> list[int]:
    """The other generations that were proven and are whole: those after `here` first, then newest last."""
    proven = {v.generation for v in box.history.verdicts() if v.accepted}
    recorded = Outcome.RECORDED.value
    proven |= {a.generation for a in box.history.applies() if a.outcome == recorded}
    whole = sorted(number for number in proven - {here} if box.generations.is_whole(number))
    return [n for n in whole if n > here] + [n for n in whole if n < here]


def _obstacle(box: Box, current: int, accepted: Generation | None) -> str:
    """Why nothing is restored; empty when something can be."""
    if accepted is None and box.layout.accepted.is_symlink():
        return "the last accepted generation is damaged, so there is nothing to go back to"
    if accepted is None:
        return "no generation was ever accepted, so there is nothing to go back to"
    if accepted.number == current and is_installed(box, accepted):
        return f"generation {accepted.label} is itself the last accepted one; left as it is"
    try:
        keep = box.generations.get(current).settings().service.on_fail is OnFail.KEEP
    except KimisvcError:
        keep = False  # damaged: what cannot be read cannot ask to be kept
    return 'the profile says on_fail = "keep"; left as it is' if keep else ""


def _has_failed(box: Box) -> bool:
    """Whether the service gave up, or the gate ended with FAIL; systemd knows, whatever the disk.

    A unit that failed and has a job is being started anew, by an apply that
    came in between: what failed was the one before.
    """
    names = box.layout.units
    service, gate = box.systemd.state(names.service), box.systemd.state(names.gate)
    if _gave_up(service):
        return True
    said_fail = gate.active_state == "failed" and gate.exec_main_status == ExitStatus.NOT_RESTORED
    return said_fail and not gate.job


def _gave_up(service: UnitState) -> bool:
    """Whether systemd gave the service up, and not somebody stopped it.

    With Restart=always a service only fails for good after an automatic restart
    that was one too many, or with the status that prevents one. One that failed
    without either was stopped and ended badly (killed at the timeout): whoever
    stopped it meant it, as with one that is inactive.
    """
    if service.active_state != "failed" or service.job:
        return False
    refused = service.exec_main_code == EXITED and service.exec_main_status == OPTION_REFUSED
    # "timeout": it was killed for not stopping in time, after a try that was not the first.
    return refused or (service.restarts > 0 and service.result != "timeout")


def _failure(box: Box, current: int) -> str:
    service = box.systemd.state(box.layout.units.service)
    if _gave_up(service):
        # systemd counts the restart that the start limit refused as one too.
        starts = max(1, service.restarts)
        how = (
            f"the service gave up after {starts} start{'s' if starts > 1 else ''}"
            f" ({service.result}, exit status {service.exec_main_status})"
        )
        if service.drop_ins:
            how += f"; with drop-ins: {', '.join(service.drop_ins)}"
        words = last_words(box, service)
        return f"{how}; its last words: {words}" if words else how
    try:
        verdicts = box.history.verdicts(limit=5)
    except KimisvcError as error:
        return f"the gate said FAIL ({error.message})"
    newest = next((v for v in verdicts if v.generation == current), None)
    return newest.verdict.reason if newest else "the gate said FAIL"
