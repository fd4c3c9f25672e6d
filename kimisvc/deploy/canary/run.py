"""One canary: a short probe of the service while it is idle, and what became of it. Runs unprivileged.

Its timer calls it beside a service that runs. It never measures where a gate is
at work, it rolls nothing back, and it writes to its own folder only: `keep_canaries`
takes it from there, as root.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.deploy.canary.record import canary_from_json, canary_to_json, figures_of
from kimisvc.deploy.gate.readiness import last_seen, unit_verdict
from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.deploy.outcome import AT_WORK
from kimisvc.deploy.redacting import of_box, of_unit
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.records.proof import Health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.host.vllm_api import VllmApi
    from kimisvc.measure.canary import Unseen
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitState


def run_canary(box: Box, open_api: Callable[[Profile], VllmApi]) -> CanaryRow:
    """Given a box whose service runs, probe it if it is idle; leave what became of that, and return it.

    Raise KimisvcError where there is no generation or it asks for no canary, or
    where the record cannot be written.
    """
    generation = box.generations.current()
    if generation is None:
        raise box.generations.no_current()
    profile = generation.settings()
    service = box.systemd.state(box.layout.units.service)
    blank = CanaryRow(
        box.now(), service.invocation_id, generation.number, generation.profile,
        CanaryResult.SKIPPED_NOT_READY,
    )  # fmt: skip
    row = _probed(box, profile, open_api, service, blank)
    row = replace(row, reason=of_unit()(row.reason))
    record = box.layout.canary_record(uuid.uuid4().hex)
    files.write_atomic(record, canary_to_json(row), mode=0o644)
    return row


def _probed(
    box: Box,
    profile: Profile,
    open_api: Callable[[Profile], VllmApi],
    service: UnitState,
    blank: CanaryRow,
) -> CanaryRow:
    from kimisvc.measure.canary import CanaryFigures, sing

    if profile.canary is None:
        raise KimisvcError("no-canary", f"generation {blank.generation} asks for no canary")
    if reason := _not_ready(box, service, blank.invocation):
        return replace(blank, reason=reason)
    try:
        api = open_api(profile)
    except KimisvcError as error:  # a key that no header can carry
        return replace(blank, result=CanaryResult.FAILED, reason=error.message)
    found = _seen(box, api.health(), blank)
    if found is None:
        sung = sing(api, profile, profile.canary, clock=box.clock, sleep=box.sleep)
        if isinstance(sung, CanaryFigures):
            found = replace(blank, result=CanaryResult.MEASURED, **figures_of(sung))  # type: ignore[arg-type]  # fields of floats
        else:
            found = replace(blank, result=_result(sung), reason=str(sung))
    # What it met when its server ended, or a gate came, says nothing of the server.
    after = box.systemd.state(service.name)
    reason = _not_ready(box, after, blank.invocation)
    return replace(blank, reason=f"meanwhile: {reason}") if reason else found


def _not_ready(box: Box, service: UnitState, invocation: str) -> str:
    """Why this start is not to be probed, as far as systemd knows; empty if it may be."""
    gone = unit_verdict(service, invocation)
    if gone is not None:
        return gone.reason
    if service.active_state != "active":
        return f"the service is {service.active_state}"
    gate = box.systemd.state(box.layout.units.gate)
    return "its gate is at work" if gate.job or gate.active_state in AT_WORK else ""


def _seen(box: Box, health: Health, blank: CanaryRow) -> CanaryRow | None:
    """What follows from a look at /health: None on a ready server.

    One that was ready and is not any more has failed; one that never was is loading.
    """
    if health is Health.READY:
        return None
    result = CanaryResult.FAILED if _was_ready(box, blank.invocation) else blank.result
    return replace(blank, result=result, reason=last_seen(health))


def _was_ready(box: Box, invocation: str) -> bool:
    """Whether a gate saw this start ready; of a history that cannot be read nothing is known."""
    try:
        start = box.history.start(invocation)
    except KimisvcError:
        return False
    return start is not None and start.ready_at is not None


def _result(sung: Broken | Unseen) -> CanaryResult:
    if not isinstance(sung, Broken):
        return CanaryResult.SKIPPED_UNKNOWN
    disturbed = sung.trouble is Trouble.DISTURBED
    return CanaryResult.SKIPPED_BUSY if disturbed else CanaryResult.FAILED


def keep_canaries(box: Box) -> tuple[CanaryRow, ...]:
    """Given a box whose canary has ended, take what it left into history; return that. As root.

    Raise KimisvcError where history cannot be written: the record stays where it
    is, and the next one takes it. What is no record is removed, if it can be.
    """
    left = [path for path in files.entries(box.layout.canary) if path.match("record-*.json")]
    rows = []
    for path in sorted(left, key=lambda path: path.lstat().st_mtime):
        row = _read(path)
        if row is None:
            with contextlib.suppress(KimisvcError):  # a folder, say, which keeps none behind it
                files.remove(path)
            continue
        row = replace(row, reason=of_box(box)(row.reason))
        if not _is_kept(box, row):
            box.history.add_canary(row)
        rows.append(row)
        files.remove(path)
    return tuple(rows)


def _read(path: Path) -> CanaryRow | None:
    try:
        return canary_from_json(files.read_untrusted(path))
    except KimisvcError:
        return None


def _is_kept(box: Box, row: CanaryRow) -> bool:
    """Whether one that was cut off between history and the removal of the record kept it."""
    newest = next(iter(box.history.canaries(limit=1)), None)
    return newest is not None and replace(newest, sequence=0) == replace(row, sequence=0)
