"""Canaries, benches and figures of starts: kept as they came, found by filters, pruned by rule."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kimisvc.deploy import history as history_module
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.history import (
    Accepted,
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    History,
    RollbackRow,
    StartFigures,
    Which,
)
from kimisvc.deploy.history.rows import SKIPPED
from kimisvc.records.proof import Interval, Proof, Sample, Verdict, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.history.rows import Facts

CANARY = CanaryRow(100.0, "abc", 3, "ll_ring", CanaryResult.MEASURED, 81.4, 81.1, 81.7, 0.2)
BENCH = BenchRow(
    200.0, "abc", 3, "ll_ring", 64, 640, 0, 1800.5, 7.03, 310.0, 900.0, 35.5, 41.0, 35.1, 80.0,
    {"input_len": 128, "vllm": "0.33.0"},
)  # fmt: skip
FACTS: Facts = {"kernel": "6.1.0", "gpus": ["NVIDIA H200", "NVIDIA H200"], "prompt_tokens": 128}


def record(name: str, *speeds: float, **more: object) -> GateRecord:
    proof = Proof(
        Verdict(VerdictKind.PASS, "over the goal"),
        samples=tuple(Sample(131, 256, speed, 0.2) for speed in speeds),
        decode_tok_s=Interval(min(speeds), sum(speeds) / len(speeds), max(speeds))
        if speeds
        else None,
    )
    values = {
        "record": name, "generation": 3, "profile": "ll_ring", "model": "/srv/kimi",
        "invocation": f"start-{name}", "service_started_at": 100.0, "began_at": 101.0,
        "ended_at": 2300.0, "vllm_version": "0.33.0", "proof": proof, **more,
    }  # fmt: skip
    return GateRecord(**values)  # type: ignore[arg-type]  # each is what the field takes


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.sqlite")


def test_a_canary_comes_back_as_it_went(history: History) -> None:
    assert history.add_canary(CANARY) == 1
    busy = CanaryRow(90.0, "abc", 3, "ll_ring", CanaryResult.SKIPPED_BUSY, reason="2 run")
    assert history.add_canary(busy) == 2
    assert history.canaries() == (replace(busy, sequence=2), replace(CANARY, sequence=1))
    assert history.canaries(after=1) == (replace(busy, sequence=2),)
    assert history.sequence() == 2


@pytest.mark.parametrize("result", CanaryResult)
def test_what_did_not_measure_and_did_not_fail_was_skipped(result: CanaryResult) -> None:
    assert (result in SKIPPED) == (result not in (CanaryResult.MEASURED, CanaryResult.FAILED))
    assert (result in SKIPPED) == result.value.startswith("skipped_")


@pytest.mark.parametrize("result", CanaryResult)
def test_each_result_is_kept_and_counted_by_its_name(
    history: History, result: CanaryResult
) -> None:
    row = replace(CANARY, result=result)
    history.add_canary(row)
    assert history.canaries() == (replace(row, sequence=1),)
    assert history.canary_counts() == {result.value: 1}


def test_a_canary_that_saw_nothing_is_passed_over(history: History) -> None:
    assert history.seeing_canary() is None
    for result in (CanaryResult.SKIPPED_BUSY, CanaryResult.SKIPPED_UNKNOWN):
        history.add_canary(replace(CANARY, result=result))
    seeing = history.seeing_canary()
    assert seeing is not None
    assert (seeing.sequence, seeing.result) == (1, CanaryResult.SKIPPED_BUSY)
    assert history.seeing_canary(after=1) is None


def test_a_bench_comes_back_as_it_went(history: History) -> None:
    history.add_canary(CANARY)
    assert history.add_bench(BENCH) == 2
    assert history.benches() == (replace(BENCH, sequence=2),)


def test_all_events_share_one_order(history: History) -> None:
    history.begin_apply(ApplyRow(9.0, None, 3, None, "ll_ring", "ann", (), None, None))
    history.add_record(record("a", 81.0), Accepted.YES)
    history.add_canary(CANARY)
    history.add_bench(BENCH)
    history.add_rollback(RollbackRow(1.0, 3, None, "x"))
    found = (history.applies, history.starts, history.verdicts, history.canaries,
             history.benches, history.rollbacks)  # fmt: skip
    assert [rows()[0].sequence for rows in found] == [1, 2, 3, 4, 5, 6]


def test_only_so_many_canaries_are_kept_and_the_oldest_go(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "MOST_CANARIES", 3)
    for at in (5.0, 1.0, 9.0, 2.0, 3.0):
        history.add_canary(replace(CANARY, at=at))
    assert [row.at for row in history.canaries()] == [3.0, 2.0, 9.0]
    assert [row.sequence for row in history.canaries()] == [5, 4, 3]
    assert history.canary_counts() == {"measured": 5}


def test_facts_are_kept_with_a_start_and_a_later_gate_without_them_takes_none_of_the_host_away(
    history: History,
) -> None:
    history.add_record(record("a", 81.0), Accepted.YES, FACTS)
    history.add_record(record("b", 82.0, invocation="start-a"), Accepted.YES)
    (start,) = history.starts()
    # How it asked is not known, and that the gate before it asked with 128 tokens says nothing of it.
    assert start.facts == {name: FACTS[name] for name in ("kernel", "gpus")}
    told: Facts = {"kernel": "6.2", "prompt_tokens": 64}
    history.add_record(record("c", 82.0, invocation="start-a"), Accepted.YES, told)
    assert history.starts()[0].facts == {**told, "gpus": FACTS["gpus"]}


def test_a_gate_that_is_cut_off_changes_no_fact_of_the_runs_before_it(history: History) -> None:
    """Nor do facts of a server that has died meanwhile, which say less of the host."""
    history.add_record(record("a", 81.0), Accepted.YES, FACTS)
    cut: dict[str, object] = {"invocation": "start-a", "generation": 4}
    asked: Facts = {"kernel": "of the apply", "prompt_tokens": 1024, "vllm": "0.33.0"}
    history.add_record(record("b", proof=None, **cut), Accepted.NO, asked)
    assert history.starts()[0].facts == {**FACTS, "vllm": "0.33.0"}
    # So of one that failed before it had measured anything.
    wrong = Proof(Verdict(VerdictKind.FAIL, "golden question answered wrongly"))
    history.add_record(record("c", proof=wrong, **cut), Accepted.NO, asked)
    assert history.starts()[0].facts == {**FACTS, "vllm": "0.33.0"}
    history.add_record(record("d", 70.0, **cut), Accepted.YES, {"prompt_tokens": 1024})
    assert history.starts()[0].facts["prompt_tokens"] == 1024


def test_figures_of_a_start_are_the_runs_of_its_newest_verdict(history: History) -> None:
    history.add_record(record("a", 81.0, 82.0), Accepted.YES, FACTS)
    history.add_record(record("b", 90.0, invocation="other", profile="baseline"), Accepted.YES)
    history.add_record(record("c", 83.0, 84.0, 85.0, invocation="start-a"), Accepted.YES, FACTS)
    history.add_record(record("d", 1.0, invocation="cut", proof=None), Accepted.NO)
    first, other = history.start_figures()
    assert (first.runs, first.invocation, first.prompt_tokens) == (
        (83.0, 84.0, 85.0),
        "start-a",
        131,
    )
    assert (first.model, first.vllm_version, first.facts) == ("/srv/kimi", "0.33.0", FACTS)
    assert (other.runs, other.vllm_version, other.facts) == ((90.0,), "0.33.0", {})
    assert [f.profile for f in history.start_figures(profile="baseline")] == ["baseline"]
    assert history.start_figures(generations=(4,)) == history.start_figures(profile="none") == ()


def test_figures_are_of_the_generation_that_was_asked_and_not_of_the_one_that_was_loaded(
    history: History,
) -> None:
    """A change of the gate alone keeps the start: it speaks for both, once for each."""
    history.add_record(record("a", 81.0, 82.0), Accepted.YES, FACTS)
    asked = {**FACTS, "prompt_tokens": 1024}
    more: dict[str, object] = {"invocation": "start-a", "generation": 4, "profile": "strict"}
    history.add_record(record("b", 70.0, 71.0, **more), Accepted.YES, asked)
    history.add_record(record("c", 72.0, 73.0, **more), Accepted.YES, asked)

    def told(*found: StartFigures | None) -> list[object]:
        return [one and (one.generation, one.profile, one.runs) for one in found]

    first, newest = (3, "ll_ring", (81.0, 82.0)), (4, "strict", (72.0, 73.0))
    assert told(*history.start_figures()) == [newest]
    assert told(*history.start_figures(generations=(3,))) == [first]
    assert told(*history.start_figures(profile="ll_ring")) == [first]
    assert told(*history.start_figures(generations=(4,))) == [newest]
    assert told(*history.start_figures(generations=(3, 4))) == [newest]
    assert told(*history.start_figures(generations=())) == []
    assert told(history.verdict_figures("b")) == [(4, "strict", (70.0, 71.0))]
    assert history.verdict_figures("none") is None
    # How it was asked is known of the newest gate alone.
    assert history.start_figures(generations=(4,))[0].facts == asked
    assert "prompt_tokens" not in history.start_figures(generations=(3,))[0].facts


def test_figures_keep_how_they_were_asked_where_another_gate_of_that_start_is_cut_off(
    history: History,
) -> None:
    """The change of a gate that the server does not survive: what was measured before it stays."""
    history.add_record(record("a", 81.0, 82.0), Accepted.YES, FACTS)
    more: dict[str, object] = {"invocation": "start-a", "generation": 4, "profile": "strict"}
    asked = {**FACTS, "prompt_tokens": 1024}
    history.add_record(record("b", proof=None, **more), Accepted.NO, asked)
    (told,) = history.start_figures(generations=(3,))
    assert (told.runs, told.facts) == ((81.0, 82.0), FACTS)
    assert told == history.verdict_figures("a")


@pytest.mark.parametrize("kind", list(VerdictKind))
@pytest.mark.parametrize("generation", [3, 4])
def test_figures_stay_where_another_gate_came_to_a_verdict_without_a_run(
    history: History, kind: VerdictKind, generation: int
) -> None:
    """Too busy to be measured, say; a start that has failed since is told of no more."""
    history.add_record(record("a", 81.0, 82.0), Accepted.YES, FACTS)
    unmeasured = record(
        "b", invocation="start-a", generation=generation, proof=Proof(Verdict(kind, "no run"))
    )
    history.add_record(unmeasured, Accepted.NO, {**FACTS, "prompt_tokens": 1024})
    told = history.start_figures(generations=(3,))
    stays = (kind, generation) != (VerdictKind.FAIL, 3)
    assert [(one.runs, one.facts) for one in told] == ([((81.0, 82.0), FACTS)] if stays else [])
    kept = history.verdict_figures("a")
    assert kept is not None
    assert kept.facts == FACTS


def test_rows_are_found_by_profile_generation_and_moment(history: History) -> None:
    for generation, profile, at in (
        (3, "ll_ring", 10.0),
        (4, "baseline", 20.0),
        (5, "ll_ring", 5.0),
    ):
        history.begin_apply(ApplyRow(at, None, generation, None, profile, "ann", (), None, None))
        history.add_canary(replace(CANARY, at=at, generation=generation, profile=profile))
        history.add_bench(replace(BENCH, at=at, generation=generation, profile=profile))
        history.add_rollback(RollbackRow(at, generation, generation - 1, "slow"))
        changed = {"generation": generation, "profile": profile, "ended_at": at}
        history.add_record(
            record(profile + str(generation), 80.0, service_started_at=at, **changed), Accepted.NO
        )
    finders = (history.find_applies, history.find_canaries, history.find_benches,
               history.find_verdicts, history.find_starts)  # fmt: skip
    for find in finders:
        assert [row.generation for row in find(Which())] == [5, 4, 3]
        assert [row.generation for row in find(Which(profile="ll_ring"))] == [5, 3]
        assert [row.generation for row in find(Which(profile="ll_ring", generation=3))] == [3]
        assert [row.generation for row in find(Which(since=10.0))] == [4, 3]
        assert [row.generation for row in find(Which(limit=1))] == [5]
    rollbacks = history.find_rollbacks
    assert [row.from_generation for row in rollbacks(Which(profile="ll_ring"))] == [5, 3]
    assert [row.from_generation for row in rollbacks(Which(generation=4))] == [5, 4]
    assert [row.from_generation for row in rollbacks(Which(generation=4, since=10.0))] == [4]


def test_pruning_takes_old_canaries_and_samples_but_none_of_what_was_accepted(
    history: History, tmp_path: Path
) -> None:
    history.add_record(record("good", 81.0, ended_at=10.0), Accepted.YES)
    history.add_record(record("again", 82.0, ended_at=10.0), Accepted.NO)
    history.add_record(record("bad", 20.0, generation=4, ended_at=10.0), Accepted.NO)
    history.add_record(record("new", 21.0, generation=5, ended_at=99.0), Accepted.NO)
    for at in range(2000):
        last = history.add_canary(replace(CANARY, at=float(at), reason="x" * 100))
    before = (tmp_path / "history.sqlite").stat().st_size
    pruned = history.prune(before=50.0)
    assert (pruned.canaries, pruned.samples) == (50, 1)
    assert {f.invocation for f in history.start_figures()} == {
        "start-good", "start-again", "start-new",
    }  # fmt: skip
    assert len(history.verdicts()) == len(history.starts()) == 4
    history.prune(before=5000.0)
    assert [row.sequence for row in history.canaries()] == [last]
    assert (tmp_path / "history.sqlite").stat().st_size < before / 2


def test_a_pruned_history_goes_on_counting(history: History) -> None:
    history.add_rollback(RollbackRow(1.0, 3, None, "x"))
    last = history.add_canary(CANARY)
    history.prune(before=5000.0)
    assert history.add_canary(CANARY) == last + 1


def test_canaries_are_counted_by_result_and_those_that_were_taken_out_stay_counted(
    history: History,
) -> None:
    assert history.canary_counts() == {}
    for at, result in enumerate(list(CanaryResult) * 2):
        history.add_canary(replace(CANARY, at=float(at), result=result))
    counts = {result.value: 2 for result in CanaryResult}
    for before in (0.0, 1.0, 1.0, 3.0, 5000.0):
        history.prune(before)
        assert history.canary_counts() == counts
    assert len(history.canaries()) == 1


def test_facts_that_are_no_object_are_none(history: History, tmp_path: Path) -> None:
    history.add_record(record("a", 81.0), Accepted.YES, FACTS)
    db = sqlite3.connect(tmp_path / "history.sqlite")
    with db:
        db.execute("UPDATE starts SET facts = '[1'")
    db.close()
    assert history.starts()[0].facts == {}
