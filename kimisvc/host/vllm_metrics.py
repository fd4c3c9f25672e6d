"""Reads the few counters that measuring needs out of vLLM's /metrics text. Pure.

A parser of its own instead of prometheus_client's: the gate reads this text
many times a second around each request, and of 500 lines needs six.
Names: vLLM 0.12 to 0.33.
"""

from __future__ import annotations

from kimisvc.records import EngineCounters

_WANTED = {
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:request_generation_tokens_count": "requests_finished",
    "vllm:request_decode_time_seconds_sum": "decode_seconds",
    "vllm:iteration_tokens_total_count": "iterations",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}


def engine_counters(text: str) -> EngineCounters | None:
    """Given the text of /metrics, return the counters summed over engines; None if one is missing.

    They are missing under --disable-log-stats and on servers older than 0.12.
    """
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        name = line[: min(i for i in (line.find("{"), line.find(" ")) if i >= 0)]
        field = _WANTED.get(name)
        if field is not None:
            sums[field] = sums.get(field, 0.0) + float(line.rsplit(" ", 1)[1])
    if len(sums) < len(_WANTED):
        return None
    return EngineCounters(**sums)
