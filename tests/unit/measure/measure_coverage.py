"""What the rules of measuring come to over ten thousand made-up measurements.

`python measure_coverage.py` prints the figures of docs/measuring.md, `figures`
gives them as lines. The rules are written here once more over whole arrays;
test_measure_coverage.py holds them against the real ones.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from kimisvc.measure.contest import confidence_of
from kimisvc.measure.gate_rule import looks
from kimisvc.measure.power import settles
from kimisvc.measure.statistics import CONFIDENCE, shared
from kimisvc.records.profile import ProbeSettings, SpeedTarget
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

GATES = 10_000
SEED = 20260101
KINDS = (VerdictKind.PASS, VerdictKind.DEGRADED, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE)
NOISES = (0.002, 0.005, 0.01, 0.03)


class Noise(Enum):
    """How the runs of one start scatter around its true speed."""

    NORMAL = "independent, normal"
    CORRELATED = "each run half like the one before"
    OUTLIERS = "one run of twenty 20 % slow"


@dataclass(frozen=True)
class Gates:
    """How many gates ended how: the number of each verdict, of the runs, and of true intervals."""

    kinds: NDArray[np.int_]
    runs: NDArray[np.int_]
    covers: NDArray[np.bool_]

    def share(self, *kinds: VerdictKind) -> float:
        """Given some verdicts, return the share of gates that ended with one of them."""
        return float(np.isin(self.kinds, [KINDS.index(kind) for kind in kinds]).mean())

    @property
    def accepted(self) -> float:
        """The share of gates that accepted."""
        return self.share(VerdictKind.PASS, VerdictKind.DEGRADED)


def runs_of(mean: float, noise: float, runs: int, kind: Noise, gates: int = GATES) -> Numbers:
    """Given a server's true speed and relative noise, return the runs of many gates (gates x runs)."""
    random = np.random.default_rng([SEED, round(mean * 1000), round(noise * 10_000)])
    scatter = random.standard_normal((gates, runs))
    if kind is Noise.CORRELATED:
        for run in range(1, runs):
            scatter[:, run] = 0.5 * scatter[:, run - 1] + np.sqrt(0.75) * scatter[:, run]
    speeds = mean * (1 + noise * scatter)
    if kind is Noise.OUTLIERS:
        # The true speed is the mean over all runs, slow ones too.
        slow = random.random((gates, runs)) < 0.05
        speeds = np.where(slow, 0.8 * speeds, speeds) / 0.99
    return speeds


def judge(
    speeds: Numbers, target: SpeedTarget, probe: ProbeSettings, mean: float, confidence: float
) -> Gates:
    """Given the runs of many gates, decide each as `gate_rule.decide` would, at this confidence."""
    gates = len(speeds)
    kinds, runs = np.full(gates, -1), np.zeros(gates, dtype=int)
    covers = np.zeros(gates, dtype=bool)
    for count in range(max(2, probe.min_runs), probe.max_runs + 1):
        last = count == probe.max_runs
        seen = speeds[:, :count]
        middle = seen.mean(axis=1)
        half = stdtrit(count - 1, 0.5 + confidence / 2) * seen.std(axis=1, ddof=1) / np.sqrt(count)
        low, high = middle - half, middle + half
        narrow = half / middle <= probe.precision
        kind = np.select(
            [low >= target.goal, high < target.floor, low < target.floor], [0, 2, 3], default=1
        )
        unsettled = ((kind == 3) | ((kind == 1) & (high >= target.goal) & ~narrow)) & (not last)
        ends = (kinds == -1) & ~unsettled
        kinds[ends], runs[ends] = kind[ends], count
        covers[ends] = ((low <= mean) & (mean <= high))[ends]
    return Gates(kinds, runs, covers)


def gates(
    mean: float,
    noise: float,
    target: SpeedTarget,
    kind: Noise = Noise.NORMAL,
    probe: ProbeSettings | None = None,
) -> Gates:
    """Given a server, play ten thousand gates against it and return how they ended."""
    probe = probe or ProbeSettings()
    speeds = runs_of(mean, noise, probe.max_runs, kind)
    return judge(speeds, target, probe, mean, shared(looks(probe)))


def starts_of(count: int, deviation: float, effect: float, salt: int, times: int) -> Numbers:
    """Return the logarithms of the figures of so many starts, many times over."""
    random = np.random.default_rng([SEED, count, round(deviation * 1e6), salt])
    return effect + deviation * random.standard_normal((times, count))


