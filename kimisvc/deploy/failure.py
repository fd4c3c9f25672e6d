"""What has failed for good, and why: told from what somebody stopped, which is to stay stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.redacting import last_words
from kimisvc.deploy.unkept import has_judged, latest_judgement
from kimisvc.errors import ExitStatus
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.records.units import UnitState

EXITED = 1
"""CLD_EXITED of sigaction(2): the process ended by itself, with a status."""
OPTION_REFUSED = 2
"""argparse's status for an option that vLLM refuses; RestartPreventExitStatus= of the service."""
TOO_MANY = "start-limit-hit"
"""Result of a service whose start by hand was one too many (systemd.service(5))."""

LATE = "timeout"
NEVER_AGAIN = ("no", "on-success", "on-abnormal", "on-abort", "on-watchdog")
"""Restart= of a drop-in with which an exit with an error is followed by no start (systemd.service(5))."""


def has_failed(box: Box) -> bool:
    """Given a box, say whether the service gave up or the gate of what goes on ended with FAIL.

    systemd knows, whatever the disk. A unit that failed and has a job is being
    started anew, by an apply that came in between: what failed was the one
    before. A service that was stopped since its gate failed was meant to stop.
    """
    names = box.layout.units
    service, gate = box.systemd.state(names.service), box.systemd.state(names.gate)
    if gave_up(service):
        return True
    if gate.active_state != "failed" or gate.job or not service.goes_on:
        return False
    return gate.exec_main_status == ExitStatus.NOT_RESTORED or _came_to_no_end(box, gate)


def _came_to_no_end(box: Box, gate: UnitState) -> bool:
    """Whether the gate had no verdict at its deadline: a server can keep it busy for ever.

    A timeout is also that of settle, which comes after the verdict.
    """
    return gate.result == LATE and not has_judged(box, gate.invocation_id)


def gave_up(service: UnitState) -> bool:
    """Given the state of a service, say whether systemd gave it up, and not somebody stopped it.

    With Restart=always it fails for good with the status that prevents a
    restart, or because a start was one too many: one by hand, which is its
    result then, or an automatic one: to wait for that it left "failed" once more,
    after its last process had ended. One that did not was stopped and ended
    badly (killed at the timeout, or by an error on its way out): whoever stopped
    it meant it, as with one that is inactive. Where a drop-in forbids restarts the
    two look alike, and a service that died must not stay down unnoticed.
    """
    if service.active_state != "failed" or service.job:
        return False
    refused = service.exec_main_code == EXITED and service.exec_main_status == OPTION_REFUSED
    died = service.restart in NEVER_AGAIN and service.result != LATE
    return refused or service.result == TOO_MANY or service.waited_in_vain or died


def reason(box: Box, current: int) -> str:
    """Given a box on which `has_failed` holds and its current generation, return why, in words."""
    service = box.systemd.state(box.layout.units.service)
    if gave_up(service):
        return _why_it_gave_up(box, service)
    if _came_to_no_end(box, box.systemd.state(box.layout.units.gate)):
        return "the gate came to no end within its deadline"
    judged = latest_judgement(box, current, service.invocation_id)
    if judged is None or judged.kind is not VerdictKind.FAIL:
        return "the gate said FAIL"
    return judged.reason


def _why_it_gave_up(box: Box, service: UnitState) -> str:
    starts = 1 + service.automatic_restarts
    how = (
        f"the service was started too often ({TOO_MANY})"
        if service.result == TOO_MANY
        else f"the service gave up after {starts} start{'s' if starts > 1 else ''}"
        f" ({service.result}, exit status {service.exec_main_status})"
    )
    if service.drop_ins:
        how += f"; with drop-ins: {', '.join(service.drop_ins)}"
    words = last_words(box, service)
    return f"{how}; its last words: {words}" if words else how
