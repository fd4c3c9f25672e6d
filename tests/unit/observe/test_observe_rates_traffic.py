"""Live speed under ordinary traffic: simulated engines whose speed is known, read as the exporter reads.

What is shown is the truth within a few per cent, or nothing is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from kimisvc.observe.rates import live
from kimisvc.observe.windows import Reading, Window, grown
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kimisvc.observe.rates import Live

STEP = 5.0
MINUTES = 20
FEW_PER_CENT = 0.05
SEEDS = range(3)
PREFILL, CACHE = 500.0, 1_000_000
"""Tokens of a prompt that are read in a second, and tokens for which there is room."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Clients that ask, read a whole answer, and pause. Means; lengths and pauses are spread.

    `share`: of the readings that see a request run, so many show a speed at least (0 to 1).
    """

    name: str
    tokens: int
    prefill: float
    pause: float
    share: float
    clients: int = 1
    steps_per_second: float = 80.0
    per_step: int = 1
    leave: float = 0.0
    fixed: bool = False

    @property
    def truth(self) -> float:
        """What one stream decodes (tok/s)."""
        return self.steps_per_second * self.per_step


@dataclass(slots=True)
class Request:
    """One that runs: until `first_at` its prompt is read."""

    wanted: int
    first_at: float
    leaves_at: float
    made: int = 0
    began: float = 0.0
    came_at: float = 0.0


@dataclass(slots=True)
class Engine:
    """Makes steps of one length, and counts as vLLM does: whole requests when they finish.

    A step that gives nobody a token is not counted; what it reads fills the cache.
    """

    traffic: Traffic
    random: Random
    now: float = 0.0
    runs: dict[int, Request] = field(default_factory=dict)
    next_at: dict[int, float] = field(default_factory=dict)
    tokens: int = 0
    steps: int = 0
    finished: int = 0
    finished_tokens: int = 0
    decode_seconds: float = 0.0

    def reading(self) -> Reading:
        """The counters of now."""
        counters = EngineCounters(
            generation_tokens=float(self.tokens), requests_finished=float(self.finished),
            decode_seconds=self.decode_seconds, iterations=float(self.steps),
            running=float(len(self.runs)), waiting=0.0, finished_tokens=float(self.finished_tokens),
            kv_cache=self._held() / CACHE,
        )  # fmt: skip
        return Reading(self.now, counters, 1.0)

    def step(self) -> None:
        """Let requests come, make one step, and let those go that are answered or left."""
        for client in range(self.traffic.clients):
            if (
                client not in self.runs
                and self.next_at.setdefault(client, self._pause()) <= self.now
            ):
                self.runs[client] = self._request()
        self.now += 1 / self.traffic.steps_per_second
        self.steps += any(self.now >= request.first_at for request in self.runs.values())
        for client, request in list(self.runs.items()):
            if self.now >= request.first_at:
                self._decode(request)
            left = self.now >= request.leaves_at
            if request.made >= request.wanted or left:
                self._end(client, left=left)

    def _decode(self, request: Request) -> None:
        made = min(self.traffic.per_step, request.wanted - request.made) if request.made else 1
        request.began = request.began or self.now
        request.made += made
        self.tokens += made

    def _end(self, client: int, *, left: bool) -> None:
        request = self.runs.pop(client)
        self.next_at[client] = self.now + self._pause() + (6.0 if left else 0.0)
        if not left:  # vLLM counts nothing of a request that its client left
            self.finished += 1
            self.finished_tokens += request.made
            self.decode_seconds += self.now - request.began

    def _held(self) -> int:
        """Return how many tokens the cache holds: of prompts what was read, and what was made."""
        read = (min(self.now, one.first_at) - one.came_at for one in self.runs.values())
        return sum(int(s * PREFILL) for s in read) + sum(r.made for r in self.runs.values())

    def _request(self) -> Request:
        traffic, spread = self.traffic, self._spread()
        # The first step makes one token, each other `per_step`: no step is half used.
        wanted = 1 + traffic.per_step * round((traffic.tokens - 1) * spread / traffic.per_step)
        first_at = self.now + traffic.prefill * self._spread()
        leaves = self.random.random() < traffic.leave
        lasts = first_at - self.now + wanted / traffic.truth
        leaves_at = self.now + lasts * self.random.random() if leaves else 1e9
        return Request(wanted, first_at, leaves_at, came_at=self.now)

    def _pause(self) -> float:
        return self.random.expovariate(1 / self.traffic.pause) if self.traffic.pause else 0.0

    def _spread(self) -> float:
        return 1.0 if self.traffic.fixed else self.random.uniform(0.5, 1.5)


def seen(engines: Sequence[Engine]) -> Iterator[tuple[int, Live]]:
    """Yield (requests that run, what is shown of all engines) at each reading."""
    windows: dict[str, Window] = {}
    until = 0.0
    while until < MINUTES * 60:
        until += STEP + engines[0].random.uniform(0, 0.3)
        for engine in engines:
            while engine.now < until:
                engine.step()
        windows = grown(windows, {str(n): one.reading() for n, one in enumerate(engines)})
        yield sum(len(engine.runs) for engine in engines), live(windows.values())


def engines_of(seed: int, *traffics: Traffic) -> list[Engine]:
    """Given what each engine of a server has to do, return the engines; repeatable by the seed."""
    return [Engine(one, Random(seed + 100 * n)) for n, one in enumerate(traffics)]  # noqa: S311 - repeatable ones are wanted


def hold(engines: Sequence[Engine], share: float) -> list[float]:
    """Assert that what is shown is true, and shown often enough; return the speeds shown."""
    told = list(seen(engines))
    truth = engines[0].traffic.truth
    assert not any(now.stalled for _, now in told)
    figures = [now.decode_tok_s for _, now in told if now.decode_tok_s is not None]
    wrong = [round(one, 1) for one in figures if one != pytest.approx(truth, rel=FEW_PER_CENT)]
    assert wrong == []
    busy = [now.decode_tok_s for running, now in told if running]
    assert sum(speed is not None for speed in busy) >= share * len(busy)
    return figures


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("traffic", [
    Traffic("long answers", 4000, 0.3, 5, 0.8),
    Traffic("long answers to long prompts", 4000, 20, 5, 0.5),
    Traffic("answers to prompts of minutes", 4000, 180, 5, 0.1),
    Traffic("back to back", 256, 0.2, 0, 0.9),
    Traffic("pauses of 3 s", 100, 0.2, 3, 0.9),
    Traffic("pauses of 10 s", 100, 0.2, 10, 0.5),
    Traffic("pauses of 20 s", 80, 0.1, 20, 0.0),
    Traffic("one token each, a second of prompt", 1, 1, 0, 0.0, fixed=True),
    Traffic("ten tokens each, 5 s of prompt", 10, 5, 0, 0.5),
    Traffic("200 tokens after 4 s of prompt", 200, 4, 0, 0.9, fixed=True),
    Traffic("400 tokens after 8 s of prompt", 400, 8, 0, 0.9, fixed=True),
    Traffic("clients that leave", 600, 1, 3, 0.5, leave=0.3),
    Traffic("speculative decoding", 900, 1, 3, 0.7, steps_per_second=30, per_step=3),
    Traffic("two, whose prompts are long", 1500, 15, 5, 0.5, clients=2, steps_per_second=40),
    Traffic("four", 500, 1, 2, 0.9, clients=4, steps_per_second=40),
    Traffic("sixteen, and some leave", 800, 2, 1, 0.9, clients=16, steps_per_second=25, leave=0.2),
], ids=lambda traffic: traffic.name)  # fmt: skip
def test_what_is_shown_is_true_within_a_few_per_cent(traffic: Traffic, seed: int) -> None:
    figures = hold(engines_of(seed, traffic), traffic.share)
    if traffic.tokens == 1:
        assert figures == []


LONG = Traffic("long answers", 4000, 0.3, 5, 0.9)
PROMPTS = Traffic("answers to prompts of minutes", 4000, 180, 5, 0.1)
PAUSES = Traffic("pauses of 3 s", 100, 0.2, 3, 0.9)
FOUR = Traffic("four", 500, 1, 2, 0.9, clients=4, steps_per_second=40)
SIXTEEN = Traffic("sixteen", 800, 2, 1, 0.9, clients=16, steps_per_second=40, leave=0.2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("traffics", "share"), [
    ((LONG, LONG), 0.9),
    ((LONG, LONG, LONG, LONG), 0.9),
    ((LONG, PROMPTS), 0.8),
    ((LONG, PROMPTS, PAUSES, PAUSES), 0.9),
    ((PROMPTS, PROMPTS), 0.1),
    ((FOUR, FOUR), 0.9),
    ((FOUR, SIXTEEN, FOUR, SIXTEEN), 0.9),
], ids=lambda value: ", ".join(t.name for t in value) if isinstance(value, tuple) else "")  # fmt: skip
def test_several_engines_show_what_is_true_as_often_as_one(
    traffics: tuple[Traffic, ...], share: float, seed: int
) -> None:
    assert hold(engines_of(seed, *traffics), share)


def test_streams_of_minutes_on_each_engine_are_told_all_along() -> None:
    """Without pause, answers longer than the test: only the first readings can say nothing."""
    endless = Traffic("endless", 200_000, 0.1, 0, 1.0, clients=4, steps_per_second=50)
    shown = [now.decode_tok_s for _, now in seen(engines_of(0, endless, endless))]
    assert None not in shown[3:]
