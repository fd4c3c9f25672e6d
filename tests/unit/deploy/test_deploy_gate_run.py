"""The gate of one start: whatever breaks in it, a verdict is left."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import Systemd, two_generations

from kimisvc.deploy.gate import run
from kimisvc.deploy.gate.record import GateRecord, progress_from_json, record_from_json
from kimisvc.errors import ExitStatus, HostError
from kimisvc.records.progress import Phase
from kimisvc.records.proof import Health, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box


HERE = r"test_deploy_gate_run\.py:\d+"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return two_generations(tmp_path, Systemd(), monkeypatch)


def left(box: Box) -> GateRecord:
    (record,) = [
        record_from_json(path.read_text())
        for path in box.layout.gate.iterdir()
        if path != box.layout.progress
    ]
    return record


class Breaks:
    """A door to a server that breaks where it is touched first."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def health(self) -> Health:
        raise self._error


class BreaksLate(Breaks):
    """It is ready, and breaks when it is measured."""

    def health(self) -> Health:
        return Health.READY

    def version(self) -> str:
        return "0.32.0"

    def __getattr__(self, name: str) -> Any:
        raise self._error


@pytest.mark.parametrize("door", [Breaks, BreaksLate])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RecursionError("too deep"), f"RecursionError in {HERE}: too deep; please report it"),
        (OverflowError("a\x1b[2Jb"), f"OverflowError in {HERE}: a \\[2Jb; please report it"),
        (HostError("systemd-lost", "the bus is gone"), "the bus is gone"),
    ],
)
def test_what_breaks_in_the_gate_is_inconclusive_and_handed_over(
    box: Box, door: type[Breaks], error: Exception, words: str
) -> None:
    assert run.run_gate(box, lambda _: door(error)) is ExitStatus.INCONCLUSIVE  # type: ignore[arg-type,return-value]  # plays it
    record = left(box)
    assert record.proof is not None
    assert record.proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert re.fullmatch(f"the gate itself broke: {words}", record.proof.verdict.reason)
    assert record.ended_at
    progress = progress_from_json(box.layout.progress.read_text())
    assert progress is not None
    assert progress.phase is Phase.DECIDED


def test_a_gate_that_is_stopped_is_no_broken_one(box: Box) -> None:
    def stopped(_: object) -> Any:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        run.run_gate(box, stopped)
    assert left(box).proof is None


def test_a_start_is_dated_by_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by the wait for the next one, where it has died before its gate looked."""
    systemd = Systemd()
    systemd.service = replace(systemd.service, started_at=90.0, main_started_at=40.0)
    box = two_generations(tmp_path, systemd, monkeypatch)
    run.run_gate(box, lambda _: Breaks(HostError("gone", "gone")))  # type: ignore[arg-type,return-value]  # plays it
    assert left(box).service_started_at == 40.0


@pytest.mark.parametrize(
    ("given", "unit", "ours"), [("a1", "a1", True), ("b2", "a1", False), ("", "", False)]
)
def test_a_record_goes_by_the_invocation_of_its_gate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    unit: str,
    ours: bool,  # noqa: FBT001 - the expected answer
) -> None:
    """One that is run by hand has none, though its shell may have been given that of another unit."""
    systemd = Systemd()
    systemd.gate = replace(systemd.gate, invocation_id=unit)
    box = two_generations(tmp_path, systemd, monkeypatch)
    monkeypatch.setenv("INVOCATION_ID", given)
    run.run_gate(box, lambda _: Breaks(HostError("gone", "gone")))  # type: ignore[arg-type,return-value]  # plays it
    assert (left(box).record == given) is ours
    assert left(box).record


class Answers(BreaksLate):
    """What its /health says, one look after the other; it breaks when it is measured."""

    def __init__(self, *healths: Health) -> None:
        super().__init__(HostError("gone", "gone"))
        self._healths = list(healths)

    def health(self) -> Health:
        return self._healths.pop(0)


@pytest.mark.parametrize(
    ("process", "looks_at", "healths", "took"),
    [
        (10.0, 12.9, (Health.READY,), 2.9),
        (10.0, 13.1, (Health.READY,), None),
        (10.0, 32.0, (Health.READY,), None),
        (10.0, 32.0, (Health.REFUSED, Health.READY), 22.0),
        (10.0, 9010.0, (Health.REFUSED, Health.READY), 9000.0),
        (10.0, 32.0, (Health.NO_ANSWER, Health.READY), None),
        (10.0, 12.0, (Health.NO_ANSWER, Health.READY), 2.0),
        (40.0, 42.0, (Health.READY,), 32.0),
    ],
)
def test_a_load_time_is_that_of_a_load_whose_end_was_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    process: float,
    looks_at: float,
    healths: tuple[Health, ...],
    took: float | None,
) -> None:
    """Of a server that was ready when a late gate came nobody knows since when: no answer is no load."""
    systemd = Systemd()
    systemd.service = replace(
        systemd.service, started_monotonic=10.0, main_started_monotonic=process
    )
    box = two_generations(tmp_path, systemd, monkeypatch)
    box = replace(box, clock=lambda: looks_at, sleep=lambda _: None)
    run.run_gate(box, lambda _: Answers(*healths))  # type: ignore[arg-type,return-value]  # plays it
    record = left(box)
    assert record.ready_at
    assert record.load_s == (None if took is None else pytest.approx(took))
