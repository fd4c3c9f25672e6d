"""From a fault to the person it wakes: exporter, Prometheus, rules, Alertmanager, all of them real.

One instance a trouble, all at once; the rules are the shipped ones with shorter
waits. What fires is held exactly: no alert but those that a trouble has to raise.
One instance is the real vLLM, which has three troubles in turn (turns.py) beside
those of the stand-ins.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from monitoring import Monitoring, until
from stage import EXECUTABLE, Stage
from turns import REAL, TOKENS, TURNS, take_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from conftest import Box

pytestmark = pytest.mark.system

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "kimisvc.json"
CALLER = """
import json, sys, urllib.request
body = {"model": "kimi", "prompt": "x", "max_tokens": int(sys.argv[2]), "stream": True,
        "ignore_eos": True, "stream_options": {"include_usage": True}}
while True:
    request = urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        for line in urllib.request.urlopen(request):
            pass
    except OSError:
        pass
"""
SLOW, LAME = "/etc/kimisvc/slow.json", "/etc/kimisvc/lame.json"
"""Scripts of one instance each, that can be changed."""
OWN = "/opt/standin/bin/vllm-down"
"""An executable of one instance's own, that can be taken away."""


CANARY = {"every": "10s", "max_tokens": 2}
"""So few tokens that the rules over everybody's requests have nothing to say (under 200)."""
TIMER = "${UNIT%.service}-canary.timer"


def main(signal: str) -> str:
    return f"systemctl kill --kill-whom=main --signal={signal} $UNIT"


def speed(script: str, tokens: int) -> str:
    return f"echo '{{\"decode_tok_s\": {tokens}}}' > {script}; {main('HUP')}"


@dataclass(frozen=True)
class Trouble:
    """What an operator should be told: a cause, the alerts it has to raise, what ends them."""

    instance: str
    alerts: frozenset[str]
    cause: str
    cure: str = ""
    script: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: int = 0
    """Tokens of the requests that somebody makes one after the other; 0: nobody."""
    keeps: frozenset[str] = frozenset()
    """Alerts over the last hour or more, which outlast the cure."""


def _alerts(*names: str) -> frozenset[str]:
    return frozenset(f"Kimisvc{name}" for name in names)


RESTART = "systemctl reset-failed $UNIT; systemctl restart $UNIT"
TROUBLES = (
    Trouble("well", _alerts(), "true", calls=64),
    Trouble("still", _alerts(), "true"),
    Trouble(
        "down", _alerts("ServiceDown"), f"mv {OWN} {OWN}.away; {main('KILL')}",
        f"mv {OWN}.away {OWN}; {RESTART}", sections={"vllm": {"executable": OWN}},
        keeps=_alerts("RestartLoop"),  # systemd tried until it gave up
    ),
    Trouble("hung", _alerts("VllmTargetDown"), main("STOP"), main("CONT")),
    Trouble("stalled", _alerts("EngineStalled"), main("USR2"), RESTART, calls=64),
    Trouble(
        "slow", _alerts("DecodeUnderFloor"), speed(SLOW, 20), speed(SLOW, 400),
        script={"script": SLOW}, calls=40,
    ),
    Trouble(  # slow, and nobody uses it
        # Its gate asks for few tokens, too, but slow ones, so that a busy machine leaves no doubt.
        "lame", _alerts("CanarySlow"), speed(LAME, 10), speed(LAME, 100), script={"script": LAME},
        sections={"canary": CANARY, "probe": {"max_tokens": 24}, "gate": {"decode_tok_s": ">25~30"}},
    ),
    Trouble(  # stalled, and nobody uses it
        "wedged", _alerts("CanaryFailed"), main("USR2"), RESTART, sections={"canary": CANARY},
    ),
    Trouble(
        "unwatched", _alerts("CanarySilent", "UnitDrift"), f"systemctl stop {TIMER}",
        f"systemctl start {TIMER}", sections={"canary": CANARY},
    ),
    Trouble(
        "edited", _alerts("UnitDrift"), "sed -i.away 's/^Nice=.*//; $ a # edited' $FILE",
        "mv $FILE.away $FILE",
    ),
    Trouble(
        "mute", _alerts("MetricContractBroken", "GateInconclusive"), "true",
        "systemctl disable --now $UNIT", script={"log_stats": False, "fault": "no_usage"},
    ),
    Trouble(
        "wrong", _alerts("GateFailed"), "true", "systemctl disable --now $UNIT",
        script={"default_answer": "Atlantis."}, sections={"service": {"on_fail": "keep"}},
    ),
)  # fmt: skip
OF_A_GATE = _alerts("GateFailed", "GateInconclusive")
ENDING = {(alert, t.instance) for t in TROUBLES for alert in t.alerts}
KEPT = {(alert, t.instance) for t in TROUBLES for alert in t.keeps} | {
    ("KimisvcRolledBack", "story")
}


