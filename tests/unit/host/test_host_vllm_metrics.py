"""Counters out of captured /metrics pages of vLLM 0.24.0 and 0.32.0."""

from __future__ import annotations

from dataclasses import replace

import pytest
from host_support import DATA
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kimisvc.host.vllm_metrics import (
    counters_delta,
    each_engine,
    engine_counters,
    missing_counters,
)
from kimisvc.records.proof import EngineCounters

PAGES = ("metrics-0.24.0-after.txt", "metrics-0.32.0-after.txt", "metrics-0.32.0-idle.txt")


def page(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_the_counters_of_vllm_0_24() -> None:
    assert engine_counters(page("metrics-0.24.0-after.txt")) == EngineCounters(
        generation_tokens=3328, requests_finished=8, decode_seconds=56.58236587799996,
        iterations=3328, running=0, waiting=0, finished_tokens=3328,
    )  # fmt: skip


def test_the_counters_of_vllm_0_32() -> None:
    assert engine_counters(page("metrics-0.32.0-after.txt")) == EngineCounters(
        generation_tokens=588, requests_finished=7, decode_seconds=41.487655935999555,
        iterations=588, running=0, waiting=0, finished_tokens=588,
    )  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_prometheus_own_parser_reads_the_same_values(name: str) -> None:
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page(name))
        for sample in family.samples
        if sample.labels.get("finished_reason") is None
    }
    found = engine_counters(page(name))
    assert found is not None
    assert found.generation_tokens == samples["vllm:generation_tokens_total"]
    assert found.iterations == samples["vllm:iteration_tokens_total_count"]
    assert found.decode_seconds == samples["vllm:request_decode_time_seconds_sum"]


def test_several_engines_are_summed() -> None:
    text = page("metrics-0.32.0-after.txt")
    both = engine_counters(text + text.replace('engine="0"', 'engine="1"'))
    assert both is not None
    assert (both.generation_tokens, both.requests_finished) == (1176, 14)


def of_engine(labels: str) -> str:
    """The page of vLLM 0.32 with other labels."""
    return page("metrics-0.32.0-after.txt").replace('engine="0",model_name="kimi"', labels)


ENGINES = ('engine="0",model_name="kimi"', 'engine="1",model_name="kimi"')


@pytest.mark.parametrize("name", PAGES)
def test_one_engine_tells_what_the_sums_do(name: str) -> None:
    assert list(each_engine(page(name)).values()) == [engine_counters(page(name))]


@pytest.mark.parametrize("labels", [
    ENGINES,
    ('engine="0",model_name="a"', 'engine="0",model_name="b"'),
    ('engine="0",model_name="a"', 'model_name="a",engine="1"'),
    ('engine="0",model_name="a } b, c"', 'engine="0", model_name="a { b"'),
    ('engine="0",model_name="a\\\\",x="1"', 'engine="0",model_name="a\\",engine=\\"1"'),
    ('engine="0"', 'shard="0"'),
], ids=" ".join)  # fmt: skip
def test_each_pair_of_engine_and_model_is_told_apart(labels: tuple[str, str]) -> None:
    alone = engine_counters(page("metrics-0.32.0-after.txt"))
    found = each_engine("\n".join(map(of_engine, labels)))
    assert list(found.values()) == [alone, alone]


def test_an_engine_is_the_same_whatever_the_order_of_its_labels() -> None:
    there = (
        each_engine(of_engine(ENGINES[1])),
        each_engine(of_engine('model_name="kimi",engine="1"')),
    )
    assert there[0] == there[1]


def without(text: str, name: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(name))


