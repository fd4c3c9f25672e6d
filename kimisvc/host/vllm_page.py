"""Fetches vLLM's /metrics for one who looks at it every few seconds, for good.

`vllm_api` speaks to vLLM for all else. Here requests would cost a small
process a third of its memory, and its timeouts hold for each packet alone: a
server that sends a byte a second would never be late. Here one deadline holds
for all of it. The page is open to all, so no key is sent.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import IO, TYPE_CHECKING

from kimisvc.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 65536
LARGEST = 16 << 20
"""A page of one engine has 50 KiB."""
OK = 200


@dataclass(frozen=True, slots=True)
class Page:
    """What /metrics said, and when its first byte came, by the caller's clock (s)."""

    at: float
    text: str


def metrics_page(
    host: str, port: int, timeout: float, clock: Callable[[], float] = time.monotonic
) -> Page:
    """Given where vLLM listens, return its /metrics, within `timeout` seconds all in all.

    Raise HostError: connection-refused, timeout, connection-lost, bad-stream, http-STATUS.
    """
    where = f"{host}:{port}"
    deadline = time.monotonic() + timeout
    try:
        with socket.create_connection((host, port), timeout=timeout) as line:
            line.settimeout(_left(deadline))
            line.sendall(_request(where))
            at, answer = _answer(line, deadline, clock)
    except ConnectionRefusedError as error:
        raise HostError("connection-refused", f"nothing listens at {where}") from error
    except TimeoutError as error:
        raise HostError("timeout", f"{where} did not answer in {timeout:g} s") from error
    except OSError as error:
        words = error.strerror or str(error)
        raise HostError("connection-lost", f"no answer from {where}: {words}") from error
    return Page(at, _text(answer, where))


def _request(where: str) -> bytes:
    head = (f"Host: {where}", "Accept: text/plain", "Accept-Encoding: identity")
    return "\r\n".join(("GET /metrics HTTP/1.1", *head, "Connection: close", "", "")).encode()


def _answer(
    line: socket.socket, deadline: float, clock: Callable[[], float]
) -> tuple[float, bytes]:
    blocks: list[bytes] = []
    at, size = 0.0, 0
    while size <= LARGEST:
        line.settimeout(_left(deadline))
        block = line.recv(BLOCK)
        if not block:
            return at, b"".join(blocks)
        if not blocks:
            at = clock()  # the page is made just before it is sent
        blocks.append(block)
        size += len(block)
    raise HostError("bad-stream", f"/metrics has more than {LARGEST} bytes")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Received:
    """An answer that is here already, in the shape http.client reads from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> IO[bytes]:
        """Return it as a file."""
        del mode
        return BytesIO(self._data)


def _text(answer: bytes, where: str) -> str:
    try:
        response = HTTPResponse(_Received(answer))  # type: ignore[arg-type]  # all it asks of a socket
        response.begin()
        body = response.read()
    except (HTTPException, ValueError) as error:
        raise HostError("bad-stream", f"{where} does not speak HTTP, or stopped early") from error
    if response.status != OK:
        raise HostError(
            f"http-{response.status}", f"{where}/metrics: HTTP status {response.status}"
        )
    return body.decode("utf-8", "replace")
