"""Makes a history as a box of a year might have it: profiles, rollbacks, canaries, gaps, a bad clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.history import (
    Accepted,
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    History,
    RollbackRow,
)
from kimisvc.records.proof import Interval, Proof, Sample, Verdict, VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.history.rows import Facts

HOUR, DAY = 3600.0, 86400.0
BEGAN = 1_769_900_000.0
"""2026-01-31."""
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> \x1b[31m\u202e{{ 7*7 }} &amp;"
SPEEDS = {"baseline": 81.2, "ll_ring": 82.9, "long_context": 61.0, "eagle3": 96.0}
FLOOR, GOAL = 70.0, 80.0


@dataclass
class Writer:
    """Writes one event after the other; `now` is the box's clock."""

    history: History
    now: float = BEGAN
    luck: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - the same luck each time
    generation: int = 0
    count: int = 0
    kernel: str = "6.1.0-25-amd64"
    vllm: str = "0.33.0"
    clocks: list[str] = field(
        default_factory=lambda: ["SM 1965 of 1980 MHz, memory 3201 of 3201 MHz"] * 8
    )

    def start(self, profile: str, kind: VerdictKind, reason: str, spread: float = 0.004,
              slower: float = 1.0) -> None:  # fmt: skip
        """One start with its gate."""
        self.count += 1
        mean = SPEEDS.get(profile, 75.0) * slower * self.luck.gauss(1.0, 0.003)
        speeds = [mean * self.luck.gauss(1.0, spread) for _ in range(5)]
        began, load = self.now, self.luck.gauss(2165.0, 60.0)
        self.now += load + 120.0
        middle = sum(speeds) / len(speeds)
        interval = Interval(middle * (1 - 2 * spread), middle, middle * (1 + 2 * spread))
        record = GateRecord(
            record=f"r{self.count}", generation=self.generation, profile=profile,
            model="/srv/models/Kimi-K2.5", invocation=f"i{self.count}", service_started_at=began,
            began_at=began, ended_at=self.now, ready_at=began + load, load_s=load,
            vllm_version=self.vllm, floor=FLOOR, goal=GOAL,
            proof=Proof(
                Verdict(kind, reason), tuple(Sample(131, 256, s, 0.21) for s in speeds), interval,
                0.21, middle * 1.002,
            ),
        )  # fmt: skip
        facts: Facts = {
            "kimisvc": "0.1.0", "vllm": self.vllm, "systemd": "252", "kernel": self.kernel,
            "host": "box1", "driver": "580.159.04", "gpus": ["NVIDIA H200"] * 8,
            "prompt_tokens": 128, "max_tokens": 256, "temperature": 0, "clocks": self.clocks,
        }  # fmt: skip
        accepted = Accepted.YES if kind.accepted else Accepted.NO
        self.history.add_record(record, accepted, facts)

    def apply(self, profile: str) -> int:
        """An apply that begins."""
        self.now += 60.0
        self.generation += 1
        row = ApplyRow(self.now, None, self.generation, self.generation - 1 or None, profile, "ann",
                       (), None, None)  # fmt: skip
        return self.history.begin_apply(row)

    def canaries(self, profile: str, days: float, every: float = 6 * HOUR) -> None:
        """Canaries for so many days, a few of them skipped or failed."""
        for _ in range(int(days * DAY / every)):
            self.now += every
            row = CanaryRow(self.now, f"i{self.count}", self.generation, profile,
                            CanaryResult.MEASURED)  # fmt: skip
            draw = self.luck.random()
            if draw < 0.1:
                row = CanaryRow(self.now, row.invocation, row.generation, profile,
                                CanaryResult.SKIPPED_BUSY, reason="2 requests run")  # fmt: skip
            elif draw < 0.11:
                row = CanaryRow(self.now, row.invocation, row.generation, profile,
                                CanaryResult.FAILED, reason=HOSTILE)  # fmt: skip
            else:
                speed = SPEEDS.get(profile, 75.0) * self.luck.gauss(0.997, 0.006)
                row = CanaryRow(self.now, row.invocation, row.generation, profile,
                                CanaryResult.MEASURED, speed, speed * 0.995, speed * 1.005, 0.2)  # fmt: skip
            self.history.add_canary(row)


def box(history: History, instance: str = "kimi") -> Any:
    """Given a history, return a box that has nothing else: its generations are gone."""
    return SimpleNamespace(
        history=history, layout=SimpleNamespace(instance=instance),
        generations=SimpleNamespace(numbers=lambda: ()),
    )  # fmt: skip


def write(path: Path, canary_every: float = 6 * HOUR) -> History:
    """Given a path, write the history there and return it."""
    history = History(path)
    at = Writer(history)
    one = at.apply("baseline")
    at.start("baseline", VerdictKind.PASS, "82 tok/s and over with confidence")
    history.end_apply(one, at.now, "accepted", 0)
    at.canaries("baseline", 20, canary_every)
    at.start("baseline", VerdictKind.PASS, "over the goal of 80")
    at.canaries("baseline", 15, canary_every)
    two = at.apply("eagle3")
    at.start("eagle3", VerdictKind.FAIL, f"golden question answered wrongly: {HOSTILE}")
    history.add_rollback(RollbackRow(at.now, at.generation, 1, f"golden question: {HOSTILE}"))
    history.end_apply(two, at.now, "rolled-back", 4)
    at.generation = 1
    at.start("baseline", VerdictKind.PASS, "over the goal of 80")
    at.canaries("baseline", 10, canary_every)
    at.now += 25 * DAY  # the box was off
    at.kernel = "6.1.0-31-amd64"
    at.start("baseline", VerdictKind.DEGRADED, "over the floor, under the goal", slower=0.95)
    at.canaries("baseline", 4, canary_every)
    at.generation = 2
    three = at.apply("ll_ring")
    at.start("ll_ring", VerdictKind.INCONCLUSIVE, "others used the server", spread=0.06)
    at.start("ll_ring", VerdictKind.PASS, "over the goal of 80")
    history.end_apply(three, at.now, "accepted", 0)
    at.canaries("ll_ring", 12, canary_every)
    right, at.now = at.now, 0.0  # a battery was empty: the clock began at 1970
    at.canaries("ll_ring", 2, canary_every)
    at.now = right + 2 * DAY
    for _ in range(3):
        at.start("ll_ring", VerdictKind.PASS, "over the goal of 80")
        at.canaries("ll_ring", 9, canary_every)
    four = at.apply("long_context")
    at.start("long_context", VerdictKind.FAIL, "61 tok/s is under the floor of 70")
    history.add_rollback(RollbackRow(at.now, at.generation, 3, "61 tok/s is under the floor"))
    history.end_apply(four, at.now, "rolled-back", 4)
    cut = GateRecord(
        record="cut", generation=at.generation, profile="ll_ring", model="/srv/models/Kimi-K2.5",
        invocation="cut", service_started_at=at.now, began_at=at.now,
    )  # fmt: skip
    history.add_record(cut, Accepted.NO)
    at.now += 2 * HOUR
    at.generation = 3
    at.start("ll_ring", VerdictKind.PASS, "over the goal of 80")
    for concurrency, rate in ((1, 82.0), (8, 540.0), (64, 2210.0)):
        history.add_bench(
            BenchRow(at.now, f"i{at.count}", 3, "ll_ring", concurrency, 10 * concurrency, 0,
                     rate, rate / 256, 210.0, 400.0, 12.2, 14.0, 12.1, 15.0)
        )  # fmt: skip
    at.canaries("ll_ring", 30, canary_every)
    return history