@dataclass(frozen=True)
class Chain:
    """All of it at work, the instances, and since when there are some."""

    monitoring: Monitoring
    stages: Mapping[str, Stage]
    began: list[float] = field(default_factory=list)
    turns: list[Future[None]] = field(default_factory=list)
    """What the real vLLM goes through beside; none where its test is not run."""
    scraped: list[str] = field(default_factory=list)
    """Whose vLLM Prometheus scrapes: one that it does not is an alert, which waits a few seconds."""

    @property
    def seconds(self) -> int:
        """How long there have been instances."""
        return round(time.time() - self.began[0])

    def alerts(self) -> set[tuple[str, str]]:
        """Return alert and instance of what fires, but for the real vLLM, which is a test of its own."""
        return {one for one in self.monitoring.alerts() if one[1] != REAL}

    def sh(self, commands: Mapping[str, str]) -> None:
        """Run a command for each instance, all at once."""
        lines = []
        for instance, command in commands.items():
            unit, port = self.stages[instance].service, self.stages[instance].port
            known = f"UNIT={unit}; FILE=/etc/systemd/system/{unit}; PORT={port}"
            lines.append(f"({known}; {command}) &")
        self.monitoring.box.run("bash", "-c", "\n".join([*lines, "wait"]), timeout=120)

    def targets(self, *instances: str) -> None:
        """Have Prometheus scrape the vLLM of these instances; one that is none is an alert."""
        self.monitoring.targets({name: self.stages[name].port for name in instances})

    def told(self) -> set[tuple[str, str, str]]:
        """Return status, alert and instance of all that a person got."""
        return {
            (alert["status"], alert["labels"]["alertname"], alert["labels"]["instance"])
            for _, alert in self.monitoring.inbox()
        }

    def call(self, instance: str, tokens: int) -> None:
        """Have somebody ask an instance for so many tokens, again and again."""
        url = f"http://127.0.0.1:{self.stages[instance].port}"
        self.monitoring.box.run(
            "systemd-run", f"--unit=caller-{instance}", "python3", "-c", CALLER, url, str(tokens)
        )

    def _scraped(self, known: Callable[[str], set[str]]) -> set[str]:
        """Have the vLLM scraped of each instance as soon as it is known, and return those."""
        found = known("kimisvc_ready") & {*self.stages}
        if found - {*self.scraped}:
            self.scraped[:] = sorted(found)
            self.targets(*found)
        return found

    def make_trouble(self) -> None:
        """Apply all, wait until each is judged and its callers are served, then cause the trouble.

        What its own gate finds out fires as soon as that is seen, and for good: it is applied
        when the others have been found and nothing was wrong.
        """
        paths = {
            t.instance: self.stages[t.instance].profile("p", t.script, **t.sections)
            for t in TROUBLES
        }
        found_out = {t.instance for t in TROUBLES if t.alerts & OF_A_GATE}
        others = {*self.stages} - {"story", *found_out}

        def known(expr: str) -> set[str]:
            return {labels["instance"] for labels, _ in self.monitoring.query(expr)}

        def apply(instances: set[str]) -> None:
            chosen = sorted(instances & {*paths})
            self.sh({one: f"kimisvc apply {paths[one]} --no-follow" for one in chosen})

        apply(others)
        until(partial(self._scraped, known), lambda found: found >= others, "known")
        # An exporter that finds no instance is an alert of its own, and ends here.
        until(self.alerts, lambda now: not now, "nothing is wrong yet")
        self.began.append(time.time())
        apply(found_out)
        until(partial(self._scraped, known), lambda found: found >= others | found_out, "all known")
        until(
            lambda: known("max by (instance) (kimisvc_gate_verdict) == 1"),
            lambda judged: judged >= {*paths}, "all are judged",
        )  # fmt: skip
        for trouble in TROUBLES:
            if trouble.calls:
                self.call(trouble.instance, trouble.calls)
        until(
            lambda: known("vllm:num_requests_running == 1"),
            lambda busy: busy >= {t.instance for t in TROUBLES if t.calls}, "callers are served",
        )  # fmt: skip
        self.sh({t.instance: t.cause for t in TROUBLES})


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
    box.write(SLOW, '{"decode_tok_s": 200}')
    box.write(LAME, '{"decode_tok_s": 100}')
    box.run("cp", EXECUTABLE, OWN)
    monitoring = Monitoring(box)
    made = Chain(monitoring, {name: Stage(box, name) for name in names})
    with ThreadPoolExecutor(1) as beside:
        try:
            if with_real:
                made.turns.append(beside.submit(_turns, made))
            monitoring.install()
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
    chain.targets(*chain.stages)
    wrong = {**script, "default_answer": "Atlantis."}
    assert stage.apply(stage.profile("bad", wrong, canary=canary))[0] == 4
    chain.call("story", 64)
    speed = 'count_over_time(kimisvc_decode_tokens_per_second{instance="story"}[1m]) > 3'
    served = (
        'increase(vllm:request_success_total{instance="story",finished_reason="length"}[1m]) > 5'
    )
    until(lambda: monitoring.query(f"{speed} and on (instance) ({served})"), bool, "served")
    end = time.time()
    shown = {(t, expr): monitoring.points(expr, chain.began[0], end) for t, expr in queries()}
    # dcgm-exporter needs an NVIDIA GPU: its queries are read by Prometheus, and that is all.
    silent = {one for one, points in shown.items() if not points}
    assert silent == {one for one in shown if "DCGM_" in one[1]}


