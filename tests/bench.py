"""`make bench`: the figures the design aims at, measured and printed. Nothing here passes or fails.

Wall times of whole commands are the median of several runs. What needs root
and a systemd is measured in the sandbox, with the stand-in server.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / name) for name in ("system", "support", "unit/measure")]

from agreement import percent_apart, together  # noqa: E402 - found only after the line above
from conftest import Box, why_not  # noqa: E402 - as above
from measure_coverage import figures  # noqa: E402 - as above
from resident import Resident  # noqa: E402 - as above
from resident import told as resident  # noqa: E402 - as above
from stage import Stage, set_the_stage  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 9
# Without reset-failed the start limit, which counts starts by hand too, would end the loop.
CURL_LOOP = (
    "systemctl reset-failed {unit}; systemctl restart {unit};"
    " until curl -sf http://127.0.0.1:{port}/health; do :; done"
)


def median(action: Callable[[], object], runs: int = RUNS) -> float:
    """Given something to do, return the median of its wall times (s)."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def missed(figure: float, aim: float, unit: str) -> str:
    """Given a figure that may be as high as its aim, say whether it is, or by how much it is not."""
    return f"missed by {figure - aim:.3g} {unit}" if figure > aim else "met"


def tell(what: str, seconds: float, aim: float) -> None:
    """Print a figure beside its aim."""
    judged = missed(seconds, aim, "s")
    sys.stdout.write(f"{what:<58} {seconds:7.3f} s   aim {aim:.2f} s: {judged}\n")


def timed_inside(box: Box, command: str, runs: int = RUNS) -> float:
    """Given a command, return the median of its wall times inside the sandbox (s).

    Measured by a shell inside, so that entering the sandbox is not counted.
    """
    script = (
        f"for i in $(seq {runs}); do a=$EPOCHREALTIME; {command} >/dev/null 2>&1;"
        ' b=$EPOCHREALTIME; echo "$a $b"; done'
    )
    lines = box.run("bash", "-c", script, timeout=300.0).stdout.splitlines()
    return statistics.median(
        float(after) - float(before) for before, after in (line.split() for line in lines)
    )


def commands_here() -> None:
    """Measure what needs no systemd."""
    program = str(Path(sys.executable).parent / "kimisvc")
    for arguments, aim in ((["--version"], 0.12), (["check", "ll_ring"], 0.25)):
        command = [program, *arguments]
        seconds = median(lambda c=command: subprocess.run(c, check=True, capture_output=True))  # type: ignore[misc]  # the loop's value is bound at once
        tell(f"kimisvc {' '.join(arguments)}", seconds, aim)


def commands_inside(stage: Stage, box: Box) -> None:
    """Measure status, a no-op apply, and what the gate costs beyond its own requests."""
    # A load of a second: the gate starts up beside it, as it does beside any real load.
    path = stage.profile("bench", {"load_seconds": 1.0})
    stage.apply(path)
    tell("kimisvc status", timed_inside(box, f"kimisvc status --instance {stage.instance}"), 0.25)
    tell("kimisvc apply, nothing to do", timed_inside(box, f"kimisvc apply {path}"), 0.3)
    tell("from ready to verdict, beyond the probe's own requests", beyond_requests(stage, box), 1.0)
    plain = CURL_LOOP.format(unit=stage.service, port=stage.port)
    other = stage.profile("other", {"load_seconds": 1.0, "seed": 1})
    both = (path, other)
    with_kimisvc = []
    for turn in range(6):
        begun = time.perf_counter()
        stage.apply(both[(turn + 1) % 2])
        with_kimisvc.append(time.perf_counter() - begun - request_seconds(stage))
    restart = timed_inside(box, f"bash -c '{plain}'", runs=5)
    more = statistics.median(with_kimisvc) - restart
    tell("apply, beyond systemctl restart and a curl loop (load 1 s)", more, 1.0)


