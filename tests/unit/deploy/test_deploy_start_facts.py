"""The environment of a start: from its generation, from the host, and only while that is its host."""

from __future__ import annotations

import platform
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kimisvc import __version__
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.start_facts import FACTS, clocks_now, start_facts
from kimisvc.errors import KimisvcError
from kimisvc.host import gpu, nvidia_driver
from kimisvc.host.gpu_condition import Clocks
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.proof import Proof, Sample, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = GateRecord(
    record="r", generation=3, profile="p", model="/m", invocation="runs", began_at=1.0,
    service_started_at=1.0, vllm_version="0.33.1",
    proof=Proof(Verdict(VerdictKind.PASS, "over the goal"), (Sample(131, 256, 81.0, 0.2),)),
)  # fmt: skip
OLD = {"kimisvc": "0.0.1", "vllm": "0.33.0", "systemd": "250", "host": "then", "kernel": "5"}


def box(invocation: str, get: Callable[[int], Any] | None = None) -> Any:
    generation = SimpleNamespace(facts=OLD, settings=lambda: Profile("p", VllmSettings("/v", "/m")))
    return SimpleNamespace(
        generations=SimpleNamespace(get=get or (lambda number: {3: generation}[number])),
        layout=SimpleNamespace(units=SimpleNamespace(service="s")),
        systemd=SimpleNamespace(
            version=lambda: "252", state=lambda _: SimpleNamespace(invocation_id=invocation)
        ),
    )


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_driver, "loaded_version", lambda: "580.159.04")
    monkeypatch.setattr(nvidia_driver, "gpu_names", lambda: ("NVIDIA H200",) * 2)
    monkeypatch.setattr(gpu, "clocks", lambda: (Clocks(1965, 1980, 3201, 3201),) * 2)


def test_of_a_start_that_runs_all_is_told() -> None:
    told = start_facts(box("runs"), RECORD)
    assert told == {
        "kimisvc": __version__, "vllm": "0.33.1", "systemd": "252", "kernel": platform.release(),
        "host": platform.node(), "driver": "580.159.04", "gpus": ["NVIDIA H200"] * 2,
        "prompt_tokens": 128, "max_tokens": 256, "temperature": 0,
        "clocks": ["SM 1965 of 1980 MHz, memory 3201 of 3201 MHz"] * 2,
    }  # fmt: skip
    assert tuple(told) == FACTS


def test_of_a_start_that_is_over_only_what_its_generation_kept() -> None:
    told = start_facts(box("another"), RECORD)
    asked = {"prompt_tokens": 128, "max_tokens": 256, "temperature": 0}
    assert told == {**OLD, "vllm": "0.33.1", **asked}


def test_clocks_are_those_of_runs_and_not_of_a_gate_that_made_none() -> None:
    cut = start_facts(box("runs"), replace(RECORD, proof=None))
    wrong = replace(RECORD, proof=Proof(Verdict(VerdictKind.FAIL, "answered wrongly")))
    for told in (cut, start_facts(box("runs"), wrong)):
        assert "clocks" not in told
        assert told["driver"] == "580.159.04"


def test_a_box_without_a_driver_or_whose_gpus_are_out_of_reach_has_no_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "clocks", tuple)
    assert "clocks" not in start_facts(box("runs"), RECORD)

    def asked() -> Any:
        raise AssertionError("NVML is loaded for nothing")

    monkeypatch.setattr(gpu, "clocks", asked)
    monkeypatch.setattr(nvidia_driver, "loaded_version", str)
    assert clocks_now() == []


def test_a_generation_that_is_gone_or_damaged_stops_no_settle() -> None:
    def gone(_: int) -> Any:
        raise KimisvcError("no-such-generation", "gone")

    assert start_facts(box("runs", gone), RECORD) == {}
