"""The HTTP to vLLM. Answers become values; everything else becomes a HostError with a code.

The exporter has a leaner door for the one page that it fetches for good: `vllm_page`.
Codes: connection-refused, timeout, connection-lost, bad-stream, stream-error,
and http-STATUS for an answer with that status. The API key travels in its
header only and is never part of an error. Every whole answer has one deadline
and a largest size (`http_once`), and so have a stream's head and each of its silences.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kimisvc.errors import HostError
from kimisvc.host.http_once import Question, asked
from kimisvc.host.vllm_metrics import engine_counters
from kimisvc.host.vllm_stream import EventReader, object_of, plain, said
from kimisvc.records.proof import EngineCounters, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kimisvc.host.http_once import Answer

QUICK = 5.0
"""What a question that costs the engine nothing may take (s)."""
HTTP_PORT = 80
LONGEST_VERSION = 100
OK, UNAUTHORIZED, FORBIDDEN, SERVER_ERROR, UNAVAILABLE = 200, 401, 403, 500, 503


class ApiError(HostError):
    """The server answered with another status than 200: `status`, and its own words."""

    def __init__(self, status: int, words: str) -> None:
        """Given the status and the server's words, hold them."""
        hint = ""
        if status in (UNAUTHORIZED, FORBIDDEN):
            hint = "the server wants its API key: put it into VLLM_API_KEY"
        super().__init__(f"http-{status}", f"HTTP status {status}: {words}", hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole answer: its status, the words beside it, its body."""

    status: int
    reason: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as /v1/models names it; `max_model_len` is in tokens, None where it is not told."""

    name: str
    max_model_len: int | None


class VllmApi:
    """The door to one vLLM server. `clock` stamps the chunks of a stream."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        clock: Callable[[], float] = time.monotonic,
        quick: float = QUICK,
    ) -> None:
        """Given where it is (http://HOST:PORT) and its key, hold them. Raise HostError if that can be no key.

        http.client would name a bad key in its error, so it never sees one.
        """
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise HostError("bad-api-key", "the API key holds characters that no header can carry")
        place = urlsplit(base_url)
        self._host, self._port = place.hostname or "", place.port or HTTP_PORT
        self._root = place.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._clock = clock
        self._quick = quick

    # ------------------------------------------------------------- questions

    def health(self) -> Health:
        """Look at /health once and return what that said. It raises nothing.

        READY only means that no engine is known to be dead: a hung one is READY too.
        """
        try:
            status = self._get("/health").status
        except HostError as error:
            kinds = {"connection-refused": Health.REFUSED, "bad-stream": Health.UNEXPECTED}
            return kinds.get(error.code, Health.NO_ANSWER)
        if status == OK:
            return Health.READY
        if status == UNAVAILABLE:
            return Health.UNAVAILABLE
        return Health.SERVER_ERROR if status >= SERVER_ERROR else Health.UNEXPECTED

    def version(self) -> str | None:
        """Return the server's version, None where it does not say."""
        try:
            return plain(_json(self._get("/version"))["version"])[:LONGEST_VERSION]
        except (HostError, KeyError):
            return None

    def models(self) -> tuple[ModelInfo, ...]:
        """Return what the server serves. Raise HostError when it does not answer so."""
        answer = _json(self._get("/v1/models"))
        try:
            return tuple(
                ModelInfo(plain(model["id"]), _count(model.get("max_model_len")))
                for model in answer["data"]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise HostError("bad-stream", "/v1/models answers with what is no list") from error

    def metrics(self) -> str:
        """Return the text of /metrics. Raise HostError when there is none."""
        answer = self._get("/metrics")
        _raise_for(answer)
        return answer.body.decode("utf-8", "replace")

    def counters(self) -> EngineCounters | None:
        """Return the engine's counters now; None where the server shows none."""
        return engine_counters(self.metrics())

    def chat(self, body: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """Given a chat request without `stream`, return the whole answer. Raise HostError."""
        return _json(self._post("/v1/chat/completions", body, timeout))

    # ------------------------------------------------------------- streams

    def stream(
        self, path: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        """Given a request, yield (moment it arrived, chunk) until [DONE].

        `timeout` is the longest silence between two chunks (s); comments that
        keep a connection alive are silence. Closing the iterator aborts the
        request. Raise HostError with one of this module's codes.
        """
        reader = EventReader()
        try:
            with asked(self._question(path, body), timeout, self._quick) as answer:
                _raise_unless_stream(answer)
                answer.allow(timeout)
                while not reader.done:
                    block = _next_block(answer)
                    moment = self._clock()
                    before = reader.events
                    for chunk in reader.feed(block):
                        yield moment, chunk
                    if reader.events > before:
                        answer.allow(timeout)  # what is no event is silence
        except HostError as error:
            if error.code != "timeout":
                raise
            raise _silence(reader, timeout) from error

    # ------------------------------------------------------------- HTTP

    def _get(self, path: str) -> _Whole:
        with asked(self._question(path), self._quick) as answer:
            return _whole(answer)

    def _post(self, path: str, body: Mapping[str, Any], timeout: float) -> _Whole:
        with asked(self._question(path, body), timeout, self._quick) as answer:
            return _whole(answer)

    def _question(self, path: str, body: Mapping[str, Any] | None = None) -> Question:
        text = None if body is None else json.dumps(dict(body)).encode()
        return Question(self._host, self._port, self._root + path, self._headers, text)


def _silence(reader: EventReader, timeout: float) -> HostError:
    """Given a stream that was silent for too long, say whether anything had come."""
    if reader.events:
        words = f"the stream stalled: nothing for {timeout:g} s after {reader.events} chunks"
    else:
        words = f"the request was accepted, and no first token came in {timeout:g} s"
    return HostError("timeout", words)


def _next_block(answer: Answer) -> bytes:
    block = answer.arrived()
    if not block:
        raise HostError("connection-lost", "the stream ended without [DONE]")
    return block


def _whole(answer: Answer) -> _Whole:
    return _Whole(answer.status, answer.reason, answer.whole())


def _raise_unless_stream(answer: Answer) -> None:
    if answer.status != OK:
        _raise_for(_whole(answer))
    if not answer.kind.startswith("text/event-stream"):
        raise HostError("bad-stream", f"the answer is no event stream but {plain(answer.kind)!r}")


def _json(answer: _Whole) -> Mapping[str, Any]:
    """Given an answer, return its object. Raise HostError where there is none."""
    _raise_for(answer)
    return object_of(answer.body, "the answer")


def _count(told: object) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) else None


def _raise_for(answer: _Whole) -> None:
    if answer.status == OK:
        return
    text = answer.body.decode("utf-8", "replace")
    try:
        words = said(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        words = plain(text) or plain(answer.reason) or "no words"
    raise ApiError(answer.status, words)
