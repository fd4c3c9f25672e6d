"""Plays one request of known length and makes a sample of it, or says why not.

The request goes to /v1/completions: no chat template and no parser stands
between the engine and the clock there. It asks for a fixed number of tokens
(`ignore_eos`; not `min_tokens`, which vLLM refuses under speculative decoding
in some versions and which adds work to every step), at temperature 0, and for
token ids, which say how many tokens a chunk carries even where it carries no
text yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kimisvc.errors import KimisvcError
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.stream import Answered, Api, read_answer
from kimisvc.records import IDLE_PATIENCE, EngineCounters, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATH = "/v1/completions"

SETTLE = 2.0
"""How long the counters may lag behind a stream that has ended (s)."""
TICK = 0.02


@dataclass(frozen=True, slots=True)
class Request:
    """One request to measure: `max_tokens` tokens on a prompt, whole within `timeout` s."""

    model: str
    prompt: str
    max_tokens: int
    timeout: float

    def body(self) -> dict[str, Any]:
        """Return it as /v1/completions takes it."""
        return {
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }


@dataclass(frozen=True, slots=True)
class World:
    """The server and the clock; `clock` is the one the API stamps chunks with."""

    api: Api
    clock: Callable[[], float]
    sleep: Callable[[float], None]


class Traffic(Enum):
    """What the server's counters say ran during one request of ours."""

    OURS = "ours alone"
    OTHERS = "others too"
    UNKNOWN = "not known"


def play(world: World, request: Request) -> Sample | Broken:
    """Given a request, wait until the server is idle, play it and return its sample, or what broke it.

    The sample's engine figure is None where the server's counters could not
    confirm that the request was alone.
    """
    before = _idle(world)
    if before is not None and _busy(before):
        return Broken(Trouble.DISTURBED, _waiting_text(before))
    answered = ask(world, PATH, request.body(), request.timeout)
    if isinstance(answered, Broken):
        return answered
    speed = decode_speed(answered, request.max_tokens)
    if isinstance(speed, Broken):
        return speed
    after = None if before is None else _settled(world, before, request.max_tokens)
    traffic = judge_traffic(before, after, request.max_tokens)
    if traffic is Traffic.OTHERS:
        return Broken(Trouble.DISTURBED, "its counters moved by more than this request")
    alone = traffic is Traffic.OURS and before is not None and after is not None
    return Sample(
        prompt_tokens=answered.prompt_tokens or 0,
        completion_tokens=request.max_tokens,
        decode_tok_s=speed,
        ttft_s=answered.ttft_s,
        chunks=answered.chunks,
        engine_decode_tok_s=engine_speed(before, after) if alone and before and after else None,
    )


def ask(world: World, path: str, body: Mapping[str, Any], timeout: float) -> Answered | Broken:
    """Given a request, send it and return its whole answer, or what broke it."""
    sent_at = world.clock()
    return read_answer(world.api.stream(path, body, timeout), sent_at, timeout)


def decode_speed(answered: Answered, max_tokens: int) -> float | Broken:
    """Given an answer that should be `max_tokens` long, return its decode speed (tok/s).

    (completion_tokens - tokens of the first chunk) / (t_last - t_first): the
    tokens of the first chunk were made before the clock started. That is 1
    where the server does not say, as for every server without speculative decoding.
    """
    made = answered.completion_tokens
    if made is None:
        return Broken(Trouble.NO_USAGE)
    if answered.finish_reason != "length" or made != max_tokens:
        detail = f"{made} of {max_tokens} tokens, finish reason {answered.finish_reason}"
        return Broken(Trouble.EARLY_STOP, detail)
    tokens = made - (answered.first_tokens or 1)
    seconds = answered.last_at - answered.first_at
    if tokens <= 0 or seconds <= 0:
        return Broken(Trouble.NO_SPEED, f"{made} tokens in {answered.chunks} chunks")
    return tokens / seconds


def judge_traffic(
    before: EngineCounters | None, after: EngineCounters | None, tokens: int
) -> Traffic:
    """Given the counters around a request of `tokens` tokens, return whose work they show."""
    if before is None or after is None:
        return Traffic.UNKNOWN
    finished = after.requests_finished - before.requests_finished
    made = after.generation_tokens - before.generation_tokens
    if finished < 0 or made < 0:  # counted anew: the server was started again meanwhile
        return Traffic.OTHERS
    if finished > 1 or made > tokens or _busy(after):
        return Traffic.OTHERS
    return Traffic.OURS if finished == 1 and made == tokens else Traffic.UNKNOWN


def engine_speed(before: EngineCounters, after: EngineCounters) -> float | None:
    """Given the counters around some requests, return the engine's own decode speed (tok/s).

    (generation tokens - requests) / decode seconds: the first token of each
    request belongs to its prefill. None where the engine counted no decode time.
    """
    seconds = after.decode_seconds - before.decode_seconds
    finished = after.requests_finished - before.requests_finished
    made = after.generation_tokens - before.generation_tokens - finished
    return made / seconds if seconds > 0 and made > 0 else None


def _counters(world: World) -> EngineCounters | None:
    try:
        return world.api.counters()
    except KimisvcError:
        return None  # a server without readable metrics can still be measured


def _busy(counters: EngineCounters) -> bool:
    return counters.running > 0 or counters.waiting > 0


def _idle(world: World) -> EngineCounters | None:
    """Return the counters of an idle server, or the last ones when patience ends."""
    deadline = world.clock() + IDLE_PATIENCE
    tick = TICK
    while True:
        now = _counters(world)
        if now is None or not _busy(now) or world.clock() >= deadline:
            return now
        world.sleep(tick)
        tick = min(0.5, tick * 2)


def _settled(world: World, before: EngineCounters, tokens: int) -> EngineCounters | None:
    """Given the counters before a request that has ended, return those that contain it.

    vLLM may count a request a moment after its stream ended; what is read when
    SETTLE is over stands as it is.
    """
    deadline = world.clock() + SETTLE
    while True:
        now = _counters(world)
        if now is None or world.clock() >= deadline:
            return now
        counted = now.generation_tokens - before.generation_tokens >= tokens
        finished = now.requests_finished - before.requests_finished >= 1
        if counted and finished and not _busy(now):
            return now
        world.sleep(TICK)


def _waiting_text(counters: EngineCounters) -> str:
    return f"{counters.running:g} running and {counters.waiting:g} waiting before this request"
