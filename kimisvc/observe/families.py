"""Every metric of the exporter, one row each: name, type, labels, help, and where its values come from.

The truth about the metrics; docs/metrics.md is made from it. All have the
label `instance`, which stands in no row. What is not known has no sample:
nothing stale, no invented 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.observe import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kimisvc.observe.snapshots import Scene

    Samples = Callable[[Scene], Iterable[tuple[tuple[str, ...], float]]]


class Kind(Enum):
    """The type of a metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `samples` gives, of one instance, label values in the order of `labels`."""

    name: str
    kind: Kind
    help: str
    samples: Samples
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, samples: Samples, *labels: str) -> Family:
    return Family(f"kimisvc_{name}", Kind.GAUGE, text, samples, labels)


def _counter(name: str, text: str, samples: Samples, *labels: str) -> Family:
    return Family(f"kimisvc_{name}", Kind.COUNTER, text, samples, labels)


UP = "kimisvc_up"
FAMILIES = (
    _gauge("up", "1 while systemd, files and history of this instance can be read, else 0.", facts.up),
    _gauge(
        "profile_info", "The current generation: its profile, the digest of that, and the vLLM it runs.",
        facts.profile_info, "profile", "generation", "digest", "vllm_version",
    ),
    _gauge("generation", "Number of the generation whose units are installed.", facts.generation),
    _gauge(
        "accepted_generation", "Number of the last generation that passed its gate; absent if none did.",
        facts.accepted_generation,
    ),
    _gauge(
        "unit_state", "1 for the state a unit is in, 0 for all others.",
        facts.unit_state, "unit", "state",
    ),
    _gauge(
        "should_run", "1 when a generation is current and nobody disabled or masked its service, else 0.",
        facts.should_run,
    ),
    _counter("unit_restarts_total", "Automatic restarts of the service by systemd.", facts.restarts),
    _counter("starts_total", "Starts of the service that a gate watched.", facts.starts),
    _gauge(
        "start_limit_hit", "1 when systemd has given up on the service after too many starts, else 0.",
        facts.start_limit_hit,
    ),
    _gauge(
        "start_limit", "Starts that systemd tries before it gives up: `starts` of the profile.",
        facts.start_limit,
    ),
    _gauge(
        "service_started_timestamp_seconds", "When the start that runs began; absent where none does.",
        facts.service_started,
    ),
    _gauge(
        "ready",
        "1 when the start that runs was seen ready by its gate, else 0; "
        "absent where its gate ended before that, stopped or broken, and so none tells.",
        facts.is_ready,
    ),
    _gauge(
        "load_progress_ratio", "Share of the shards that are loaded; only while loading.",
        facts.load_progress,
    ),
    _gauge(
        "load_started_timestamp_seconds", "When the load that runs began; only while loading.",
        facts.load_started,
    ),
    _gauge("load_timeout_seconds", "The load_timeout of the profile.", facts.load_timeout),
    _gauge(
        "load_expected_seconds", "Median of the last five loads of this model; absent before the first.",
        facts.load_expected,
    ),
    _gauge("load_duration_seconds", "How long the last finished load took.", facts.load_duration),
    _gauge(
        "decode_tokens_per_second",
        "Decode throughput of one stream now, from the engines' counters; absent when idle or untold.",
        facts.decode_speed,
    ),
    _gauge(
        "generation_tokens_per_second",
        "Throughput of all streams now; 0 when idle, absent when vLLM does not answer.",
        facts.total_speed,
    ),
    _gauge(
        "engine_stalled",
        "1 when an engine has requests and moves neither iterations nor its use of the KV cache, else 0.",
        facts.stalled,
    ),
    _gauge("engine_reachable", "1 when /metrics of vLLM answers, else 0.", facts.reachable),
    _gauge(
        "probe_decode_tokens_per_second",
        "Decode throughput that a probe measured: of the start that runs by its gate, or by the canary.",
        facts.probe_speed, "source",
    ),
    _gauge(
        "probe_decode_tokens_per_second_low", "Lower end of the 95 % interval of that.",
        facts.probe_low, "source",
    ),
    _gauge(
        "probe_decode_tokens_per_second_high", "Upper end of the 95 % interval of that.",
        facts.probe_high, "source",
    ),
    _gauge("probe_ttft_seconds", "Time to first token that a probe measured.", facts.probe_ttft, "source"),
    _gauge("probe_timestamp_seconds", "When that probe ended.", facts.probe_at, "source"),
    _gauge(
        "gate_verdict", "1 for the verdict on the start that runs, 0 for all others; all 0 before it.",
        facts.gate_verdict, "verdict",
    ),
    _gauge(
        "gate_timestamp_seconds", "When the verdict on the start that runs was given.", facts.gate_at
    ),
    _gauge(
        "gate_floor_tokens_per_second", "Decode throughput under which the gate fails.",
        facts.gate_floor,
    ),
    _gauge(
        "gate_goal_tokens_per_second", "Decode throughput from which on the gate passes.",
        facts.gate_goal,
    ),
    _counter("applies_total", "Applies by how they ended.", facts.applies, "outcome"),
    _counter(
        "rollbacks_total", "Rollbacks by whether there was a generation to restore.",
        facts.rollbacks, "restored",
    ),
    _gauge(
        "rollbacks_waiting", "Rollbacks that history has not taken yet: it cannot be written.",
        facts.rollbacks_waiting, "restored",
    ),
    _gauge("unit_drift", "Number of ways in which the box differs from the current generation.", facts.drift),
    _gauge(
        "metric_contract_broken", "1 for each series of vLLM that rules need and it does not print.",
        facts.contract_broken, "metric",
    ),
    _gauge(
        "metric_contract_missing", "Number of series that rules need and vLLM does not print.",
        facts.contract_missing,
    ),
    _counter("canary_runs_total", "Canary runs by what became of them.", facts.canary_runs, "result"),
    _gauge(
        "canary_due_timestamp_seconds",
        "When the next canary has to have run, or been skipped, if not as skipped_unknown;"
        " absent where none is asked for.",
        facts.canary_due,
    ),
    _counter(
        "scrape_errors_total", "Readings of a source that failed or hung; a vLLM that is not there is none.",
        facts.errors, "source",
    ),
    _gauge(
        "source_age_seconds", "Age of the newest data of a source; what is too old is not shown.",
        facts.ages, "source",
    ),
)  # fmt: skip
