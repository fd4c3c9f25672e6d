"""The gate's record: what the unprivileged gate hands over to `settle`, as JSON.

The gate talks to a network service and runs unprivileged; `settle` runs as
root. So the record is data to be checked, not trusted: every field has its
type here, and a record that does not fit is refused whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from kimisvc.errors import KimisvcError
from kimisvc.foreign_text import printable, well_formed
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.proof import GoldenResult, Interval, Proof, Sample, Verdict, VerdictKind

Plain = TypeVar("Plain", Sample, Interval, GoldenResult)


@dataclass(frozen=True, slots=True)
class GateRecord:
    """One run of the gate over one start. `proof` is None when it was interrupted.

    `record` is the invocation of the gate's unit, so that what systemd says of a
    gate and what it left can be told to be of one run, whatever the clock says.
    `ready_at` 0: the server never became ready under this gate's eyes.
    `load_s`, from the start of the service to ready, is set only when the gate saw the load end.
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
    return json_text(asdict(value))


def json_text(value: dict[str, Any]) -> str:
    """Given the fields of a record, return their JSON text, whatever a server said in them."""
    return well_formed(json.dumps(value, default=lambda enum: enum.value, ensure_ascii=False))


def record_from_json(text: str) -> GateRecord:
    """Given the text of a record, return it. Raise KimisvcError if it is not one."""
    try:
        data = json.loads(text)
        proof = data.pop("proof")
        record = GateRecord(**data, proof=None if proof is None else _proof(proof))
        check_types(record)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise KimisvcError("bad-record", f"the gate left a record that is none: {error}") from error
    return record


def progress_from_json(text: str) -> Progress | None:
    """Given the text of a progress file, return it; None if it is not (wholly) one."""
    try:
        data = json.loads(text)
        progress = Progress(**{**data, "phase": Phase(data["phase"])})
        check_types(progress)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return replace(progress, detail=printable(progress.detail))


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "float | None": (int, float, type(None)),
}
LARGEST = 1 << 53
"""Beyond it a number is no count and no time, and SQLite could not keep it."""


def check_types(value: object) -> None:
    """Raise TypeError unless every plain field of a dataclass has the type it is declared with."""
    for field in fields(value):  # type: ignore[arg-type]  # called with dataclasses only
        kinds = _KINDS.get(str(field.type))
        held = getattr(value, field.name)
        if kinds is None:
            continue
        if not isinstance(held, kinds) or (isinstance(held, bool) and bool not in kinds):
            raise TypeError(f"{field.name} is {type(held).__name__}")
        if isinstance(held, (int, float)) and not abs(held) < LARGEST:
            raise TypeError(f"{field.name} is out of range")
        if isinstance(held, str):
            held.encode()  # a lone surrogate is no text


def _checked(kind: type[Plain], data: dict[str, Any]) -> Plain:
    value = kind(**data)
    check_types(value)
    return value


def _proof(data: dict[str, Any]) -> Proof:
    verdict = data["verdict"]
    speed = data["decode_tok_s"]
    proof = Proof(
        verdict=Verdict(VerdictKind(verdict["kind"]), printable(str(verdict["reason"]))),
        samples=tuple(_checked(Sample, sample) for sample in data["samples"]),
        decode_tok_s=None if speed is None else _checked(Interval, speed),
        ttft_s=data["ttft_s"],
        engine_decode_tok_s=data["engine_decode_tok_s"],
        golden=tuple(_checked(GoldenResult, golden) for golden in data["golden"]),
        notes=tuple(printable(str(note)) for note in data["notes"]),
    )
    check_types(proof)
    return proof
