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

LARGEST_EVENT = 16 << 20
"""What one event may have (bytes). The first one carries the ids of all tokens of the prompt."""
WORDS = 1000
"""So much of what a server says is told (characters)."""


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
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0  # of the lines in _data

    def feed(self, block: bytes) -> Iterator[Mapping[str, Any]]:
        """Given the next bytes, yield the events they complete.

        Raise HostError "bad-stream" where one is no JSON object or without end,
        and StreamError where it is an error. Bytes that are no UTF-8 are
        replaced: a token may end in the middle of a character.
        """
        for line in self._lines(block):
            if line.startswith(b"data:"):
                self._data.append(line.removeprefix(b"data:").removeprefix(b" "))
                self._size += len(line)
            elif not line and self._data and not self.done:
                event, self._data, self._size = b"\n".join(self._data), [], 0
                if event == b"[DONE]":
                    self.done = True
                else:
                    self.events += 1
                    yield _checked(event)
        if len(self._rest) + self._size > LARGEST_EVENT:
            what = f"the server sent a chunk of more than {LARGEST_EVENT} bytes"
            raise HostError("bad-stream", what)

    def _lines(self, block: bytes) -> list[bytes]:
        """Given the next bytes, return the lines they complete, and keep what follows."""
        ended, newline, rest = block.rpartition(b"\n")
        if not newline:
            self._rest += rest
            return []
        lines = (bytes(self._rest) + ended).split(b"\n")
        self._rest = bytearray(rest)
        return [line.removesuffix(b"\r") for line in lines]


def said(error: object) -> str:
    """Given the `error` of a body, return its words: mostly an object, for 401 a bare string."""
    if isinstance(error, dict):
        return plain(error.get("message") or error.get("type") or "no message")
    return plain(error)


def plain(words: object) -> str:
    """Given what a server said, return it short and without what would steer a terminal."""
    try:
        text = str(words)[:WORDS]
    except RecursionError:
        return "nested too deeply to be told"
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def object_of(text: str | bytes, what: str) -> Mapping[str, Any]:
    """Given what should be a JSON object and what it is, return it. Raise HostError "bad-stream"."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise HostError("bad-stream", f"{what} is nested too deeply") from error
    except ValueError as error:
        raise HostError("bad-stream", f"{what} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise HostError("bad-stream", f"{what} is no JSON object")
    return found


def _checked(event: bytes) -> Mapping[str, Any]:
    chunk = object_of(event.decode("utf-8", "replace"), "a chunk that the server sent")
    if chunk.get("error") is not None:
        raise StreamError(said(chunk["error"]))
    return chunk
