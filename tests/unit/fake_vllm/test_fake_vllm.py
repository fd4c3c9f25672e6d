"""The stand-in against what real servers answered (data/: captured from vLLM 0.32.0), and its faults."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent / "data"
FOLDER = Path(__file__).parents[2] / "fake_vllm"


def load() -> Any:
    if "fake_vllm_server" not in sys.modules:
        path = FOLDER / "fake_vllm_server.py"
        spec = importlib.util.spec_from_file_location("fake_vllm_server", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fake_vllm_server"] = module
        spec.loader.exec_module(module)
    return sys.modules["fake_vllm_server"]


fake = load()


@contextmanager
def serving(api_key: str = "", **script: Any) -> Iterator[int]:
    options = fake.Options("./smol-hf", port=0, served="kimi", api_key=api_key)
    server = fake.FakeVllm(options, fake.Script(**{"decode_tok_s": 2000.0, **script}))
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def chunks(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def shape(value: Any) -> Any:
    """Return a value with its leaves replaced by the kinds they are of; lists by their first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, str):
        return "text"
    return type(value).__name__


# --------------------------------------------------------------- as the real one answers

COMPLETION = {
    "model": "kimi",
    "prompt": "def f",
    "max_tokens": 4,
    "stream": True,
    "ignore_eos": True,
    "stream_options": {"include_usage": True},
}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize(
    ("captured", "path", "body"),
    [
        ("completions.sse", "/v1/completions", COMPLETION),
        (
            "completions.continuous.sse",
            "/v1/completions",
            {**COMPLETION, "stream_options": CONTINUOUS, "return_token_ids": True},
        ),
        (
            "chat.sse",
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "capital?"}],
                "max_tokens": 32,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
        ),
    ],
)
def test_streams_have_the_keys_and_types_of_the_real_ones(
    captured: str, path: str, body: Any
) -> None:
    with serving() as port:
        status, text = ask(port, "POST", path, body)
    real = (DATA / captured).read_text()
    assert status == 200
    ours, theirs = chunks(text), chunks(real)
    # First, last with a choice, and the one with the usage: each shape a stream has.
    assert [shape(ours[i]) for i in (1, -2, -1)] == [shape(theirs[i]) for i in (1, -2, -1)]
    assert list(ours[0]) == list(theirs[0])
    assert shape(ours[0]["choices"]) == shape(theirs[0]["choices"])
    assert text.endswith("data: [DONE]\n\n")
    assert real.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize(("name", "path"), [("models", "/v1/models"), ("version", "/version")])
def test_what_it_is_has_the_shape_of_the_real_answer(name: str, path: str) -> None:
    with serving() as port:
        status, text = ask(port, "GET", path)
    assert status == 200
    assert shape(json.loads(text)) == shape(json.loads((DATA / f"{name}.json").read_text()))


@pytest.mark.parametrize(
    ("captured", "body", "status"),
    [
        ("error.404.json", {**COMPLETION, "model": "nope"}, 404),
        ("error.400.json", {**COMPLETION, "max_tokens": 99999}, 400),
    ],
)
def test_refusals_are_word_for_word_those_of_the_real_one(
    captured: str, body: Any, status: int
) -> None:
    with serving() as port:
        assert ask(port, "POST", "/v1/completions", body) == (
            status,
            (DATA / captured).read_text().strip(),
        )


def test_without_its_key_it_refuses_what_the_real_one_refuses() -> None:
    real = (DATA / "models.401.json").read_text().strip()
    with serving(api_key="hush") as port:
        assert ask(port, "GET", "/v1/models") == (401, real)
        assert ask(port, "GET", "/v1/models", Authorization="Bearer hush")[0] == 200
        assert ask(port, "GET", "/health") == (200, "")
        assert ask(port, "GET", "/metrics")[0] == 200


def test_its_metrics_have_the_names_labels_and_texts_of_the_real_ones() -> None:
    with serving() as port:
        ask(port, "POST", "/v1/completions", COMPLETION)
        _, ours = ask(port, "GET", "/metrics")
    real = (DATA / "metrics.txt").read_text()

    def lines(text: str) -> set[str]:
        wanted = [line for line in text.splitlines() if "vllm:" in line]
        return {re.sub(r" [0-9.e+-]+$", "", line) if line[0] != "#" else line for line in wanted}

    assert lines(ours) == lines(real)


