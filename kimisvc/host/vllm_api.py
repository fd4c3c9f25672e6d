"""The only HTTP to vLLM. Answers become values; everything else becomes a KimisvcError with a code.

Codes: connection-refused, timeout, connection-lost, bad-stream, stream-error,
and http-STATUS for an answer with that status. The API key travels in its
header only and is never part of an error.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from kimisvc.errors import KimisvcError
from kimisvc.host.vllm_metrics import engine_counters
from kimisvc.records import EngineCounters, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from requests import Response, Session

QUICK = 5.0
"""What a question that costs the engine nothing may take (s)."""
OK, UNAVAILABLE, SERVER_ERROR = 200, 503, 500


class VllmApi:
    """The door to one vLLM server. `clock` stamps the chunks of a stream."""

    def __init__(
        self, base_url: str, api_key: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._base = base_url
        self._key = api_key
        self._clock = clock
        self._opened: Session | None = None

    def health(self) -> Health:
        """Look at /health once and return what that said."""
        try:
            answer = self._get("/health")
        except KimisvcError as error:
            return Health.REFUSED if error.code == "connection-refused" else Health.NO_ANSWER
        if answer.status_code == OK:
            return Health.READY
        if answer.status_code == UNAVAILABLE:
            return Health.UNAVAILABLE
        return Health.SERVER_ERROR if answer.status_code >= SERVER_ERROR else Health.UNEXPECTED

    def version(self) -> str | None:
        """Return the server's version, None where it does not say."""
        try:
            return str(self._get("/version").json()["version"])
        except (KimisvcError, ValueError, KeyError, TypeError):
            return None

    def models(self) -> tuple[str, ...]:
        """Return the names the server serves. Raise KimisvcError when it does not answer so."""
        answer = self._get("/v1/models")
        self._raise_for(answer)
        try:
            return tuple(str(model["id"]) for model in answer.json()["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise KimisvcError("bad-stream", "/v1/models answers with what is no list") from error

    def metrics(self) -> str:
        """Return the text of /metrics. Raise KimisvcError when there is none."""
        answer = self._get("/metrics")
        self._raise_for(answer)
        return answer.text

    def counters(self) -> EngineCounters | None:
        """Return the engine's counters now; None where the server shows none."""
        return engine_counters(self.metrics())

    def stream(
        self, path: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        """Given a request, yield (moment, chunk) until [DONE]; `timeout` is the longest silence (s).

        Raise KimisvcError with one of this module's codes.
        """
        with self._translated():
            answer = self._session().post(
                self._base + path, json=dict(body), stream=True, timeout=(QUICK, timeout),
                allow_redirects=False, headers=self._headers(),
            )  # fmt: skip
        with answer:
            if answer.status_code != OK:
                with self._translated():
                    _ = answer.content
                self._raise_for(answer)
            yield from self._events(answer)

    def _events(self, answer: Response) -> Iterator[tuple[float, Mapping[str, Any]]]:
        """Server-sent events as the HTML standard defines them, one JSON object each."""
        rest = b""
        data: list[bytes] = []
        while True:
            with self._translated():
                # read1 returns what has arrived, without waiting for a full buffer.
                block = answer.raw.read1(65536, decode_content=True)
            moment = self._clock()
            if not block:
                raise KimisvcError("connection-lost", "the stream ended without [DONE]")
            *lines, rest = (rest + block).replace(b"\r\n", b"\n").split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    data.append(line.removeprefix(b"data:").removeprefix(b" "))
                elif not line and data:
                    event, data = b"\n".join(data), []
                    if event == b"[DONE]":
                        return
                    yield moment, _chunk(event)

    def _get(self, path: str) -> Response:
        with self._translated():
            return self._session().get(
                self._base + path, timeout=QUICK, allow_redirects=False, headers=self._headers()
            )

    def _session(self) -> Session:
        """One session, without proxies and credentials from the environment."""
        if self._opened is None:
            import requests

            self._opened = requests.Session()
            self._opened.trust_env = False
        return self._opened

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _raise_for(self, answer: Response) -> None:
        if answer.status_code == OK:
            return
        said = _said(answer)
        hint = ""
        if answer.status_code in (401, 403):
            hint = "the server wants an API key: put VLLM_API_KEY into secrets_file"
        raise KimisvcError(
            f"http-{answer.status_code}", f"HTTP status {answer.status_code}: {said}", hint=hint
        )

    def _translated(self) -> _Translated:
        return _Translated(self._base)


class _Translated:
    """Turns what requests and urllib3 raise into our codes."""

    def __init__(self, base: str) -> None:
        self._base = base

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        import requests
        import urllib3

        if not isinstance(
            error, (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
        ):
            return
        if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)):
            raise KimisvcError("timeout", f"{self._base} did not answer in time") from error
        if "Read timed out" in str(error):  # requests wraps a late read as a lost connection
            raise KimisvcError("timeout", f"{self._base} did not answer in time") from error
        if "Connection refused" in str(error):
            raise KimisvcError("connection-refused", f"nothing listens at {self._base}") from error
        raise KimisvcError("connection-lost", f"{self._base}: {type(error).__name__}") from error


def _chunk(event: bytes) -> Mapping[str, Any]:
    """Given the data of one event, return its object; bytes that are not UTF-8 are marked, not fatal."""
    try:
        chunk = json.loads(event.decode("utf-8", "replace"))
    except ValueError as error:
        raise KimisvcError("bad-stream", f"a chunk that is no JSON: {error}") from error
    if not isinstance(chunk, dict):
        raise KimisvcError("bad-stream", "a chunk that is no JSON object")
    return chunk


def _said(answer: Response) -> str:
    """VLLM's own words: {"error": {"message": …}} mostly, {"error": "Unauthorized"} for 401."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or "no words"
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
