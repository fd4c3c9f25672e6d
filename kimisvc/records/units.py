"""systemd's units: what is rendered, what they are called, and what systemd says of one.

Times are seconds, moments are Unix time in seconds, unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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


RETIRED = ("disabled", "masked", "masked-runtime")
"""UnitFileState= (org.freedesktop.systemd1(5)) of a service that somebody wants down. One whose
unit file is gone has none at all, and nobody has said that it should be."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd says of one unit now. `main_pid` 0: no process runs.

    `started_at` is when this start began, or the wait for it; `main_started_at` when the newest
    main process did (0: never). `started_monotonic` and `main_started_monotonic` are the same,
    `main_ended_monotonic` is when that process ended (s of CLOCK_MONOTONIC; 0: never).
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
    main_started_at: float = 0.0
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

    @property
    def lives(self) -> bool:
        """Whether a start of it is there to be spoken of: none is between two, while it waits for the next.

        Until its restart a crashed unit goes by the invocation of the start that died. The states
        are auto-restart and, since systemd 254, auto-restart-queued (src/basic/unit-def.c there).
        """
        return self.goes_on and not self.sub_state.startswith("auto-restart")

    @property
    def retired(self) -> bool:
        """Whether somebody said that it is not to run: who stops a service for good disables it."""
        return self.enabled in RETIRED

    @property
    def waited_in_vain(self) -> bool:
        """Whether it failed for good as it waited for an automatic restart: that was one too many.

        To wait it left "failed" once more, after its last process had ended. One that SIGKILL
        does not end (a disk or driver that hangs) never did.
        """
        stuck = self.main_started_monotonic > self.main_ended_monotonic
        waited = self.started_monotonic > self.main_ended_monotonic
        return self.active_state == "failed" and waited and not stuck

    @property
    def automatic_restarts(self) -> int:
        """How often systemd did start it anew; a start by hand begins that count again.

        NRestarts= counts the jobs that systemd queues for it (src/core/service.c there,
        service_enter_restart), and so the last one, too, which the start limit refused.
        """
        return self.restarts - (1 if self.restarts and self.waited_in_vain else 0)
