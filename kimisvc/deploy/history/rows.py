"""The rows of the history, frozen, and how each is read from its table. Pure.

Every row has its place in the one order of all events, `sequence`; moments
are told beside it, and only by the clock of their day.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kimisvc.records.proof import Interval, Verdict, VerdictKind

ALL = 1_000_000
"""As a limit: every row. For events that are few: an apply is somebody's command, a start a load."""
Fact = str | float | list[str] | None
Facts = Mapping[str, Fact]
"""The environment of a start, by name (deploy/start_facts.py says which); JSON in the file."""
GATE_FACTS = ("prompt_tokens", "max_tokens", "temperature", "clocks")
"""What is kept with a start and is of its newest gate that measured: how that has asked, and when."""


class Accepted(Enum):
    """Whether a verdict made its generation the accepted one."""

    YES = "yes"
    NO = "no"


class CanaryResult(Enum):
    """What became of one canary: a figure, a reason not to measure, or a failure.

    Unknown is whether the server was idle: its counters could not be read, or did not tell.
    """

    MEASURED = "measured"
    SKIPPED_BUSY = "skipped_busy"
    SKIPPED_NOT_READY = "skipped_not_ready"
    SKIPPED_UNKNOWN = "skipped_unknown"
    FAILED = "failed"


SKIPPED = (
    CanaryResult.SKIPPED_BUSY, CanaryResult.SKIPPED_NOT_READY, CanaryResult.SKIPPED_UNKNOWN,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartRow:
    """One start of the service that a gate watched."""

    invocation: str
    generation: int
    profile: str
    model: str
    started_at: float
    ready_at: float | None
    load_s: float | None
    vllm_version: str | None
    facts: Facts = field(default_factory=dict)
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One decision of the gate."""

    record: str
    sequence: int
    invocation: str
    generation: int
    profile: str
    at: float
    verdict: Verdict
    decode_tok_s: Interval | None
    ttft_s: float | None
    engine_decode_tok_s: float | None
    floor: float | None
    goal: float | None
    notes: tuple[str, ...]
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class ApplyRow:
    """One apply: who, what, and how it ended (None: it was left at work)."""

    at: float
    ended_at: float | None
    generation: int
    previous: int | None
    profile: str
    actor: str
    restarted: tuple[str, ...]
    outcome: str | None
    exit: int | None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class RollbackRow:
    """One rollback; `to_generation` None: there was nothing to restore."""

    at: float
    from_generation: int
    to_generation: int | None
    reason: str
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class CanaryRow:
    """One short probe of the running service, or why there was none (`reason`).

    Speeds are tok/s; `low` and `high` are the interval of the mean, None where
    a single run gave the figure. The sequence is given when it is kept.
    """

    at: float
    invocation: str
    generation: int
    profile: str
    result: CanaryResult
    decode_tok_s: float | None = None
    low: float | None = None
    high: float | None = None
    ttft_s: float | None = None
    reason: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One run of `vllm bench serve` at one concurrency, in its own terms.

    Throughputs are tok/s and requests/s over all streams; None: it told none.
    `facts` is what else it was run with (input and output lengths, versions).
    """

    at: float
    invocation: str
    generation: int
    profile: str
    concurrency: int
    completed: int
    failed: int
    output_throughput: float | None = None
    request_throughput: float | None = None
    mean_ttft_ms: float | None = None
    p99_ttft_ms: float | None = None
    mean_tpot_ms: float | None = None
    p99_tpot_ms: float | None = None
    mean_itl_ms: float | None = None
    p99_itl_ms: float | None = None
    facts: Facts = field(default_factory=dict)
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class StartFigures:
    """What one start came to: the runs of one verdict on it, and all that must be alike.

    `runs` are the decode speeds of that gate's samples (tok/s), at least one;
    `generation` and `profile` are what it was asked of, which need not be what the
    start was loaded for. `prompt_tokens` is the median of what those prompts really
    were; the setting is in `facts`, if no later gate has judged that start.
    `model` and `vllm_version` ("" if unknown) are the start's own.
    """

    invocation: str
    generation: int
    profile: str
    started_at: float
    verdict: VerdictKind
    runs: tuple[float, ...]
    prompt_tokens: int
    model: str
    vllm_version: str
    facts: Facts
    sequence: int


@dataclass(frozen=True, slots=True)
class Which:
    """Which rows are asked for; what is not given does not narrow. `limit`: of the newest.

    `after` is a sequence, `since` a moment (Unix time) by the clock of the rows' days.
    """

    profile: str | None = None
    generation: int | None = None
    since: float | None = None
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning took out, in rows."""

    canaries: int
    samples: int


def facts_of(text: str) -> Facts:
    """Given the JSON of facts, return them; none where it is no object."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def after_runs(known: Facts, told: Facts) -> Facts:
    """Given the facts of a start and those of a gate that measured it, return what is known then.

    How an earlier gate has asked is true of these runs no more, also where this one does not
    tell. What it does not tell of the host is as it was: one start has one driver.
    """
    return {**{name: fact for name, fact in known.items() if name not in GATE_FACTS}, **told}


def after_no_runs(known: Facts, told: Facts) -> Facts:
    """Given the facts of a start and those of a gate without a run, return what is known then.

    It adds what nobody told before, and changes nothing: the runs there are, others have made, and of a
    server that has died meanwhile no more is told than what its generation was made with.
    """
    return {**told, **known}


def start_row(row: tuple[Any, ...]) -> StartRow:
    """Given a row of `starts`, return it."""
    return StartRow(*(*row[:8], facts_of(row[8]), row[9]))


def apply_row(row: tuple[Any, ...]) -> ApplyRow:
    """Given a row of `applies`, return it."""
    at, ended_at, generation, previous, profile, actor, restarted, outcome, status, place = row
    return ApplyRow(
        at, ended_at, generation, previous, profile, actor,
        tuple(restarted.split()), outcome, status, place,
    )  # fmt: skip


def _finite(value: float) -> float:
    """Given a figure, return it. Raise ValueError where no gate can have measured it."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no speed")
    return value


def verdict_row(row: tuple[Any, ...]) -> VerdictRow:
    """Given a row of `verdicts`, return it."""
    record, sequence, invocation, generation, profile, at, kind, reason, mean, low, high, *rest = (
        row
    )
    ttft, engine, floor, goal, notes, accepted = rest
    return VerdictRow(
        record, sequence, invocation, generation, profile, at,
        Verdict(VerdictKind(kind), reason),
        None if mean is None else Interval(*map(_finite, (low, mean, high))),
        ttft, engine, floor, goal, tuple(json.loads(notes)), bool(accepted),
    )  # fmt: skip


def canary_row(row: tuple[Any, ...]) -> CanaryRow:
    """Given a row of `canaries`, return it."""
    at, invocation, generation, profile, result, *rest = row
    return CanaryRow(at, invocation, generation, profile, CanaryResult(result), *rest)


def bench_row(row: tuple[Any, ...]) -> BenchRow:
    """Given a row of `benches`, return it."""
    return BenchRow(*(*row[:15], facts_of(row[15]), row[16]))


def figures_of(rows: list[tuple[Any, ...]]) -> StartFigures:
    """Given the rows of one verdict, one a run (as `queries.FIGURES` gives them), return it."""
    invocation, generation, profile, started_at, verdict, model, version, *rest = rows[0][:10]
    facts, sequence, newest = rest
    known = facts_of(facts)
    if not newest:
        known = {name: value for name, value in known.items() if name not in GATE_FACTS}
    return StartFigures(
        invocation=invocation, generation=generation, profile=profile, started_at=started_at,
        verdict=VerdictKind(verdict), runs=tuple(_finite(row[10]) for row in rows),
        prompt_tokens=int(statistics.median(row[11] for row in rows)), model=model,
        vllm_version=version or "", facts=known, sequence=sequence,
    )  # fmt: skip
