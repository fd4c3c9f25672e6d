"""A checked profile: one frozen value a table, one field a key.

Times are seconds, sizes are bytes, speeds are tokens per second, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

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
