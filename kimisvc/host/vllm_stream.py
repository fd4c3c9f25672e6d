"""Reads server-sent events as vLLM sends them: bytes in, JSON objects out. No I/O.

HTML standard, 9.2.6: a line ends with LF or CRLF, `:` begins a comment, the
`data:` lines of one event are joined by LF, an empty line ends the event.
Every vLLM stream ends with the event [DONE] (0.15 to 0.33).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class StreamError(HostError):
    """The server reported an error inside a stream that had begun well."""

    def __init__(self, said: str) -> None:
        """Given the server's words, hold them."""
        super().__init__("stream-error", f"the server ended the stream with an error: {said}")


class EventReader:
    """Puts events together out of blocks that may be cut anywhere.

    `done`: the server said [DONE]. `events`: how many it has sent.
    """

    def __init__(self) -> None:
        self.done = False
        self.events = 0
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[Mapping[str, Any]]:
        """Given the next bytes, yield the events they complete.

        Raise HostError "bad-stream" where one is no JSON object and
        StreamError where it is an error. Bytes that are no UTF-8 are replaced:
        a token may end in the middle of a character.
        """
        *lines, self._rest = (self._rest + block).split(b"\n")
        for ended in lines:
            line = ended.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line.removeprefix(b"data:").removeprefix(b" "))
            elif not line and self._data and not self.done:
                event, self._data = b"\n".join(self._data), []
                if event == b"[DONE]":
                    self.done = True
                else:
                    self.events += 1
                    yield _checked(event)


def said(error: object) -> str:
    """Given the `error` of a body, return its words: mostly an object, for 401 a bare string."""
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "no message")
    return str(error)


def _checked(event: bytes) -> Mapping[str, Any]:
    try:
        chunk = json.loads(event.decode("utf-8", "replace"))
    except ValueError as error:
        raise HostError(
            "bad-stream", f"the server sent a chunk that is no JSON: {error}"
        ) from error
    if not isinstance(chunk, dict):
        raise HostError("bad-stream", "the server sent a chunk that is no JSON object")
    if chunk.get("error") is not None:
        raise StreamError(said(chunk["error"]))
    return chunk