def test_its_counters_add_up_as_the_real_ones_do() -> None:
    with serving() as port:
        for _ in range(3):
            ask(port, "POST", "/v1/completions", {**COMPLETION, "max_tokens": 10})
        _, text = ask(port, "GET", "/metrics")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")

    def value(name: str, more: str = "") -> float:
        return float(values[f'vllm:{name}{{engine="0",{more}model_name="kimi"}}'])

    assert value("generation_tokens_total") == 30
    assert value("request_success_total", 'finished_reason="length",') == 3
    assert value("request_generation_tokens_count") == 3
    assert value("request_generation_tokens_sum") == 30
    assert value("iteration_tokens_total_count") == 30
    assert value("iteration_tokens_total_sum") == 30 + value("prompt_tokens_total")
    assert value("num_requests_running") == 0
    assert value("request_decode_time_seconds_count") == 3
    assert value("request_decode_time_seconds_sum") > 0


# ------------------------------------------------------------------------- its timing


@pytest.mark.parametrize("size", [1, 3, 4, 50])
def test_the_schedule_is_exact_whatever_the_chunk_size(size: int) -> None:
    script = fake.Script(decode_tok_s=50.0, ttft_s=0.4, tokens_per_chunk=size)
    answer = fake.compose(script, {"max_tokens": 101, "ignore_eos": True}, 1, "")
    plan = fake.schedule(answer, script)
    first, last = plan[0], plan[-1]
    assert first[0] == 0.4
    assert last[2] == 101
    assert (101 - first[2]) / (last[0] - first[0]) == pytest.approx(50.0)


def test_a_late_chunk_does_not_delay_those_after_it() -> None:
    # A moment that has passed is not waited for: delays cannot add up.
    answer = fake.compose(fake.Script(), {"max_tokens": 4}, 1, "")
    assert [round(at, 6) for at, _, _ in fake.schedule(answer, fake.Script())] == [
        0.02,
        0.025,
        0.03,
        0.035,
    ]


def test_jitter_is_repeatable_and_differs_between_requests() -> None:
    script = fake.Script(jitter=0.1, seed=5)
    speeds = [fake.compose(script, {"max_tokens": 4}, serial, "").speed for serial in (1, 2, 1)]
    assert speeds[0] == speeds[2] != speeds[1]


# --------------------------------------------------------------------------- a program


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **more}


