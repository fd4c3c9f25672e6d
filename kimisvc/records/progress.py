"""Where a start stands.

Moments are Unix time in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