EXPORTER = """
import glob, http.client, json, os, struct, subprocess, sys, time
PORT, SCRAPES, MANY, SECONDS = 9464, 1000, 100_000, 60
unit = ["systemctl", "show", "-p", "MainPID", "--value", "kimisvc-exporter.service"]
main = int(subprocess.run(unit, capture_output=True, text=True, check=True).stdout)

def apart():
    return [int(pid) for path in glob.glob(f"/proc/{main}/task/*/children")
            for pid in open(path).read().split()]

PAGE, FRAME = os.sysconf("SC_PAGE_SIZE"), (1 << 55) - 1

def frames(pid):  # of memory that it has; a frame that two processes share has one number (pagemap)
    found = set()
    with open(f"/proc/{pid}/pagemap", "rb") as table:
        for line in open(f"/proc/{pid}/maps"):
            first, last = (int(word, 16) // PAGE for word in line.split()[0].split("-"))
            if first < 1 << 51:  # beyond it is the kernel's own page
                table.seek(8 * first)
                entries = struct.iter_unpack("<Q", table.read(8 * (last - first)))
                found.update(entry & FRAME for (entry,) in entries if entry >> 63)
    return found - {0}

def used(pid):
    words = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100

def scrape():
    begun = time.perf_counter()
    line = http.client.HTTPConnection("127.0.0.1", PORT)
    line.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    page = line.getresponse().read()
    line.close()
    return time.perf_counter() - begun, page

def look():
    held = [frames(pid) for pid in (main, *apart())]
    sizes = (held[0], set().union(*held[1:]), set().union(*held))
    return dict(zip(("main", "apart", "both"), (PAGE * len(one) for one in sizes)))

# The load of a span of time is measured, so that time has to pass; first all have to be warm.
time.sleep(15)
began = [used(pid) for pid in (main, *apart())]
time.sleep(SECONDS)
ended = [used(pid) for pid in (main, *apart())]
times = sorted(scrape()[0] for _ in range(SCRAPES))
told = {"p50": times[SCRAPES // 2], "p99": times[SCRAPES * 99 // 100], "max": times[-1],
        "cpu": sum(ended) - sum(began), "cpu_seconds": SECONDS, **look()}
for _ in range(MANY):
    scrape()
print(json.dumps({**told, "after": look(), "bytes": len(scrape()[1])}))
"""
EXPORTER_INSTANCES = ("one", "two", "three", "four")
SCRAPE_P50, SCRAPE_P99 = 0.003, 0.010
CPU_PERCENT = 0.5


def exporter_figures(box: Box) -> None:
    """Measure the exporter with four instances: scrapes, memory, processor, growth."""
    stages = [Stage(box, name) for name in EXPORTER_INSTANCES]
    for stage in stages:
        stage.apply(stage.profile("watched"))
    box.run("kimisvc", "exporter", "--install")
    told = json.loads(box.run("python3", "-c", EXPORTER, timeout=1200.0).stdout)
    for name, aim in (("p50", SCRAPE_P50), ("p99", SCRAPE_P99)):
        sys.stdout.write(
            f"exporter, 4 instances: {name} of 1,000 scrapes {1000 * told[name]:.2f} ms,"
            f" aim {1000 * aim:g} ms: {missed(1000 * told[name], 1000 * aim, 'ms')}\n"
        )
    cpu = 100 * told["cpu"] / told["cpu_seconds"]
    memory, growth = resident(
        *(Resident(one["main"], one["apart"], one["both"]) for one in (told, told["after"]))
    )
    sys.stdout.write(
        f"exporter: {told['bytes']} bytes a page; {memory}\n"
        f"exporter: {growth}\n"
        f"exporter: {cpu:.2f} % of a core at 5 s sampling, not scraped,"
        f" aim {CPU_PERCENT:g} %: {missed(cpu, CPU_PERCENT, '%')}\n"
    )
    box.run("kimisvc", "exporter", "--uninstall")
    for stage in stages:
        stage.stop()


SAME_LENGTHS = """schema = 1
extends = "cpu_smollm2.toml"
name = "agreement"

[probe]
prompt_tokens = 64
max_tokens = 128
min_runs = 8
max_runs = 8
"""
"""So many runs, whatever their spread, and as long as those of vLLM's own benchmark."""
LOADER = ("--concurrency", "1", "--input-tokens", "64", "--output-tokens", "128", "--requests", "8")
TURNS = 8
AGREE_ENGINE, AGREE_LOADER = 0.5, 1.0
COUNTERS = ("request_generation_tokens_sum", "request_decode_time_seconds_count",
            "request_decode_time_seconds_sum")  # fmt: skip


def engine_counters(box: Box, stage: Stage) -> list[float]:
    """Return what the real vLLM has counted: tokens, requests, and seconds that it decoded."""
    page = box.run("curl", "-sf", f"http://127.0.0.1:{stage.port}/metrics").stdout
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("vllm:"))
    return [
        sum(float(value) for name, value in values.items() if name.startswith(f"vllm:{counter}{{"))
        for counter in COUNTERS
    ]


