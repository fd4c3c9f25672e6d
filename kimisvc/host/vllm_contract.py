"""The series of vLLM that our rules and dashboard lean on, and what older versions called them.

vLLM renames and drops metrics, and a rule over a series that is no more never
fires. So a running server is held against this table: once by the gate of each
start, and all along by the exporter. All of it is on the page from the first
moment on, at 0 (seen on 0.24.0 and 0.32.0).

Names: vllm/v1/metrics/loggers.py; prometheus_client adds _total to counters,
_sum, _count and _bucket to histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Series:
    """One series, and what it is needed for."""

    name: str
    needed_for: str


CONTRACT = (
    Series("vllm:request_generation_tokens_sum", "decode speed of one stream"),
    Series("vllm:request_generation_tokens_count", "decode speed of one stream"),
    Series("vllm:request_decode_time_seconds_sum", "decode speed of one stream"),
    Series("vllm:generation_tokens_total", "total throughput"),
    Series("vllm:prompt_tokens_total", "prompt throughput"),
    Series("vllm:iteration_tokens_total_count", "whether the engine moves"),
    Series("vllm:num_requests_running", "load; whether the engine moves"),
    Series("vllm:num_requests_waiting", "load; whether the engine moves"),
    Series("vllm:kv_cache_usage_perc", "memory left; whether the engine moves"),
    Series("vllm:num_preemptions_total", "requests thrown out for lack of that memory"),
    Series("vllm:prefix_cache_queries_total", "share of prompts that were cached"),
    Series("vllm:prefix_cache_hits_total", "share of prompts that were cached"),
    Series("vllm:request_success_total", "how requests ended"),
    Series("vllm:time_to_first_token_seconds_bucket", "time to first token"),
    Series("vllm:time_to_first_token_seconds_sum", "time to first token"),
    Series("vllm:time_to_first_token_seconds_count", "time to first token"),
    Series("vllm:inter_token_latency_seconds_bucket", "gaps between tokens"),
    Series("vllm:inter_token_latency_seconds_sum", "gaps between tokens"),
    Series("vllm:inter_token_latency_seconds_count", "gaps between tokens"),
    Series("vllm:e2e_request_latency_seconds_bucket", "how long requests take"),
    Series("vllm:e2e_request_latency_seconds_sum", "how long requests take"),
    Series("vllm:e2e_request_latency_seconds_count", "how long requests take"),
    Series("vllm:request_queue_time_seconds_bucket", "how long requests wait"),
    Series("vllm:request_queue_time_seconds_sum", "how long requests wait"),
    Series("vllm:request_queue_time_seconds_count", "how long requests wait"),
    Series("vllm:request_prefill_time_seconds_sum", "how long prompts take"),
    Series("vllm:request_prefill_time_seconds_count", "how long prompts take"),
)
LOOKED_AT = ("0.12.0", "0.20.0", "0.24.0", "0.32.0", "0.33.0")
"""Versions that print all of it: 0.24.0 and 0.32.0 by pages of running servers, others by source."""


@dataclass(frozen=True, slots=True)
class Former:
    """What an older vLLM printed in the place of a series, and what became of that."""

    name: str
    now: str
    ended: str


FORMER = (
    Former("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds",
           "deprecated in 0.11, hidden in 0.12, gone by 0.15"),
    Former("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc",
           "deprecated in 0.9, hidden in 0.11"),
    Former("vllm:gpu_prefix_cache_queries", "vllm:prefix_cache_queries_total",
           "deprecated in 0.9, hidden in 0.11"),
    Former("vllm:gpu_prefix_cache_hits", "vllm:prefix_cache_hits_total",
           "deprecated in 0.9, hidden in 0.11"),
)  # fmt: skip
"""A server that prints one of these alone is older than what the rules are written for."""
SERIES = frozenset(row.name for row in CONTRACT)


def missing(names: Collection[str]) -> tuple[str, ...]:
    """Given the names of all series that a server prints, return those of the contract it lacks."""
    return tuple(sorted(SERIES - frozenset(names)))
