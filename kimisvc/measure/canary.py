"""A short probe of a server that nobody uses, which says whether it is still fast.

It steps aside for everybody: it looks first whether the server is idle by its
own counters, and what others took part in is no figure. It tries nothing twice,
since the next canary is on its way. A server whose engine hangs with a request
in it counts that as running for ever, and is busy from then on: that it does
not move is for who watches its iteration counter to say.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.measure.others import World
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.probe import Request, play
from kimisvc.measure.prompts import fresh_prompt
from kimisvc.measure.statistics import ENOUGH, mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.measure.stream import Api
    from kimisvc.records.profile import CanarySettings, Profile
    from kimisvc.records.proof import Interval, Sample

RUNS = 3
"""Requests of one canary: the fewest whose mean has an interval worth telling."""
PROMPT_TOKENS = 16
"""Of a canary's prompt: decoding is what it looks at."""


@dataclass(frozen=True, slots=True)
class CanaryFigures:
    """What a canary measured: decode throughput (tok/s) and the median TTFT (s).

    `interval` is None where the time allowed was enough for a single request.
    """

    decode_tok_s: float
    interval: Interval | None
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Unseen:
    """The server's counters could not say whether anybody else used it; `detail`: why not.

    It may be idle, so this is no reason to call it busy; and it answers, so it has not failed.
    """

    detail: str

    def __str__(self) -> str:
        """Return it as one phrase."""
        return f"whether others use the server is not known: {self.detail}"


def sing(
    api: Api,
    profile: Profile,
    settings: CanarySettings,
    *,
    seed: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> CanaryFigures | Broken | Unseen:
    """Given a ready server, its profile and what a canary may ask, return its speed or what broke it.

    Trouble.DISTURBED: others use the server; Unseen: its counters cannot tell. No
    request is begun once this has taken as long as one may (`probe.timeout`).
    """
    world = World(api, clock, sleep)
    model = profile.vllm.served_model_name or profile.vllm.model
    seed = seed or secrets.token_hex(8)
    samples: list[Sample] = []
    deadline = clock() + profile.probe.timeout
    while len(samples) < RUNS and (not samples or clock() < deadline):
        prompt = fresh_prompt(seed, len(samples), PROMPT_TOKENS)
        request = Request(model, prompt, settings.max_tokens, profile.probe.timeout)
        outcome = _one(world, request)
        if isinstance(outcome, Broken | Unseen):
            return outcome
        samples.append(outcome)
    return figures(samples)


def figures(samples: list[Sample]) -> CanaryFigures:
    """Given the runs of one canary, at least one, return its figures."""
    speeds = [sample.decode_tok_s for sample in samples]
    interval = mean_interval(speeds) if len(speeds) >= ENOUGH else None
    return CanaryFigures(fmean(speeds), interval, median(s.ttft_s for s in samples))


def _one(world: World, request: Request) -> Sample | Broken | Unseen:
    """Look, play one request, and keep it only where the server's counters say it was alone."""
    obstacle = _obstacle(world)
    if obstacle is not None:
        return obstacle
    outcome = play(world, request)
    if isinstance(outcome, Broken) or outcome.engine_decode_tok_s is not None:
        return outcome
    return Unseen("its counters do not say that this request was alone")


def _obstacle(world: World) -> Broken | Unseen | None:
    """Why no request is sent now; None on an idle server."""
    try:
        counters = world.api.counters()
    except KimisvcError as error:
        if error.code.startswith("http-"):
            return Unseen(f"its /metrics: {error.message}")
        return Broken(Trouble.UNREACHABLE, f"its counters: {error.message}")
    if counters is None:
        return Unseen("its /metrics lacks the counters that say so, as under --disable-log-stats")
    if counters.running > 0 or counters.waiting > 0:
        words = f"{counters.running:g} running and {counters.waiting:g} waiting"
        return Broken(Trouble.DISTURBED, words)
    return None
