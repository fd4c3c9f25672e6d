"""Asks one HTTP question over a connection of its own, within one deadline and one size.

The timeouts of sockets, and of libraries above them, hold for each packet
alone: a server that sends a byte a second is never late to them, and an answer
without an end never ends. Here both bounds hold for all that arrives: head,
framing and body. Nothing is taken from the environment, no redirect is
followed, and nothing is decompressed.
Codes: connection-refused, timeout, connection-lost, bad-stream.
"""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse

BLOCK = 65536
LARGEST = 16 << 20
"""What an answer may have (bytes); /metrics of one engine has 50 KiB."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of whom. A body makes it a POST of JSON. `headers` may hold a key: not shown."""

    host: str
    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = None

    @property
    def where(self) -> str:
        """Return whom it asks, in words."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class _Line(socket.socket):
    """A connection that ends what lasts too long or is too much.

    http.client reads through `recv_into` and writes through `sendall` only.
    """

    _deadline = 0.0
    _room = 0

    def allow(self, seconds: float) -> None:
        """Given seconds, let it go on for as long, and take in another LARGEST bytes."""
        self._deadline = time.monotonic() + seconds
        self._room = LARGEST

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Do as a socket does. Raise TimeoutError beyond the deadline, HostError beyond the size."""
        self.settimeout(_left(self._deadline))
        got = super().recv_into(buffer, nbytes, flags)
        self._room -= got
        if self._room < 0:
            raise HostError("bad-stream", f"the answer has more than {LARGEST} bytes")
        return got

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Do as a socket does. Raise TimeoutError beyond the deadline."""
        self.settimeout(_left(self._deadline))
        super().sendall(data, flags)


class Answer:
    """The head of an answer, and the rest of it while `asked` is open. Raises HostError."""

    def __init__(self, line: _Line, response: HTTPResponse, where: str) -> None:
        self._line, self._response, self._where = line, response, where
        self.status = response.status
        self.reason = response.reason
        self.kind = response.getheader("Content-Type") or ""

    def whole(self) -> bytes:
        """Return all of the body, read within what is left of the deadline and the size."""
        blocks = []
        with _told(self._where):
            while block := self._response.read(BLOCK):
                blocks.append(block)
            if self._response.length:  # read() tells of a cut only when it is asked for all at once
                raise IncompleteRead(b"", self._response.length)
        return b"".join(blocks)

    def arrived(self) -> bytes:
        """Return what has come, without waiting for a full buffer; nothing: it has ended."""
        with _told(self._where):
            return self._response.read1(BLOCK)

    def allow(self, seconds: float) -> None:
        """Given seconds from now, let a stream that is alive go on for as long."""
        self._line.allow(seconds)


@contextmanager
def asked(question: Question, seconds: float, to_connect: float | None = None) -> Iterator[Answer]:
    """Given a question, ask it and hand over the answer, which is closed at the end.

    All of it takes `seconds` at most, and `to_connect` of them until the server
    accepts. Raise HostError with one of this module's codes.
    """
    ends = time.monotonic() + seconds
    with _told(question.where):
        line = _line_to(question, min(seconds, seconds if to_connect is None else to_connect))
    with line:
        line.allow(ends - time.monotonic())
        connection = HTTPConnection(question.host, question.port)
        connection.sock = line
        with _told(question.where):
            _send(connection, question)
            response = connection.getresponse()
        with response:
            yield Answer(line, response, question.where)


def _line_to(question: Question, seconds: float) -> _Line:
    made = socket.create_connection((question.host, question.port), timeout=seconds)
    # The head goes out before the body: without this the second waits for the first's receipt.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _Line(fileno=made.detach())


def _send(connection: HTTPConnection, question: Question) -> None:
    headers = {**question.headers, "Connection": "close"}  # identity is http.client's own wish
    if question.body is None:
        connection.request("GET", question.path, headers=headers)
        return
    headers["Content-Type"] = "application/json"
    connection.request("POST", question.path, question.body, headers)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turns what sockets and http.client raise into our codes."""
    try:
        yield
    except ConnectionRefusedError as error:
        raise HostError("connection-refused", f"nothing listens at {where}") from error
    except TimeoutError as error:
        raise HostError("timeout", f"{where} did not answer in time") from error
    except (RemoteDisconnected, IncompleteRead) as error:
        raise HostError("connection-lost", f"{where} closed before its answer ended") from error
    except OSError as error:
        words = error.strerror or type(error).__name__
        raise HostError("connection-lost", f"no answer from {where}: {words}") from error
    except (HTTPException, ValueError) as error:
        raise HostError("bad-stream", f"{where} does not speak HTTP") from error
