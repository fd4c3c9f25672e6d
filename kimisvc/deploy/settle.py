"""settle: takes the gate's record into history and moves `accepted`. Runs as root after every gate.

The gate is unprivileged and talks to the network, so its record is checked:
it counts only for the current generation and for the start that runs now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.box import SWITCH_WAIT, Box, is_installed
from kimisvc.deploy.history import Accepted
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.owed import owed
from kimisvc.deploy.plan import Action
from kimisvc.deploy.record import GateRecord, record_from_json
from kimisvc.deploy.redacting import of_box, redacted_record
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.records import VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.records import Verdict


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
    with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        for path in _records(box):
            settled = _take(box, path)
        files.remove(box.layout.progress)  # nobody takes it for what the next gate does
    return settled


def _records(box: Box) -> tuple[Path, ...]:
    """The records not taken yet, oldest first."""
    left = [p for p in files.entries(box.layout.gate) if p.match("record-*.json")]
    return tuple(sorted(left, key=lambda path: path.lstat().st_mtime))


def _take(box: Box, path: Path) -> Settled:
    try:
        record = redacted_record(record_from_json(files.read_untrusted(path)), of_box(box))
    except KimisvcError as error:
        files.remove(path)
        return Settled(note=error.message)
    verdict = record.proof.verdict if record.proof else None
    refusal = _accept(box, record) if verdict and verdict.kind.accepted else "nothing proven"
    box.history.add_record(record, Accepted.NO if refusal else Accepted.YES)
    files.remove(path)
    if verdict is None:
        return Settled(note="the gate was ended before a verdict")
    if not refusal or verdict.kind is VerdictKind.INCONCLUSIVE:
        outcome = Outcome.INCONCLUSIVE if refusal else Outcome.ACCEPTED
        box.history.close_applies(record.generation, box.now(), outcome.value, outcome.exit_status)
    return Settled(verdict, refusal if verdict.kind.accepted else "")


def _accept(box: Box, record: GateRecord) -> str:
    """Accept, or say why not. The count of starts begins anew: they are tries for one proof."""
    names = box.layout.units
    current = box.generations.current()
    if current is None or current.number != record.generation:
        return f"not accepted: generation {record.generation} is not the current one any more"
    if box.systemd.state(names.service).invocation_id != record.invocation:
        return "not accepted: the start that was proven runs no more"
    if owed(box.layout, box.boot) is Action.RESTART or not is_installed(box, current):
        return "not accepted: what was proven is not what the units on disk say"
    box.generations.accept(current)
    box.systemd.reset_failed(names.service)
    return ""
