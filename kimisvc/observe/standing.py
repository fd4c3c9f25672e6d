"""Where an instance stands, out of several views: which start runs, whether it loads or is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.past import (
    settled,
    start_of,
    start_that_waits,
    verdict_on,
    verdict_that_waits,
)
from kimisvc.deploy.status import Status
from kimisvc.records.progress import Phase

if TYPE_CHECKING:
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.history import StartRow, VerdictRow
    from kimisvc.deploy.history.rows import CanaryRow
    from kimisvc.observe.snapshots import Scene
    from kimisvc.records.progress import Progress


def progress(scene: Scene) -> Progress | None:
    """Given a scene, return what the gate of the start that runs is doing; None if none is at work."""
    if scene.units is None or scene.files is None or scene.files.progress is None:
        return None
    told = scene.files.progress
    at_work = scene.units.gate.active_state == "activating"
    return told if at_work and told.invocation == scene.units.service.invocation_id else None


def start(scene: Scene) -> StartRow | None:
    """Given a scene, return the row of the start that runs, None before its gate has ended.

    One that waits for room on the disk is as good, also where history cannot be read.
    """
    if scene.units is None:
        return None
    kept = scene.history.starts if scene.history is not None else ()
    rows = (*kept, *map(start_that_waits, _waiting(scene)))
    return start_of(scene.units.service.invocation_id, rows)


def verdict(scene: Scene) -> VerdictRow | None:
    """Given a scene, return the newest verdict on the start that runs, None if there is none.

    One that waits for room on the disk is newer than those of history.
    """
    if scene.units is None or not scene.units.service.lives:
        return None
    here = scene.files
    current = here.current if here is not None else None
    accepted = here.accepted if here is not None else None
    unkept = (verdict_that_waits(record, accepted) for record in _waiting(scene))
    return verdict_on(
        scene.units.service.invocation_id,
        (*unkept, *(scene.history.verdicts if scene.history is not None else ())),
        current=current.number if current is not None else None,
        accepted=accepted,
    )


def canary(scene: Scene) -> CanaryRow | None:
    """Given a scene, return the newest canary that measured the start that runs, None without one."""
    if scene.units is None or scene.history is None or not scene.units.service.lives:
        return None
    row = scene.history.canary
    return row if row is not None and row.invocation == scene.units.service.invocation_id else None


def ready(scene: Scene) -> bool | None:
    """Given a scene, say as `status` does whether its gate saw it ready; None: that is unknown."""
    if scene.units is None or scene.files is None:
        return None
    units = scene.units
    told = Status(
        instance=scene.instance, current=None, accepted=None, service=units.service,
        gate=units.gate, rollback=units.rollback, progress=progress(scene), start=start(scene),
        verdict=verdict(scene), last_rollback=None, drift=(),
    )  # fmt: skip
    return told.ready


def loads(scene: Scene) -> bool:
    """Given a scene, say whether a start is being loaded: its gate is at work and waits for it."""
    if scene.units is None or scene.units.gate.active_state != "activating":
        return False
    told = progress(scene)
    return scene.units.service.lives and (told is None or told.phase is Phase.LOADING)


def _waiting(scene: Scene) -> tuple[GateRecord, ...]:
    """The records that history has not taken yet, newest first."""
    if scene.files is None or scene.units is None:
        return ()
    return settled(scene.files.waiting, scene.units.gate)
