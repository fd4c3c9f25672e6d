"""Reads one streamed answer of vLLM: when tokens came, how many, what they say.

The rules of the stream (vLLM 0.15 to 0.33; captured streams are in the tests):
the number of tokens is in `usage`, of which the last one counts, since a server
may put running totals on every chunk; a chunk is not a token; the first chunk
of a chat carries a role and no token; reasoning is spelled `reasoning`, or
`reasoning_content` by older servers, or both; the chunk with the usage has no
choices; an error can come inside a stream that began with status 200.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kimisvc.errors import KimisvcError
from kimisvc.measure.outcome import Broken, Trouble, trouble_of_code

if TYPE_CHECKING:
    from kimisvc.records.proof import EngineCounters

IDLE_AT_LEAST = 1.0
IDLE_GAPS = 10
"""An answer has stalled, and is not just slow, after a silence of a second and ten usual gaps."""

AFTER_FINISH = 2
"""What follows a finish in time (the usage) may come late; without end, it is no answer."""


class Api(Protocol):
    """What measuring needs of a vLLM server; `host.vllm_api` is the real one."""

    def stream(
        self, path: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        """Given a request, yield (moment on the monotonic clock, chunk) until [DONE].

        Raise KimisvcError; what its `code` means for a gate, `outcome` says.
        """

    def counters(self) -> EngineCounters | None:
        """Return the engine's counters now; None where the server shows none."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One whole answer. Moments are on the monotonic clock, `ttft_s` counts from the request.

    `first_tokens` is how many tokens the first chunk with tokens brought, None
    where the server does not say. `prompt_tokens` and `completion_tokens` are
    the server's own figures, None without usage.
    """

    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str
    ttft_s: float
    first_at: float
    last_at: float
    first_tokens: int | None
    chunks: int
    content: str
    reasoning: str


class _Reading:
    """What has been read of a stream so far."""

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at
        self.first_at: float | None = None
        self.last_at = sent_at
        self.finish_reason = ""
        self.error: str | None = None
        self._chunks = 0
        self._counted: int | None = 0  # tokens by their ids or running usage; None: unknown
        self._first_tokens: int | None = None
        self._usage: dict[str, int] = {}
        self._text = {"content": "", "reasoning": ""}

    def take(self, moment: float, chunk: Mapping[str, Any]) -> None:
        """Given a chunk and when it came, take it in."""
        if chunk.get("error") is not None:
            self.error = _error_text(chunk["error"])
            return
        running = self._usage.get("completion_tokens", 0)
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if isinstance(value, int)}
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, Mapping):
                grown = max(0, self._usage.get("completion_tokens", 0) - running) if usage else None
                self._take_choice(moment, choice, grown)

    def _take_choice(self, moment: float, choice: Mapping[str, Any], grown: int | None) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        content = _text(delta.get("content")) or _text(choice.get("text"))
        reasoning = _text(delta.get("reasoning")) or _text(delta.get("reasoning_content"))
        self._text["content"] += content
        self._text["reasoning"] += reasoning
        ids = choice.get("token_ids")
        tokens = len(ids) if isinstance(ids, list) else grown
        finish = _text(choice.get("finish_reason"))
        if content or reasoning or tokens:
            self._chunks += 1
            self.last_at = moment
            if self.first_at is None:
                self.first_at = moment
                self._first_tokens = tokens or None
            counted = self._counted
            self._counted = None if counted is None or not tokens else counted + tokens
        if finish:
            # The step that ends an answer makes a token too (the end-of-text token), often
            # without any text.
            self.finish_reason = finish
            self.last_at = moment

    def speed_until(self, moment: float) -> float | None:
        """Given a moment, return the speed up to then; None where tokens were not counted."""
        if self.first_at is None or not self._counted or moment <= self.first_at:
            return None
        return (self._counted - (self._first_tokens or 1)) / (moment - self.first_at)

    def stalled_at(self, moment: float) -> bool:
        """Given a moment, return whether the tokens had stopped coming by then."""
        spent = self.last_at - (self.first_at or self.last_at)
        gap = spent / (self._chunks - 1) if self._chunks > 1 else 0.0
        return moment - self.last_at > max(IDLE_AT_LEAST, IDLE_GAPS * gap)

    def answered(self) -> Answered:
        """Return the answer, which has at least one token or a finish."""
        first_at = self.last_at if self.first_at is None else self.first_at
        return Answered(
            prompt_tokens=self._usage.get("prompt_tokens"),
            completion_tokens=self._usage.get("completion_tokens"),
            finish_reason=self.finish_reason,
            ttft_s=first_at - self.sent_at,
            first_at=first_at,
            last_at=self.last_at,
            first_tokens=self._first_tokens,
            chunks=self._chunks,
            content=self._text["content"],
            reasoning=self._text["reasoning"],
        )


def read_answer(
    events: Iterator[tuple[float, Mapping[str, Any]]], sent_at: float, timeout: float
) -> Answered | Broken:
    """Given the events of a stream and when it was asked for, return the answer or what broke it.

    `timeout` bounds the whole answer (s), so that a server which sends a token
    now and then does not hold the gate.
    """
    reading = _Reading(sent_at)
    try:
        for moment, chunk in events:
            if moment - sent_at > timeout * (AFTER_FINISH if reading.finish_reason else 1):
                return _late(reading, sent_at + timeout, timeout)
            reading.take(moment, chunk)
            if reading.error is not None:
                return Broken(Trouble.STREAM_ERROR, reading.error)
    except KimisvcError as error:
        return _of_error(error, reading, sent_at + timeout, timeout)
    finally:
        if isinstance(events, Generator):
            events.close()  # an abandoned stream is aborted now, not when it is collected
    if not reading.finish_reason:
        return Broken(Trouble.CUT_OFF, "the stream ended without a finish reason")
    return reading.answered()


def _late(reading: _Reading, moment: float, timeout: float) -> Broken:
    """Given a reading whose time is up, say whether it was silent, stalled or only slow."""
    if reading.first_at is None:
        return Broken(Trouble.SILENT, f"nothing in {timeout:g} s")
    if reading.stalled_at(moment):
        silence = moment - reading.last_at
        return Broken(Trouble.STALLED, f"no token in the last {silence:.0f} s of {timeout:g} s")
    speed = reading.speed_until(moment)
    rate = "" if speed is None else f", {speed:.2f} tok/s until then"
    return Broken(Trouble.UNFINISHED, f"not done after {timeout:g} s{rate}", speed)


def _of_error(error: KimisvcError, reading: _Reading, until: float, timeout: float) -> Broken:
    """Given what the door raised while a stream was read, say what that means for the request."""
    trouble = trouble_of_code(error.code)
    if trouble is Trouble.SILENT:
        return _late(reading, until, timeout)
    if trouble is Trouble.UNREACHABLE and reading.last_at > reading.sent_at:
        trouble = Trouble.CUT_OFF
    return Broken(trouble, error.message)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _error_text(error: object) -> str:
    """Given the `error` of a body, return its message; 401 has a bare string there."""
    if isinstance(error, Mapping):
        return _text(error.get("message")) or "no message"
    return str(error)
