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
from typing import TYPE_CHECKING, Any

from kimisvc.measure.others import (
    Ours,
    Traffic,
    World,
    blame,
    counters_of,
    idle,
    judge_traffic,
    not_idle,
    settled,
)
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.stream import Answered, read_answer
from kimisvc.records.proof import EngineCounters, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/v1/completions"
TEMPERATURE = 0
"""Of sampling: the likeliest token, always."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to measure: `max_tokens` tokens on a prompt, whole within `timeout` s."""

    model: str
    prompt: str
    max_tokens: int
    timeout: float

    @property
    def ours(self) -> Ours:
        """What the server's counters show of it."""
        return Ours(1, self.max_tokens)

    def body(self) -> dict[str, Any]:
        """Return it as /v1/completions takes it."""
        return {
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "temperature": TEMPERATURE,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }


def play(world: World, request: Request) -> Sample | Broken:
    """Given a request, wait until the server is idle, play it and return its sample, or what broke it.

    The sample's engine figure is None where the server's counters could not
    confirm that the request was alone.
    """
    before = idle(world)
    obstacle = not_idle(before)
    if obstacle is not None:
        return obstacle
    answered = ask(world, PATH, request.body(), request.timeout)
    if isinstance(answered, Broken):
        return blame(world, answered, before, request.ours)
    speed = decode_speed(answered, request.max_tokens)
    if isinstance(speed, Broken):
        return speed
    after = None if before is None else settled(world, before, request.ours)
    traffic = judge_traffic(before, after, request.ours)
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


def ask_among_others(
    world: World, path: str, body: Mapping[str, Any], timeout: float
) -> Answered | Broken:
    """Given a request that others may run beside, send it as `ask` does.

    Where it was too slow because of them, that is told as theirs.
    """
    before = counters_of(world)
    answered = ask(world, path, body, timeout)
    if isinstance(answered, Broken):
        return blame(world, answered, before, Ours(1, body["max_tokens"]))
    return answered


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


def engine_speed(before: EngineCounters, after: EngineCounters) -> float | None:
    """Given the counters around some requests, return the engine's own decode speed (tok/s).

    (generation tokens - requests) / decode seconds: the first token of each
    request belongs to its prefill. None where the engine counted no decode time.
    """
    seconds = after.decode_seconds - before.decode_seconds
    finished = after.requests_finished - before.requests_finished
    made = after.generation_tokens - before.generation_tokens - finished
    return made / seconds if seconds > 0 and made > 0 else None
