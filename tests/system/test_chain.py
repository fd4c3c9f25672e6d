"""From a fault to the person it wakes: exporter, Prometheus, rules, Alertmanager, all of them real.

One instance a trouble, all at once; the rules are the shipped ones with shorter
waits. What fires is held exactly: no alert but those that a trouble has to raise.
One instance is the real vLLM, which has three troubles in turn (turns.py) beside
those of the stand-ins (troubles.py).
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from chain import Chain
from dashboard import ROWS, queries
from monitoring import DCGM, Monitoring, until
from prometheus_play import ALERTS
from stage import EXECUTABLE, Stage
from troubles import BLIND, ENDING, GONE, KEPT, OWN, SCRIPTS, TROUBLES, UNSCRAPED
from turns import REAL, TOKENS, TURNS, take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Box

pytestmark = pytest.mark.system

ENGINE_ROW = {panel["title"] for panel in ROWS["Engine, by vLLM itself"]}


@pytest.fixture(scope="module")
def chain(staged: Box, request: pytest.FixtureRequest) -> Iterator[Chain]:
    """Prometheus, which sees all from the first moment on, and the troubles, just begun."""
    box = staged
    with_real = any(
        item.get_closest_marker("vllm") and not item.get_closest_marker("skip")
        for item in request.session.items
        if item.path == request.path
    )
    names = [*(t.instance for t in TROUBLES), "story", *([REAL] if with_real else ())]
    for path, script in SCRIPTS.items():
        box.write(path, json.dumps(script))
    box.run("cp", EXECUTABLE, OWN)
    for name in box.run("ls", "/var/lib/kimisvc", check=False).stdout.split():
        Stage(box, name).leave()  # of a test before: the exporter is to find none
    monitoring = Monitoring(box)
    made = Chain(monitoring, {name: Stage(box, name) for name in names})
    with ThreadPoolExecutor(1) as beside:
        try:
            monitoring.install()
            made.is_blind()
            if with_real:
                made.turns.append(beside.submit(_turns, made))
            made.make_trouble()
            yield made
        finally:
            box.run("systemctl", "stop", "caller-*", "quota", check=False)
            made.sh(
                dict.fromkeys(names, "systemctl disable --now $UNIT; systemctl reset-failed $UNIT")
            )
            monitoring.uninstall()


def _turns(chain: Chain) -> None:
    take_turns(
        chain.monitoring, chain.stages[REAL],
        lambda command: chain.sh({REAL: command}), lambda: chain.call(REAL, TOKENS),
    )  # fmt: skip


def test_each_panel_of_the_dashboard_shows_a_run(chain: Chain) -> None:
    """A story with all that panels show: two loads, traffic, a rollback."""
    stage, monitoring = chain.stages["story"], chain.monitoring
    script = {"load_seconds": 6.0, "shards": 4}
    canary = {"every": "1h"}
    assert stage.apply(stage.profile("good", script, canary=canary))[0] == 0
    until(lambda: monitoring.query('kimisvc_probe_ttft_seconds{instance="story"}'), bool, "seen")
    chain.targets(*{*chain.stages} - {UNSCRAPED})
    wrong = {**script, "default_answer": "Atlantis."}
    assert stage.apply(stage.profile("bad", wrong, canary=canary))[0] == 4
    chain.call("story", 64)
    speed = 'count_over_time(kimisvc_decode_tokens_per_second{instance="story"}[1m]) > 3'
    served = (
        'increase(vllm:request_success_total{instance="story",finished_reason="length"}[1m]) > 5'
    )
    until(lambda: monitoring.query(f"{speed} and on (instance) ({served})"), bool, "served")
    assert chain.silent(queries("story")) == []


def test_each_panel_of_gpus_shows_them_by_old_names_and_new(chain: Chain) -> None:
    """Two dcgm-exporters speak of GPUs that are in the same state; their pages are written, not captured."""
    of_gpus = [(title, expr) for title, expr in queries("story") if "DCGM_" in expr]
    assert len(of_gpus) == 6
    for title, expr in of_gpus:
        shown = chain.monitoring.query(expr)
        assert {labels["instance"] for labels, _ in shown} == {*DCGM}, title
        assert len({value for _, value in shown}) == 1, f"{title}: {shown}"


def test_each_trouble_raises_its_alerts_and_no_other(chain: Chain) -> None:
    monitoring = chain.monitoring
    expected = ENDING | KEPT
    # A canary that failed is told two minutes after the last answer to a probe.
    until(chain.alerts, lambda now: now >= expected, "each trouble is told", timeout=180)
    assert chain.alerts() == expected
    chain.sh({t.instance: t.cure for t in TROUBLES if t.cure})
    chain.targets(*chain.stages)
    until(chain.alerts, lambda now: now == KEPT, "all is well again")
    assert {one for one in monitoring.ever(chain.seconds) if one[1] != REAL} == expected


@pytest.mark.vllm
def test_the_real_one_hangs_is_slow_and_dies(chain: Chain) -> None:
    """Each raises its own alert, which a person is told of, and of its end; and no other."""
    chain.turns[0].result(timeout=300)
    expected = {turn.alert for turn in TURNS}
    ever = chain.monitoring.ever(chain.seconds)
    assert {alert for alert, instance in ever if instance == REAL} == expected
    wanted = {(status, alert, REAL) for alert in expected for status in ("firing", "resolved")}
    until(chain.told, lambda seen: seen >= wanted, "told")
    of_vllm = [one for one in queries(REAL) if one[0] in ENGINE_ROW or "vllm:" in one[1]]
    assert {title for title, _ in of_vllm} > ENGINE_ROW
    assert chain.silent(of_vllm) == []
    chain.sh({REAL: "systemctl disable --now $UNIT"})  # it loads, which is of no use to anybody


def test_a_person_was_told_of_each_and_of_its_end(chain: Chain) -> None:
    ending = ENDING | {BLIND}
    wanted = {("firing", *one) for one in ending | KEPT} | {("resolved", *one) for one in ending}
    until(chain.told, lambda seen: seen >= wanted, "told")
    for path, alert in chain.monitoring.inbox():
        assert path == f"/{alert['labels']['severity']}"
        words = alert["annotations"]
        assert set(words) == {"summary", "description", "action", "runbook"}
        assert "no value" not in str(words), words
        assert "error" not in words["description"], words
        assert alert["labels"]["instance"] in words["summary"]


def test_an_exporter_that_is_gone_is_told(chain: Chain) -> None:
    box = chain.monitoring.box
    box.run("systemctl", "stop", "kimisvc-exporter.service")
    until(chain.alerts, lambda now: GONE in now, "told")
    box.run("systemctl", "start", "kimisvc-exporter.service")
    until(chain.alerts, lambda now: now == KEPT, "all is well again")


def test_no_alert_is_left_out() -> None:
    assert {alert for alert, _ in ENDING | KEPT | {BLIND, GONE}} == {*ALERTS}
