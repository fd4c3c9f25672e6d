"""The exporter as a unit on a real systemd: what it shows, and that nothing that hangs delays it.

Every scrape here is given up after a second: `scrape` fails where one after the other is late.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from stage import POLL, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Box

pytestmark = pytest.mark.system

UNIT = "kimisvc-exporter.service"
ADDRESS = "127.0.0.1:9464"
LATE = "1"
"""No scrape may take longer (s), whatever hangs."""
TRIES = 3
"""One that waits for what hangs is late each time (2.5 s at least); a busy machine is not."""
TIMED_OUT = 28
"""What curl exits with (curl(1))."""
STREAM = """
import json, sys, urllib.request
body = {"model": "kimi", "prompt": "x", "max_tokens": 100000, "stream": True, "ignore_eos": True}
request = urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
try:
    for line in urllib.request.urlopen(request):
        pass
except OSError:
    pass
"""
COUNTERS = "vllm:generation_tokens_total"


@pytest.fixture(scope="module")
def exporter(staged: Box) -> Iterator[Box]:
    """The exporter, installed, reading its sources every second."""
    done = staged.run("kimisvc", "exporter", "--install", "--interval", "1")
    assert f"Prometheus scrapes {ADDRESS}" in done.stdout
    yield staged
    staged.run("kimisvc", "exporter", "--uninstall")


def scrape(box: Box, *options: str) -> str:
    """Return the page; fail where it takes longer than a scrape may."""
    curl = ("curl", "-sS", "-m", LATE, *options, f"http://{ADDRESS}/metrics")
    for _ in range(TRIES):
        done = box.run(*curl, check=False)
        if done.returncode != TIMED_OUT:
            break
    assert done.returncode == 0, f"curl: {done.returncode} {done.stderr}"
    return done.stdout


def values(box: Box, instance: str) -> dict[str, float]:
    """Return what is shown of an instance, by series without kimisvc_ and its own label."""
    found = {}
    for line in scrape(box).splitlines():
        match = re.fullmatch(rf'kimisvc_(\w+)\{{instance="{instance}",?(.*)\}} (\S+)', line)
        if match:
            name, labels, value = match.groups()
            found[f"{name}{{{labels}}}" if labels else name] = float(value)
    return found


def until(
    stage: Stage, holds: Callable[[dict[str, float]], bool], what: str, timeout: float = 60.0
) -> dict[str, float]:
    """Scrape until it holds."""
    deadline = time.monotonic() + timeout
    while True:
        seen = values(stage.sandbox, stage.instance)  # type: ignore[arg-type]  # a Box, here
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"never {what}; last: {seen}"
        time.sleep(POLL)


def running(stage: Stage, **script: float) -> dict[str, float]:
    """Apply a profile; return what is shown once the exporter has seen its verdict and its engine.

    They are read apart: the last look at the engine may be one at a load.
    """
    assert stage.apply(stage.profile("good", script))[0] == 0
    passed = 'gate_verdict{verdict="PASS"}'
    return until(stage, lambda v: v.get(passed) == v.get("engine_reachable") == 1, "passed")


def errors(shown: dict[str, float], source: str) -> float:
    return shown[f'scrape_errors_total{{source="{source}"}}']


def test_it_runs_unprivileged_and_hardened(exporter: Box) -> None:
    told = exporter.run("systemctl", "show", "-p", "User,MainPID,NRestarts,SubState", UNIT).stdout
    assert "User=kimisvc\n" in told
    assert "SubState=running\n" in told
    pid = re.search(r"MainPID=(\d+)", told)
    assert pid is not None
    status = exporter.read(f"/proc/{pid[1]}/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    user = exporter.run("id", "-u", "kimisvc").stdout.strip()
    assert re.search(rf"^Uid:\s+{user}\s", status, re.MULTILINE)
    assert user != "0"
    listens = exporter.run("ss", "-Hltn", check=False).stdout
    assert not listens or f"{ADDRESS} " in listens


def test_a_service_that_was_proven(exporter: Box, stage: Stage) -> None:
    shown = running(stage)
    expected = {
        "up": 1, "ready": 1, "generation": 1, "accepted_generation": 1, "should_run": 1,
        "engine_reachable": 1, "engine_stalled": 0, "metric_contract_missing": 0, "unit_drift": 0,
        "starts_total": 1, "gate_floor_tokens_per_second": 60, "gate_goal_tokens_per_second": 100,
        'unit_state{state="active",unit="service"}': 1,
        'unit_state{state="inactive",unit="gate"}': 1,
        'applies_total{outcome="accepted"}': 1,
        'scrape_errors_total{source="systemd"}': errors(shown, "systemd"),
        'scrape_errors_total{source="history"}': 0,
        'scrape_errors_total{source="files"}': 0,
    }  # fmt: skip
    until(stage, lambda v: v['applies_total{outcome="accepted"}'] == 1, "told of the apply")
    # Units and history are read by themselves: the gate may be seen at its end after its verdict,
    # and its last tokens lie within the window of the live figures for a while.
    at_rest = 'unit_state{state="inactive",unit="gate"}'
    shown = until(
        stage,
        lambda v: v.get("generation_tokens_per_second") == 0 and v.get(at_rest) == 1,
        "at rest",
    )
    assert {name: shown.get(name) for name in expected} == expected
    assert shown['probe_decode_tokens_per_second{source="gate"}'] > 60
    assert "decode_tokens_per_second" not in shown
    if shutil.which("promtool"):
        page = scrape(exporter)
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=page,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    accept = "Accept: application/openmetrics-text; version=1.0.0"
    assert scrape(exporter, "-H", accept).endswith("# EOF\n")


def test_a_load_is_seen_from_its_beginning_to_its_end(exporter: Box, stage: Stage) -> None:
    del exporter
    path = stage.profile("slow", {"load_seconds": 8.0, "shards": 4})
    stage.apply(path, "--no-follow")
    shown = until(stage, lambda v: v.get("load_progress_ratio", 0) > 0, "loading")
    assert 0 < shown["load_progress_ratio"] <= 1
    assert shown["load_started_timestamp_seconds"] > 0
    assert (shown["ready"], shown["engine_reachable"], shown["load_timeout_seconds"]) == (0, 0, 20)
    # What is read of files and of history comes in by threads of its own, one before the other.
    shown = until(
        stage,
        lambda v: (
            v.get('gate_verdict{verdict="PASS"}') == 1
            and not {"load_progress_ratio", "load_started_timestamp_seconds"} & v.keys()
        ),
        "proven, and no load any more",
    )
    assert shown["load_duration_seconds"] > 7


def test_live_speed_is_that_of_the_engines_own_counters(exporter: Box, stage: Stage) -> None:
    running(stage, decode_tok_s=120.0, max_model_len=1000000)
    url = f"http://127.0.0.1:{stage.port}"
    exporter.run("systemd-run", "--unit=load", "--", "python3", "-c", STREAM, url)
    try:
        until(stage, lambda v: "decode_tokens_per_second" in v, "decoding")
        begun, before = counted(exporter, url)
        while True:  # a whole window of nothing else
            shown = values(exporter, stage.instance)
            now, after = counted(exporter, url)
            if now - begun > 40:
                break
            time.sleep(POLL)
        truth = (after - before) / (now - begun)
        assert shown["decode_tokens_per_second"] == pytest.approx(truth, rel=0.01)
        assert shown["generation_tokens_per_second"] == pytest.approx(truth, rel=0.01)
    finally:
        exporter.run("systemctl", "stop", "load", check=False)
    shown = until(stage, lambda v: v.get("generation_tokens_per_second") == 0, "idle again")
    assert "decode_tokens_per_second" not in shown


def counted(box: Box, url: str) -> tuple[float, float]:
    """Return the engine's tokens, and when they were read, by the sandbox's clock."""
    told = box.run(
        "python3", "-c",
        "import sys, time, urllib.request as u; page = u.urlopen(sys.argv[1]).read().decode();"
        "print(time.monotonic(), [l.split()[-1] for l in page.splitlines()"
        " if l.startswith(sys.argv[2] + '{')][0])",
        f"{url}/metrics", COUNTERS,
    ).stdout  # fmt: skip
    moment, tokens = told.split()
    return float(moment), float(tokens)


def test_a_server_that_is_stopped_in_its_tracks_is_not_reachable(
    exporter: Box, stage: Stage
) -> None:
    before = running(stage)
    pid = exporter.run(
        "systemctl", "show", "-p", "MainPID", "--value", stage.service
    ).stdout.strip()
    exporter.run("kill", "-STOP", pid)
    try:
        shown = until(stage, lambda v: v["engine_reachable"] == 0, "unreachable")
        assert errors(shown, "vllm") > errors(before, "vllm")
        assert "generation_tokens_per_second" not in shown
        assert shown["up"] == 1
        assert shown['unit_state{state="active",unit="service"}'] == 1
    finally:
        exporter.run("kill", "-CONT", pid)
    until(stage, lambda v: v["engine_reachable"] == 1, "reachable again")


def test_a_server_that_died_is_not_reachable_and_no_error(exporter: Box, stage: Stage) -> None:
    before = running(stage)
    exporter.run("systemctl", "stop", stage.service)
    shown = until(stage, lambda v: v["engine_reachable"] == 0, "unreachable")
    shown = until(stage, lambda v: v['unit_state{state="inactive",unit="service"}'] == 1, "stopped")
    assert errors(shown, "vllm") == errors(before, "vllm")
    assert (shown["should_run"], shown["ready"]) == (1, 0)
    assert shown['gate_verdict{verdict="PASS"}'] == 0


@pytest.mark.parametrize(
    ("hurt", "heal"),
    [
        (("systemctl", "stop", "dbus.service", "dbus.socket"),
         ("systemctl", "start", "dbus.socket", "dbus.service")),
        (("pkill", "-STOP", "dbus-daemon"), ("pkill", "-CONT", "dbus-daemon")),
    ],
    ids=["stopped", "hung"],
)  # fmt: skip
def test_without_d_bus_units_are_unknown(
    exporter: Box, stage: Stage, hurt: tuple[str, ...], heal: tuple[str, ...]
) -> None:
    before = running(stage)
    exporter.run(*hurt)
    try:
        shown = until(stage, lambda v: v["up"] == 0, "down")
        assert not [name for name in shown if name.startswith("unit_state")]
        assert errors(shown, "systemd") > errors(before, "systemd")
        assert shown['source_age_seconds{source="systemd"}'] > 3
        assert shown["engine_reachable"] == 1
    finally:
        exporter.run(*heal)
    until(stage, lambda v: v["up"] == 1, "up again")


def test_a_history_that_is_gone_is_no_history_without_failures(exporter: Box, stage: Stage) -> None:
    before = running(stage)
    path = f"/var/lib/kimisvc/{stage.instance}/history.sqlite"
    exporter.run("mv", path, f"{path}.away")
    try:
        shown = until(stage, lambda v: v["up"] == 0, "down")
        assert errors(shown, "history") > errors(before, "history")
        gone = ("gate_verdict", "starts_total", "applies_total", "rollbacks_total", "probe_")
        assert not [name for name in shown if name.startswith(gone)]
        assert shown["engine_reachable"] == 1
    finally:
        exporter.run("mv", f"{path}.away", path)
    until(stage, lambda v: v["up"] == 1, "up again")


def test_drift_is_counted_as_status_does(exporter: Box, stage: Stage) -> None:
    running(stage)
    unit = f"/etc/systemd/system/kimisvc-{stage.instance}-rollback.service"
    exporter.run("sh", "-c", f"echo '# edited' >> {unit}")
    until(stage, lambda v: v["unit_drift"] >= 1, "drifted")
    expected = len(stage.status()["drift"])
    until(stage, lambda v: v["unit_drift"] == expected, "as status says")


def test_installing_twice_is_fine_and_an_edited_unit_is_left_alone(exporter: Box) -> None:
    exporter.run("kimisvc", "exporter", "--install", "--interval", "1")
    assert "kimisvc_exporter_info" in scrape(exporter)
    path = f"/etc/systemd/system/{UNIT}"
    text = exporter.read(path)
    exporter.write(path, text.replace("Nice=5", "Nice=6"))
    try:
        for verb in ("--install", "--uninstall"):
            done = exporter.run("kimisvc", "exporter", verb, check=False)
            assert done.returncode == 1
            assert "edited by hand" in done.stderr
    finally:
        exporter.write(path, text)


def test_uninstalling_leaves_nothing(exporter: Box) -> None:
    exporter.run("kimisvc", "exporter", "--uninstall")
    assert exporter.run("test", "-e", f"/etc/systemd/system/{UNIT}", check=False).returncode == 1
    assert exporter.run("systemctl", "is-active", UNIT, check=False).stdout.strip() != "active"
    exporter.run("kimisvc", "exporter", "--uninstall")
    exporter.run("kimisvc", "exporter", "--install", "--interval", "1")
    assert "kimisvc_exporter_info" in scrape(exporter)


def test_an_install_that_cannot_listen_says_so(exporter: Box) -> None:
    taken = "127.0.0.1:9465"
    exporter.run("systemd-run", "--unit=taken", "--", "python3", "-m", "http.server", "9465",
                 "--bind", "127.0.0.1")  # fmt: skip
    exporter.run("curl", "-sS", "-o", "/dev/null", "--retry", "50", "--retry-connrefused",
                 "--retry-delay", "0", f"http://{taken}")  # fmt: skip
    try:
        done = exporter.run("kimisvc", "exporter", "--install", "--address", taken, check=False)
        assert done.returncode == 1
        assert f"journalctl -u {UNIT}" in done.stderr
        assert "cannot serve at" in exporter.run("journalctl", "-u", UNIT, "-n", "20").stdout
    finally:
        exporter.run("systemctl", "stop", "taken", check=False)
        exporter.run("kimisvc", "exporter", "--install", "--interval", "1")
