"""The series of vLLM that our rules and dashboard lean on, and since which version they are so named.

vLLM renames and drops metrics (time_per_output_token_seconds: deprecated in
0.11, gone in 0.20), and a rule over a series that is no more never fires. So a
running server is held against this table: once by the gate of each start, and
all along by the exporter. All of it is on the page from the first moment on, at
0 (seen on 0.24.0 and 0.32.0).

Names: vllm/v1/metrics/loggers.py of 0.12.0 to 0.33.0; prometheus_client adds
_total to counters, _sum, _count and _bucket to histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Series:
    """One series, the first version known to print it so, and what it is needed for."""

    name: str
    since: str
    needed_for: str


CONTRACT = (
    Series("vllm:request_generation_tokens_sum", "0.12", "decode speed of one stream"),
    Series("vllm:request_generation_tokens_count", "0.12", "decode speed of one stream"),
    Series("vllm:request_decode_time_seconds_sum", "0.12", "decode speed of one stream"),
    Series("vllm:generation_tokens_total", "0.12", "total throughput"),
    Series("vllm:prompt_tokens_total", "0.12", "prompt throughput"),
    Series("vllm:iteration_tokens_total_count", "0.12", "whether the engine moves"),
    Series("vllm:num_requests_running", "0.12", "load; whether the engine moves"),
    Series("vllm:num_requests_waiting", "0.12", "load; whether the engine moves"),
    Series("vllm:kv_cache_usage_perc", "0.12", "memory left; whether the engine moves"),
    Series("vllm:num_preemptions_total", "0.12", "requests thrown out for lack of that memory"),
    Series("vllm:prefix_cache_queries_total", "0.12", "share of prompts that were cached"),
    Series("vllm:prefix_cache_hits_total", "0.12", "share of prompts that were cached"),
    Series("vllm:request_success_total", "0.12", "how requests ended"),
    Series("vllm:time_to_first_token_seconds_bucket", "0.12", "time to first token"),
    Series("vllm:time_to_first_token_seconds_sum", "0.12", "time to first token"),
    Series("vllm:time_to_first_token_seconds_count", "0.12", "time to first token"),
    Series("vllm:inter_token_latency_seconds_bucket", "0.12", "gaps between tokens"),
    Series("vllm:inter_token_latency_seconds_sum", "0.12", "gaps between tokens"),
    Series("vllm:inter_token_latency_seconds_count", "0.12", "gaps between tokens"),
    Series("vllm:e2e_request_latency_seconds_bucket", "0.12", "how long requests take"),
    Series("vllm:e2e_request_latency_seconds_sum", "0.12", "how long requests take"),
    Series("vllm:e2e_request_latency_seconds_count", "0.12", "how long requests take"),
    Series("vllm:request_queue_time_seconds_bucket", "0.12", "how long requests wait"),
    Series("vllm:request_queue_time_seconds_sum", "0.12", "how long requests wait"),
    Series("vllm:request_queue_time_seconds_count", "0.12", "how long requests wait"),
    Series("vllm:request_prefill_time_seconds_sum", "0.12", "how long prompts take"),
    Series("vllm:request_prefill_time_seconds_count", "0.12", "how long prompts take"),
)
SERIES = frozenset(row.name for row in CONTRACT)


def missing(names: Collection[str]) -> tuple[str, ...]:
    """Given the names of all series that a server prints, return those of the contract it lacks."""
    return tuple(sorted(SERIES - frozenset(names)))
