"""What becomes of a canary: measured, skipped with the reason, or failed; and how it is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from kimisvc.deploy.box import Box, not_enabled, plan_for, stopped_beside, switch
from kimisvc.deploy.canary import run as canary_run
from kimisvc.deploy.canary.record import canary_from_json, canary_to_json
from kimisvc.deploy.canary.run import keep_canaries, run_canary
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.history import Accepted
from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.deploy.layout import Layout
from kimisvc.deploy.plan import Action
from kimisvc.deploy.status import drift
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import files
from kimisvc.measure.canary import CanaryFigures, Unseen
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.records.proof import Health, Interval, Proof, Verdict, VerdictKind
from kimisvc.records.units import Installation, UnitFile, UnitState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kimisvc.records.profile import Profile

RUNS = "a" * 32
PROFILE = """schema = 1
name = "mine"
[vllm]
executable = "/opt/vllm/bin/vllm"
model = "/srv/models/Kimi"
"""
CANARY = PROFILE + '[canary]\nevery = "10min"\nmax_tokens = 8\n'
FIGURES = CanaryFigures(81.4, Interval(81.1, 81.4, 81.7), 0.2)
ROW = CanaryRow(
    100.0, RUNS, 1, "mine", CanaryResult.MEASURED, 81.4, 81.1, 81.7, 0.2, "", 0
)  # fmt: skip


@dataclass
class Systemd:
    """Plays systemd: a state by unit, and all that was asked of it, in order."""

    states: dict[str, UnitState] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def state(self, unit: str) -> UnitState:
        return self.states.get(unit, UnitState(unit, "loaded", "inactive", "dead"))

    def set(self, unit: str, active: str, sub: str = "", **more: Any) -> None:
        self.states[unit] = UnitState(unit, "loaded", active, sub, **more)

    def enable(self, units: Any) -> None:
        self.asked += [("enable", unit) for unit in units]

    def disable(self, units: Any) -> None:
        self.asked += [("disable", unit) for unit in units]

    def reload(self) -> None:
        self.asked.append(("reload", ""))

    def __getattr__(self, verb: str) -> Callable[[str], None]:
        return lambda unit: self.asked.append((verb, unit))


class Api:
    """Plays the door to vLLM, of which only /health is looked at here."""

    def __init__(self, health: Health = Health.READY) -> None:
        self._health = health

    def health(self) -> Health:
        return self._health


def box_in(folder: Path) -> Box:
    place = Installation(folder / "kimisvc", folder / "units", folder / "state", folder / "run")
    place.units.mkdir()
    layout = Layout(place, "kimi")
    layout.canary.mkdir(parents=True)
    systemd = Systemd()
    systemd.set(layout.units.service, "active", "running", invocation_id=RUNS, enabled="enabled")
    return Box(layout, systemd, now=lambda: 100.0)  # type: ignore[arg-type]  # plays the door


def asked(box: Box) -> list[tuple[str, str]]:
    assert isinstance(box.systemd, Systemd)
    return box.systemd.asked


def units(box: Box, profile: str) -> tuple[UnitFile, ...]:
    names = box.layout.units
    wanted = [names.service, names.gate, names.rollback, names.target]
    if "[canary]" in profile:
        wanted += [names.canary, names.canary_timer]
    return tuple(UnitFile(name, f"# {name}\n[Unit]\n") for name in wanted)


def current(box: Box, profile: str = CANARY) -> None:
    """Make a generation of the profile the current, installed, accepted one."""
    made = box.generations.add(Draft("mine", profile, profile, units(box, profile), {}), 50.0)
    for unit in units(box, profile):
        box.layout.installed(unit.name).write_text(unit.text)
    box.generations.make_current(made)
    box.generations.accept(made)


def seen_ready(box: Box) -> None:
    """Keep a gate's record of the start that runs."""
    proof = Proof(Verdict(VerdictKind.PASS, "over the goal"))
    record = GateRecord("r", 1, "mine", "/srv/models/Kimi", RUNS, 1.0, 2.0, 9.0, 8.0, proof=proof)
    box.history.add_record(record, Accepted.YES)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = box_in(tmp_path)
    current(made)
    return made


