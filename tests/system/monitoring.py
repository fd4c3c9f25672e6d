"""Debian's Prometheus and Alertmanager in the sandbox, with the files that ship, only quicker."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import yaml
from dcgm_page import Names, page
from stage import POLL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stage import Sandbox

SHIPPED = Path(__file__).parents[2] / "packaging" / "prometheus"
PROMETHEUS, ALERTMANAGER = "http://127.0.0.1:9090", "http://127.0.0.1:9093"
FASTER = 30
"""What alerts wait is divided by this; expressions are the shipped ones."""
PATIENCE = 6
"""They wait so long at least (s): a busy machine takes its time between two facts of one event."""
SECONDS = {"s": 1, "m": 60, "h": 3600}
INBOX = "/run/alerts.jsonl"
RECEIVER = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open({INBOX!r}, "ab") as inbox:
            inbox.write(self.path.encode() + b" " + body.replace(b"\\n", b" ") + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 9095), Handler).serve_forever()
"""
DCGM = {"127.0.0.1:9400": Names.BEFORE_4_9, "127.0.0.1:9401": Names.SINCE_4_9}
"""Where pages of dcgm-exporter are served: the first is the target of the shipped example."""
GPUS = f"""
import http.server, threading
PAGES = { {int(where.rpartition(":")[2]): page(names) for where, names in DCGM.items()}!r}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = PAGES[self.server.server_port].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
for port in PAGES:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""
SERVICES = {"receiver": RECEIVER, "gpus": GPUS}
TARGETS = "/etc/prometheus/vllm.json"


def shipped_config() -> dict[str, Any]:
    """Return the shipped example."""
    config: dict[str, Any] = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    return config


HOST = next(
    job["static_configs"][0]["labels"]["host"]
    for job in shipped_config()["scrape_configs"]
    if job["job_name"] == "vllm"
)


@dataclass(frozen=True)
class Monitoring:
    """Prometheus and Alertmanager at work, and what a person is told."""

    box: Sandbox

    def install(self) -> None:
        """Start them and the exporter; no vLLM is scraped yet."""
        box = self.box
        box.run("kimisvc", "exporter", "--install", "--interval", "1")
        box.write("/etc/prometheus/kimisvc.rules.yml", json.dumps(quick_rules()))
        box.write("/etc/prometheus/prometheus.yml", json.dumps(quick_config()))
        self.targets({})
        box.write("/etc/prometheus/alertmanager.yml", json.dumps(quick_manager()))
        # Without it Alertmanager looks for an address to gossip at, and a sandbox has none.
        box.write("/etc/default/prometheus-alertmanager", "ARGS=--cluster.listen-address=\n")
        box.run("touch", INBOX)
        for name, program in SERVICES.items():
            box.write(f"/opt/{name}.py", program)
            box.run("systemd-run", f"--unit={name}", "--", "python3", f"/opt/{name}.py")
        box.run("systemctl", "start", "prometheus.service", "prometheus-alertmanager.service")
        until(lambda: self.query('up{job="kimisvc"} == 1'), bool, "Prometheus scrapes")
        until(lambda: self._get(f"{ALERTMANAGER}/api/v2/status"), bool, "Alertmanager answers")

    def targets(self, ports: Mapping[str, int]) -> None:
        """Have Prometheus scrape these instances of vLLM from now on.

        By a file that it watches: where its configuration is loaded anew, it knows no Alertmanager
        for up to 5 s, and tells what it did not get rid of in them a minute later.
        """
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"host": HOST, "instance": name}}
            for name, port in ports.items()
        ]
        self.box.write(f"{TARGETS}.new", json.dumps(targets))
        self.box.run("mv", f"{TARGETS}.new", TARGETS)

    def uninstall(self) -> None:
        """Stop all of them."""
        units = ("prometheus.service", "prometheus-alertmanager.service", *SERVICES)
        self.box.run("systemctl", "stop", *units, check=False)
        self.box.run("kimisvc", "exporter", "--uninstall", check=False)

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an expression has now."""
        answer = self._get(f"{PROMETHEUS}/api/v1/query", query=expr)
        if not answer:
            return []
        return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]

    def points(self, expr: str, start: float, end: float) -> int:
        """Return how many numbers an expression has between two moments, looked at each second."""
        answer = self._get(
            f"{PROMETHEUS}/api/v1/query_range", query=expr, start=start, end=end, step=1
        )
        assert answer["status"] == "success", f"{expr}: {answer}"
        values = [value for row in answer["data"]["result"] for _, value in row["values"]]
        return len(values) - values.count("NaN")  # a quantile of nothing

    def alerts(self) -> set[tuple[str, str]]:
        """Return alert and instance of what Alertmanager holds as firing now."""
        rows = self._get(f"{ALERTMANAGER}/api/v2/alerts") or []
        return {(r["labels"]["alertname"], r["labels"].get("instance", "")) for r in rows}

    def ever(self, seconds: int) -> set[tuple[str, str]]:
        """Return alert and instance of all that fired within so many seconds."""
        rows = self.query(f'last_over_time(ALERTS{{alertstate="firing"}}[{seconds}s])')
        return {(labels["alertname"], labels.get("instance", "")) for labels, _ in rows}

    def inbox(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what receivers got: the path it came by, and the alert."""
        found = []
        for line in self.box.read(INBOX).splitlines():
            path, _, body = line.partition(" ")
            found += [(path, alert) for alert in json.loads(body)["alerts"]]
        return found

    def _get(self, url: str, **asked: Any) -> Any:
        url = f"{url}?{urlencode(asked)}" if asked else url
        done = self.box.run("curl", "-sS", "-m", "10", url, check=False)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout[:1] in "{[" else None


def until(
    look: Callable[[], Any], holds: Callable[[Any], bool], what: str, timeout: float = 90
) -> Any:
    """Look until it holds; fail with what was last seen."""
    deadline = time.monotonic() + timeout
    while True:
        seen = look()
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"never: {what}; last: {seen}"
        time.sleep(POLL)


def quick(text: str) -> str:
    """Given how long an alert waits, return the shorter time."""
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()  # type: ignore[union-attr]  # ours
    return f"{max(PATIENCE, int(number) * SECONDS[unit] // FASTER)}s"


def quick_rules() -> dict[str, Any]:
    """Return the shipped rules, evaluated each second, with shorter `for`."""
    rules: dict[str, Any] = yaml.safe_load((SHIPPED / "kimisvc.rules.yml").read_text())
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = quick(rule["for"])
    return rules


def quick_config() -> dict[str, Any]:
    """Return the shipped example for the sandbox's own instances, which come and go in a file."""
    config = shipped_config()
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    del jobs["vllm"]["static_configs"]
    jobs["vllm"]["file_sd_configs"] = [{"files": [TARGETS]}]
    (gpus,) = jobs["dcgm"]["static_configs"]
    assert {*gpus["targets"]} < {*DCGM}
    gpus["targets"] = [*DCGM]
    return config


def quick_manager() -> dict[str, Any]:
    """Return the shipped example without its pauses, each alert told for itself."""
    config: dict[str, Any] = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "0s", "group_interval": "1s", "group_by": ["..."]}
    return config
