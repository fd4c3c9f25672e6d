"""Every deadline of an instance, derived from `load_timeout`. Pure.

    load_timeout <= VLLM_ENGINE_READY_TIMEOUT_S <= TimeoutStartSec

The gate's own deadline is the first to end, so that a load that hangs is
judged by the gate and not cut off without a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.records import Profile

MARGIN = 60
"""What every outer deadline leaves for the one within it (s)."""
SPARE_TRIES = 5
"""Repeats of a disturbed probe request for which the gate's deadline leaves room."""
IDLE_PATIENCE = 30
"""How long a probe request may wait for other requests to end (s)."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Whole seconds. `start_limit` is the interval within which `starts` count."""

    load: int
    engine_ready: int
    start: int
    start_limit: int
    gate: int
    stop: int

    @classmethod
    def of(cls, profile: Profile) -> Deadlines:
        """Given a profile, return its deadlines."""
        service, probe = profile.service, profile.probe
        load = math.ceil(service.load_timeout)
        stop = math.ceil(service.stop_timeout)
        one_start = load + math.ceil(service.restart_delay) + stop + MARGIN
        requests = probe.warmup + len(profile.golden) + probe.max_runs + SPARE_TRIES
        proof = requests * (math.ceil(probe.timeout) + IDLE_PATIENCE)
        return cls(
            load=load,
            engine_ready=load + MARGIN,
            start=load + 2 * MARGIN,
            start_limit=service.starts * one_start + MARGIN,
            gate=load + proof + MARGIN,
            stop=stop,
        )
