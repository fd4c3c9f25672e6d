"""Where an instance stands: on a full disk and between two starts the exporter says what status says."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gate_box import Systemd, impatient, leave, two_generations
from observe_support import RUNS, healthy, unit
from prometheus_client import generate_latest

from kimisvc.cli.status import status_json
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.history import History
from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.deploy.status import read_status
from kimisvc.errors import KimisvcError
from kimisvc.observe import standing
from kimisvc.observe.exporter import registry
from kimisvc.observe.snapshots import HistoryView, Scene, UnitsView
from kimisvc.observe.sources import FilesReader, HistoryReader
from kimisvc.records.profile import CanarySettings
from kimisvc.records.proof import Interval, Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return impatient(two_generations(tmp_path, systemd, monkeypatch))


def scene(box: Box, systemd: Systemd) -> Scene:
    """What an exporter of this box would know, but for a history that cannot be read."""
    try:
        history = HistoryReader(box.layout).read()
    except KimisvcError:
        history = None
    units = UnitsView(systemd.service, systemd.gate, systemd.rollback)
    return Scene("kimi", units, FilesReader(box.layout, dict).read(), history)


def said(box: Box, systemd: Systemd) -> tuple[bool | None, str | None]:
    """Whether it is ready, and its verdict, as the exporter says; and status has to say the same."""
    here = scene(box, systemd)
    row = standing.verdict(here)
    words = (standing.ready(here), row.verdict.kind.value if row is not None else None)
    told = status_json(read_status(box))
    assert words == (told["ready"], told["verdict"])
    return words


def judged_on_a_full_disk(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> None:
    def full(*_: object) -> None:
        raise KimisvcError("history-unusable", "disk full")

    with monkeypatch.context() as disk:
        disk.setattr(History, "add_record", full)
        leave(box, VerdictKind.PASS, **more)
        with pytest.raises(KimisvcError):
            settle(box)
    systemd.gate = replace(systemd.gate, active_state="failed", sub_state="failed")


# ------------------------------------------------------------------ a full disk


def test_what_waits_for_room_on_the_disk_counts(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that hangs after it passed would page nobody."""
    judged_on_a_full_disk(box, systemd, monkeypatch)
    assert said(box, systemd) == (True, "PASS")
    settle(box)
    assert said(box, systemd) == (True, "PASS")
    assert scene(box, systemd).files == replace(FilesReader(box.layout, dict).read(), waiting=())


