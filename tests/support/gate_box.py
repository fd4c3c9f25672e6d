"""A box with two generations, a gate's record as it leaves one, and a systemd that is played."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.box import Box
from kimisvc.deploy.gate.record import GateRecord, to_json
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.layout import Layout
from kimisvc.host import processes
from kimisvc.host.processes import PortOwner
from kimisvc.host.systemd import JobMode
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.proof import Proof, Verdict, VerdictKind
from kimisvc.records.units import Installation, UnitFile, UnitState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from kimisvc.deploy.traffic import Counting
    from kimisvc.records.progress import Progress

SERVICE = "kimisvc-kimi.service"
GATE = "kimisvc-kimi-gate.service"
ROLLBACK = "kimisvc-kimi-rollback.service"
RUNS = "start-2"
ACTIVE = UnitState(SERVICE, "loaded", "active", "running", invocation_id=RUNS)


@dataclass
class Systemd:
    """Plays systemd: the states that a test sets, and what was asked of it."""

    service: UnitState = field(default_factory=lambda: replace(ACTIVE, started_monotonic=10.0))
    gate: UnitState = field(
        default_factory=lambda: UnitState(
            GATE, "loaded", "deactivating", "stop-post", started_monotonic=11.0
        )
    )
    rollback: UnitState = field(
        default_factory=lambda: UnitState(ROLLBACK, "loaded", "inactive", "dead")
    )
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def state(self, unit: str) -> UnitState:
        return {SERVICE: self.service, ROLLBACK: self.rollback}.get(unit, self.gate)

    def stop(self, unit: str) -> str:
        self.asked.append(("stop", unit))
        return "job"

    def version(self) -> str:
        return "252"

    def reload(self) -> None:
        pass

    def enable(self, units: Sequence[str]) -> None:
        pass

    def restart(self, unit: str, mode: JobMode = JobMode.REPLACE) -> str:
        self.asked.append(("restart", unit, mode))
        return "job"

    def reset_failed(self, unit: str) -> None:
        self.asked.append(("reset-failed", unit))


def impatient(box: Box) -> Box:
    """The same box, on which nobody waits in vain: its clock goes on by itself."""
    moments = iter(range(100_000))
    return replace(box, clock=lambda: float(next(moments)), sleep=lambda _: None)


def two_generations(folder: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Generation 2 is current and installed, 1 is accepted; our own service has the port."""
    place = Installation(folder / "kimisvc", folder / "units", folder / "state", folder / "run")
    place.units.mkdir()
    box = Box(Layout(place, "kimi"), systemd, now=lambda: 100.0)  # type: ignore[arg-type]  # plays it
    box.layout.gate.mkdir(parents=True)
    for name in ("one", "two"):
        profile = Profile(name, VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))
        unit = UnitFile(SERVICE, f"[Service]\n# {name}\n")
        made = box.generations.add(Draft(name, "", to_toml(profile), (unit,), {}), 1.0)
        box.layout.installed(SERVICE).write_text(unit.text)
    box.generations.make_current(made)
    box.generations.accept(box.generations.get(1))
    owns(monkeypatch, PortOwner(7, "vllm", SERVICE))
    return box


def owns(monkeypatch: pytest.MonkeyPatch, *owners: PortOwner) -> None:
    monkeypatch.setattr(processes, "port_owners", lambda _port, _host: owners)


def leave(
    box: Box, kind: VerdictKind | None, name: str = "r1", at: int = 1, **more: Any
) -> GateRecord:
    """Leave a record as the gate does."""
    proof = Proof(Verdict(kind, "because")) if kind else None
    record = GateRecord(
        record=name, generation=2, profile="two", model="/srv/model", invocation=RUNS,
        service_started_at=1.0, began_at=2.0, ended_at=3.0, ready_at=2.5, proof=proof,
    )  # fmt: skip
    record = replace(record, **more)
    path = box.layout.record(name)
    path.write_text(to_json(record))
    os.utime(path, (at, at))
    return record


def no_server(profile: Profile) -> Counting:
    """Stand for a server that nobody is to ask."""
    raise AssertionError(f"nobody waits for requests of {profile.name}")


class Silent:
    """A reporter that nobody reads."""

    def step(self, text: str) -> None:
        pass

    def progress(self, progress: Progress) -> None:
        pass