def welch(base: Numbers, other: Numbers, confidence: float = CONFIDENCE) -> tuple[Numbers, Numbers]:
    """Given the logarithms of both sides' starts, return many intervals as `compare` would."""
    fewest = min(base.shape[1], other.shape[1])
    one, two = (side.var(axis=1, ddof=1) / side.shape[1] for side in (base, other))
    freedom = (one + two) ** 2 / (one**2 / (base.shape[1] - 1) + two**2 / (other.shape[1] - 1))
    freedom = np.minimum(freedom, 2 * (fewest - 1))
    half = stdtrit(freedom, 0.5 + confidence / 2) * np.sqrt(one + two)
    ratio = other.mean(axis=1) - base.mean(axis=1)
    return ratio - half, ratio + half


def coverage(
    counts: tuple[int, int], deviations: tuple[float, float], times: int = 40_000
) -> float:
    """Given starts and their deviations on each side, return how often the interval holds the truth."""
    low, high = welch(
        starts_of(counts[0], deviations[0], 0.0, 1, times),
        starts_of(counts[1], deviations[1], 0.0, 2, times),
    )
    return float(((low <= 0) & (high >= 0)).mean())


def settled(count: int, deviation: float, effect: float, margin: float = 0.02) -> float:
    """Given so many starts each, return how often a comparison is settled."""
    low, high = welch(
        starts_of(count, deviation, 0.0, 3, GATES), starts_of(count, deviation, effect, 4, GATES)
    )
    edge = np.log1p(margin)
    return float(((low > 0) | (high < 0) | ((low >= -edge) & (high <= edge))).mean())


def false_alarms(deviation: float = 0.005, most: int = 10) -> float:
    """Return how often a search among two equal profiles claims a difference at any of its looks."""
    base = starts_of(most, deviation, 0.0, 5, GATES)
    other = starts_of(most, deviation, 0.0, 6, GATES)
    claimed = np.zeros(GATES, dtype=bool)
    for count in range(2, most + 1):
        low, high = welch(base[:, :count], other[:, :count], confidence_of(count, 2))
        claimed |= (low > 0) | (high < 0)
    return float(claimed.mean())


WANTED = SpeedTarget(40.0, 50.0)
ONE_NUMBER = SpeedTarget(50.0, 50.0)


def figures() -> Iterator[str]:
    """Yield the figures of docs/measuring.md, line by line."""
    yield f"{GATES} gates each, runs 3 to 10; accepted although under the floor of 40, in %"
    yield f"{'noise':<36}" + "".join(f"{100 * noise:>8g} %" for noise in NOISES)
    for kind in Noise:
        for under in (0.0001, 0.01, 0.05):
            shares = [gates(40 * (1 - under), noise, WANTED, kind).accepted for noise in NOISES]
            yield _row(f"{100 * under:g} % under; {kind.value}", shares)
    plain = ProbeSettings()
    naive = [
        judge(runs_of(39.996, n, 10, Noise.NORMAL), WANTED, plain, 39.996, CONFIDENCE).accepted
        for n in NOISES
    ]
    yield _row("0.01 % under, had each look 95 %", naive)
    yield "failed although 2 % over, floor and goal 50, in %"
    for kind in Noise:
        shares = [gates(51, n, ONE_NUMBER, kind).share(VerdictKind.FAIL) for n in NOISES]
        yield _row(kind.value, shares)
    yield "interval at the stop holds the true speed, in %"
    for kind in Noise:
        shares = [float(gates(50, n, WANTED, kind).covers.mean()) for n in NOISES]
        yield _row(kind.value, shares)
    yield "mean number of runs"
    for mean in (81.0, 52.0, 51.0, 45.0, 41.0, 39.0, 30.0):
        runs = [float(gates(mean, n, WANTED).runs.mean()) / 100 for n in NOISES]
        yield _row(f"{mean:g} tok/s against >40~50", runs)
    yield "95 % interval of the comparison holds the true ratio, in %; deviations 1:1 1:2 2:1 1:4 4:1"
    for counts in ((2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (2, 3), (2, 4), (2, 6), (3, 6), (4, 6)):
        ways = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1))
        yield _row(
            f"{counts[0]} and {counts[1]} starts",
            [coverage(counts, (0.005 * a, 0.005 * b)) for a, b in ways],
        )
    yield f"two equal profiles told apart in a search of up to 10 starts each: {100 * false_alarms():.1f} %"
    yield "settled, in %: simulated against planned; effect, deviation, starts each"
    for effect, deviation, count in ((0.0061, 0.005, 4), (0.018, 0.005, 3), (0.03, 0.01, 4)):
        planned = settles(effect, deviation, (count, count), float(np.log1p(0.02)), CONFIDENCE)
        yield _row(f"{effect} {deviation} {count}", [settled(count, deviation, effect), planned])


def _row(name: str, shares: list[float]) -> str:
    return f"  {name:<48}" + "".join(f"{100 * share:>8.1f}" for share in shares)


if __name__ == "__main__":
    for line in figures():
        sys.stdout.write(line + "\n")
