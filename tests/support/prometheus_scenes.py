"""Scenes for the alert rules: a healthy box as series of half a minute each, and what may happen to it.

Each scene is the healthy box with some of its series changed or gone, and says
which alerts fire at which minute. All others have to be silent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP_S = 30
HOURS = 8
COUNT = HOURS * 3600 // STEP_S
GONE = "gone"
"""In the place of values: the series is not there at all."""
WHERE = 'host="box",instance="kimi"'


def kimi(name: str, **labels: str) -> str:
    """Given a name and labels, return the series as the exporter's job has it."""
    return _series(name, {"job": "kimisvc", **labels})


def vllm(name: str, **labels: str) -> str:
    """Given a name and labels, return the series as vLLM's job has it."""
    return _series(f"vllm:{name}", {"job": "vllm", "engine": "0", "model_name": "kimi", **labels})


def _series(name: str, labels: Mapping[str, str]) -> str:
    more = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{WHERE},{more}}}"


EXPORTER_UP = 'up{host="box",instance="127.0.0.1:9464",job="kimisvc"}'
VLLM_UP = _series("up", {"job": "vllm"})
RUNNING, WAITING = vllm("num_requests_running"), vllm("num_requests_waiting")
MOVED = vllm("iteration_tokens_total_count")
KV_CACHE = vllm("kv_cache_usage_perc")
TOKENS = vllm("request_generation_tokens_sum")
REQUESTS = vllm("request_generation_tokens_count")
ANSWERED = vllm("request_success_total", finished_reason="stop")
LEFT = vllm("request_success_total", finished_reason="abort")
DECODE_S = vllm("request_decode_time_seconds_sum")
SPEED = kimi("kimisvc_decode_tokens_per_second")
READY, STALLED = kimi("kimisvc_ready"), kimi("kimisvc_engine_stalled")
BEGAN = kimi("kimisvc_service_started_timestamp_seconds")
REACHABLE = kimi("kimisvc_engine_reachable")
CANARY_FAILED = kimi("kimisvc_canary_runs_total", result="failed")
CANARY_MEASURED = kimi("kimisvc_canary_runs_total", result="measured")
CANARY_AT = kimi("kimisvc_probe_timestamp_seconds", source="canary")
CANARY_DUE = kimi("kimisvc_canary_due_timestamp_seconds")
CANARY_HIGH = kimi("kimisvc_probe_decode_tokens_per_second_high", source="canary")
GATE_AT = kimi("kimisvc_probe_timestamp_seconds", source="gate")
RESTARTS, STARTS = kimi("kimisvc_unit_restarts_total"), kimi("kimisvc_starts_total")
START_LIMIT = kimi("kimisvc_start_limit")
GENERATION, PROVEN = kimi("kimisvc_generation"), kimi("kimisvc_accepted_generation")
ACCEPTED = kimi("kimisvc_applies_total", outcome="accepted")
RESTORED = kimi("kimisvc_rollbacks_total", restored="yes")
UNKEPT = kimi("kimisvc_rollbacks_waiting", restored="yes")
DRIFT = kimi("kimisvc_unit_drift")
MISSING = kimi("kimisvc_metric_contract_missing")
LOAD_BEGAN = kimi("kimisvc_load_started_timestamp_seconds")
VERDICTS = ("PASS", "DEGRADED", "FAIL", "INCONCLUSIVE")
STATES = ("active", "activating", "deactivating", "inactive", "failed", "reloading")


def seldom(values: str) -> str:
    """Given the values of a series each half minute, return those of a scrape a minute.

    As values each quarter of a minute: a scrape comes a quarter after each full
    minute, so that no range begins with one by chance.
    """
    if values == GONE:
        return values
    found: list[str] = []
    for part in values.split():
        first, _, count = part.partition("x")
        base, _, step = first.partition("+")
        times = range(int(count or 0) + (base != "_" or not count))
        found += (
            base if base in ("_", "stale") else f"{float(base) + n * float(step or 0):g}"
            for n in times
        )
    return " ".join(f"_ {one} _ _" for one in found[::2])


def always(value: float) -> str:
    """Given a value, return it for the whole scene."""
    return f"{value:g}+0x{COUNT}"


def growing(by: float, start: float = 0) -> str:
    """Given how much is added each half minute, return a counter."""
    return f"{start:g}+{by:g}x{COUNT}"


def at(*changes: tuple[float, float | None]) -> str:
    """Given (minute, value from then on), ascending, return the values; None: the series is gone."""
    parts = []
    changes = tuple(change for change in changes if change[0] < HOURS * 60)
    ends = [*(minute for minute, _ in changes[1:]), HOURS * 60]
    for (begin, value), end in zip(changes, ends, strict=True):
        steps = round((end - begin) * 60 / STEP_S)
        gone = f"stale _x{steps - 1}" if steps > 1 else "stale"
        parts.append(gone if value is None else f"{value:g}+0x{steps - 1}")
    return " ".join(parts)


def every(minutes: float, begin: float = 0, first: float = 0, until: float = HOURS * 60) -> str:
    """Given a distance in minutes, return a counter that counts one each time."""
    moments, now, count = [(0.0, first)], begin + minutes, first
    while now <= until:
        count += 1
        moments.append((now, count))
        now += minutes
    return at(*moments)


def moments(minutes: float, until: float = HOURS * 60, later: float = 0) -> str:
    """Given a distance in minutes, return when it was last so many (s), and so much later; then held."""
    return at(*((float(m), m * 60 + later) for m in range(0, round(until) + 1, round(minutes))))


