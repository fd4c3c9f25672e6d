"""All of the chain at work: instances, exporter, Prometheus, Alertmanager, and the troubles."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from monitoring import until
from troubles import BLIND, GROUNDED, OF_A_GATE, TROUBLES, UNSCRAPED
from turns import REAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from monitoring import Monitoring
    from stage import Stage

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

    def silent(self, queries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Given titles and expressions, return those that never had a number since there are instances."""
        end = time.time()
        return [
            (title, expr)
            for title, expr in queries
            if not self.monitoring.points(expr, self.began[0], end)
        ]

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
        found = known("kimisvc_up") & {*self.stages}
        if found - {*self.scraped}:
            self.scraped[:] = sorted(found)
            self.targets(*found)
        return found

    def is_blind(self) -> None:
        """Wait until it is told that the exporter finds no instance: nothing was ever applied."""
        until(self.alerts, lambda now: now == {BLIND}, "that there is no instance is told")

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
        until(
            self.alerts, lambda now: not now, "the exporter is not blind, and nothing else is wrong"
        )
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
        self.targets(*(others | found_out) - {UNSCRAPED})
        # Until a canary has flown, systemd counts its time anew at each daemon-reload, and others apply.
        flying = {t.instance for t in TROUBLES if "canary" in t.sections and t.cause != GROUNDED}
        until(
            lambda: known("sum by (instance) (kimisvc_canary_runs_total) > 0"),
            lambda flown: flown >= flying, "canaries have flown",
        )  # fmt: skip