def run(
    box: Box,
    monkeypatch: pytest.MonkeyPatch,
    sung: CanaryFigures | Broken | Unseen = FIGURES,
    health: Health = Health.READY,
    meanwhile: Callable[[], None] = lambda: None,
) -> CanaryRow:
    """Run a canary whose probe comes to `sung`, and to `meanwhile` beside it."""

    def sing(*_: Any, **__: Any) -> CanaryFigures | Broken | Unseen:
        meanwhile()
        return sung

    def open_api(profile: Profile) -> Any:
        assert profile.canary is not None
        assert profile.canary.max_tokens == 8
        return Api(health)

    monkeypatch.setattr("kimisvc.measure.canary.sing", sing)
    return run_canary(box, open_api)


# ------------------------------------------------------------------ what becomes of it


def test_a_canary_that_measured(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(box, monkeypatch) == ROW
    (left,) = files.entries(box.layout.canary)
    assert canary_from_json(left.read_text()) == ROW
    assert left.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("trouble", "result"),
    [
        (
            trouble,
            CanaryResult.SKIPPED_BUSY if trouble is Trouble.DISTURBED else CanaryResult.FAILED,
        )
        for trouble in Trouble
    ],
)
def test_every_trouble_but_other_traffic_is_a_failure(
    box: Box, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, result: CanaryResult
) -> None:
    row = run(box, monkeypatch, Broken(trouble, "nothing in 120 s"))
    assert row == replace(
        ROW, result=result, decode_tok_s=None, low=None, high=None, ttft_s=None,
        reason=f"{trouble.value}: nothing in 120 s",
    )  # fmt: skip


def test_a_server_that_shows_no_counters_is_not_busy_and_the_history_says_so(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run(box, monkeypatch, Unseen("its /metrics: HTTP status 404: Not Found"))
    assert row == replace(
        ROW, result=CanaryResult.SKIPPED_UNKNOWN, decode_tok_s=None, low=None, high=None,
        ttft_s=None, reason="whether others use the server is not known: its /metrics:"
        " HTTP status 404: Not Found",
    )  # fmt: skip
    assert keep_canaries(box) == (row,)
    assert box.history.canaries() == (replace(row, sequence=1),)
    assert box.history.canary_counts() == {"skipped_unknown": 1}


@pytest.mark.parametrize(
    ("unit", "active", "sub", "job", "said"),
    [
        ("service", "inactive", "dead", 0, "was stopped"),
        ("service", "activating", "auto-restart", 0, "started anew"),
        ("service", "activating", "start-pre", 0, "is activating"),
        ("service", "failed", "failed", 0, "failed"),
        ("gate", "activating", "start", 0, "its gate is at work"),
        ("gate", "deactivating", "stop-post", 0, "its gate is at work"),
        ("gate", "inactive", "dead", 7, "its gate is at work"),
    ],
)
def test_nothing_is_asked_of_a_start_that_is_not_ready(
    box: Box, monkeypatch: pytest.MonkeyPatch, unit: str, active: str, sub: str, job: int, said: str
) -> None:
    box.systemd.set(getattr(box.layout.units, unit), active, sub, job=job, invocation_id=RUNS)  # type: ignore[attr-defined]

    def fail() -> None:
        pytest.fail("it was asked")

    row = run(box, monkeypatch, meanwhile=fail)
    assert row.result is CanaryResult.SKIPPED_NOT_READY
    assert said in row.reason


@pytest.mark.parametrize("sung", [FIGURES, Broken(Trouble.CUT_OFF)], ids=["a figure", "broken"])
@pytest.mark.parametrize("what", ["died", "gate came"])
def test_what_is_seen_of_a_server_that_goes_away_says_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch, sung: CanaryFigures | Broken, what: str
) -> None:
    names = box.layout.units

    def meanwhile() -> None:
        if what == "died":
            box.systemd.set(names.service, "active", "running", invocation_id="b" * 32)  # type: ignore[attr-defined]
        else:
            box.systemd.set(names.gate, "activating", "start")  # type: ignore[attr-defined]

    row = run(box, monkeypatch, sung, meanwhile=meanwhile)
    assert (row.result, row.decode_tok_s) == (CanaryResult.SKIPPED_NOT_READY, None)
    assert row.reason.startswith("meanwhile: ")


