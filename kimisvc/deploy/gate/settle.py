"""settle: takes the gate's record into history and moves `accepted`. Runs as root after every gate.

The gate is unprivileged and talks to the network, so its record is checked:
it counts only for the current generation and for the start that runs now.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.box import Box, is_installed
from kimisvc.deploy.gate.record import GateRecord, record_from_json
from kimisvc.deploy.history import Accepted
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.owed import owed
from kimisvc.deploy.plan import Action
from kimisvc.deploy.redacting import of_box, redacted_record
from kimisvc.deploy.start_facts import start_facts
from kimisvc.deploy.unkept import record_files, take_rollbacks
from kimisvc.errors import KimisvcError
from kimisvc.host import files, locks, processes
from kimisvc.host.processes import LISTENING
from kimisvc.host.systemd import JobMode
from kimisvc.records.proof import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


SETTLE_WAIT = 90.0
"""How long it waits for a switch (s): nobody calls it again. Within TimeoutStopSec= of the gate."""


class _Place(Enum):
    """Whether a record is the newest that was left: an older one may be kept, not accepted."""

    NEWEST = "newest"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle did: the verdict kept, and why it was not accepted where that surprises."""

    verdict: Verdict | None = None
    note: str = ""


def settle(box: Box) -> Settled:
    """Given a box whose gate has ended, keep what it found and accept what it proved.

    Accepts first: what runs and is proven stays so, even where history cannot
    be written. Raise KimisvcError then: the record stays where it is, and the
    next settle takes it.
    """
    files.make_folder(box.layout.runtime)
    settled = Settled(note="the gate left no record")
    broke: KimisvcError | None = None
    with locks.Lock(box.layout.switch_lock, wait=SETTLE_WAIT):
        records = _records(box)
        for place, path in enumerate(records):
            broke = _take_rollbacks(box, records[place:]) or broke  # each where it came
            last = _Place.NEWEST if path == records[-1] else _Place.EARLIER
            try:
                settled = _take(box, path, last)
            except KimisvcError as error:
                broke = broke or error  # the newest is still accepted, if it can be
        broke = _take_rollbacks(box, ()) or broke
        files.remove(box.layout.progress)  # nobody takes it for what the next gate does
    if broke is not None:
        raise broke
    if _was_overtaken(box):
        # Not over a stop that somebody has asked for: whoever stops the service means it.
        with contextlib.suppress(KimisvcError):
            box.systemd.restart(box.layout.units.gate, JobMode.FAIL)
    return settled


def _take_rollbacks(box: Box, left: Sequence[Path]) -> KimisvcError | None:
    """Keep the rollbacks that came before the records that are left; return why that cannot be."""
    try:
        take_rollbacks(box, [path.name for path in left])
    except KimisvcError as error:
        return error
    return None


def _was_overtaken(box: Box) -> bool:
    """Whether the service was started anew after this gate was, so that no gate looks at that start.

    A start of the gate that is asked for while we are still at work (this runs
    as its ExecStopPost=) is taken for the one that is just ending, and lost.
    """
    names = box.layout.units
    service, gate = box.systemd.state(names.service), box.systemd.state(names.gate)
    if not service.goes_on:
        return False
    return service.sub_state == "auto-restart" or gate.started_monotonic < service.started_monotonic


def _records(box: Box) -> tuple[Path, ...]:
    """The records not taken yet, oldest first; last that of the gate that has just ended, if it left one.

    The clock may have been set back since the one before it.
    """
    own = box.layout.record(box.systemd.state(box.layout.units.gate).invocation_id)
    left = record_files(box.layout)
    return tuple(sorted(left, key=lambda path: (path == own, path.lstat().st_mtime)))


def _take(box: Box, path: Path, place: _Place) -> Settled:
    try:
        record = redacted_record(record_from_json(files.read_untrusted(path)), of_box(box))
    except KimisvcError as error:
        with contextlib.suppress(KimisvcError):  # a folder, say, which keeps none behind it
            files.remove(path)
        return Settled(note=error.message)
    if place is _Place.NEWEST:
        record = _of_our_own(box, record)
    verdict = record.proof.verdict if record.proof else None
    refusal = "nothing proven"
    if verdict is not None and verdict.kind.accepted:
        refusal = _accept(box, record) if place is _Place.NEWEST else _stands(box, record)
    accepted = Accepted.NO if refusal else Accepted.YES
    box.history.add_record(record, accepted, start_facts(box, record))
    if verdict is not None and (not refusal or verdict.kind is VerdictKind.INCONCLUSIVE):
        outcome = Outcome.INCONCLUSIVE if refusal else Outcome.ACCEPTED
        box.history.judge_applies(record.generation, box.now(), outcome)
    files.remove(path)  # last: what breaks before is done again
    if verdict is None:
        return Settled(note="the gate was ended before a verdict")
    return Settled(verdict, refusal if verdict.kind.accepted else "")


def _stands(box: Box, record: GateRecord) -> str:
    """Why an earlier proof is not taken for accepted; empty where it was, before history was full."""
    accepted = box.generations.sound_accepted()
    stands = accepted is not None and accepted.number == record.generation
    return "" if stands else "a later gate has judged"


def _of_our_own(box: Box, record: GateRecord) -> GateRecord:
    """Given a good record, make it inconclusive if another than our service has the port.

    A server that was there first, or came while ours loaded, answers the gate as
    well as ours would; whose socket it is only root can see.
    """
    if record.proof is None or not record.proof.verdict.kind.accepted:
        return record
    current = box.generations.current()
    if current is None:
        return record
    vllm = current.settings().vllm
    owners = [o for o in processes.port_owners(vllm.port, vllm.host) if o.doing == LISTENING]
    ours = box.layout.units.service
    strangers = [str(owner) for owner in owners if owner.unit != ours]
    if owners and not strangers:
        return record
    who = " and ".join(strangers) or "nobody any more"
    why = f"what answered on port {vllm.port} is not {ours} but {who}; nothing is known of ours"
    return replace(
        record, proof=replace(record.proof, verdict=Verdict(VerdictKind.INCONCLUSIVE, why))
    )


def _accept(box: Box, record: GateRecord) -> str:
    """Accept, or say why not. The count of starts begins anew: they are tries for one proof."""
    names = box.layout.units
    current = box.generations.current()
    if current is None or current.number != record.generation:
        return f"not accepted: generation {record.generation} is not the current one any more"
    service = box.systemd.state(names.service)
    if service.invocation_id != record.invocation or not service.goes_on or service.job:
        return "not accepted: the start that was proven runs no more, or is being ended"
    if owed(box.layout, current.number) is Action.RESTART or not is_installed(box, current):
        return "not accepted: what was proven is not what the units on disk say"
    box.generations.accept(current)
    box.systemd.reset_failed(names.service)
    return ""
