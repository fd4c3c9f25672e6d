"""settle: takes the gate's record into history and moves `accepted`. Runs as root after every gate.

The gate is unprivileged and talks to the network, so its record is checked:
it counts only for the current generation and for the start that runs now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.box import SWITCH_WAIT, Box
from kimisvc.deploy.record import GateRecord, record_from_json
from kimisvc.host import files

if TYPE_CHECKING:
    from kimisvc.records import Verdict


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settle did: the verdict kept, and why it was not accepted where that surprises."""

    verdict: Verdict | None = None
    note: str = ""


def settle(box: Box) -> Settled:
    """Given a box whose gate has ended, keep what it found and accept what it proved.

    Raise KimisvcError when it cannot be kept: the record then stays where it
    is, and the next settle takes it.
    """
    files.make_folder(box.layout.runtime)
    with files.Lock(box.layout.switch_lock, wait=SWITCH_WAIT):
        path = box.layout.record
        if not path.exists():
            return Settled(note="the gate left no record")
        record = record_from_json(files.read_text(path))
        box.history.add_record(record)
        files.remove(path)  # kept now; what the next gate does not write is not taken for its own
        if record.proof is None:
            return Settled(note="the gate was ended before a verdict")
        verdict = record.proof.verdict
        return Settled(verdict, _accept(box, record) if verdict.kind.accepted else "")


def _accept(box: Box, record: GateRecord) -> str:
    """Accept, and let the count of starts begin anew: they are tries for one proof."""
    names = box.layout.units
    current = box.generations.current()
    if current is None or current.number != record.generation:
        return f"not accepted: generation {record.generation} is not the current one any more"
    if box.systemd.state(names.service).invocation_id != record.invocation:
        return "not accepted: the start that was proven runs no more"
    box.generations.accept(current)
    box.systemd.reset_failed(names.service)
    return ""
