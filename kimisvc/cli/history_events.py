"""The history as events in their order: a line each for people, a row each in CSV, lists in JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from kimisvc.cli.output import LAST, span, speed, verdict_json
from kimisvc.foreign_text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kimisvc.deploy.gaps import Gaps
    from kimisvc.deploy.history import (
        ApplyRow,
        BenchRow,
        CanaryRow,
        History,
        RollbackRow,
        StartRow,
        VerdictRow,
        Which,
    )


class What(Enum):
    """The kinds of events, as they are asked for."""

    APPLY = "apply"
    START = "start"
    VERDICT = "verdict"
    ROLLBACK = "rollback"
    CANARY = "canary"
    BENCH = "bench"


COLUMNS = (
    "sequence", "at", "what", "generation", "profile", "invocation", "result", "decode_tok_s",
    "decode_tok_s_low", "decode_tok_s_high", "ttft_s", "engine_decode_tok_s", "floor", "goal",
    "load_s", "vllm_version", "model", "accepted", "actor", "previous_generation", "exit",
    "concurrency", "completed", "failed", "output_throughput", "request_throughput",
    "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "p99_itl_ms",
    "reason",
)  # fmt: skip
"""The columns of the CSV; an event fills those that it has. Throughputs are tok/s and requests/s."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins so is run by a spreadsheet (OWASP, "CSV Injection"): it gets a ' before it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that were asked for, newest first in each list."""

    applies: tuple[ApplyRow, ...] = ()
    starts: tuple[StartRow, ...] = ()
    verdicts: tuple[VerdictRow, ...] = ()
    rollbacks: tuple[RollbackRow, ...] = ()
    canaries: tuple[CanaryRow, ...] = ()
    benches: tuple[BenchRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its place in the order, what a person reads, and its cells for CSV."""

    sequence: int
    rank: int
    at: float
    what: str
    generation: int
    text: str
    cells: Mapping[str, Any] = field(default_factory=dict)


def found(kept: History, which: Which, kinds: Collection[What]) -> Found:
    """Given a history, which rows and of which kinds, return them."""
    return Found(
        applies=kept.find_applies(which) if What.APPLY in kinds else (),
        starts=kept.find_starts(which) if What.START in kinds else (),
        verdicts=kept.find_verdicts(which) if What.VERDICT in kinds else (),
        rollbacks=kept.find_rollbacks(which) if What.ROLLBACK in kinds else (),
        canaries=kept.find_canaries(which) if What.CANARY in kinds else (),
        benches=kept.find_benches(which) if What.BENCH in kinds else (),
    )


def events(rows: Found) -> list[Event]:
    """Given rows, return them as events, oldest first, in the order in which they happened."""
    happened = [
        *map(_apply, rows.applies), *map(_start, rows.starts), *map(_verdict, rows.verdicts),
        *map(_rollback, rows.rollbacks), *map(_canary, rows.canaries), *map(_bench, rows.benches),
    ]  # fmt: skip
    return sorted(happened, key=lambda event: (event.sequence, event.rank))


def as_json(rows: Found, instance: str, lacking: Gaps) -> dict[str, Any]:
    """Given rows and what their history does not tell, return their JSON object.

    A list for each kind, newest first; `memory` is "missing" where what history held is
    lost, `waiting` counts the verdicts and rollbacks that it has not taken yet.
    """
    return {
        "instance": instance,
        "memory": lacking.memory.value,
        "waiting": lacking.waiting,
        "applies": [dataclasses.asdict(row) for row in rows.applies],
        "starts": [dataclasses.asdict(row) for row in rows.starts],
        "verdicts": [
            {
                **verdict_json(row), "at": row.at, "generation": row.generation,
                "profile": row.profile, "invocation": row.invocation, "floor": row.floor,
                "goal": row.goal, "notes": list(row.notes), "accepted": row.accepted,
                "sequence": row.sequence,
            }
            for row in rows.verdicts
        ],
        "rollbacks": [dataclasses.asdict(row) for row in rows.rollbacks],
        "canaries": [{**dataclasses.asdict(r), "result": r.result.value} for r in rows.canaries],
        "benches": [dataclasses.asdict(row) for row in rows.benches],
    }  # fmt: skip


def as_csv(happened: list[Event]) -> str:
    """Given events, return them as one table (RFC 4180); moments in ISO 8601, UTC."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, dialect="excel", restval="", extrasaction="raise")
    writer.writeheader()
    for event in happened:
        at = datetime.fromtimestamp(min(max(event.at, 0.0), LAST), UTC).isoformat(
            timespec="seconds"
        )
        cells = {"sequence": event.sequence, "at": at, "what": event.what,
                 "generation": event.generation, **event.cells}  # fmt: skip
        writer.writerow({name: _cell(value) for name, value in cells.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if value.startswith(FORMULA) else text
    return "" if value is None else value


def _apply(row: ApplyRow) -> Event:
    before = f", before: {row.previous}" if row.previous else ""
    ended = f"{row.outcome} (exit {row.exit})" if row.outcome else "left at work"
    text = printable(f"{row.profile} by {row.actor}{before}: {ended}")
    cells = {"profile": row.profile, "actor": row.actor, "previous_generation": row.previous,
             "result": row.outcome, "exit": row.exit}  # fmt: skip
    return Event(row.sequence, 0, row.at, "apply", row.generation, text, cells)


def _start(row: StartRow) -> Event:
    ready = "no readiness seen" if row.ready_at is None else "ready"
    load = f", loaded in {span(row.load_s)}" if row.load_s is not None else ""
    version = f", vLLM {row.vllm_version}" if row.vllm_version else ""
    text = printable(f"{row.profile}: {ready}{load}{version}")
    cells = {"profile": row.profile, "invocation": row.invocation, "load_s": row.load_s,
             "vllm_version": row.vllm_version, "model": row.model, "result": ready}  # fmt: skip
    return Event(row.sequence, 1, row.started_at, "start", row.generation, text, cells)


def _verdict(row: VerdictRow) -> Event:
    seen = row.decode_tok_s
    kind = row.verdict.kind.value
    text = f"{row.profile}: {f'{speed(seen)}; ' if seen else ''}{row.verdict.reason}"
    cells = {
        "profile": row.profile, "invocation": row.invocation, "result": kind,
        "decode_tok_s": seen and seen.mean, "decode_tok_s_low": seen and seen.low,
        "decode_tok_s_high": seen and seen.high, "ttft_s": row.ttft_s,
        "engine_decode_tok_s": row.engine_decode_tok_s, "floor": row.floor, "goal": row.goal,
        "accepted": "yes" if row.accepted else "no", "reason": row.verdict.reason,
    }  # fmt: skip
    return Event(row.sequence, 2, row.at, kind, row.generation, printable(text), cells)


def _rollback(row: RollbackRow) -> Event:
    to = f"to {row.to_generation}" if row.to_generation else "nothing restored"
    text = printable(f"{to}: {row.reason}")
    cells = {"previous_generation": row.to_generation, "result": to, "reason": row.reason}
    return Event(row.sequence, 3, row.at, "rollback", row.from_generation, text, cells)


def _canary(row: CanaryRow) -> Event:
    figure = "" if row.decode_tok_s is None else f": {row.decode_tok_s:.4g} tok/s"
    why = f": {row.reason}" if row.reason else ""
    text = printable(f"{row.profile}: {row.result.value}{figure}{why}")
    cells = {
        "profile": row.profile, "invocation": row.invocation, "result": row.result.value,
        "decode_tok_s": row.decode_tok_s, "decode_tok_s_low": row.low,
        "decode_tok_s_high": row.high, "ttft_s": row.ttft_s, "reason": row.reason,
    }  # fmt: skip
    return Event(row.sequence, 4, row.at, "canary", row.generation, text, cells)


def _bench(row: BenchRow) -> Event:
    rate = (
        "no throughput" if row.output_throughput is None else f"{row.output_throughput:.4g} tok/s"
    )
    text = f"{row.profile}: {rate} at concurrency {row.concurrency}, {row.completed} completed"
    text += f", {row.failed} failed" if row.failed else ""
    held = dataclasses.asdict(row)
    cells = {name: held[name] for name in COLUMNS if name in held}
    return Event(row.sequence, 5, row.at, "bench", row.generation, printable(text), cells)
