"""bench on a real systemd: a program of vLLM's, run unprivileged against the running instance."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from stage import EXECUTABLE, Stage

pytestmark = pytest.mark.system

LOADER = """#!/usr/bin/python3
import concurrent.futures, json, os, sys, time, urllib.request
given = dict(zip(sys.argv[3:], sys.argv[4:]))
if os.environ.get("BENCH_DIES"):
    sys.exit("Traceback: no tokenizer")
body = {"model": given["--model"], "prompt": "a", "max_tokens": int(given["--random-output-len"]),
        "stream": False}
def one(_):
    request = urllib.request.Request(
        given["--base-url"] + given["--endpoint"], json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["usage"]["completion_tokens"]
    except OSError:
        return None
began = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(int(given["--max-concurrency"])) as pool:
    made = list(pool.map(one, range(int(given["--num-prompts"]))))
good = [tokens for tokens in made if tokens is not None]
print("noise of a benchmark")
result = {"completed": len(good), "failed": len(made) - len(good), "uid": os.getuid(),
          "output_throughput": sum(good) / (time.monotonic() - began)}
name = os.path.join(given["--result-dir"], given["--result-filename"])
with open(name, "w") as file:
    json.dump(result, file)
try:
    open("/opt/standin/touched", "w")
except OSError:
    sys.exit(0 if os.getuid() else "runs as root")
sys.exit("may write where it should not")
"""
"""Stands in for `vllm bench serve`: plays real requests, and refuses to be more than it should."""

WRAPPER = f"""#!/bin/sh
if [ "$1" = bench ]; then exec /opt/standin/bin/loader "$@"; fi
exec {EXECUTABLE} "$@"
"""


def with_loader(stage: Stage) -> str:
    """Put a vllm with a benchmark into the sandbox; return its path."""
    path = "/opt/standin/bin/vllm-with-bench"
    for name, text in ((path, WRAPPER), ("/opt/standin/bin/loader", LOADER)):
        stage.sandbox.write(name, text)
        stage.sandbox.run("chmod", "755", name)
    return path


def bench(stage: Stage, *words: str) -> tuple[int, dict[str, Any], str]:
    done = stage.kimisvc("bench", "--instance", stage.instance, "--json", *words)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_more_at_once_is_more_in_all_and_is_kept(stage: Stage) -> None:
    path = stage.profile("many", vllm={"executable": with_loader(stage)})
    status, answer = stage.apply(path)
    assert status == 0, answer
    words = ("--concurrency", "1,8", "--requests", "16", "--output-tokens", "32")
    status, answer, said = bench(stage, *words)
    assert status == 0, said
    one, eight = answer["benches"]
    assert (one["concurrency"], eight["concurrency"]) == (1, 8)
    assert (one["completed"], one["failed"]) == (16, 0)
    assert eight["output_throughput"] > 2 * one["output_throughput"] > 0
    kept = stage.kimisvc("history", "--instance", stage.instance, "--json")
    assert [row["concurrency"] for row in json.loads(kept.stdout)["benches"]] == [8, 1]
    assert stage.status()["invocation_id"] == eight["invocation"]


def test_one_that_breaks_is_told_and_changes_nothing(stage: Stage) -> None:
    broken = with_loader(stage).replace("with-bench", "broken")
    text = WRAPPER.replace("exec /opt/standin/bin/loader", "export BENCH_DIES=1; exec "
                           "/opt/standin/bin/loader")  # fmt: skip
    stage.sandbox.write(broken, text)
    stage.sandbox.run("chmod", "755", broken)
    stage.apply(stage.profile("broken", vllm={"executable": broken}))
    before = stage.status()
    status, answer, said = bench(stage, "--concurrency", "2")
    assert (status, answer["outcome"]) == (1, "bench-failed")
    assert "no tokenizer" in said
    assert shlex.split("journalctl -t kimisvc-bench")[1] in said
    assert stage.status()["main_pid"] == before["main_pid"]


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_the_load_ends_with_the_command(stage: Stage, name: str) -> None:
    waits = with_loader(stage).replace("with-bench", "waits")
    text = WRAPPER.replace("exec /opt/standin/bin/loader", "exec sleep 600; :")
    stage.sandbox.write(waits, text)
    stage.sandbox.run("chmod", "755", waits)
    status, answer = stage.apply(stage.profile("waits", vllm={"executable": waits}))
    assert status == 0, answer
    units = "systemctl list-units --plain --no-legend 'run-kimisvc-bench-*'"
    script = (
        f"env --default-signal kimisvc bench --instance {stage.instance} & pid=$!;"
        f' until [ -n "$({units} --state=active)" ]; do kill -0 $pid || exit 99; done;'
        f" kill -{name} $pid; wait $pid; echo $?; {units}; pgrep -fx 'sleep 600'"
    )
    # A shell that is not interactive has what it puts into the background ignore SIGINT.
    done = stage.sandbox.run("bash", "-c", script, check=False, timeout=120)
    assert done.stdout.split() == ["130"], done.stderr


def test_a_gate_may_ask_for_the_throughput_of_many(stage: Stage) -> None:
    asked = {"throughput_concurrency": 8, "throughput_tok_s": 300}
    status, answer = stage.apply(stage.profile("many", gate=asked))
    assert (status, answer["verdict"]) == (0, "PASS"), answer
    (verdict,) = stage.history()["verdicts"]
    assert any("8 streams at once" in note for note in verdict["notes"])
    # One stream of the stand-in makes 200 tok/s, and eight no more than 1600.
    status, answer = stage.apply(stage.profile("more", gate={**asked, "throughput_tok_s": 5000}))
    assert (status, answer["verdict"]) == (4, "FAIL"), answer
    assert "under the floor of 5000" in answer["reason"]
    assert stage.status()["profile"] == "many"


def test_nothing_to_measure(stage: Stage) -> None:
    status, answer, _ = bench(stage)
    assert (status, answer["outcome"]) == (1, "nothing-applied")
