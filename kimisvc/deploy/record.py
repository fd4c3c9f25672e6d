"""The gate's record: what the unprivileged gate hands over to `settle`, as JSON.

The gate talks to a network service and runs unprivileged; `settle` runs as
root. So the record is data to be checked, not trusted: every field has its
type here, and a record that does not fit is refused whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from kimisvc.errors import KimisvcError
from kimisvc.records import (
    GoldenResult,
    Interval,
    Phase,
    Progress,
    Proof,
    Sample,
    Verdict,
    VerdictKind,
)


@dataclass(frozen=True, slots=True)
class GateRecord:
    """One run of the gate over one start. `proof` is None when it was interrupted.

    `ready_at` 0: the server never became ready under this gate's eyes.
    `load_s` is set only when the gate saw the whole load.
    """

    record: str
    generation: int
    profile: str
    model: str
    invocation: str
    service_started_at: float
    began_at: float
    ended_at: float = 0.0
    ready_at: float = 0.0
    load_s: float | None = None
    vllm_version: str = ""
    floor: float | None = None
    goal: float | None = None
    proof: Proof | None = None


def to_json(value: GateRecord | Progress) -> str:
    """Given a record or progress, return its JSON text."""
    return json.dumps(asdict(value), default=lambda enum: enum.value)


def record_from_json(text: str) -> GateRecord:
    """Given the text of a record, return it. Raise KimisvcError if it is not one."""
    try:
        data = json.loads(text)
        proof = data.pop("proof")
        return GateRecord(**data, proof=None if proof is None else _proof(proof))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KimisvcError("bad-record", f"the gate left a record that is none: {error}") from error


def progress_from_json(text: str) -> Progress | None:
    """Given the text of a progress file, return it; None if it is not (wholly) one."""
    try:
        data = json.loads(text)
        return Progress(**{**data, "phase": Phase(data["phase"])})
    except (ValueError, TypeError, KeyError):
        return None


def _proof(data: dict[str, Any]) -> Proof:
    verdict = data["verdict"]
    speed = data["decode_tok_s"]
    return Proof(
        verdict=Verdict(VerdictKind(verdict["kind"]), str(verdict["reason"])),
        samples=tuple(Sample(**sample) for sample in data["samples"]),
        decode_tok_s=None if speed is None else Interval(**speed),
        ttft_s=data["ttft_s"],
        engine_decode_tok_s=data["engine_decode_tok_s"],
        golden=tuple(GoldenResult(**golden) for golden in data["golden"]),
        notes=tuple(str(note) for note in data["notes"]),
    )
