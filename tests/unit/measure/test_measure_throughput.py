"""The throughput of many streams at once, against a server that plays as vLLM does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from measure_support import profile, serving

from kimisvc.measure.gate import prove
from kimisvc.measure.throughput import AtOnce, judge
from kimisvc.records.profile import GateSettings, SpeedTarget
from kimisvc.records.proof import Proof, VerdictKind

if TYPE_CHECKING:
    from kimisvc.records.progress import Phase

ONE = 150.0
"""Speed of one stream of the stand-in (tok/s); as many streams do not slow each other there."""
STREAMS = 6


def proven(floor: float | None, target: SpeedTarget | None = None, **script: Any) -> Proof:
    streams = STREAMS if floor is not None else None
    gate = GateSettings(target, throughput_tok_s=floor, throughput_concurrency=streams)
    asked = profile(gate=gate, precision=0.5, warmup=0)
    told: list[str] = []

    def tell(phase: Phase, detail: str, done: int = 0, total: int = 0) -> None:
        told.append(f"{phase.value} {detail} {done} {total}")

    with serving(**{"decode_tok_s": ONE, **script}) as api:
        proof = prove(api, asked, tell, clock=time.monotonic)
    said = [line for line in told if "at once" in line]
    whole = [f"probing {STREAMS} streams at once {done} 3" for done in range(3)]
    assert (
        said == (whole if floor is not None else []) or proof.verdict.kind is not VerdictKind.PASS
    )
    return proof


def test_many_streams_are_really_at_once() -> None:
    proof = proven(2 * ONE)
    assert proof.verdict.kind is VerdictKind.PASS
    assert f"{STREAMS} streams at once" in proof.notes[-1]
    assert "at or over the floor of 300" in proof.notes[-1]


def test_under_the_floor_fails_though_one_stream_is_fast() -> None:
    proof = proven(20 * ONE, SpeedTarget(40, 50))
    assert proof.verdict.kind is VerdictKind.FAIL
    assert "under the floor of 3000" in proof.verdict.reason
    assert proof.decode_tok_s is not None  # what one stream proved is kept beside it


def test_not_asked_for_costs_nothing() -> None:
    proof = proven(None)
    assert proof.verdict.kind is VerdictKind.PASS
    assert not [note for note in proof.notes if "at once" in note]


def test_one_stream_too_slow_is_enough_to_fail() -> None:
    proof = proven(1.0, SpeedTarget(1000, 1000))
    assert proof.verdict.kind is VerdictKind.FAIL
    assert "at once" not in proof.verdict.reason


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("no_usage", VerdictKind.INCONCLUSIVE), ("error", VerdictKind.FAIL)],
)
def test_a_request_that_breaks_decides(fault: str, kind: VerdictKind) -> None:
    # The runs of one stream are the first three requests; those after it are at once.
    proof = proven(1.0, fault=fault, fault_requests=list(range(4, 100)))
    assert proof.verdict.kind is kind
    assert proof.verdict.reason.startswith(f"{STREAMS} at once: ")


def test_others_make_it_unknown() -> None:
    late = list(range(4, 100))
    proof = proven(20 * ONE, other_requests=1, other_tokens=5, other_during=late)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "others used the server" in proof.verdict.reason


@pytest.mark.parametrize(
    "script",
    [{"other_tokens": 99}, {"fault": "silent", "fault_requests": [4], "other_tokens": 99}],
    ids=["slow", "silent"],
)
def test_others_who_go_on_make_it_unknown_too(script: dict[str, Any]) -> None:
    """They finish nothing meanwhile: the tokens made for them tell."""
    late = list(range(4, 100))
    proof = proven(20 * ONE, other_during=late, **script)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "others used the server" in proof.verdict.reason


@pytest.mark.parametrize(
    ("speeds", "kind"),
    [
        ((500.0, 501.0, 502.0), VerdictKind.PASS),
        ((400.0, 401.0, 402.0), VerdictKind.FAIL),
        ((440.0, 450.0, 460.0), VerdictKind.INCONCLUSIVE),
        ((450.0, 450.0, 450.0), VerdictKind.PASS),
        ((500.0,), VerdictKind.INCONCLUSIVE),
    ],
)
def test_the_rule(speeds: tuple[float, ...], kind: VerdictKind) -> None:
    assert judge(speeds, AtOnce(450.0, 64)).kind is kind
