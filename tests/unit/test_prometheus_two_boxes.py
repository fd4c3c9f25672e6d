"""Two boxes with an instance of one name each, told apart by `host`: rules, and the dashboard's queries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from dashboard import EXPRESSIONS, sent
from prometheus_play import ALERTS, needs_promtool, play
from prometheus_scenarios import NO_EXPORTER, SCENES, STOPPED
from prometheus_scenes import EXPORTER_UP, GONE, HEALTHY, MISSING, Scene, always, kimi, unit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST = 'host="box",'
GATED_AT = kimi("kimisvc_gate_timestamp_seconds")
DOWN = {**STOPPED, **unit("service", "failed"), GATED_AT: GONE}
SILENT = {**NO_EXPORTER, EXPORTER_UP: always(0), GATED_AT: GONE}
Samples = tuple[tuple[str, float], ...]
WELL: Mapping[str, Samples] = {
    "Verdict": (('{verdict="PASS"}', 1),),
    "Service": (('{state="active"}', 1),),
    "Ready": (("{}", 1),),
    "Alerts": (("{}", 0),),
    "Requests": (("{}", 1),),
}


def boxes(scene: Scene, **hosts: Mapping[str, str]) -> Scene:
    """Given a scene's healthy box and what is changed on each host, return all of them as one scene."""
    series = dict.fromkeys(HEALTHY, GONE)
    for host, changes in hosts.items():
        box = {**HEALTHY, **scene.changes, **changes}
        series |= {name.replace(HOST, f'host="{host}",'): value for name, value in box.items()}
    return Scene(scene.name, series)


def check(title: str, host: str, expected: Samples) -> dict[str, Any]:
    """Return a check of the first query of a panel or annotation, as Grafana sends it for a host."""
    expr = sent(EXPRESSIONS[title][0], "kimi", host, "2m")
    samples = [{"labels": labels, "value": value} for labels, value in expected]
    return {"expr": expr, "eval_time": "30m", "exp_samples": samples}


@needs_promtool
@pytest.mark.parametrize("name", ALERTS)
def test_what_is_wrong_on_one_box_alerts_for_that_one_alone(name: str, tmp_path: Path) -> None:
    scene, minute, names = next(
        (scene, minute, names)
        for scene in SCENES
        for minute, names in scene.fires
        if name in names and scene.changes.get(EXPORTER_UP) != GONE
    )
    expected = [{"labels": f'{{alertname="{one}",host="b"}}', "value": 1} for one in sorted(names)]
    look = {
        "expr": 'count by (alertname, host) (ALERTS{alertstate="firing"} > 0)',
        "eval_time": f"{minute * 60:g}s",
        "exp_samples": expected,
    }
    both = boxes(Scene(scene.name), a={}, b=scene.changes)
    done = play(tmp_path, both, promql_expr_test=[look])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_words_about_one_box_name_no_series_of_the_other(tmp_path: Path) -> None:
    broken = {
        MISSING: always(1),
        kimi("kimisvc_metric_contract_broken", metric="vllm:of_this"): always(1),
    }
    elsewhere = {kimi("kimisvc_metric_contract_broken", metric="vllm:of_that"): always(1)}
    expected = {"eval_time": "30m", "alertname": "KimisvcMetricContractBroken", "exp_alerts": []}
    both = boxes(Scene("one lacks a series"), a=elsewhere, b=broken)
    done = play(tmp_path, both, alert_rule_test=[expected])
    assert "vllm:of_this" in done.stdout + done.stderr
    assert "vllm:of_that" not in done.stdout + done.stderr


@needs_promtool
def test_the_dashboard_shows_one_box_of_two(tmp_path: Path) -> None:
    here = {GATED_AT: always(100)}
    both = boxes(Scene("the service of one is down"), a=here, b={**here, **DOWN})
    units = '{{host="{}",unit="{}"}}'
    shown = [check(title, "a", samples) for title, samples in WELL.items()] + [
        check("Verdicts", "a", (('{verdict="PASS"}', 100_000),)),
        check("State of the units", "a", ((units.format("a", "gate"), 0), (units.format("a", "service"), 2))),
        check("Verdict", "b", ()),
        check("Service", "b", (('{state="failed"}', 1),)),
        check("Ready", "b", (("{}", 0),)),
        check("Alerts", "b", (("{}", 1),)),
        check("Requests", "b", ()),
        check("Verdicts", "b", ()),
        check("State of the units", "b", ((units.format("b", "gate"), 0), (units.format("b", "service"), 5))),
    ]  # fmt: skip
    done = play(tmp_path, both, promql_expr_test=shown)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_an_exporter_that_is_gone_counts_among_the_alerts_of_its_box(tmp_path: Path) -> None:
    both = boxes(Scene("one exporter is down"), a={}, b=SILENT)
    counts = [check("Alerts", "a", (("{}", 0),)), check("Alerts", "b", (("{}", 1),))]
    done = play(tmp_path, both, promql_expr_test=counts)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_an_exporter_that_knows_nothing_of_another_instance_is_no_alert_of_this(
    tmp_path: Path,
) -> None:
    other = {kimi("kimisvc_up").replace('instance="kimi"', 'instance="other"'): always(0)}
    both = boxes(Scene("one instance of two cannot be read"), a=other, b={})
    done = play(tmp_path, both, promql_expr_test=[check("Alerts", "a", (("{}", 0),))])
    assert done.returncode == 0, done.stdout + done.stderr
    there = boxes(Scene("this one cannot be read"), a={kimi("kimisvc_up"): always(0)}, b={})
    done = play(tmp_path, there, promql_expr_test=[check("Alerts", "a", (("{}", 1),))])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_all_hosts_at_once_are_no_error(tmp_path: Path) -> None:
    both = boxes(Scene("both are well"), a={GATED_AT: always(100)}, b={GATED_AT: always(200)})
    shown = [
        check("Verdict", ".*", WELL["Verdict"]),
        check("Alerts", ".*", WELL["Alerts"]),
        check("Verdicts", ".*", (('{verdict="PASS"}', 200_000),)),
    ]
    done = play(tmp_path, both, promql_expr_test=shown)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_box_without_a_host_is_shown_as_well(tmp_path: Path) -> None:
    alone = dict.fromkeys(HEALTHY, GONE)
    alone |= {name.replace(HOST, ""): value for name, value in HEALTHY.items()}
    alone[GATED_AT.replace(HOST, "")] = always(100)
    shown = [check(title, ".*", samples) for title, samples in WELL.items()]
    shown.append(check("Verdicts", ".*", (('{verdict="PASS"}', 100_000),)))
    done = play(tmp_path, Scene("no host", alone), promql_expr_test=shown)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_selector_of_the_dashboard_is_for_the_host() -> None:
    for title, expressions in EXPRESSIONS.items():
        for expr in expressions:
            bare = re.findall(r"\b(?:kimisvc_\w+|vllm:\w+|DCGM_\w+|ALERTS)\b(?!\{)", expr)
            assert bare == [], title
            selectors = re.findall(r"\{([^{}]*)\}", expr)
            assert selectors, title
            for one in selectors:
                assert re.search(r'(^|,)host=~"\$host\|?"(,|$)', one), f"{title}: {one}"
