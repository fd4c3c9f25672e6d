"""The gate of one start: wait until ready, prove it, hand the record over. Runs unprivileged.

systemd runs it at every start of the service: by apply, at boot, after a
crash. It writes to its own folder only; `settle` takes it from there.
"""

from __future__ import annotations

import os
import traceback
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.box import is_installed
from kimisvc.deploy.gate.exports import blind_spots
from kimisvc.deploy.gate.readiness import Ended, Eyes, unit_verdict, wait_ready
from kimisvc.deploy.gate.record import GateRecord, to_json
from kimisvc.deploy.redacting import of_unit, redacted_record
from kimisvc.errors import ExitStatus, KimisvcError
from kimisvc.foreign_text import printable
from kimisvc.host import files
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.proof import Health, Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.readiness import Waited
    from kimisvc.deploy.generations import Generation
    from kimisvc.host.journal import ShardProgress
    from kimisvc.host.vllm_api import VllmApi
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitState

LEAST_WAIT = 60.0
"""What a gate that is run again over an old start allows for readiness (s)."""
PROMPT = 3.0
"""How soon after the process a gate looks that may have missed the end of its load by that much (s)."""
JOURNAL_EVERY = 1.0
"""How often the journal is read for the progress of a load (s)."""


class Desk:
    """Writes where the gate stands and what it found, for whoever follows; no secret is in it."""

    def __init__(
        self, box: Box, generation: Generation, invocation: str, started_at: float
    ) -> None:
        self._box = box
        self._redact = of_unit()
        self.newest: GateRecord | None = None
        """The record as it stood last: what was seen before something broke has been seen."""
        self._base = Progress(Phase.LOADING, generation.number, invocation, started_at, started_at)

    def write(self, phase: Phase, detail: str, done: int = 0, total: int = 0) -> None:
        """Given where the gate stands, let others see it; a full disk does not stop a gate."""
        self._base = replace(
            self._base, phase=phase, detail=self._redact(detail), done=done, total=total,
            updated_at=self._box.now(),
        )  # fmt: skip
        try:
            files.write_atomic(self._box.layout.progress, to_json(self._base), mode=0o644)
        except KimisvcError:
            return

    def hand_over(self, record: GateRecord) -> None:
        """Given the record as it stands, leave it for `settle`."""
        self.newest = record
        text = to_json(redacted_record(record, self._redact))
        files.write_atomic(self._box.layout.record(record.record), text, mode=0o644)

    def expect(self, seconds: float) -> None:
        """Given the load time seen before, tell it along."""
        self._base = replace(self._base, expected_s=seconds)


class LoadFromJournal:
    """Tells how far a load has come, from vLLM's own words in the journal."""

    def __init__(self, box: Box, desk: Desk, unit: UnitState) -> None:
        self._box, self._desk, self._unit = box, desk, unit
        self._cursor: str | None = None
        self._seen: ShardProgress | None = None
        self._next = 0.0

    def tell(self, seen: Health) -> None:
        """Read what is new, at most once a second, and tell it beside what /health says."""
        now = self._box.clock()
        if now < self._next:
            return
        self._next = now + JOURNAL_EVERY
        from kimisvc.host.journal import load_progress

        lines, self._cursor = self._box.journal.read(self._unit.invocation_id, self._cursor)
        self._seen = load_progress(lines, self._seen) or self._seen
        shards = self._seen
        detail = f"{shards.detail if shards else 'starting'} ({seen.value})"
        self._desk.write(
            Phase.LOADING, detail, shards.done if shards else 0, shards.total if shards else 0
        )


def run_gate(box: Box, open_api: Callable[[Profile], VllmApi]) -> ExitStatus:
    """Given a box whose service was started, prove that start and leave the record.

    Return DONE for an accepted verdict and for a start that systemd ended
    first, INCONCLUSIVE, or NOT_RESTORED for FAIL: systemd then calls rollback.
    Whatever breaks in the gate itself is INCONCLUSIVE and handed over as that.
    """
    generation = box.generations.current()
    if generation is None:
        raise box.generations.no_current()
    service = box.systemd.state(box.layout.units.service)
    desk = Desk(box, generation, service.invocation_id, service.main_started_at)
    desk.write(Phase.LOADING, "starting")
    record = _open_record(box, generation, service)
    try:
        profile = generation.settings()
        record = _about(record, profile)
        desk.hand_over(record)
        desk.expect(_expected_load(box, profile))
        record = _prove_start(box, open_api(profile), profile, service, record, desk)
        desk.hand_over(record)
    except Exception as error:  # noqa: BLE001 - nobody waits for a verdict that never comes
        record = _closed(box, desk.newest or record, Proof(_broke(error)))
        desk.hand_over(record)
    if record.proof is None:
        return ExitStatus.DONE
    verdict = record.proof.verdict
    desk.write(Phase.DECIDED, f"{verdict.kind.value}: {verdict.reason}")
    return {
        VerdictKind.FAIL: ExitStatus.NOT_RESTORED,
        VerdictKind.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
    }.get(verdict.kind, ExitStatus.DONE)


