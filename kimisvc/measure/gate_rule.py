"""Decides from samples alone: PASS, DEGRADED, FAIL, INCONCLUSIVE, or measure on. Pure.

The speed is judged by the 95 % interval of its mean over runs, so one lucky or
unlucky run decides nothing; the time to first token by its median. Since the
rule looks after each run and stops when it likes what it sees, an interval made
for one look would be wrong too often: a server at the floor would get through
in one gate of twelve (docs/measuring.md). Each look is therefore given its share of the 5 %
(`statistics.shared`), and the interval that is told holds although it was stopped at.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from kimisvc.measure.statistics import ENOUGH, mean_interval, relative_half_width, shared
from kimisvc.records.proof import Interval, Sample, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.records.profile import GateSettings, ProbeSettings, SpeedTarget


def decide(samples: Sequence[Sample], probe: ProbeSettings, gate: GateSettings) -> Verdict | None:
    """Given the runs so far, return the verdict, or None while another run may change it.

    Never before `min_runs`, never None from `max_runs` on.
    """
    if len(samples) < max(1, min(probe.min_runs, probe.max_runs)):
        return None
    interval = speed_interval(samples, probe)
    if gate.decode_tok_s is None:
        verdict = _without_target(samples, interval, probe)
    else:
        verdict = _against_target(len(samples), interval, probe, gate.decode_tok_s)
    if verdict is None or verdict.kind is VerdictKind.FAIL:
        return verdict
    return _first_token(samples, gate) or verdict


def speed_interval(samples: Sequence[Sample], probe: ProbeSettings) -> Interval | None:
    """Given the runs so far, return the interval of their speed that the rule judges by.

    It holds with 95 % at all looks together, so that stopping at one of them
    does not spoil it. None with fewer than two runs.
    """
    return mean_interval([sample.decode_tok_s for sample in samples], shared(looks(probe)))


def looks(probe: ProbeSettings) -> int:
    """Given how many runs there may be, return how often the rule may look at an interval."""
    first = max(ENOUGH, min(probe.min_runs, probe.max_runs))
    return max(1, probe.max_runs - first + 1)


def _without_target(
    samples: Sequence[Sample], interval: Interval | None, probe: ProbeSettings
) -> Verdict | None:
    if len(samples) < probe.max_runs and not _precise(interval, probe):
        return None
    figure = (
        f"{samples[0].decode_tok_s:.2f} tok/s in one run" if interval is None else say(interval)
    )
    return Verdict(VerdictKind.PASS, f"{figure}; no target to hold it against")


def _against_target(
    runs: int, interval: Interval | None, probe: ProbeSettings, target: SpeedTarget
) -> Verdict | None:
    last = runs >= probe.max_runs
    if interval is None:
        reason = "one run has no confidence interval; probe.max_runs must be 2 or more"
        return Verdict(VerdictKind.INCONCLUSIVE, reason) if last else None
    kind, why = _place(interval, target)
    # Goal or floor inside the interval: more runs may still settle it. A narrow interval is
    # reason enough to stop for the goal, not for the floor: there a few more seconds may
    # settle what another load would have to.
    settled = kind is not None
    if kind is None:
        over_floor = interval.low >= target.floor
        kind = VerdictKind.DEGRADED if over_floor else VerdictKind.INCONCLUSIVE
        why = f"{why} after {runs} runs"
        settled = last or (over_floor and _precise(interval, probe))
    return Verdict(kind, f"{say(interval)}: {why}") if settled else None


def _place(interval: Interval, target: SpeedTarget) -> tuple[VerdictKind | None, str]:
    """Given an interval, say where it lies; None where floor or goal lies inside it."""
    floor, goal = f"the floor of {target.floor:g}", f"the goal of {target.goal:g}"
    if interval.low >= target.goal:
        return VerdictKind.PASS, f"at or over {goal}"
    if interval.high < target.floor:
        return VerdictKind.FAIL, f"under {floor}"
    if interval.low < target.floor:
        return None, f"{floor} lies inside the interval"
    if interval.high < target.goal:
        return VerdictKind.DEGRADED, f"over {floor}, under {goal}"
    return None, f"over {floor}, not shown to reach {goal}"


def _first_token(samples: Sequence[Sample], gate: GateSettings) -> Verdict | None:
    """Given the runs, return FAIL when the median time to first token is over its limit."""
    middle = median(sample.ttft_s for sample in samples)
    if gate.max_ttft is None or middle <= gate.max_ttft:
        return None
    reason = f"first token after {middle:.3g} s (median), over the limit of {gate.max_ttft:g} s"
    return Verdict(VerdictKind.FAIL, reason)


def _precise(interval: Interval | None, probe: ProbeSettings) -> bool:
    return interval is not None and relative_half_width(interval) <= probe.precision


def say(interval: Interval) -> str:
    """Given the interval of a speed, return it in words."""
    low, mean, high = interval.low, interval.mean, interval.high
    return f"{mean:.2f} tok/s (95 % interval {low:.2f} to {high:.2f})"