def agreement(box: Box) -> None:
    """Hold the probe against the real vLLM's counters and against `vllm bench serve`, in turn.

    Other work on the machine moves a processor's speed by more than the two
    differ, so that several turns are compared, each with all its seconds. How far
    vLLM's own benchmark is from the counters over its own requests tells whether a
    distance of the two is in the counting or in the machine.
    """
    stage = Stage(box, "kimi", port=8000)
    box.write("/etc/agreement.toml", SAME_LENGTHS)
    # Cold, and on a busy machine, its load takes minutes.
    box.run("kimisvc", "apply", "/etc/agreement.toml", timeout=600.0)
    probes, engines, loads, engines_under_load = [], [], [], []
    for turn in range(TURNS):
        for which in ("probe", "load") if turn % 2 else ("load", "probe"):
            if which == "load":
                before = engine_counters(box, stage)
                done = box.run("kimisvc", "bench", *LOADER, "--json", timeout=300.0)
                loads.append(1000 / json.loads(done.stdout)["benches"][0]["mean_tpot_ms"])
                tokens, requests, seconds = (
                    after - was
                    for was, after in zip(before, engine_counters(box, stage), strict=True)
                )
                engines_under_load.append((tokens - requests) / seconds)  # the first is the TTFT's
                continue
            told = json.loads(box.run("kimisvc", "probe", "--json", timeout=300.0).stdout)
            probes.append(together([run["decode_tok_s"] for run in told["runs"]]))
            engines.append(told["engine_decode_tok_s"])
    probe, engine, load = map(together, (probes, engines, loads))
    for what, other, aim in (
        ("the engine's own counters", engine, AGREE_ENGINE),
        ("vllm bench serve, 1000 / mean TPOT", load, AGREE_LOADER),
    ):
        off = percent_apart(probe, other)
        sys.stdout.write(
            f"probe of the real vLLM on this CPU, {TURNS} turns: {probe:.2f} tok/s; {what}"
            f" {other:.2f} tok/s: {off:.2f} % apart, aim {aim:g} %: {missed(off, aim, '%')}\n"
        )
    own = percent_apart(load, together(engines_under_load))
    sys.stdout.write(
        f"vllm bench serve and the counters over its own requests: {own:.2f} % apart\n"
    )
    stage.leave()


def beyond_requests(stage: Stage, box: Box) -> float:
    """Return the time from the gate's first sight of readiness to its verdict, less its requests."""
    text = box.run(
        "python3", "-c",
        "import sqlite3, json, sys; db = sqlite3.connect(sys.argv[1]);"
        "print(json.dumps(db.execute('SELECT v.at - s.ready_at FROM verdicts v"
        " JOIN starts s USING (invocation) ORDER BY v.at').fetchone()[0]))",
        f"/var/lib/kimisvc/{stage.instance}/history.sqlite",
    ).stdout  # fmt: skip
    return float(json.loads(text)) - request_seconds(stage)


def request_seconds(stage: Stage) -> float:
    """Return what the gate's requests themselves take with the stand-in at 200 tok/s (s)."""
    samples = 3 + 1  # runs, and one request to warm up
    golden = 0.02 + 8 / 200
    told = stage.history()
    answer, asked = told["verdicts"][0], told["starts"][0]["facts"]["max_tokens"]
    one = answer["ttft_s"] + (asked - 1) / answer["decode_tok_s"]  # the first token is the TTFT's
    return float(samples * one + golden)


def main() -> None:
    """Print every figure that can be measured here, and say which cannot and why."""
    commands_here()
    sys.stdout.writelines(f"{line}\n" for line in figures())
    reason = why_not("system")
    if reason:
        sys.stdout.write(f"left out: status, apply, gate, exporter: {reason}\n")
        return
    box = Box(f"bench-{os.getpid()}")
    box.start()
    try:
        set_the_stage(box)
        stage = Stage(box, "bench")
        commands_inside(stage, box)
        stage.leave()  # the exporter is measured with its own instances alone
        reason = why_not("vllm")
        if reason:
            sys.stdout.write(f"left out: the probe against the real vLLM: {reason}\n")
        else:
            agreement(box)
        exporter_figures(box)
    finally:
        box.stop()


if __name__ == "__main__":
    main()
