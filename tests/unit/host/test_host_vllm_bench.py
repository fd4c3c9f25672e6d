"""The door to `vllm bench serve`: what it is told, and how its result is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from kimisvc.errors import HostError
from kimisvc.host import vllm_bench
from kimisvc.host.vllm_bench import Load, Server, bench, bench_command, read_result, unit_command

RESULT = (Path(__file__).parent / "data" / "bench-0.32.0.json").read_text()
SERVER = Server("/opt/vllm/bin/vllm", "http://127.0.0.1:8000", "kimi", "/srv/model")
LOAD = Load(8, 32, 1024, 256, 7)
UNIT = "run-kimisvc-bench-1-8.service"


def test_a_result_of_the_real_one() -> None:
    found = read_result(RESULT)
    assert (found.completed, found.failed) == (4, 0)
    assert found.figures["output_throughput"] == pytest.approx(13.8718, abs=1e-4)
    assert found.figures["mean_tpot_ms"] == pytest.approx(71.509, abs=1e-3)
    assert "max_output_tokens_per_s" not in found.figures  # counts chunks


def test_what_is_not_told_is_left_out() -> None:
    told = json.loads(RESULT)
    del told["p99_itl_ms"]
    told["mean_itl_ms"] = None
    found = read_result(json.dumps(told))
    assert {"p99_itl_ms", "mean_itl_ms"}.isdisjoint(found.figures)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"completed": "x"}', "null", "[" * 200_000, '{"completed": 1e999}',
     '{"completed": 1, "request_throughput": 1' + "0" * 400 + "}"],
)  # fmt: skip
def test_no_result(text: str) -> None:
    with pytest.raises(HostError, match="no result"):
        read_result(text)


def test_the_words_of_the_program() -> None:
    words = bench_command(SERVER, LOAD)
    assert words[:3] == ["/opt/vllm/bin/vllm", "bench", "serve"]
    given = dict(pairwise(words[3:]))
    assert given["--max-concurrency"] == "8"
    assert given["--num-prompts"] == "32"
    assert given["--random-input-len"] == "1024"
    assert given["--random-output-len"] == "256"
    assert (given["--model"], given["--tokenizer"]) == ("kimi", "/srv/model")
    assert "--ignore-eos" in words


def test_it_runs_as_nobody_in_particular_and_keeps_the_key_off_the_command_line() -> None:
    words = unit_command(SERVER, LOAD, 60.0, UNIT)
    assert "--property=DynamicUser=yes" in words
    assert "--setenv=HF_HUB_OFFLINE=1" in words
    with_key = Server(*("/v", "u", "m", "org/model"), user="vllm", secrets_file="/etc/s")
    words = unit_command(with_key, LOAD, 60.0, UNIT)
    assert {"--property=User=vllm", "--property=EnvironmentFile=/etc/s"} <= set(words)
    assert "--setenv=HF_HUB_OFFLINE=1" not in words  # its tokenizer is the hub's


def test_the_script_runs_the_words_and_prints_the_result(tmp_path: Path) -> None:
    words = unit_command(SERVER, LOAD, 60.0, UNIT)
    script = words[words.index("-c") + 1].replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "kimisvc-bench.json").write_text(RESULT)
    noisy = ("python3", "-c", "import os; print('noise'); print(os.environ['OPENAI_API_KEY'])")
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *noisy], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "VLLM_API_KEY": "the-key"},
    )  # fmt: skip
    assert read_result(done.stdout).completed == 4
    assert done.stderr.split() == ["noise", "the-key"]
    failing = subprocess.run(["/bin/sh", "-c", script, "sh", "false"], check=False)
    assert failing.returncode == 1


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "systemd-run"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


def test_a_failure_says_the_last_words(program: Path) -> None:
    program.write_text("#!/bin/sh\necho early >&2\necho 'cannot connect' >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(HostError, match="status 3: cannot connect"):
        bench(SERVER, LOAD, 5.0)
    program.write_text(f"#!/bin/sh\ncat <<'X'\n{RESULT}\nX\n")
    assert bench(SERVER, LOAD, 5.0).completed == 4


CALLS = "import sys; sys.path[:] = {path}; from test_host_vllm_bench import *; {call}"
BENCH = "bench(SERVER, LOAD, 60.0)"


@pytest.fixture
def tools(program: Path) -> Path:
    """A systemd-run that says so in `started` and waits for ever; `stopped` tells what is stopped."""
    folder = program.parent
    os.mkfifo(folder / "started")
    said = f"echo ${{0##*/}} $@ > {folder}"
    program.write_text(f"#!/bin/sh\n{said}/started\nexec sleep 600\n")
    (folder / "systemctl").write_text(f"#!/bin/sh\n{said}/stopped\n")
    for name in ("systemd-run", "systemctl"):
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_load_ends_with_us(tools: Path, number: signal.Signals) -> None:
    path = [str(Path(__file__).parent), *sys.path]
    script = CALLS.format(path=path, call=BENCH)
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        begun = (tools / "started").read_text().split()
        (unit,) = [word.removeprefix("--unit=") for word in begun if word.startswith("--unit=")]
        process.send_signal(number)
        assert process.stderr is not None
        assert b"KeyboardInterrupt" in process.stderr.read()
    assert (tools / "stopped").read_text() == f"systemctl stop {unit}\n"
    assert unit == f"run-kimisvc-bench-{process.pid}-8.service"


def test_one_that_takes_too_long_is_stopped_and_signals_are_as_before(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(one) for one in vllm_bench.ENDING]
    monkeypatch.setattr(vllm_bench, "GRACE", 0.2)
    reader = threading.Thread(target=(tools / "started").read_text, daemon=True)
    reader.start()
    with pytest.raises(HostError, match="did not end within"):
        bench(SERVER, LOAD, 3.0)  # the load has to be begun before it is late
    reader.join(20.0)
    assert (tools / "stopped").read_text().startswith("systemctl stop run-kimisvc-bench-")
    assert [signal.getsignal(one) for one in vllm_bench.ENDING] == before