def unit(name: str, now: str) -> dict[str, str]:
    """Given a unit and its state, return its series."""
    return {kimi("kimisvc_unit_state", unit=name, state=s): always(s == now) for s in STATES}


def became(name: str, *changes: tuple[float, str]) -> dict[str, str]:
    """Given a unit and (minute, state from then on), return its series."""
    return {
        kimi("kimisvc_unit_state", unit=name, state=s): at(*((m, now == s) for m, now in changes))
        for s in STATES
    }


def verdict(*changes: tuple[float, str]) -> dict[str, str]:
    """Given (minute, verdict from then on; empty: none), return the series of the gate's verdict."""
    return {
        kimi("kimisvc_gate_verdict", verdict=v): at(*((m, float(now == v)) for m, now in changes))
        for v in VERDICTS
    }


def refused(*minutes: float) -> dict[str, str]:
    """Given when candidates were applied, return the series of those: each dies twice in loading and
    is rolled back after 8 minutes; what is restored is proven 30 minutes later.
    """
    return {
        RESTARTS: at((0, 0), *((m + d, n) for m in minutes for d, n in ((4, 1), (8, 2), (8.5, 0)))),
        STARTS: _counted(3, minutes, (4, 8, 38)),
        GENERATION: at((0, 2), *((m + d, n) for m in minutes for d, n in ((0, 3), (8.5, 2)))),
        RESTORED: _counted(1, minutes, (8.5,)),
        kimi("kimisvc_applies_total", outcome="rolled-back"): _counted(0, minutes, (38,)),
    }


def _counted(first: float, minutes: Sequence[float], after: Sequence[float]) -> str:
    moments = sorted(minute + more for minute in minutes for more in after)
    return at((0, first), *((moment, first + n) for n, moment in enumerate(moments, 1)))


def traffic(streams: float, tok_s: float, tokens: float = 800) -> dict[str, str]:
    """Given how many requests run and how fast each decodes, return vLLM's series."""
    made = streams * tok_s * STEP_S
    requests = made / tokens
    return {
        RUNNING: always(streams),
        WAITING: always(0),
        MOVED: growing(tok_s * STEP_S),
        KV_CACHE: growing(0.0002, 0.1) if streams else always(0),
        TOKENS: growing(made),
        REQUESTS: growing(requests),
        ANSWERED: growing(requests),
        DECODE_S: growing((made - requests) / tok_s),
        SPEED: always(tok_s),
        kimi("kimisvc_generation_tokens_per_second"): always(streams * tok_s),
    }


IDLE = traffic(0, 80) | {SPEED: GONE, MOVED: always(9000)}
NO_VLLM = dict.fromkeys(
    (RUNNING, WAITING, MOVED, KV_CACHE, TOKENS, REQUESTS, ANSWERED, DECODE_S, SPEED), GONE
)
REFUSED = NO_VLLM | {VLLM_UP: always(0), REACHABLE: always(0), STALLED: GONE, MISSING: GONE}

HEALTHY: Mapping[str, str] = {
    EXPORTER_UP: always(1),
    VLLM_UP: always(1),
    kimi("kimisvc_up"): always(1),
    kimi("kimisvc_should_run"): always(1),
    **unit("service", "active"),
    **unit("gate", "inactive"),
    **verdict((0, "PASS")),
    BEGAN: always(-7200),
    READY: always(1),
    REACHABLE: always(1),
    STALLED: always(0),
    RESTARTS: always(0),
    STARTS: always(3),
    START_LIMIT: always(2),
    GENERATION: always(2),
    PROVEN: always(2),
    ACCEPTED: always(2),
    RESTORED: always(1),
    kimi("kimisvc_applies_total", outcome="unchanged"): always(0),
    kimi("kimisvc_rollbacks_total", restored="no"): always(0),
    UNKEPT: always(0),
    kimi("kimisvc_rollbacks_waiting", restored="no"): always(0),
    kimi("kimisvc_load_timeout_seconds"): always(45 * 60),
    kimi("kimisvc_gate_floor_tokens_per_second"): always(40),
    GATE_AT: always(0),
    kimi("kimisvc_probe_decode_tokens_per_second_high", source="gate"): always(82),
    CANARY_AT: moments(10),
    CANARY_HIGH: always(83),
    CANARY_DUE: moments(10, later=630),
    CANARY_MEASURED: every(10),
    CANARY_FAILED: always(0),
    DRIFT: always(0),
    MISSING: always(0),
    **traffic(1, 80),
}


WEDGED = {**IDLE, CANARY_MEASURED: every(10, until=60), CANARY_AT: moments(10, until=60)}
FAILED_ONCE = {**WEDGED, CANARY_FAILED: at((0, 0), (70, 1))}
STANDING = {MOVED: always(5000), KV_CACHE: always(0.2)}
"""An engine that makes no step: nothing of what it tells changes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`changes` to the healthy box, and which alerts fire at which minute."""

    name: str
    changes: Mapping[str, str] = field(default_factory=dict)
    fires: Sequence[tuple[float, frozenset[str]]] = ((30, frozenset()),)

    @property
    def series(self) -> dict[str, str]:
        """All series of the scene."""
        return {k: v for k, v in {**HEALTHY, **self.changes}.items() if v != GONE}


def alerts(*names: str) -> frozenset[str]:
    """Given short names, return those of the alerts."""
    return frozenset(f"Kimisvc{name}" for name in names)