@pytest.mark.parametrize("gauge", ["vllm:num_requests_running", "vllm:num_requests_waiting"])
def test_nothing_runs_or_waits_on_an_engine_whose_gauges_nobody_has_set_yet(gauge: str) -> None:
    """So do several API servers show an engine that had no request since the start."""
    busy = of_engine(ENGINES[0]).replace('model_name="kimi"} 0.0', 'model_name="kimi"} 3.0')
    found = each_engine(f"{busy}\n{without(of_engine(ENGINES[1]), f'{gauge}{{')}")
    assert [(one.running, one.waiting) for one in found.values()] == [(3, 3), (0, 0)]
    assert each_engine(without(busy, f"{gauge}{{")) == {}


@pytest.mark.parametrize(
    "name", ["vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"]
)
def test_where_one_engine_lacks_a_counter_nothing_is_told(name: str) -> None:
    text = f"{of_engine(ENGINES[0])}\n{without(of_engine(ENGINES[1]), name)}"
    assert each_engine(text) == {}


def test_without_log_stats_there_are_no_counters_and_the_missing_ones_are_named() -> None:
    text = "\n".join(
        line
        for line in page("metrics-0.32.0-after.txt").splitlines()
        if "vllm:iteration_tokens_total_count" not in line
    )
    assert engine_counters(text) is None
    assert missing_counters(text) == ("vllm:iteration_tokens_total_count",)
    assert len(missing_counters("process_cpu_seconds_total 3\n")) == 7


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0",model_name="a } b"} 3.0',
        'vllm:num_requests_running{engine="0"} 3.0 1796011702000',
        "vllm:num_requests_running 3.0",
        'vllm:num_requests_running{engine="0"} 3e0',
    ],
)
def test_every_spelling_of_a_sample_is_read(line: str) -> None:
    kept = [
        other
        for other in page("metrics-0.32.0-idle.txt").splitlines()
        if not other.startswith("vllm:num_requests_running")
    ]
    found = engine_counters("\n".join([*kept, line]))
    assert found is not None
    assert found.running == 3


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "x", ""])
def test_a_value_that_is_no_number_is_missing(value: str) -> None:
    kept = [
        other
        for other in page("metrics-0.32.0-idle.txt").splitlines()
        if not other.startswith("vllm:num_requests_running")
    ]
    text = "\n".join([*kept, f"vllm:num_requests_running {value}"])
    assert engine_counters(text) is None
    assert missing_counters(text) == ("vllm:num_requests_running",)


@given(st.text(), st.sampled_from(["", "{", "{a", "}", " ", " NaN", "{} +Inf", " x"]))
def test_no_page_breaks_the_reader(text: str, tail: str) -> None:
    assert engine_counters(f"{text}\nvllm:num_requests_running{tail}\n") is None


def test_a_delta_is_what_was_counted_in_between() -> None:
    before = EngineCounters(100, 1, 2.0, 100, 0, 0)
    after = EngineCounters(356, 2, 5.5, 356, 1, 2)
    assert counters_delta(before, after) == EngineCounters(256, 1, 3.5, 256, 1, 2)


@pytest.mark.parametrize(
    "field", ["generation_tokens", "requests_finished", "decode_seconds", "iterations"]
)
def test_a_counter_that_fell_was_reset_and_gives_no_delta(field: str) -> None:
    before = EngineCounters(100, 1, 2.0, 100, 5, 5)
    assert counters_delta(before, replace(before, **{field: 0.5})) is None


def test_gauges_may_fall() -> None:
    before = EngineCounters(100, 1, 2.0, 100, 5, 5, kv_cache=0.5)
    delta = counters_delta(before, replace(before, running=0, waiting=0, kv_cache=0.1))
    assert delta == EngineCounters(0, 0, 0.0, 0, 0, 0, kv_cache=0.1)


def test_the_use_of_the_cache_is_read_where_a_server_tells_it() -> None:
    text = page("metrics-0.32.0-after.txt")
    silent = engine_counters(text)
    assert silent is not None
    assert silent.kv_cache == 0.0
    told = 'vllm:kv_cache_usage_perc{engine="0",model_name="kimi"} 0.25\n'
    found = engine_counters(text + told)
    assert found == replace(silent, kv_cache=0.25)