@pytest.mark.parametrize("health", [h for h in Health if h is not Health.READY])
def test_one_that_never_was_ready_is_skipped_and_one_that_was_has_failed(
    box: Box, monkeypatch: pytest.MonkeyPatch, health: Health
) -> None:
    row = run(box, monkeypatch, health=health)
    assert row.result is CanaryResult.SKIPPED_NOT_READY
    seen_ready(box)
    row = run(box, monkeypatch, health=health)
    assert row.result is CanaryResult.FAILED
    assert row.reason


def test_a_key_that_no_header_can_carry_fails_the_canary(box: Box) -> None:
    def shut(_: Profile) -> Any:
        raise HostError("bad-api-key", "the API key holds characters that no header can carry")

    row = run_canary(box, shut)
    assert row.result is CanaryResult.FAILED
    assert row.reason.startswith("the API key holds")


def test_a_profile_without_canary_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_in(tmp_path)
    with pytest.raises(KimisvcError, match="never applied"):
        run(box, monkeypatch)
    current(box, PROFILE)
    with pytest.raises(KimisvcError, match="asks for no canary"):
        run(box, monkeypatch)
    assert files.entries(box.layout.canary) == ()


def test_the_words_of_a_server_hold_no_secret(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "q8Zr-planted-key-5f2cT1")
    row = run(box, monkeypatch, Broken(Trouble.REFUSED, "not q8Zr-planted-key-5f2cT1"))
    (left,) = files.entries(box.layout.canary)
    assert "q8Zr" not in row.reason + left.read_text()
    keep_canaries(box)
    assert "q8Zr" not in box.history.canaries()[0].reason


# ------------------------------------------------------------------ how it is kept


def leave(box: Box, row: CanaryRow, name: str = "1") -> None:
    box.layout.canary_record(name).write_text(canary_to_json(row))


def test_what_a_canary_left_is_kept_and_cleared(box: Box) -> None:
    leave(box, ROW)
    assert keep_canaries(box) == (ROW,)
    (kept,) = box.history.canaries()
    assert replace(kept, sequence=0) == ROW
    assert files.entries(box.layout.canary) == ()
    assert keep_canaries(box) == ()


def test_a_folder_that_is_called_as_a_record_keeps_none_from_being_taken(box: Box) -> None:
    box.layout.canary_record("0").mkdir()
    leave(box, ROW)
    assert keep_canaries(box) == (ROW,)
    assert keep_canaries(box) == ()
    assert files.entries(box.layout.canary) == (box.layout.canary_record("0"),)


def test_one_that_is_kept_already_is_kept_once(box: Box) -> None:
    """Cut off between history and the removal of the record."""
    leave(box, ROW)
    keep_canaries(box)
    leave(box, ROW)
    keep_canaries(box)
    assert len(box.history.canaries()) == 1


