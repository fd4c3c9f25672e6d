"""The rule against its table of cases, and what must hold of it for any runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.gate_rule import decide
from kimisvc.records.profile import GateSettings, ProbeSettings, SpeedTarget
from kimisvc.records.proof import Sample, VerdictKind

CASES = json.loads((Path(__file__).parent / "gate_cases" / "rule.json").read_text())


def runs(speeds: list[float], ttft: list[float] | None = None) -> list[Sample]:
    firsts = ttft or [0.1] * len(speeds)
    return [Sample(8, 256, speed, first) for speed, first in zip(speeds, firsts, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    target = case["target"]
    gate = GateSettings(SpeedTarget(**target) if target else None, case.get("max_ttft"))
    probe = ProbeSettings(**case.get("probe", {}))
    verdict = decide(runs(case["decode_tok_s"], case.get("ttft_s")), probe, gate)
    assert (verdict.kind.value if verdict else None) == case["verdict"]
    assert case.get("says", "") in (verdict.reason if verdict else "")


speeds = st.lists(st.floats(1, 200), min_size=1, max_size=12)
targets = st.tuples(st.floats(1, 200), st.floats(1, 200)).map(lambda t: SpeedTarget(min(t), max(t)))
SIX = ProbeSettings(min_runs=3, max_runs=6)
ORDER = [VerdictKind.FAIL, VerdictKind.INCONCLUSIVE, VerdictKind.DEGRADED, VerdictKind.PASS]


@given(speeds, targets)
def test_it_is_always_decided_by_the_last_run_and_never_before_the_least(
    measured: list[float], target: SpeedTarget
) -> None:
    verdict = decide(runs(measured), SIX, GateSettings(target))
    if len(measured) < 3:
        assert verdict is None
    if len(measured) >= 6:
        assert verdict is not None


@given(speeds, targets, st.floats(1, 3))
def test_a_faster_server_is_never_judged_worse(
    measured: list[float], target: SpeedTarget, factor: float
) -> None:
    last = ProbeSettings(min_runs=1, max_runs=1)
    gate = GateSettings(target)
    slow = decide(runs(measured), last, gate)
    # The same spread, higher: a larger spread may rightly be less certain.
    fast = decide(runs([speed + factor for speed in measured]), last, gate)
    assert slow is not None
    assert fast is not None
    assert ORDER.index(fast.kind) >= ORDER.index(slow.kind)


@given(st.lists(st.floats(1, 200), min_size=3, max_size=6), targets)
def test_the_mean_is_never_passed_under_the_goal_nor_failed_over_the_floor(
    measured: list[float], target: SpeedTarget
) -> None:
    verdict = decide(runs(measured), SIX, GateSettings(target))
    mean = sum(measured) / len(measured)
    if verdict and verdict.kind is VerdictKind.PASS:
        assert mean >= target.goal - 1e-9
    if verdict and verdict.kind is VerdictKind.FAIL:
        assert mean < target.floor + 1e-9
