"""What each source said last, as frozen values. A scrape formats these and asks nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history import StartRow, VerdictRow
    from kimisvc.deploy.history.rows import CanaryRow
    from kimisvc.observe.rates import Live
    from kimisvc.records.profile import Profile
    from kimisvc.records.progress import Progress
    from kimisvc.records.units import UnitState


class Source(Enum):
    """Where what is known of an instance comes from; each is read for itself."""

    SYSTEMD = "systemd"
    HISTORY = "history"
    VLLM = "vllm"
    FILES = "files"


@dataclass(frozen=True, slots=True)
class UnitsView:
    """What systemd says of an instance's units. `canary` and its timer are None where there is none."""

    service: UnitState
    gate: UnitState
    rollback: UnitState
    canary: UnitState | None = None
    canary_timer: UnitState | None = None


@dataclass(frozen=True, slots=True)
class FilesView:
    """What lies on disk: generations, the gate's progress, and where units differ from theirs.

    `waiting` are the records of gates that history has not taken yet, oldest first, and
    `rollbacks_waiting` how many rollbacks, by whether one restored a generation.
    """

    current: Generation | None = None
    accepted: int | None = None
    profile: Profile | None = None
    digest: str = ""
    progress: Progress | None = None
    drift: tuple[str, ...] = ()
    waiting: tuple[GateRecord, ...] = ()
    rollbacks_waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryView:
    """What history holds: the newest rows, and how many there are. Times in seconds.

    `canary` is the newest one that measured, `canary_at` when the newest ran, measured
    or not, that was not skipped because counters were missing: such a one looks after nothing.
    """

    starts: tuple[StartRow, ...] = ()
    verdicts: tuple[VerdictRow, ...] = ()
    starts_total: int = 0
    applies: Mapping[str, int] = field(default_factory=dict)
    rollbacks: Mapping[str, int] = field(default_factory=dict)
    expected_load: Mapping[str, float] = field(default_factory=dict)
    canary_runs: Mapping[str, int] = field(default_factory=dict)
    canary: CanaryRow | None = None
    canary_at: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineView:
    """What /metrics of vLLM says; `live` None: no counters, `missing`: what the contract lacks."""

    reachable: bool = False
    live: Live | None = None
    missing: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is known of one instance at one scrape; None: nothing that is fresh enough.

    `ages` and `errors` are those of every source, stale ones too.
    """

    instance: str
    units: UnitsView | None = None
    files: FilesView | None = None
    history: HistoryView | None = None
    engine: EngineView | None = None
    ages: Mapping[Source, float] = field(default_factory=dict)
    errors: Mapping[Source, int] = field(default_factory=dict)