def test_each_trouble_raises_its_alerts_and_no_other(chain: Chain) -> None:
    monitoring = chain.monitoring
    expected = ENDING | KEPT
    # A canary that failed is told two minutes after the last answer to a probe.
    until(chain.alerts, lambda now: now >= expected, "each trouble is told", timeout=180)
    assert chain.alerts() == expected
    chain.sh({t.instance: t.cure for t in TROUBLES if t.cure})
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
    chain.sh({REAL: "systemctl disable --now $UNIT"})  # it loads, which is of no use to anybody


def test_a_person_was_told_of_each_and_of_its_end(chain: Chain) -> None:
    wanted = {("firing", *one) for one in ENDING | KEPT} | {("resolved", *one) for one in ENDING}
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
    expected = {("KimisvcExporterDown", "127.0.0.1:9464")}
    until(chain.alerts, lambda now: now >= expected, "told")
    box.run("systemctl", "start", "kimisvc-exporter.service")
    until(chain.alerts, lambda now: now == KEPT, "all is well again")


def queries() -> list[tuple[str, str]]:
    """Return title and expression of each query, as Grafana sends it for the instance `story`."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    found += [(a["name"], a["expr"]) for a in dashboard["annotations"]["list"] if "expr" in a]
    return [
        (
            title,
            expr.replace("$instance", "story")
            .replace("$host", ".*")
            .replace("$__rate_interval", "1m"),
        )
        for title, expr in found
    ]
