"""Measures the throughput of many streams at once, for a gate that asks for one.

kimisvc's own streams and not `vllm bench serve`: the gate may not read the
model, sees no GPU, and should not run the model's own code for its tokenizer.
So the prompts are words, not tokens of a given number; what is counted are the
tokens of the answers, as the server tells them. As with the benchmark, the time
is that of everything: prefill, and the end, where some streams have ended.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kimisvc.measure.others import (
    Ours,
    Traffic,
    World,
    blame,
    idle,
    judge_traffic,
    not_idle,
    settled,
)
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.probe import PATH, Request, ask
from kimisvc.measure.statistics import mean_interval
from kimisvc.records.proof import ROUNDS_AT_ONCE, Interval, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimisvc.measure.stream import Answered


@dataclass(frozen=True, slots=True)
class AtOnce:
    """What is asked for: `floor` tok/s of all together, with so many streams at once."""

    floor: float
    concurrency: int


def rounds(
    world: World, make: Callable[[], Request], concurrency: int, told: Callable[[int], None]
) -> tuple[float, ...] | Broken:
    """Given who makes a request, play rounds of so many at once; return their speeds (tok/s).

    One more before them warms up: batches of this size are compiled, too. The
    first that breaks ends it, and so do others who use the server. `told` is
    called with the number of each round.
    """
    before = idle(world)
    obstacle = not_idle(before)
    if obstacle is not None:
        return obstacle
    speeds: list[float] = []
    asked = Ours(0, 0)
    for number in range(1 + ROUNDS_AT_ONCE):
        if number:
            told(number - 1)
        requests = [make() for _ in range(concurrency)]
        tokens = sum(request.max_tokens for request in requests)
        asked = Ours(asked.requests + concurrency, asked.tokens + tokens)
        speed = _round(world, requests)
        if isinstance(speed, Broken):
            return blame(world, speed, before, asked)
        speeds.append(speed)
    after = None if before is None else settled(world, before, asked)
    if judge_traffic(before, after, asked) is Traffic.OTHERS:
        return Broken(Trouble.DISTURBED, f"it did more than the {asked.requests} requests of ours")
    return tuple(speeds[1:])


def _round(world: World, requests: Sequence[Request]) -> float | Broken:
    began = world.clock()
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(partial(_play, world), requests))
    broken = [answer for answer in answers if isinstance(answer, Broken)]
    if broken:
        return broken[0]
    whole = [answer for answer in answers if not isinstance(answer, Broken)]
    if any(answer.completion_tokens is None for answer in whole):
        return Broken(Trouble.NO_USAGE)
    seconds = max(answer.last_at for answer in whole) - began
    tokens = sum(answer.completion_tokens or 0 for answer in whole)
    return tokens / seconds if seconds > 0 else Broken(Trouble.NO_SPEED)


def _play(world: World, request: Request) -> Answered | Broken:
    return ask(world, PATH, request.body(), request.timeout)


def judge(speeds: Sequence[float], wanted: AtOnce) -> Verdict:
    """Given the rounds, say whether their mean is at or over the floor, by its 95 % interval.

    The rounds are always as many, so an ordinary interval holds.
    """
    interval = mean_interval(speeds)
    if interval is None:
        return Verdict(VerdictKind.INCONCLUSIVE, "one round has no confidence interval")
    figure = say(interval, wanted.concurrency)
    floor = f"the floor of {wanted.floor:g}"
    if interval.low >= wanted.floor:
        return Verdict(VerdictKind.PASS, f"{figure}: at or over {floor}")
    if interval.high < wanted.floor:
        return Verdict(VerdictKind.FAIL, f"{figure}: under {floor}")
    return Verdict(VerdictKind.INCONCLUSIVE, f"{figure}: {floor} lies inside the interval")


def say(interval: Interval, concurrency: int) -> str:
    """Given the interval of a throughput, return it in words."""
    low, mean, high = interval.low, interval.mean, interval.high
    at_once = f"{concurrency} streams at once"
    return f"{mean:.1f} tok/s with {at_once} (95 % interval {max(0.0, low):.1f} to {high:.1f})"
