"""What the box is doing now, read in one go: for `status`, its JSON, and later the exporter."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.box import UNREAD, Box, installed_units, not_enabled, stopped_beside
from kimisvc.deploy.follow import read_progress
from kimisvc.deploy.gaps import Memory
from kimisvc.deploy.links import accepted_of, applying, no_current
from kimisvc.deploy.owed import owed
from kimisvc.deploy.past import RESTS, UNKEPT, read_past
from kimisvc.deploy.redacting import given_at
from kimisvc.deploy.unkept import waiting_records, waiting_rollbacks
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import files, locks
from kimisvc.records.progress import Phase
from kimisvc.records.proof import VerdictKind
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history import CanaryRow, RollbackRow, StartRow, VerdictRow
    from kimisvc.records.progress import Progress
    from kimisvc.records.units import UnitState


@dataclass(frozen=True, slots=True)
class Status:
    """All that is known of one instance now. `verdict` is that of the start that runs.

    `number` is that of the current generation, damaged or not, None where it is not known;
    `none_accepted` is why no generation is named as the accepted one.
    """

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
    canary: CanaryRow | None = None
    memory: Memory = Memory.READ
    changed_drop_ins: tuple[str, ...] = ()
    at_work: locks.Holder | None = None
    number: int | None = None
    none_accepted: str = ""

    @property
    def ready(self) -> bool | None:
        """Whether the start that runs was seen ready by its gate; None: no gate tells.

        A gate that ended says nothing of it by that: one that was stopped or broke ends, too,
        and the server goes on loading, or serves. Only one that failed the start has seen it so long.
        """
        seen = self._seen_ready
        failed = self.verdict is not None and self.verdict.verdict.kind is VerdictKind.FAIL
        ended = self.service.active_state == "active" and self.gate.active_state in RESTS
        return None if ended and not seen and not failed and not self.gate.job else seen

    @property
    def _seen_ready(self) -> bool:
        return (
            self.service.active_state == "active"
            and self.start is not None
            and self.start.invocation == self.service.invocation_id
            and self.start.ready_at is not None
        ) or (self.progress is not None and self.progress.phase is not Phase.LOADING)

    @property
    def verdict_waits(self) -> bool:
        """Whether the verdict is one that history has not taken yet."""
        return self.verdict is not None and self.verdict.sequence == UNKEPT

    @property
    def failed_and_goes_on(self) -> bool:
        """Whether what runs has failed its gate and nothing is about to take its place."""
        failed = self.verdict is not None and self.verdict.verdict.kind is VerdictKind.FAIL
        units = (self.service, self.gate, self.rollback)
        at_rest = self.gate.active_state in RESTS and self.rollback.active_state in RESTS
        return failed and self.service.goes_on and at_rest and not any(u.job for u in units)


def read_status(box: Box) -> Status:
    """Given a box, return its status. Raise KimisvcError when systemd cannot be asked.

    State that is damaged is told as such, beside all that can still be read.
    """
    names = box.layout.units
    current = box.generations.sound_current()
    service = box.systemd.state(names.service)
    gate = box.systemd.state(names.gate)
    progress = read_progress(box.layout) if gate.active_state == "activating" else None
    if progress is not None and progress.invocation != service.invocation_id:
        progress = None
    troubles = list(drift(box, current, service))
    if current is None:
        troubles += no_current(box)
    accepted = accepted_of(box)
    troubles += accepted.troubles
    if owed(box.layout, box.generations.current_number()) is not None:
        troubles.append("an apply was cut off before its restart: apply the profile again")
    past = read_past(box, service, gate)
    troubles += past.troubles
    rollback = box.systemd.state(names.rollback)
    if rollback.active_state == "failed" or rollback.sub_state == "auto-restart":
        again = "; it is tried again every minute" if rollback.active_state != "failed" else ""
        troubles.append(f"the rollback failed{again}: see journalctl -u {names.rollback}")
    if waiting_rollbacks(box.layout) or (
        gate.active_state in RESTS and waiting_records(box.layout)
    ):
        troubles.append("history lacks what a gate or a rollback did: it could not be written then")
    return Status(
        instance=box.layout.instance,
        current=current,
        accepted=accepted.generation,
        number=box.generations.current_number(),
        none_accepted=accepted.why_none,
        service=service,
        gate=gate,
        rollback=rollback,
        progress=progress,
        start=past.start,
        verdict=past.verdict,
        last_rollback=past.last_rollback,
        drift=tuple(troubles),
        canary=past.canary,
        memory=past.memory,
        changed_drop_ins=_changed_drop_ins(box, service),
        at_work=locks.holder(box.layout.operator_lock),
    )


def _changed_drop_ins(box: Box, service: UnitState) -> tuple[str, ...]:
    """The drop-ins that were changed in any way after the main process was started.

    What is new in them that process knows nothing of. Whether anything is, nobody can say:
    by ctime a new mode or a second name looks like a file that was put there with its age.
    """
    if service.active_state != "active" or not service.main_started_at:
        return ()
    newer, begun = [], given_at(box, service)
    for path in service.drop_ins:
        with contextlib.suppress(HostError):  # gone since: that shows as a reload that is needed
            newer += [path] if files.changed_since(Path(path), begun) else []
    return tuple(newer)


def drift(box: Box, current: Generation | None, service: UnitState) -> tuple[str, ...]:
    """Given the current generation, say where the box differs from it. Drop-ins are no drift."""
    if current is None:
        return ()
    there = installed_units(box.layout)
    try:
        units = current.units()
        current.resolved()
    except KimisvcError as error:
        return (f"{error.message}: {applying(box)}",)
    wanted = {unit.name for unit in units}
    names = box.layout.units
    ours = (names.service, names.gate, names.rollback)
    masked = [name for name in ours if box.systemd.state(name).load_state == "masked"]
    found = [f"{name} is masked: nothing starts it (systemctl unmask {name})" for name in masked]
    found += [
        f"{name} is left over from another generation"
        for name, text in there.items()
        if text is not None and name not in wanted and box.generations.wrote(UnitFile(name, text))
    ]
    found += [
        f"{unit.name} {how}"
        for unit in units
        if unit.name not in masked and (how := _differs(box, unit, there.get(unit.name)))
    ]
    found += [
        f"{name} is disabled: it would not start at boot"
        for name in not_enabled(box, service, wanted)
    ]
    if service.active_state == "active":
        found += [f"{name} does not run" for name in stopped_beside(box, wanted)]
    if service.needs_reload:
        found.append("systemd runs older units than those on disk (daemon-reload needed)")
    return tuple(found)


def _differs(box: Box, unit: UnitFile, text: str | None) -> str:
    """Given a unit of the current generation and what is installed of it, say how that differs; "" if not."""
    if text == unit.text:
        return ""
    if text is None:
        return "is missing"
    if text.startswith(UNREAD):
        return f"may not be read here: {text.removeprefix(UNREAD).strip()}"
    if box.generations.wrote(UnitFile(unit.name, text)):
        return "is that of another generation"
    return "was edited by hand"
