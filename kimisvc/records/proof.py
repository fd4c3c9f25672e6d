"""What is measured of a server, and what is decided about it: from health to verdict.

Times are seconds, speeds are tokens per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """What one look at the server's /health said."""

    READY = "ready"
    REFUSED = "connection refused"
    UNAVAILABLE = "503"
    SERVER_ERROR = "5xx"
    NO_ANSWER = "no answer"
    UNEXPECTED = "unexpected answer"


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Counters of one engine, or of all engines of a server summed, at one moment.

    `iterations` are steps that gave somebody a token; steps that only read a
    prompt are none. `kv_cache` is the share of the KV cache in use (0 where the
    server does not say): it grows while a prompt is read.
    """

    generation_tokens: float
    requests_finished: float
    decode_seconds: float
    iterations: float
    running: float
    waiting: float
    finished_tokens: float = 0.0
    kv_cache: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured request of one stream. `ttft_s` is apart, never part of the speed."""

    prompt_tokens: int
    completion_tokens: int
    decode_tok_s: float
    ttft_s: float
    chunks: int = 0
    engine_decode_tok_s: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval."""

    low: float
    mean: float
    high: float


class VerdictKind(Enum):
    """What the gate decided. INCONCLUSIVE: the probe could not tell, or broke."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    DEGRADED = "DEGRADED"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def accepted(self) -> bool:
        """Whether a start with this verdict becomes the accepted generation."""
        return self in (VerdictKind.PASS, VerdictKind.DEGRADED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's decision, with one sentence of why."""

    kind: VerdictKind
    reason: str


@dataclass(frozen=True, slots=True)
class GoldenResult:
    """What a golden question was answered, and whether that held."""

    prompt: str
    expect: str
    answer: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """All one gate run found out about one start; what history keeps of it."""

    verdict: Verdict
    samples: tuple[Sample, ...] = ()
    decode_tok_s: Interval | None = None
    ttft_s: float | None = None
    engine_decode_tok_s: float | None = None
    golden: tuple[GoldenResult, ...] = ()
    notes: tuple[str, ...] = ()


SPARE_TRIES = 5
"""Repeats of a disturbed probe request for which every deadline of the gate leaves room."""
ROUNDS_AT_ONCE = 3
"""Rounds in which the throughput of many streams is measured; an interval needs two at least."""
IDLE_PATIENCE = 30.0
"""How long a probe request may wait for other requests to end (s)."""
