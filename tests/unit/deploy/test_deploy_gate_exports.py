"""Each start is held against the series that rules and dashboard lean on; a note says what is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gate_box import Systemd, two_generations

from kimisvc.cli.apply import applied_json, applied_text
from kimisvc.cli.status import status_json, status_text
from kimisvc.deploy.gate import run
from kimisvc.deploy.gate.exports import blind_spots
from kimisvc.deploy.gate.record import GateRecord, record_from_json
from kimisvc.deploy.gate.settle import settle
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.status import read_status
from kimisvc.errors import ExitStatus, HostError
from kimisvc.host.vllm_contract import SERIES
from kimisvc.measure import gate
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.proof import Health, Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box

PAGE = (Path(__file__).parents[1] / "observe" / "captured" / "0.32.0-idle.txt").read_text()
PROFILE = Profile("mine", VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))
SILENT = replace(PROFILE, args={"disable-log-stats": True})
RENAMED = PAGE.replace("vllm:kv_cache_usage_perc{", "vllm:cache_usage{").replace(
    "vllm:num_preemptions_total{", "vllm:preemptions{"
)
NOTHING = "python_info 1.0\n"
NOTE = (
    "this vLLM does not export vllm:kv_cache_usage_perc, vllm:num_preemptions_total:"
    " the alerts and panels on them are blind"
)


class Server:
    """It is ready, and gives a page of counters, or an error."""

    def __init__(self, page: str | HostError) -> None:
        self._page = page

    def health(self) -> Health:
        return Health.READY

    def version(self) -> str:
        return "0.40.0"

    def metrics(self) -> str:
        if isinstance(self._page, HostError):
            raise self._page
        return self._page


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return two_generations(tmp_path, Systemd(), monkeypatch)


def proof_of(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    kind: VerdictKind = VerdictKind.PASS,
) -> Proof:
    """What the gate hands over of a server that measuring judges so."""
    measured = Proof(Verdict(kind, "because"), notes=("of measuring",))
    monkeypatch.setattr(gate, "prove", lambda *_, **__: measured)
    run.run_gate(box, lambda _: server)  # type: ignore[arg-type,return-value]  # plays it
    (record,) = run_records(box)
    assert record.proof is not None
    return record.proof


def run_records(box: Box) -> list[GateRecord]:
    left = [path for path in box.layout.gate.iterdir() if path != box.layout.progress]
    return [record_from_json(path.read_text()) for path in left]


@pytest.mark.parametrize("profile", [PROFILE, SILENT])
def test_of_a_server_that_prints_all_nothing_is_said(profile: Profile) -> None:
    assert blind_spots(Server(PAGE), profile) == ()


def test_what_a_server_does_not_print_is_named() -> None:
    assert blind_spots(Server(RENAMED), PROFILE) == (NOTE,)


@pytest.mark.parametrize("series", sorted(SERIES))
def test_each_series_of_the_contract_is_looked_for(series: str) -> None:
    (note,) = blind_spots(Server(PAGE.replace(f"{series}{{", f"{series}_new{{")), PROFILE)
    assert note.startswith(f"this vLLM does not export {series}: ")


def test_one_that_prints_none_is_not_told_in_27_names() -> None:
    (note,) = blind_spots(Server(NOTHING), PROFILE)
    assert note.startswith("this vLLM does not export any series of its engine: ")
    assert "vllm:" not in note


@pytest.mark.parametrize("page", [NOTHING, RENAMED])
@pytest.mark.parametrize("written", ["disable-log-stats", "disable_log_stats"])
def test_what_the_profile_asked_for_is_said_to_be_that(page: str, written: str) -> None:
    (note,) = blind_spots(Server(page), replace(PROFILE, args={written: True}))
    assert note.startswith("disable-log-stats is set, so vLLM exports no series of its engine: ")
    told_off = replace(PROFILE, args={"disable-log-stats": False})
    assert "disable-log-stats" not in blind_spots(Server(page), told_off)[0]


def test_a_server_without_a_page_is_not_said_to_print_nothing() -> None:
    (note,) = blind_spots(Server(HostError("http-404", "HTTP status 404")), PROFILE)
    assert note == "whether alerts and panels get what they need is not known: HTTP status 404"


# ------------------------------------------------------------------ in the gate


@pytest.mark.parametrize("kind", VerdictKind)
@pytest.mark.parametrize(
    ("page", "notes"),
    [(PAGE, ()), (RENAMED, (NOTE,)), (HostError("timeout", "late"), ("… not known: late",))],
)
def test_the_gate_notes_it_whatever_the_verdict_and_changes_none(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    kind: VerdictKind,
    page: str | HostError,
    notes: tuple[str, ...],
) -> None:
    proof = proof_of(box, monkeypatch, Server(page), kind)
    assert proof.verdict == Verdict(kind, "because")
    assert proof.notes[0] == "of measuring"
    assert len(proof.notes) == 1 + len(notes)
    for found, wanted in zip(proof.notes[1:], notes, strict=True):
        assert found.endswith(wanted.removeprefix("…"))


def test_the_profile_of_the_start_is_the_one_that_is_asked(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = box.generations.add(Draft("mine", "", to_toml(SILENT), (), {}), 1.0)
    box.generations.make_current(made)
    proof = proof_of(box, monkeypatch, Server(NOTHING), VerdictKind.FAIL)
    assert [note for note in proof.notes if note.startswith("disable-log-stats is set")]


def test_apply_and_status_show_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "prove", lambda *_, **__: Proof(Verdict(VerdictKind.PASS, "fast")))
    done = run.run_gate(box, lambda _: Server(RENAMED))  # type: ignore[arg-type,return-value]  # plays it
    assert done is ExitStatus.DONE
    settle(box)
    systemd = box.systemd
    systemd.gate = replace(systemd.gate, active_state="inactive")  # type: ignore[attr-defined]  # plays it
    found = read_status(box)
    assert f"note        {NOTE}" in status_text(found, box)
    assert status_json(found)["notes"] == [NOTE]
    assert found.verdict is not None
    applied = Applied(Ending(Outcome.ACCEPTED, "fast", verdict=found.verdict), 2, 1)
    assert f"note on generation 2: {NOTE}" in applied_text(applied)
    assert applied_json(applied)["notes"] == [NOTE]
    back = Ending(Outcome.ROLLED_BACK, "slow", restored=found.verdict)
    assert f"note on restored: {NOTE}" in applied_text(Applied(back, 3, 2, before=found.verdict))
    assert applied_text(Applied(back, 3, 2, before=found.verdict)).count(NOTE) == 1