def _broke(error: Exception) -> Verdict:
    """Given what ended the gate before it could judge, return that as its verdict.

    A fault of ours is told with its place, for who reports it and who mends it.
    """
    if isinstance(error, KimisvcError):
        told = error.message
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        told = f"{type(error).__name__} in {where}: {error}; please report it"
    return Verdict(VerdictKind.INCONCLUSIVE, f"the gate itself broke: {printable(told)}")


def _prove_start(
    box: Box, api: VllmApi, profile: Profile, service: UnitState, record: GateRecord, desk: Desk
) -> GateRecord:
    from kimisvc.measure.gate import prove
    from kimisvc.measure.statistics import prepare

    prepare()  # half a second of imports, spent while the model loads
    name = box.layout.units.service
    eyes = Eyes(
        lambda: box.systemd.state(name), api.health,
        LoadFromJournal(box, desk, service), box.clock, box.sleep,
    )  # fmt: skip
    limit = profile.service.load_timeout
    deadline = max(service.started_monotonic + limit, box.clock() + min(LEAST_WAIT, limit))
    began = box.clock()
    waited = wait_ready(eyes, service.invocation_id, deadline)
    if waited.ended is Ended.DEADLINE:
        late = f"not ready {limit:.0f} s after its start: {waited.reason}"
        return _closed(box, record, Proof(Verdict(VerdictKind.FAIL, late)))
    if waited.ended is not Ended.READY:
        return replace(record, ended_at=box.now())
    ready_at = box.now()
    record = replace(
        record, ready_at=ready_at, vllm_version=api.version() or "",
        load_s=_load_time(service, began, waited, box.clock()),
    )  # fmt: skip
    desk.hand_over(record)
    proof = prove(api, profile, desk.write, clock=box.clock, sleep=box.sleep)
    if not proof.verdict.kind.accepted and unit_verdict(
        box.systemd.state(name), service.invocation_id
    ):
        return replace(record, ended_at=box.now())  # it died under the probe: systemd's to judge
    proof = replace(proof, notes=(*proof.notes, *blind_spots(api, profile)))
    current = box.generations.current()
    if proof.verdict.kind.accepted and (current is None or not is_installed(box, current)):
        # What was proven is what runs, and that is not what would be accepted.
        odd = "the unit of vLLM is not that of the current generation; apply the profile again"
        proof = replace(proof, verdict=Verdict(VerdictKind.INCONCLUSIVE, odd))
    return _closed(box, record, proof)


def _load_time(service: UnitState, began: float, waited: Waited, ready: float) -> float | None:
    """Given a start, when the gate first looked, how that ended and when (s), return the load time.

    None where the server may have been ready for long before anybody looked. vLLM listens
    only once it is ready: a refused port is a load, and no answer may be a server that is busy.
    """
    prompt = began - max(service.started_monotonic, service.main_started_monotonic) <= PROMPT
    saw_its_end = prompt or waited.first is Health.REFUSED
    return ready - service.started_monotonic if saw_its_end else None


def _open_record(box: Box, generation: Generation, service: UnitState) -> GateRecord:
    return GateRecord(
        record=_run_id(box),
        generation=generation.number,
        profile=generation.profile,
        model="",
        invocation=service.invocation_id,
        service_started_at=service.main_started_at,
        began_at=box.now(),
    )


def _run_id(box: Box) -> str:
    """The invocation of the gate's unit, which systemd gave us (systemd.exec(5)); by hand, one of our own.

    A shell may have been given that of another unit.
    """
    given = os.environ.get("INVOCATION_ID", "")
    ours = given and box.systemd.state(box.layout.units.gate).invocation_id == given
    return given if ours else uuid.uuid4().hex


def _about(record: GateRecord, profile: Profile) -> GateRecord:
    """Given a record and what is to be proven, return it with the model and the target."""
    target = profile.gate.decode_tok_s
    return replace(
        record,
        model=profile.vllm.model,
        floor=target.floor if target else None,
        goal=target.goal if target else None,
    )


def _closed(box: Box, record: GateRecord, proof: Proof) -> GateRecord:
    return replace(record, ended_at=box.now(), proof=proof)


def _expected_load(box: Box, profile: Profile) -> float:
    try:
        return box.history.expected_load(profile.vllm.model)
    except KimisvcError:
        return 0.0  # an estimate is a comfort, not a condition