@contextmanager
def running(
    tmp_path: Path, *options: str, until: str = "Application startup complete", **script: Any
) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """Run a copy of it as a profile would, wait until its log says `until`, give its port."""
    program, told = tmp_path / "vllm", tmp_path / "script.json"
    shutil.copy(FOLDER / "vllm", program)
    told.write_text(json.dumps(script))
    process = subprocess.Popen(
        [program, "serve", "/models/m", "--port=0", "--served-model-name", "kimi", *options],
        env=environment(FAKE_VLLM_SCRIPT=str(told)),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    log: list[str] = []
    port = 0
    with process.stderr:
        for line in process.stderr:
            log.append(line.strip())
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            port = int(found[1]) if found else port
            if until in line:
                break
        try:
            yield process, port, log
        finally:
            process.kill()
            process.wait()


def test_it_loads_in_the_real_ones_words_then_serves_and_stops_with_0(tmp_path: Path) -> None:
    with running(tmp_path, "--dtype", "float32", "--enforce-eager", shards=2) as (
        process,
        port,
        log,
    ):
        assert ask(port, "GET", "/health")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    shards = [line for line in log if line.startswith("Loading safetensors checkpoint shards:")]
    assert [re.sub(r" \[.*", "", line) for line in shards] == [
        "Loading safetensors checkpoint shards:   0% Completed | 0/2",
        "Loading safetensors checkpoint shards:  50% Completed | 1/2",
        "Loading safetensors checkpoint shards: 100% Completed | 2/2",
    ]


def test_while_it_loads_its_port_is_bound_and_refuses(tmp_path: Path) -> None:
    port = 18231 + os.getpid() % 1000
    words = "Starting to load model"
    with running(tmp_path, f"--port={port}", until=words, never_ready=True) as (process, _, _):
        with pytest.raises(ConnectionRefusedError):
            ask(port, "GET", "/health")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGINT


def test_its_version_is_told_without_serving(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    shutil.copy(FOLDER / "vllm", program)
    asked = subprocess.run(
        [program, "--version"], env=environment(FAKE_VLLM_VERSION="0.19.1"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout == "0.19.1\n"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ({"die_during_load": 1}, 1),
        ({"exit_at_once": 3}, 3),
        ({"refused_options": ["--swap-space"]}, 2),
    ],
)
def test_a_start_that_fails_has_its_exit_status(
    tmp_path: Path, script: dict[str, Any], status: int
) -> None:
    with running(tmp_path, "--swap-space", "12", until="never said", **script) as (process, _, _):
        assert process.wait(10) == status


def test_a_dead_engine_exits_0_when_told_so_by_signal(tmp_path: Path) -> None:
    with running(tmp_path) as (process, port, _):
        assert ask(port, "GET", "/health")[0] == 200
        process.send_signal(signal.SIGUSR1)
        assert process.wait(10) == 0


def test_a_dead_engine_has_the_status_asked_for(tmp_path: Path) -> None:
    with running(tmp_path) as (process, port, _):
        ask(port, "GET", "/die?code=7")
        assert process.wait(10) == 7


def test_it_dies_after_so_many_requests(tmp_path: Path) -> None:
    with running(tmp_path, die_after_requests=2, die_status=0) as (process, port, _):
        assert ask(port, "POST", "/v1/completions", COMPLETION)[0] == 200
        assert process.poll() is None
        assert ask(port, "POST", "/v1/completions", COMPLETION)[0] == 200
        assert process.wait(10) == 0


def test_it_dies_when_its_file_appears(tmp_path: Path) -> None:
    flag = tmp_path / "die"
    with running(tmp_path, die_file=str(flag), die_status=4) as (process, _, _):
        flag.touch()
        assert process.wait(10) == 4


def test_a_wedged_engine_keeps_a_good_health(tmp_path: Path) -> None:
    with running(tmp_path) as (process, port, _):
        process.send_signal(signal.SIGUSR2)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
        connection.request("POST", "/v1/completions", json.dumps(COMPLETION))
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises(TimeoutError):
            answer.read(1)
        connection.close()
        assert ask(port, "GET", "/health")[0] == 200


def engine(port: int) -> tuple[float, float, float]:
    """Return requests that run, iterations, and the share of the KV cache in use."""
    _, text = ask(port, "GET", "/metrics")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    labels = '{engine="0",model_name="kimi"}'
    names = ("num_requests_running", "iteration_tokens_total_count", "kv_cache_usage_perc")
    running, iterations, cache = (float(values[f"vllm:{name}{labels}"]) for name in names)
    return running, iterations, cache


def test_while_a_prompt_is_read_the_cache_fills_and_no_iteration_is_counted(tmp_path: Path) -> None:
    with running(tmp_path, ttft_s=30.0) as (process, port, _):
        assert engine(port) == (0, 0, 0)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v1/completions", json.dumps(COMPLETION))
        assert connection.getresponse().status == 200
        caches: set[float] = set()
        deadline = time.monotonic() + 10
        while len(caches) < 3 and time.monotonic() < deadline:
            told = engine(port)
            assert told[:2] == (1, 0)
            caches.add(told[2])
        assert len(caches) >= 3
        process.send_signal(signal.SIGUSR2)
        time.sleep(1)  # the part that is being read
        stands = engine(port)
        time.sleep(1)
        assert engine(port) == stands
        connection.close()


def test_the_cache_is_empty_again_when_a_request_has_ended() -> None:
    with serving() as port:
        ask(port, "POST", "/v1/completions", {**COMPLETION, "max_tokens": 10})
        assert engine(port) == (0, 10, 0)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_it_refuses_on_demand_in_the_shape_of_the_real_one(status: int) -> None:
    with serving(error_status=status) as port:
        told, text = ask(port, "POST", "/v1/completions", COMPLETION)
    real = json.loads((DATA / "error.404.json").read_text())
    assert told == status
    assert list(json.loads(text)["error"]) == list(real["error"])
    assert json.loads(text)["error"]["code"] == status


def test_an_abandoned_request_is_counted_as_aborted() -> None:
    with serving(fault="silent") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/v1/completions", json.dumps(COMPLETION))
        assert connection.getresponse().status == 200
        connection.close()
        aborted = (
            'vllm:request_success_total{engine="0",finished_reason="abort",model_name="kimi"} 1.0'
        )
        deadline = time.monotonic() + 10
        while aborted not in ask(port, "GET", "/metrics")[1]:
            assert time.monotonic() < deadline