@pytest.mark.parametrize("gone", ["removed", "no database"])
def test_what_waits_counts_where_history_cannot_be_read_as_well(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    judged_on_a_full_disk(box, systemd, monkeypatch)
    for path in box.layout.history.parent.glob("history.sqlite*"):
        path.unlink()
    if gone == "no database":
        box.layout.history.parent.mkdir(exist_ok=True)
        box.layout.history.write_bytes(b"no database at all" * 100)
    assert scene(box, systemd).history is None
    assert said(box, systemd) == (True, "PASS")
    box.layout.record("r1").unlink()
    assert said(box, systemd) == (None, None)


def test_what_waits_is_newer_than_history_and_is_of_the_start_that_runs(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(box, VerdictKind.PASS)
    settle(box)
    systemd.gate = replace(systemd.gate, active_state="inactive", invocation_id="r3")
    leave(box, VerdictKind.FAIL, "r2", ended_at=9.0)
    assert said(box, systemd) == (True, "FAIL")
    leave(
        box, VerdictKind.DEGRADED, "r3", ended_at=5.0
    )  # the newest gate's, and the clock was set back
    assert said(box, systemd) == (True, "DEGRADED")
    judged_on_a_full_disk(box, systemd, monkeypatch, name="r4", invocation="another", ended_at=99.0)
    assert said(box, systemd) == (True, "DEGRADED")


def test_a_gate_that_has_not_ended_has_said_nothing(box: Box, systemd: Systemd) -> None:
    """Settle may judge otherwise: another server may have had the port."""
    systemd.gate = replace(systemd.gate, invocation_id="r1")
    leave(box, VerdictKind.PASS)
    assert said(box, systemd)[1] is None
    systemd.gate = replace(systemd.gate, active_state="inactive")
    assert said(box, systemd) == (True, "PASS")


@pytest.mark.parametrize("state", ["inactive", "failed"])
@pytest.mark.parametrize("kind", [None, *VerdictKind])
def test_a_start_that_no_gate_saw_ready_may_serve_unless_one_failed_it(
    box: Box, systemd: Systemd, state: str, kind: VerdictKind | None
) -> None:
    """A gate that was stopped leaves no verdict, one that broke INCONCLUSIVE; one at its deadline FAIL."""
    leave(box, kind, ready_at=0.0)
    with contextlib.suppress(KimisvcError):
        settle(box)
    assert said(box, systemd)[0] is False
    systemd.gate = replace(systemd.gate, active_state=state, sub_state="dead")
    assert said(box, systemd)[0] is (False if kind is VerdictKind.FAIL else None)
    systemd.gate = replace(systemd.gate, job=7)
    assert said(box, systemd)[0] is False
    systemd.gate = replace(systemd.gate, job=0)
    systemd.service = replace(systemd.service, active_state="failed")
    assert said(box, systemd)[0] is False


def test_what_waits_is_read_without_secrets(
    box: Box, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of it the version is on the page, and it is the server's own word."""
    monkeypatch.setenv("VLLM_API_KEY", "correct-horse-battery")
    leave(box, VerdictKind.PASS, vllm_version="0.33 correct-horse-battery")
    systemd.gate = replace(systemd.gate, active_state="inactive")
    here = scene(box, systemd)
    row = standing.start(here)
    assert row is not None
    assert row.vllm_version is not None
    assert row.vllm_version.startswith("0.33")
    assert "correct-horse" not in page(here)


# ------------------------------------------------------------------ the page


def page(shown: Scene) -> str:
    return generate_latest(registry(lambda: (shown,), "1")).decode()


def waiting(kind: VerdictKind = VerdictKind.PASS) -> GateRecord:
    proof = Proof(Verdict(kind, "because"), decode_tok_s=Interval(60.0, 61.0, 62.0), ttft_s=0.3)
    return GateRecord(
        record="waits", generation=7, profile="ll_ring", model="/srv/models/Kimi", invocation=RUNS,
        service_started_at=1000.0, began_at=1001.0, ended_at=3333.0, ready_at=3160.0,
        vllm_version="0.34.0", proof=proof,
    )  # fmt: skip


@pytest.mark.parametrize("history", [HistoryView(), None])
def test_a_record_that_waits_is_on_the_page(tmp_path: Path, history: HistoryView | None) -> None:
    here = replace(healthy(tmp_path), history=history)
    assert here.files is not None
    shown = page(replace(here, files=replace(here.files, waiting=(waiting(),))))
    for line in (
        'kimisvc_ready{instance="kimi"} 1.0',
        'kimisvc_gate_verdict{instance="kimi",verdict="PASS"} 1.0',
        'kimisvc_gate_verdict{instance="kimi",verdict="FAIL"} 0.0',
        'kimisvc_gate_timestamp_seconds{instance="kimi"} 3333.0',
        'kimisvc_probe_decode_tokens_per_second{instance="kimi",source="gate"} 61.0',
        'vllm_version="0.34.0"',
    ):
        assert line in shown, line
    assert f'kimisvc_up{{instance="kimi"}} {float(history is not None)}' in shown
    without = page(here)
    assert 'verdict="PASS"} 1.0' not in without
    assert "kimisvc_ready{" not in without


@pytest.mark.parametrize("between", ["auto-restart", "auto-restart-queued"])
def test_between_two_starts_nothing_is_said_of_the_dead_one(tmp_path: Path, between: str) -> None:
    """The wait for the next may be an hour long."""
    here = healthy(tmp_path)
    assert here.units is not None
    assert here.files is not None
    assert here.files.profile is not None
    assert here.history is not None
    flies = replace(here.files.profile, canary=CanarySettings(every=600.0))
    flew = CanaryRow(5000.0, RUNS, 7, "ll_ring", CanaryResult.MEASURED, 79.0)
    here = replace(
        here,
        files=replace(here.files, profile=flies, waiting=(waiting(),)),
        history=replace(here.history, canary=flew, canary_at=5000.0),
    )
    of_the_start = (
        'verdict="PASS"} 1.0', "kimisvc_gate_timestamp_seconds{", 'source="gate"',
        'source="canary"', "kimisvc_canary_due_timestamp_seconds{",
        'kimisvc_service_started_timestamp_seconds{instance="kimi"} 1000.0',
    )  # fmt: skip
    assert all(words in page(here) for words in of_the_start)
    assert here.units is not None
    service = replace(here.units.service, active_state="activating", sub_state=between)
    gate = unit("kimisvc-kimi-gate.service", "activating")
    dead = page(replace(here, units=replace(here.units, service=service)))
    assert not [words for words in of_the_start if words in dead]
    assert 'kimisvc_gate_verdict{instance="kimi",verdict="PASS"} 0.0' in dead
    assert 'kimisvc_ready{instance="kimi"} 0.0' in dead
    leaving = page(replace(here, units=replace(here.units, service=service, gate=gate)))
    assert "kimisvc_load_started_timestamp_seconds{" not in leaving
