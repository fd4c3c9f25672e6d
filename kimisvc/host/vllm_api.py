"""The HTTP to vLLM. Answers become values; everything else becomes a HostError with a code.

The exporter has a leaner door for the one page that it fetches for good: `vllm_page`.
Codes: connection-refused, timeout, connection-lost, bad-stream, stream-error,
and http-STATUS for an answer with that status. The API key travels in its
header only and is never part of an error. Nothing is taken from the
environment: no proxy, no .netrc.
"""

from __future__ import annotations

import errno
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError
from kimisvc.host.vllm_metrics import engine_counters
from kimisvc.host.vllm_stream import EventReader, said
from kimisvc.records import EngineCounters, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from requests import Response, Session

QUICK = 5.0
"""What a question that costs the engine nothing may take (s)."""
BLOCK = 65536
OK, UNAUTHORIZED, FORBIDDEN, SERVER_ERROR, UNAVAILABLE = 200, 401, 403, 500, 503
WORDS = 300
"""So much of a body that is not vLLM's is told (characters)."""


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
        """Given where it is and its key, hold them. Raise HostError if that can be no key.

        requests would name a bad key in its error, so it never sees one.
        """
        key = (api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise HostError("bad-api-key", "the API key holds characters that no header can carry")
        self._base = base_url.rstrip("/")
        self._headers = {"Accept-Encoding": "identity"}  # compression would hold chunks back
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._clock = clock
        self._quick = quick
        self._opened: Session | None = None

    # ------------------------------------------------------------- questions

    def health(self) -> Health:
        """Look at /health once and return what that said. It raises nothing.

        READY only means that no engine is known to be dead: a hung one is READY too.
        """
        try:
            status = self._get("/health").status_code
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
            return str(_json(self._get("/version"))["version"])
        except (HostError, KeyError):
            return None

    def models(self) -> tuple[ModelInfo, ...]:
        """Return what the server serves. Raise HostError when it does not answer so."""
        answer = _json(self._get("/v1/models"))
        try:
            return tuple(
                ModelInfo(str(model["id"]), model.get("max_model_len")) for model in answer["data"]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise HostError("bad-stream", "/v1/models answers with what is no list") from error

    def metrics(self) -> str:
        """Return the text of /metrics. Raise HostError when there is none."""
        answer = self._get("/metrics")
        _raise_for(answer)
        return bytes(answer.content).decode("utf-8", "replace")

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
        asked = self._clock()
        try:
            answer = self._post(path, body, timeout)
        except HostError as error:
            raise _silence(error, reader, timeout) from error
        with answer:
            _raise_for(answer)
            kind = answer.headers.get("Content-Type", "")
            if not kind.startswith("text/event-stream"):
                raise HostError("bad-stream", f"the answer is no event stream but {kind!r}")
            heard = asked
            while True:
                try:
                    block = self._read(answer)
                except HostError as error:
                    raise _silence(error, reader, timeout) from error
                moment = self._clock()
                if not block:
                    raise HostError("connection-lost", "the stream ended without [DONE]")
                for chunk in reader.feed(block):
                    heard = moment
                    yield moment, chunk
                if reader.done:
                    return
                if moment - heard > timeout:
                    raise _silence(HostError("timeout", ""), reader, timeout)

    def _read(self, answer: Response) -> bytes:
        """Read what has arrived, without waiting for a full buffer: time stamps are worth that."""
        with _Translated(self._base):
            return bytes(answer.raw.read1(BLOCK))

    # ------------------------------------------------------------- HTTP

    def _get(self, path: str) -> Response:
        with _Translated(self._base):
            return self._session().get(
                self._base + path, timeout=self._quick, allow_redirects=False, headers=self._headers
            )

    def _post(self, path: str, body: Mapping[str, Any], timeout: float) -> Response:
        with _Translated(self._base):
            answer = self._session().post(
                self._base + path, json=dict(body), stream=True, timeout=(self._quick, timeout),
                allow_redirects=False, headers=self._headers,
            )  # fmt: skip
            if not body.get("stream") or answer.status_code != OK:
                _ = answer.content  # read here, where errors are translated
            return answer

    def _session(self) -> Session:
        if self._opened is None:
            import requests

            self._opened = requests.Session()
            self._opened.trust_env = False
        return self._opened


class _Translated:
    """Turns what requests and urllib3 raise into our codes."""

    def __init__(self, base: str) -> None:
        self._base = base

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import http.client

        import requests
        import urllib3

        ours = (
            requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException,
            OSError,
        )  # fmt: skip
        if not isinstance(error, ours):
            return
        causes = tuple(_causes(error))
        if any(getattr(cause, "errno", None) == errno.ECONNREFUSED for cause in causes):
            raise HostError("connection-refused", f"nothing listens at {self._base}") from error
        late = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
        unmade = urllib3.exceptions.NewConnectionError  # a ConnectTimeoutError, for no reason
        if any(isinstance(c, late) and not isinstance(c, unmade) for c in causes):
            raise HostError("timeout", f"{self._base} did not answer in time") from error
        foreign = (http.client.BadStatusLine, http.client.LineTooLong, http.client.UnknownProtocol)
        closed = http.client.RemoteDisconnected  # a BadStatusLine, too
        if any(isinstance(c, foreign) and not isinstance(c, closed) for c in causes):
            raise HostError("bad-stream", f"{self._base} does not speak HTTP") from error
        what = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), "")
        words = what or type(causes[-1]).__name__
        raise HostError("connection-lost", f"no answer from {self._base}: {words}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Given an error, yield it and all it wraps: requests keeps urllib3's errors as arguments."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        waiting += [cause for cause in inner if isinstance(cause, BaseException)]


def _silence(error: HostError, reader: EventReader, timeout: float) -> HostError:
    """Given why a stream could not be read on, say of a silence whether anything had come."""
    if error.code != "timeout":
        return error
    if reader.events:
        words = f"the stream stalled: nothing for {timeout:g} s after {reader.events} chunks"
    else:
        words = f"the request was accepted, and no first token came in {timeout:g} s"
    return HostError("timeout", words)


def _json(answer: Response) -> Mapping[str, Any]:
    """Given an answer, return its object. Raise HostError where there is none."""
    _raise_for(answer)
    try:
        found = json.loads(bytes(answer.content))
    except ValueError as error:
        raise HostError("bad-stream", f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise HostError("bad-stream", "the answer is no JSON object")
    return found


def _raise_for(answer: Response) -> None:
    if answer.status_code == OK:
        return
    text = bytes(answer.content).decode("utf-8", "replace")
    try:
        words = said(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        words = text[:WORDS].strip() or answer.reason or "no words"
    raise ApiError(answer.status_code, words)
