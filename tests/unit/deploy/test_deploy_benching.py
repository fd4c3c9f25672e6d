"""bench: what is asked of vLLM's load generator, and what is kept of its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deploy_support import Quiet, add_generation, add_start, box_at, profile

from kimisvc import __version__
from kimisvc.deploy.benching import Wanted, benchmark, failures, server_of
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import gpu, nvidia_driver
from kimisvc.host.gpu_condition import Clocks
from kimisvc.host.vllm_bench import BenchResult, Load, Server
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box

IDLE = EngineCounters(9.0, 1.0, 0.0, 0.0, 0.0, 0.0)
GOOD = BenchResult(8, 0, {"output_throughput": 13.87, "mean_ttft_ms": 143.3, "p99_tpot_ms": 73.6})


class Api:
    """A server with these counters."""

    def __init__(self, counters: EngineCounters = IDLE) -> None:
        self._counters = counters

    def counters(self) -> EngineCounters | None:
        return self._counters


class Told:
    """Takes in what a reporter is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)

    def progress(self, progress: object) -> None:
        raise AssertionError(progress)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = box_at(tmp_path, Quiet(kimisvc_kimi="active"))
    add_generation(made, profile("base"))
    made.generations.make_current(made.generations.get(1))
    return made


def test_each_concurrency_is_measured_and_kept(box: Box) -> None:
    asked: list[tuple[Server, Load, float]] = []

    def measure(server: Server, load: Load, timeout: float) -> BenchResult:
        asked.append((server, load, timeout))
        return replace(GOOD, failed=load.concurrency // 64)

    told = Told()
    wanted = Wanted((1, 64), None, 1024, 256)
    rows = benchmark(box, wanted, Api(), "http://127.0.0.1:8000", told, measure)
    assert [(load.concurrency, load.requests) for _, load, _ in asked] == [(1, 8), (64, 256)]
    assert asked[0][0].model == "/srv/model"
    assert [row.output_throughput for row in rows] == [13.87, 13.87]
    assert failures(rows) == 1
    kept = box.history.benches()
    assert [(r.concurrency, r.completed, r.failed) for r in kept] == [(64, 8, 1), (1, 8, 0)]
    assert (kept[0].invocation, kept[0].generation, kept[0].profile) == ("running", 1, "base")
    assert (kept[0].p99_tpot_ms, kept[0].mean_itl_ms) == (73.6, None)
    assert kept[0].facts["input_tokens"] == 1024
    assert kept[0].facts["temperature"] == 0
    assert told.steps == [
        "1 at once: 8 requests; 65 minutes at most, Ctrl-C ends it",
        "64 at once: 256 requests; 65 minutes at most, Ctrl-C ends it",
    ]
    assert {timeout for *_, timeout in asked} == {65 * 60.0}


def test_a_row_says_what_was_measured_and_on_what(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the server told its gate goes before what its generation was made with."""
    monkeypatch.setattr(nvidia_driver, "loaded_version", lambda: "580.159.04")
    monkeypatch.setattr(nvidia_driver, "gpu_names", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(gpu, "clocks", lambda: (Clocks(1965, 1980, 3201, 3201),))
    measured(box, GOOD)
    add_start(box, 1, (55.0, 55.1), vllm="0.33.1", kept="running")
    measured(box, GOOD)
    later, first = (row.facts for row in box.history.benches())
    assert (first.get("vllm"), later["vllm"]) == (None, "0.33.1")
    assert (later["kimisvc"], later["driver"], later["gpus"], later["model"]) == (
        __version__, "580.159.04", ["NVIDIA H200"], "/srv/model",
    )  # fmt: skip
    assert later["clocks"] == ["SM 1965 of 1980 MHz, memory 3201 of 3201 MHz"]


def measured(box: Box, result: BenchResult | HostError, api: Api | None = None) -> None:
    def measure(_server: Server, _load: Load, _timeout: float) -> BenchResult:
        if isinstance(result, HostError):
            raise result
        return result

    wanted = Wanted((4,), 2, 10, 10)
    benchmark(box, wanted, api or Api(), "http://x", Told(), measure)


def test_nothing_answered_is_no_figure(box: Box) -> None:
    with pytest.raises(KimisvcError, match="none of 2 requests"):
        measured(box, replace(GOOD, completed=0, failed=2))
    with pytest.raises(HostError, match="status 1"):
        measured(box, HostError("bench-failed", "vllm bench serve ended with status 1: x"))
    assert box.history.benches() == ()


def test_a_server_in_use_is_not_measured(box: Box) -> None:
    with pytest.raises(KimisvcError, match="in use"):
        measured(box, GOOD, Api(replace(IDLE, running=1.0)))


def test_a_server_started_anew_meanwhile_is_not_kept(box: Box) -> None:
    def measure(_server: Server, _load: Load, _timeout: float) -> BenchResult:
        box.systemd.invocation = "another"  # type: ignore[attr-defined]  # of the stand-in
        return GOOD

    with pytest.raises(KimisvcError, match="started anew"):
        benchmark(box, Wanted((1,), 1, 1, 1), Api(), "http://x", Told(), measure)
    assert box.history.benches() == ()


def test_one_that_does_not_run(tmp_path: Path) -> None:
    made = box_at(tmp_path)
    with pytest.raises(KimisvcError, match="nothing was applied"):
        measured(made, GOOD)
    add_generation(made, profile("base"))
    made.generations.make_current(made.generations.get(1))
    with pytest.raises(KimisvcError, match="inactive"):
        measured(made, GOOD)


def test_tokens_are_made_as_the_server_makes_them() -> None:
    plain = profile("p")
    assert server_of(plain, "u") == Server("/opt/vllm/bin/vllm", "u", "/srv/model", "/srv/model")
    told = replace(
        plain,
        args={"trust-remote-code": True, "tokenizer": "/srv/tok", "tokenizer_mode": "slow"},
        service=replace(plain.service, user="vllm", secrets_file="/etc/s"),
        vllm=replace(plain.vllm, served_model_name="kimi"),
    )
    server = server_of(told, "u")
    assert (server.model, server.tokenizer, server.user) == ("kimi", "/srv/tok", "vllm")
    assert server.secrets_file == "/etc/s"
    assert server.options == ("--trust-remote-code", "--tokenizer-mode", "slow")
