"""The frozen values and closed enums that travel the path from profile to verdict.

Read after `errors`. Imports nothing of ours, does nothing, touches nothing.
Times are seconds (float), moments are Unix time in seconds, sizes are bytes
(int), speeds are tokens per second, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
"""Bytes in a mebibyte and a gibibyte."""

# --------------------------------------------------------------------- problems


class Severity(Enum):
    """How bad a problem is: an error refuses the profile, a warning is printed."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a profile or a host: where, what, and what was likely meant."""

    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    severity: Severity = Severity.ERROR


# --------------------------------------------------------------------- profile

ArgValue = bool | int | float | str | Sequence["ArgValue"] | Mapping[str, "ArgValue"]
"""A value of the [args] table, as TOML gives it; the renderer turns it into argv."""


class Risk(Enum):
    """What a setting may cost: nothing, some speed, or wrong results and hangs."""

    SAFE = "safe"
    SAFE_ISH = "safe-ish"
    RISKY = "risky"


class OnFail(Enum):
    """What happens after a failed gate."""

    ROLLBACK = "rollback"
    KEEP = "keep"


class Link(Enum):
    """What connects the GPUs of the box."""

    ANY = "any"
    PCIE = "pcie"
    NVLINK = "nvlink"


class Where(Enum):
    """Where in an answer a golden expectation is looked for."""

    CONTENT = "content"
    REASONING = "reasoning"


@dataclass(frozen=True, slots=True)
class SpeedTarget:
    """Decode throughput wanted of one stream: below `floor` fails, at `goal` passes (tok/s)."""

    floor: float
    goal: float


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """[service]: how systemd runs vLLM. Sizes of 0 and an empty string mean: not set."""

    instance: str = "kimi"
    user: str = ""
    load_timeout: float = 2700.0
    starts: int = 2
    restart_delay: float = 15.0
    stop_timeout: float = 90.0
    on_fail: OnFail = OnFail.ROLLBACK
    secrets_file: str = ""
    working_directory: str = ""
    memory_max: int = 0
    limit_nofile: int = 1048576
    cpu_quota_percent: int = 0


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """[vllm]: which program serves which model, and where it listens."""

    executable: str
    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str = ""
    min_version: str = ""


@dataclass(frozen=True, slots=True)
class HardwareSettings:
    """[hardware]: what the profile needs of the box. 0 means: not asked for."""

    gpus: int = 0
    memory_gib: float = 0.0
    link: Link = Link.ANY
    shm_gib: float = 0.0
    ram_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """[probe]: how decode throughput is measured. `precision` is a relative half width."""

    max_tokens: int = 256
    prompt_tokens: int = 128
    warmup: int = 1
    min_runs: int = 3
    max_runs: int = 10
    precision: float = 0.02
    timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class GateSettings:
    """[gate]: what a start has to prove. No target means: speed is reported, not judged.

    `throughput_tok_s`: a floor for `throughput_concurrency` streams together.
    """

    decode_tok_s: SpeedTarget | None = None
    max_ttft: float | None = None
    require_reasoning: bool = False
    throughput_tok_s: float | None = None
    throughput_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """[[golden]]: a question whose answer must contain `expect` (a substring or /regex/)."""

    prompt: str
    expect: str
    where: Where = Where.CONTENT
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """[canary]: a short probe on an idle server, every so many seconds, and `spread` later at most."""

    every: float
    max_tokens: int = 32

    @property
    def spread(self) -> float:
        """The most by which one is late at random (s): a tenth of the interval, half a minute at most.

        Neither several instances at one moment, nor all in step with what runs by the clock.
        """
        return min(30.0, self.every / 10)


@dataclass(frozen=True, slots=True)
class Profile:
    """A checked profile with `extends` resolved: every value has its type and is in range."""

    name: str
    vllm: VllmSettings
    description: str = ""
    max_risk: Risk = Risk.SAFE_ISH
    allow_risky: tuple[str, ...] = ()
    service: ServiceSettings = field(default_factory=ServiceSettings)
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    hardware: HardwareSettings = field(default_factory=HardwareSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    golden: tuple[GoldenQuestion, ...] = ()
    canary: CanarySettings | None = None


# --------------------------------------------------------------------- units


@dataclass(frozen=True, slots=True)
class Installation:
    """Where this kimisvc lives on the box; what rendered units point at."""

    kimisvc: Path
    units: Path = Path("/etc/systemd/system")
    state: Path = Path("/var/lib/kimisvc")
    runtime: Path = Path("/run/kimisvc")
    user: str = "kimisvc"


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One systemd unit: its file name and its whole text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class UnitNames:
    """The names of the units of one instance. Those of the canary are there where it is asked for."""

    service: str
    gate: str
    rollback: str
    canary: str
    canary_timer: str
    target: str = "kimisvc.target"

    @classmethod
    def of(cls, instance: str) -> UnitNames:
        """Given an instance name, return the names of its units."""
        stem = f"kimisvc-{instance}"
        return cls(
            f"{stem}.service", f"{stem}-gate.service", f"{stem}-rollback.service",
            f"{stem}-canary.service", f"{stem}-canary.timer",
        )  # fmt: skip

    @property
    def all(self) -> tuple[str, ...]:
        """All names that units of this instance may have, the optional ones last."""
        always = (self.service, self.gate, self.rollback, self.target)
        return (*always, self.canary, self.canary_timer)


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd says of one unit now. `main_pid` 0: no process runs.

    `started_monotonic` is when this start began, `main_started_monotonic` when the newest
    main process did, `main_ended_monotonic` when it ended (s of CLOCK_MONOTONIC; 0: never).
    `restart` is the Restart= in force.
    """

    name: str
    load_state: str
    active_state: str
    sub_state: str
    result: str = ""
    main_pid: int = 0
    invocation_id: str = ""
    restarts: int = 0
    exec_main_code: int = 0
    exec_main_status: int = 0
    started_at: float = 0.0
    started_monotonic: float = 0.0
    main_started_monotonic: float = 0.0
    main_ended_monotonic: float = 0.0
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    enabled: str = ""
    needs_reload: bool = False
    job: int = 0
    restart: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether it runs, or is on its way to: also while it waits for its automatic restart."""
        return self.active_state in ("active", "activating", "reloading")


# --------------------------------------------------------------------- measuring


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
    """The engine's own counters, summed over its engines, at one moment."""

    generation_tokens: float
    requests_finished: float
    decode_seconds: float
    iterations: float
    running: float
    waiting: float
    finished_tokens: float = 0.0


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


# --------------------------------------------------------------------- progress


class Phase(Enum):
    """Where a start stands. Each is a step of the gate, in this order."""

    LOADING = "loading"
    WARMING_UP = "warming up"
    GOLDEN = "golden questions"
    PROBING = "probing"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True)
class Progress:
    """What the gate is doing now, for `apply`, `status` and metrics.

    `done` and `total` count shards while loading and runs while probing
    (total 0: unknown); `expected_s` is the load time seen before (0: never).
    """

    phase: Phase
    generation: int
    invocation: str
    started_at: float
    updated_at: float
    detail: str = ""
    done: int = 0
    total: int = 0
    expected_s: float = 0.0
