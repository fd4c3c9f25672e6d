"""What is on the page: of a healthy instance, one that loads, fails, or of which little is known."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from observe_support import PROFILE, RUNS, healthy, loading, progress, start, unit, verdict
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition, parser

from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.observe.exporter import registry
from kimisvc.observe.families import FAMILIES, Kind
from kimisvc.observe.rates import Live
from kimisvc.observe.snapshots import EngineView, Scene, Source
from kimisvc.records.profile import CanarySettings, GateSettings
from kimisvc.records.progress import Phase
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from pathlib import Path


def page(*scenes: Scene) -> str:
    return generate_latest(registry(lambda: scenes, "1.2.3")).decode()


def shown(scene: Scene) -> dict[str, float]:
    """The page as values by series, `instance` left out."""
    lines = [line for line in page(scene).splitlines() if line.startswith("kimisvc_")]
    values = {}
    for line in lines:
        series, _, value = line.rpartition(" ")
        name = series.replace('instance="kimi",', "").replace('{instance="kimi"}', "")
        values[name.removeprefix("kimisvc_")] = float(value)
    return values


def changed(scene: Scene, view: str, **values: Any) -> Scene:
    return replace(scene, **{view: replace(getattr(scene, view), **values)})


HEALTHY = {
    "up": 1, "generation": 7, "accepted_generation": 7, "should_run": 1, "unit_restarts_total": 2,
    "starts_total": 2, "start_limit_hit": 0, "start_limit": 2, "ready": 1, "load_timeout_seconds": 2700,
    "load_expected_seconds": 2280, "load_duration_seconds": 2160,
    "decode_tokens_per_second": 81.9, "generation_tokens_per_second": 163.8, "engine_stalled": 0,
    "engine_reachable": 1, "gate_timestamp_seconds": 3170, "gate_floor_tokens_per_second": 40,
    "gate_goal_tokens_per_second": 50, "unit_drift": 0, "metric_contract_missing": 0,
    'profile_info{digest="' + "d" * 64 + '",generation="7",profile="ll_ring",vllm_version="0.33.0"}': 1,
    'unit_state{state="active",unit="service"}': 1, 'unit_state{state="failed",unit="service"}': 0,
    'unit_state{state="inactive",unit="gate"}': 1, 'unit_state{state="inactive",unit="rollback"}': 1,
    'probe_decode_tokens_per_second{source="gate"}': 81.9,
    'probe_decode_tokens_per_second_low{source="gate"}': 81.0,
    'probe_decode_tokens_per_second_high{source="gate"}': 82.8,
    'probe_ttft_seconds{source="gate"}': 0.21, 'probe_timestamp_seconds{source="gate"}': 3170,
    'gate_verdict{verdict="PASS"}': 1, 'gate_verdict{verdict="DEGRADED"}': 0,
    'gate_verdict{verdict="FAIL"}': 0, 'gate_verdict{verdict="INCONCLUSIVE"}': 0,
    'applies_total{outcome="accepted"}': 3, 'applies_total{outcome="rolled-back"}': 1,
    'applies_total{outcome="not-restored"}': 0, 'rollbacks_total{restored="yes"}': 1,
    'rollbacks_total{restored="no"}': 0, 'rollbacks_waiting{restored="yes"}': 0,
    'rollbacks_waiting{restored="no"}': 0, 'scrape_errors_total{source="systemd"}': 0,
    'scrape_errors_total{source="vllm"}': 0, 'source_age_seconds{source="history"}': 1,
    'source_age_seconds{source="files"}': 1, 'exporter_info{version="1.2.3"}': 1,
}  # fmt: skip
ONLY_LOADING = {"load_progress_ratio", "load_started_timestamp_seconds"}


@pytest.mark.parametrize("series", HEALTHY)
def test_a_healthy_instance(series: str, tmp_path: Path) -> None:
    assert shown(healthy(tmp_path))[series] == HEALTHY[series]


def test_a_healthy_instance_shows_no_canary_no_load_and_nothing_broken(tmp_path: Path) -> None:
    names = shown(healthy(tmp_path))
    absent = ("canary", "load_progress", "load_started", "contract_broken")
    assert not [name for name in names if any(word in name for word in absent)]


def test_every_family_is_on_some_page(tmp_path: Path) -> None:
    scene = loading(tmp_path, progress(done=3, total=64))
    canary = replace(PROFILE, canary=CanarySettings(every=600.0))
    busy = changed(scene, "files", profile=canary)
    broken = changed(healthy(tmp_path), "engine", missing=("vllm:num_requests_running",))
    found = page(busy, replace(broken, instance="other"))
    for family in FAMILIES:
        assert f"\n{family.name}{{" in found, family.name


def test_a_load_is_shown_while_it_lasts(tmp_path: Path) -> None:
    values = shown(loading(tmp_path, progress(done=16, total=64)))
    assert values["load_progress_ratio"] == 0.25
    assert values["load_started_timestamp_seconds"] == 1000
    assert (values["ready"], values["engine_reachable"]) == (0, 0)
    assert {s for s in values if s.startswith("gate_verdict")} == {
        f'gate_verdict{{verdict="{kind.value}"}}' for kind in VerdictKind
    }
    assert not any(values[s] for s in values if s.startswith("gate_verdict"))
    assert 'probe_timestamp_seconds{source="gate"}' not in values
    assert 'vllm_version="0.32.0"' in next(s for s in values if s.startswith("profile_info"))
    assert values["load_duration_seconds"] == 2400


@pytest.mark.parametrize(
    "told", [None, progress(total=0), progress(invocation="of another start", done=9, total=9)]
)
def test_a_load_without_shards_yet_has_no_progress_but_a_beginning(
    told: Any, tmp_path: Path
) -> None:
    values = shown(loading(tmp_path, told))
    assert ONLY_LOADING & set(values) == {"load_started_timestamp_seconds"}


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.LOADING])
def test_a_gate_that_probes_means_ready_and_no_load(phase: Phase, tmp_path: Path) -> None:
    values = shown(loading(tmp_path, progress(phase)))
    assert values["ready"] == 1
    assert not ONLY_LOADING & set(values)


@pytest.mark.parametrize("state", ["failed", "inactive", "deactivating"])
def test_a_service_that_does_not_run_has_no_verdict(state: str, tmp_path: Path) -> None:
    scene = healthy(tmp_path)
    assert scene.units is not None
    service = replace(scene.units.service, active_state=state, result="start-limit-hit")
    values = shown(changed(scene, "units", service=service))
    assert values[f'unit_state{{state="{state}",unit="service"}}'] == 1
    assert (values["ready"], values["should_run"], values["start_limit_hit"]) == (0, 1, 1)
    assert values['gate_verdict{verdict="PASS"}'] == 0
    assert "gate_timestamp_seconds" not in values


@pytest.mark.parametrize(
    ("state", "wanted"),
    [("enabled", 1), ("enabled-runtime", 1), ("disabled", 0), ("masked", 0), ("masked-runtime", 0),
     ("", 1), ("static", 1), ("bad", 1)],
)  # fmt: skip
def test_one_that_an_operator_disabled_should_not_run(
    state: str, wanted: int, tmp_path: Path
) -> None:
    """One whose unit is gone or broken was not disabled, and being down it has to alert."""
    scene = healthy(tmp_path)
    assert scene.units is not None
    service = replace(scene.units.service, enabled=state)
    assert shown(changed(scene, "units", service=service))["should_run"] == wanted


def test_a_verdict_on_an_earlier_start_is_none_on_this(tmp_path: Path) -> None:
    old = (verdict(VerdictKind.FAIL, "b" * 32),)
    values = shown(changed(healthy(tmp_path), "history", verdicts=old))
    assert not any(values[s] for s in values if s.startswith("gate_verdict"))


def test_an_idle_engine_has_no_speed_of_a_stream(tmp_path: Path) -> None:
    idle = EngineView(reachable=True, live=Live(None, 0.0, stalled=False), missing=())
    values = shown(replace(healthy(tmp_path), engine=idle))
    assert "decode_tokens_per_second" not in values
    assert values["generation_tokens_per_second"] == 0


def test_a_server_that_breaks_the_contract(tmp_path: Path) -> None:
    lacks = EngineView(reachable=True, missing=("vllm:a", "vllm:b"))
    values = shown(replace(healthy(tmp_path), engine=lacks))
    assert values["metric_contract_missing"] == 2
    assert values['metric_contract_broken{metric="vllm:a"}'] == 1
    assert "engine_stalled" not in values


def test_a_profile_without_a_target_has_no_floor(tmp_path: Path) -> None:
    values = shown(
        changed(healthy(tmp_path), "files", profile=replace(PROFILE, gate=GateSettings()))
    )
    assert not [name for name in values if name.startswith(("gate_floor", "gate_goal"))]


def test_a_canary_is_shown_where_there_is_one(tmp_path: Path) -> None:
    scene = healthy(tmp_path)
    scene = changed(scene, "files", profile=replace(PROFILE, canary=CanarySettings(every=600.0)))
    scene = changed(scene, "units", canary=unit("kimisvc-kimi-canary.service", "inactive"))
    run = CanaryRow(5000.0, RUNS, 7, "ll_ring", CanaryResult.MEASURED, 79.0, None, None, 0.2)
    scene = changed(scene, "history", canary=run, canary_runs={"measured": 4, "skipped_busy": 2})
    values = shown(scene)
    assert values['canary_runs_total{result="measured"}'] == 4
    assert values['canary_runs_total{result="failed"}'] == 0
    assert values['canary_runs_total{result="skipped_unknown"}'] == 0
    assert values['probe_decode_tokens_per_second{source="canary"}'] == 79
    assert values['probe_decode_tokens_per_second{source="gate"}'] == 81.9
    assert values['unit_state{state="inactive",unit="canary"}'] == 1
    assert 'probe_decode_tokens_per_second_low{source="canary"}' not in values
    values = shown(changed(scene, "history", canary=replace(run, invocation="b" * 32)))
    assert 'probe_decode_tokens_per_second{source="canary"}' not in values


def test_the_verdict_on_the_generation_before_is_not_shown_for_this_one(tmp_path: Path) -> None:
    """A change of the gate alone keeps the start."""
    scene = healthy(tmp_path)
    assert scene.files is not None
    assert scene.files.current is not None
    assert shown(scene)['gate_verdict{verdict="PASS"}'] == 1
    later = replace(scene.files.current, number=8)
    assert shown(changed(scene, "files", current=later))['gate_verdict{verdict="PASS"}'] == 0
    rests = changed(scene, "files", current=later, accepted=8)
    assert shown(rests)['gate_verdict{verdict="PASS"}'] == 1


def test_when_the_next_canary_is_due(tmp_path: Path) -> None:
    scene = healthy(tmp_path)
    assert "canary_due_timestamp_seconds" not in shown(scene)
    scene = changed(scene, "files", profile=replace(PROFILE, canary=CanarySettings(every=600.0)))
    assert shown(scene)["canary_due_timestamp_seconds"] == 1000 + 1230  # the service's start
    scene = changed(scene, "history", canary_at=5000.0)
    assert shown(scene)["canary_due_timestamp_seconds"] == 5000 + 630
    timer = unit("kimisvc-kimi-canary.timer", started_at=6000.0)
    assert (
        shown(changed(scene, "units", canary_timer=timer))["canary_due_timestamp_seconds"] == 7230
    )
    stopped = replace(timer, active_state="inactive")
    assert (
        shown(changed(scene, "units", canary_timer=stopped))["canary_due_timestamp_seconds"] == 5630
    )
    scene = changed(scene, "units", service=unit("kimisvc-kimi.service", "inactive"))
    assert "canary_due_timestamp_seconds" not in shown(scene)


OWNERS = {
    "units": {"unit_state", "unit_restarts_total", "start_limit_hit", "should_run", "ready",
              "gate_verdict", "probe_ttft_seconds", "unit_drift"},
    "files": {"profile_info", "generation", "accepted_generation", "load_timeout_seconds", "start_limit",
              "load_expected_seconds", "gate_floor_tokens_per_second", "should_run", "unit_drift"},
    "history": {"starts_total", "applies_total", "rollbacks_total", "gate_verdict", "ready",
                "load_duration_seconds", "load_expected_seconds"},
    "engine": {"decode_tokens_per_second", "generation_tokens_per_second", "engine_stalled",
               "metric_contract_missing"},
}  # fmt: skip


@pytest.mark.parametrize("view", OWNERS)
def test_of_a_source_that_is_too_old_nothing_is_shown(view: str, tmp_path: Path) -> None:
    unknown: dict[str, Any] = {view: None}
    values = shown(replace(healthy(tmp_path), **unknown))
    names = {series.partition("{")[0] for series in values}
    assert not OWNERS[view] & names
    assert values["up"] == (view == "engine")
    assert ("engine_reachable" in names) == (view != "files")
    assert {s for s in names if "source_age" in s or "errors" in s} == {
        "source_age_seconds", "scrape_errors_total",
    }  # fmt: skip


def test_an_engine_of_which_nothing_is_known_is_not_reachable(tmp_path: Path) -> None:
    assert shown(replace(healthy(tmp_path), engine=None))["engine_reachable"] == 0


def test_an_instance_of_which_nothing_is_known_is_down(tmp_path: Path) -> None:
    del tmp_path
    values = shown(Scene("kimi", ages={Source.SYSTEMD: 60.0}, errors={Source.SYSTEMD: 9}))
    assert values == {
        "up": 0, 'exporter_info{version="1.2.3"}': 1,
        'source_age_seconds{source="systemd"}': 60, 'scrape_errors_total{source="systemd"}': 9,
    }  # fmt: skip


def test_it_is_open_metrics_too(tmp_path: Path) -> None:
    scenes = (healthy(tmp_path), replace(loading(tmp_path, progress()), instance="other"))
    text = exposition.generate_latest(  # type: ignore[no-untyped-call]  # the library's
        registry(lambda: scenes, "1")
    ).decode()
    assert text.endswith("# EOF\n")
    read = parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # the library's
    families = {family.name: family for family in read}
    for family in FAMILIES:
        found = families.get(family.name.removesuffix("_total"))
        assert found is None or found.type == family.kind.value
        assert found is None or found.documentation == family.help
    assert len(families) > 30


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    broken = changed(healthy(tmp_path), "engine", missing=("vllm:a",))
    text = page(broken, replace(loading(tmp_path, progress(total=1)), instance="other"))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_names_and_help_are_as_prometheus_asks() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert family.help.endswith(".")
        assert "instance" not in family.labels
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_a_name_from_outside_cannot_break_the_page(tmp_path: Path) -> None:
    scene = healthy(tmp_path)
    assert scene.files is not None
    assert scene.files.current is not None
    evil = replace(scene.files.current, profile='a"b\\c\nd')
    assert 'profile="a\\"b\\\\c\\nd"' in page(changed(scene, "files", current=evil))


def test_the_start_that_runs_tells_the_version(tmp_path: Path) -> None:
    scene = changed(healthy(tmp_path), "history", starts=(start(vllm_version=None),))
    assert 'vllm_version="0.32.0"' in page(scene)
