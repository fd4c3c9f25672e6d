"""Every deadline of an instance, derived from `load_timeout`. Pure.

    load_timeout <= VLLM_ENGINE_READY_TIMEOUT_S <= TimeoutStartSec of the service
    load_timeout + what the probe may take      <= TimeoutStartSec of the gate
    starts x (one whole try)                    <= StartLimitIntervalSec
    what a canary's requests may take           <= TimeoutStartSec of the canary

The gate's own deadline is the first to end, so that a load that hangs is
judged by the gate and not cut off without a verdict. vLLM's readiness timeout
does not bind a single API server up to 0.33, but may with a later version
(vllm#50039); likewise TimeoutStartSec= bounds only the exec as long as vLLM
does not speak sd_notify (vllm#57637). Both must never be the shorter one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.records.proof import IDLE_PATIENCE, ROUNDS_AT_ONCE, SPARE_TRIES

if TYPE_CHECKING:
    from kimisvc.records.profile import Profile

READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
MARGIN = 60
"""What every outer deadline leaves for the one within it (s)."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Whole seconds. `start_limit` is the interval within which `starts` count."""

    load: int
    engine_ready: int
    start: int
    start_limit: int
    gate: int
    stop: int
    rollback: int
    canary: int

    @classmethod
    def of(cls, profile: Profile) -> Deadlines:
        """Given a profile, return its deadlines; a readiness timeout in its [env] is kept."""
        service, probe = profile.service, profile.probe
        load = math.ceil(service.load_timeout)
        stop = math.ceil(service.stop_timeout)
        own = profile.env.get(READY_TIMEOUT, "")
        engine_ready = int(own) if own.isascii() and own.isdigit() else load + MARGIN
        one_try = load + math.ceil(service.restart_delay) + stop + MARGIN
        # One question more than written: where reasoning is required, the gate asks one itself.
        requests = probe.warmup + len(profile.golden) + 1 + probe.max_runs + SPARE_TRIES
        requests += at_once(profile)
        proof = requests * math.ceil(probe.timeout + IDLE_PATIENCE)
        return cls(
            load=load,
            engine_ready=engine_ready,
            start=max(load, engine_ready) + MARGIN,
            start_limit=service.starts * one_try + MARGIN,
            gate=load + proof + MARGIN,
            stop=stop,
            # It waits for the failed service to stop, and for other switches; not for the load.
            rollback=stop + 4 * MARGIN,
            # It begins no request once it has taken as long as one may take.
            canary=2 * math.ceil(probe.timeout + IDLE_PATIENCE) + MARGIN,
        )


def at_once(profile: Profile) -> int:
    """Given a profile, return how many rounds of requests at once its gate plays, one to warm up."""
    return ROUNDS_AT_ONCE + 1 if profile.gate.throughput_tok_s is not None else 0


def span(seconds: float) -> str:
    """Given a time, return it as systemd.time(7) writes it: "45min", "1h 32min 10s", "250ms".

    Parts of a millisecond are rounded up.
    """
    left = math.ceil(round(seconds * 1000, 3))
    parts = []
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0"
