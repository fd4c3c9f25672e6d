"""What the box is doing now, read in one go: for `status`, its JSON, and later the exporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.box import Box, installed_units
from kimisvc.deploy.follow import read_progress
from kimisvc.records import Phase

if TYPE_CHECKING:
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history import RollbackRow, StartRow, VerdictRow
    from kimisvc.records import Progress, UnitState


@dataclass(frozen=True, slots=True)
class Status:
    """All that is known of one instance now. `verdict` is that of the start that runs."""

    instance: str
    current: Generation | None
    accepted: Generation | None
    service: UnitState
    gate: UnitState
    rollback: UnitState
    progress: Progress | None
    start: StartRow | None
    verdict: VerdictRow | None
    last_rollback: RollbackRow | None
    drift: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether the start that runs was seen ready by its gate."""
        return (
            self.service.active_state == "active"
            and self.start is not None
            and self.start.invocation == self.service.invocation_id
            and self.start.ready_at is not None
        ) or (self.progress is not None and self.progress.phase is not Phase.LOADING)


def read_status(box: Box) -> Status:
    """Given a box, return its status. Raise KimisvcError when it cannot be read."""
    names = box.layout.units
    current = box.generations.current()
    service = box.systemd.state(names.service)
    gate = box.systemd.state(names.gate)
    progress = read_progress(box.layout) if gate.active_state == "activating" else None
    starts = box.history.starts(limit=20)
    verdicts = box.history.verdicts(limit=20)
    return Status(
        instance=box.layout.instance,
        current=current,
        accepted=box.generations.accepted(),
        service=service,
        gate=gate,
        rollback=box.systemd.state(names.rollback),
        progress=progress,
        start=next((s for s in starts if s.invocation == service.invocation_id), None),
        verdict=next((v for v in verdicts if v.invocation == service.invocation_id), None),
        last_rollback=next(iter(box.history.rollbacks(limit=1)), None),
        drift=drift(box, current, service),
    )


def drift(box: Box, current: Generation | None, service: UnitState) -> tuple[str, ...]:
    """Given the current generation, say where the box differs from it. Drop-ins are no drift."""
    if current is None:
        return ()
    there = installed_units(box.layout)
    found = []
    for unit in current.units():
        text = there.get(unit.name)
        if text is None:
            found.append(f"{unit.name} is missing")
        elif text != unit.text:
            found.append(f"{unit.name} was edited by hand")
    if service.needs_reload:
        found.append("systemd runs older units than those on disk (daemon-reload needed)")
    return tuple(found)
