"""A box on a scratch folder, with real generations and a real history, and profiles for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.box import Box
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import Accepted
from kimisvc.deploy.layout import Layout
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.proof import Interval, Proof, Sample, Verdict, VerdictKind
from kimisvc.records.units import Installation, UnitState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

INACTIVE = UnitState("u.service", "loaded", "inactive", "dead")


class Quiet:
    """systemd, as far as it is asked here: states of units, everything else inactive."""

    def __init__(self, **states: str) -> None:
        self.states = {name.replace("_", "-"): state for name, state in states.items()}
        self.invocation = "running"

    def version(self) -> str:
        return "252"

    def state(self, unit: str) -> UnitState:
        active = self.states.get(unit.removesuffix(".service"), "inactive")
        return replace(INACTIVE, name=unit, active_state=active, invocation_id=self.invocation)


def box_at(folder: Path, systemd: Any = None) -> Box:
    place = Installation(folder / "kimisvc", folder / "units", folder / "state", folder / "run")
    layout = Layout(place, "kimi")
    for path in (place.units, layout.state, layout.runtime, layout.generations):
        path.mkdir(parents=True, exist_ok=True)
    door: Any = systemd or Quiet()
    return Box(layout, door, now=lambda: 1000.0, sleep=lambda _: None)


def profile(name: str = "base", **changes: Any) -> Profile:
    made = Profile(name, VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))
    return replace(made, **changes)


def add_generation(box: Box, wanted: Profile) -> int:
    draft = Draft(wanted.name, "as written\n", to_toml(wanted), (), {})
    return box.generations.add(draft, 1000.0).number


def add_start(
    box: Box,
    generation: int,
    speeds: Sequence[float],
    kind: VerdictKind = VerdictKind.PASS,
    *,
    name: str = "base",
    vllm: str = "0.32.0",
    kept: str = "",
    **facts: Any,
) -> str:
    """Keep one start of a generation with runs of these speeds; return its invocation.

    `kept`: another gate of that start, which was not loaded anew for it.
    """
    number = box.history.sequence() + 1
    samples = tuple(Sample(128, 256, speed, 0.1) for speed in speeds)
    mean = sum(speeds) / len(speeds)
    proof = Proof(Verdict(kind, "why"), samples, Interval(mean - 1, mean, mean + 1), 0.1)
    record = GateRecord(
        f"record-{number}", generation, name, "/srv/model", kept or f"start-{number}", 100.0 + number,
        90.0, 200.0 + number, 150.0 + number, 50.0, vllm, None, None, proof,
    )  # fmt: skip
    accepted = Accepted.YES if kind.accepted else Accepted.NO
    known: dict[str, Any] = {"vllm": vllm, "driver": "580.1", "gpus": ["H200"], "prompt_tokens": 128,
             "max_tokens": 256}  # fmt: skip
    box.history.add_record(record, accepted, {**known, **facts})
    return record.invocation
