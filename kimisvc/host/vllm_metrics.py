"""Reads the few counters that measuring needs out of vLLM's /metrics text. Pure.

A parser of its own instead of prometheus_client's: the gate reads this text
many times a second around each request and needs eight of its 500 lines. (On a
captured page: 0.2 ms against 9 ms, and no import of 60 ms.)
Names: vLLM 0.12 to 0.33, v1/metrics/loggers.py. Format: Prometheus text 0.0.4,
`name{labels} value [timestamp]`.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import TYPE_CHECKING

from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WANTED = {
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:request_generation_tokens_count": "requests_finished",
    "vllm:request_generation_tokens_sum": "finished_tokens",
    "vllm:request_decode_time_seconds_sum": "decode_seconds",
    "vllm:iteration_tokens_total_count": "iterations",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}
_OPTIONAL = {"vllm:kv_cache_usage_perc": "kv_cache"}
"""What may be missing: it only says more."""
_READ = {**_WANTED, **_OPTIONAL}
_GAUGES = ("running", "waiting", "kv_cache")
_ENGINE = re.compile(r'(?<=[{, ])(?:engine|model_name)="(?:[^"\\]|\\.)*"')
"""The labels that tell one engine from another; in a value a quote has a backslash before it."""


def engine_counters(text: str) -> EngineCounters | None:
    """Given the text of /metrics, return the counters summed over engines; None if one is missing.

    They are missing under --disable-log-stats and on servers older than 0.12;
    `missing_counters` says which.
    """
    sums = _sums(text)
    return EngineCounters(**sums) if _whole(sums) else None


def each_engine(text: str) -> Mapping[str, EngineCounters]:
    """Given the text of /metrics, return the counters of each engine; empty if one is missing.

    Several API servers (PROMETHEUS_MULTIPROC_DIR) show an engine's gauges from the first request
    on that it gets (prometheus_client, `mostrecent`), its counters at once: until then nothing
    runs or waits there.
    """
    engines: dict[str, dict[str, float]] = {}
    for labels, field, value in _samples(text):
        engine = engines.setdefault(labels, {})
        engine[field] = engine.get(field, 0.0) + value
    found = [{"running": 0.0, "waiting": 0.0} | counters for counters in engines.values()]
    if not _whole(_sums(text)) or not all(map(_whole, found)):
        return {}
    return {labels: EngineCounters(**one) for labels, one in zip(engines, found, strict=True)}


def missing_counters(text: str) -> tuple[str, ...]:
    """Given the text of /metrics, return the names that `engine_counters` needs and does not find."""
    found = _sums(text)
    return tuple(name for name, field in _WANTED.items() if field not in found)


def series_names(text: str) -> frozenset[str]:
    """Given the text of /metrics, return the names of all series in it that are vLLM's."""
    return frozenset(
        line.partition("{")[0].partition(" ")[0]
        for line in text.split("\n")
        if line.startswith("vllm:")
    )


def born(text: str) -> float:
    """Given the text of /metrics, return when its server was started (Unix time, s); 0: unsaid.

    With several API servers (PROMETHEUS_MULTIPROC_DIR) no page says so.
    """
    for line in text.split("\n"):
        if line.startswith("process_start_time_seconds "):
            return _value(line) or 0.0
    return 0.0


def counters_delta(before: EngineCounters, after: EngineCounters) -> EngineCounters | None:
    """Given two readings of one server, return what was counted in between; None after a restart.

    A counter that fell was counted anew from 0. `running`, `waiting` and
    `kv_cache` are no counters: they are those of `after`.
    """
    deltas = {
        field.name: getattr(after, field.name) - getattr(before, field.name)
        for field in fields(EngineCounters)
        if field.name not in _GAUGES
    }
    if any(delta < 0 for delta in deltas.values()):
        return None
    gauges = {name: getattr(after, name) for name in _GAUGES}
    return EngineCounters(**deltas, **gauges)


def _whole(found: Mapping[str, float]) -> bool:
    return found.keys() >= set(_WANTED.values())


def _sums(text: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for _, field, value in _samples(text):
        sums[field] = sums.get(field, 0.0) + value
    return sums


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Given the text of /metrics, yield what is read of it: (engine, field, value)."""
    for line in text.split("\n"):
        if not line.startswith("vllm:"):
            continue
        field = _READ.get(line.partition("{")[0].partition(" ")[0])
        value = _value(line) if field else None
        if field and value is not None:
            yield ",".join(sorted(_ENGINE.findall(line))), field, value


def _value(line: str) -> float | None:
    """Given a sample's line, return its value; a label may hold spaces and braces."""
    words = line[line.rfind("}") + 1 :].split() if "{" in line else line.split()[1:]
    try:
        value = float(words[0])
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) else None