def test_a_record_waits_for_a_history_that_can_be_written(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise KimisvcError("history-failed", "the disk is full")

    leave(box, ROW)
    with monkeypatch.context() as broken:
        broken.setattr("kimisvc.deploy.history.History.add_canary", full)
        with pytest.raises(KimisvcError, match="disk is full"):
            keep_canaries(box)
    assert keep_canaries(box) == (ROW,)


@pytest.mark.parametrize(
    "spoil",
    [
        {"result": "fine"}, {"decode_tok_s": None}, {"decode_tok_s": -1.0}, {"low": -3.0},
        {"at": "now"}, {"generation": True}, {"more": 1}, {"reason": 7}, {"decode_tok_s": 1e300},
        {"result": "failed"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_record_is_refused_and_removed(box: Box, spoil: dict[str, Any]) -> None:
    data = {**json.loads(canary_to_json(ROW)), **spoil}
    box.layout.canary_record("1").write_text(json.dumps(data))
    assert keep_canaries(box) == ()
    assert box.history.canaries() == ()
    assert files.entries(box.layout.canary) == ()


def test_a_symlink_is_no_record(box: Box, tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text(canary_to_json(ROW))
    box.layout.canary_record("1").symlink_to(tmp_path / "shadow")
    assert keep_canaries(box) == ()


def test_a_reason_steers_no_terminal() -> None:
    row = replace(
        ROW, result=CanaryResult.FAILED, decode_tok_s=None, low=None, high=None, ttft_s=None,
        reason="\x1b[2Jgone",
    )  # fmt: skip
    assert canary_from_json(canary_to_json(row)).reason == " [2Jgone"


def test_the_module_knows_no_rollback() -> None:
    assert not any("rollback" in name for name in vars(canary_run))


# ------------------------------------------------------------------ units come and go


def apply(box: Box, profile: str) -> Action:
    if box.generations.current() is not None:
        seen_ready(box)
    wanted = units(box, profile)
    plan = plan_for(box, profile, wanted)
    generation = box.generations.add(Draft("mine", profile, profile, wanted, {}), 60.0)
    asked(box).clear()
    switch(box, plan, generation, wanted)
    return plan.action


def test_a_canary_is_installed_enabled_and_started(tmp_path: Path) -> None:
    box = box_in(tmp_path)
    current(box, PROFILE)
    timer = box.layout.units.canary_timer
    assert apply(box, CANARY) is Action.RECORD
    assert box.layout.installed(timer).exists()
    assert box.layout.installed(box.layout.units.canary).exists()
    done = asked(box)
    assert done.index(("enable", timer)) < done.index(("reload", ""))
    assert done[-1] == ("restart", timer)
    assert [unit for verb, unit in done if verb == "restart"] == [timer]


def test_a_canary_that_is_not_asked_for_any_more_is_taken_away(box: Box) -> None:
    names = box.layout.units
    assert apply(box, PROFILE) is Action.RECORD
    done = asked(box)
    for name in (names.canary_timer, names.canary):
        assert not box.layout.installed(name).exists()
        verbs = [verb for verb, unit in done if unit == name]
        assert verbs == ["stop", "disable", "reset_failed"]
    assert done.index(("stop", names.canary_timer)) < done.index(("stop", names.canary))
    assert ("restart", names.canary_timer) not in done
    assert box.layout.installed(names.service).exists()


def test_a_timer_that_goes_on_is_left_alone(box: Box) -> None:
    box.systemd.set(box.layout.units.canary_timer, "active", "waiting")  # type: ignore[attr-defined]
    changed = CANARY.replace("8", "9")
    assert apply(box, changed) is Action.RECORD
    assert not [verb for verb, _ in asked(box) if verb == "restart"]


def test_a_service_that_is_started_anew_brings_its_timer(tmp_path: Path) -> None:
    box = box_in(tmp_path)
    assert apply(box, CANARY) is Action.RESTART
    assert [unit for verb, unit in asked(box) if verb == "restart"] == [box.layout.units.service]


def test_drift_of_a_canary_is_told(box: Box) -> None:
    names = box.layout.units
    service = box.systemd.state(names.service)
    now = box.generations.current()
    assert drift(box, now, service) == (f"{names.canary_timer} does not run",)
    box.systemd.set(names.canary_timer, "active", "waiting", enabled="disabled")  # type: ignore[attr-defined]
    assert drift(box, now, service) == (
        f"{names.canary_timer} is disabled: it would not start at boot",
    )
    box.systemd.set(names.canary_timer, "active", "waiting", enabled="enabled")  # type: ignore[attr-defined]
    assert drift(box, now, service) == ()
    box.layout.installed(names.canary_timer).unlink()
    assert drift(box, now, service) == (f"{names.canary_timer} is missing",)


def test_a_canary_left_over_is_drift(box: Box) -> None:
    names = box.layout.units
    older = box.generations.add(Draft("mine", PROFILE, PROFILE, units(box, PROFILE), {}), 70.0)
    box.generations.make_current(older)
    found = drift(box, older, box.systemd.state(names.service))
    assert found == tuple(
        f"{name} is left over from another generation"
        for name in (names.canary, names.canary_timer)
    )


def test_without_a_canary_nobody_misses_its_timer(box: Box) -> None:
    service = box.systemd.state(box.layout.units.service)
    assert stopped_beside(box, ()) == ()
    assert not_enabled(box, service, ()) == ()


def test_a_door_that_is_shut_is_an_error_and_no_result(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shut(*_: Any) -> UnitState:
        raise HostError("systemd-lost", "the bus is gone")

    monkeypatch.setattr(box.systemd, "state", shut)
    with pytest.raises(HostError, match="bus is gone"):
        run(box, monkeypatch)
    assert files.entries(box.layout.canary) == ()
