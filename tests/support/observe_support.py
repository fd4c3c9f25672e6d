"""A scene of a healthy instance; tests lay over it what they are about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.generations import Generation
from kimisvc.deploy.history import StartRow, VerdictRow
from kimisvc.observe.rates import Live
from kimisvc.observe.snapshots import (
    EngineView,
    FilesView,
    HistoryView,
    Scene,
    Source,
    UnitsView,
)
from kimisvc.records.profile import GateSettings, Profile, SpeedTarget, VllmSettings
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.proof import Interval, Verdict, VerdictKind
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from pathlib import Path

RUNS = "a" * 32
MODEL = "/srv/models/Kimi"
PROFILE = Profile(
    name="ll_ring",
    vllm=VllmSettings("/opt/vllm/bin/vllm", MODEL, port=8000),
    gate=GateSettings(decode_tok_s=SpeedTarget(40.0, 50.0)),
)


def unit(name: str, state: str = "active", **more: Any) -> UnitState:
    return UnitState(name, "loaded", state, "running", **{"enabled": "enabled", **more})


def start(invocation: str = RUNS, **more: Any) -> StartRow:
    values = {"started_at": 1000.0, "ready_at": 3160.0, "load_s": 2160.0, "vllm_version": "0.33.0"}
    return StartRow(invocation, 7, "ll_ring", MODEL, **{**values, **more})


def verdict(kind: VerdictKind = VerdictKind.PASS, invocation: str = RUNS) -> VerdictRow:
    return VerdictRow(
        record="r", sequence=3, invocation=invocation, generation=7, profile="ll_ring", at=3170.0,
        verdict=Verdict(kind, "so it is"), decode_tok_s=Interval(81.0, 81.9, 82.8), ttft_s=0.21,
        engine_decode_tok_s=81.8, floor=40.0, goal=50.0, notes=(), accepted=kind.accepted,
    )  # fmt: skip


def progress(phase: Phase = Phase.LOADING, **more: Any) -> Progress:
    values = {"generation": 7, "invocation": RUNS, "started_at": 1000.0, "updated_at": 1100.0}
    return Progress(phase=phase, **{**values, **more})


def healthy(root: Path) -> Scene:
    """It runs, its gate has passed it, one stream decodes."""
    return Scene(
        instance="kimi",
        units=UnitsView(
            unit("kimisvc-kimi.service", invocation_id=RUNS, started_at=1000.0, restarts=2),
            unit("kimisvc-kimi-gate.service", "inactive"),
            unit("kimisvc-kimi-rollback.service", "inactive"),
        ),
        files=FilesView(
            current=Generation(7, root, "ll_ring", 900.0, {"vllm": "0.32.0"}),
            accepted=7,
            profile=PROFILE,
            digest="d" * 64,
        ),
        history=HistoryView(
            starts=(start(), start("b" * 32, load_s=2400.0)),
            verdicts=(verdict(), verdict(VerdictKind.FAIL, "b" * 32)),
            starts_total=2,
            applies={"accepted": 3, "rolled-back": 1},
            rollbacks={"yes": 1},
            expected_load={MODEL: 2280.0},
        ),
        engine=EngineView(reachable=True, live=Live(81.9, 163.8, stalled=False), missing=()),
        ages=dict.fromkeys(Source, 1.0),
        errors=dict.fromkeys(Source, 0),
    )


def loading(root: Path, told: Progress | None) -> Scene:
    """It loads: no row in history yet, the gate is at work."""
    scene = healthy(root)
    assert scene.units is not None
    assert scene.files is not None
    assert scene.history is not None
    return replace(
        scene,
        units=replace(scene.units, gate=unit("kimisvc-kimi-gate.service", "activating")),
        files=replace(scene.files, progress=told),
        history=replace(scene.history, starts=scene.history.starts[1:],
                        verdicts=scene.history.verdicts[1:]),
        engine=EngineView(),
    )  # fmt: skip
