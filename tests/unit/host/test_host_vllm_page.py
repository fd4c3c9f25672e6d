"""The door to /metrics for one who looks for good: one deadline over all, each fault a code."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from host_support import DATA, free_port, server

from kimisvc.errors import HostError
from kimisvc.host import http_once, vllm_page
from kimisvc.host.vllm_page import metrics_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_support import Peer

TEXT = (DATA / "metrics-0.32.0-after.txt").read_bytes()


def fetched(play: Callable[[Peer], None], timeout: float = 10.0) -> vllm_page.Page:
    with server(play) as url:
        port = int(url.rpartition(":")[2])
        return metrics_page("127.0.0.1", port, timeout, clock=lambda: 42.0)


def test_a_page_and_when_it_came() -> None:
    heads = []

    def play(peer: Peer) -> None:
        heads.append(peer.head)
        peer.answer("200 OK", TEXT)
        peer.connection.shutdown(socket.SHUT_WR)

    page = fetched(play)
    assert page.text == TEXT.decode()
    assert page.at == 42.0
    assert heads[0].startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"\r\nConnection: close" in heads[0]
    assert b"Authorization" not in heads[0]


def test_a_chunked_page() -> None:
    def play(peer: Peer) -> None:
        peer.begin_stream("text/plain")
        peer.chunk(TEXT[:1000])
        peer.chunk(TEXT[1000:])
        peer.end_stream()
        peer.connection.shutdown(socket.SHUT_WR)

    assert fetched(play).text == TEXT.decode()


def dribbles(peer: Peer) -> None:
    """A byte every 50 ms: no packet is ever late, and the page never comes."""
    peer.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    gone = threading.Event()
    for _ in range(1000):
        try:
            peer.connection.sendall(b"x")
        except OSError:
            return
        gone.wait(0.05)


@pytest.mark.parametrize("play", [dribbles, lambda peer: peer.until_closed()])
def test_one_deadline_holds_for_all_of_it(play: Callable[[Peer], None]) -> None:
    with pytest.raises(HostError) as error:
        fetched(play, timeout=0.4)
    assert error.value.code == "timeout"


@pytest.mark.parametrize(
    ("status", "code"), [("503 Service Unavailable", "http-503"), ("404 Not Found", "http-404")]
)
def test_another_status(status: str, code: str) -> None:
    def play(peer: Peer) -> None:
        peer.answer(status, b"no")
        peer.connection.shutdown(socket.SHUT_WR)

    with pytest.raises(HostError) as error:
        fetched(play)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("said", "code"),
    [(b"SSH-2.0-OpenSSH_9.2\r\n", "bad-stream"), (b"", "connection-lost"),
     (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "connection-lost"),
     (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "connection-lost")],
)  # fmt: skip
def test_what_is_no_page(said: bytes, code: str) -> None:
    def play(peer: Peer) -> None:
        peer.connection.sendall(said)
        peer.connection.shutdown(socket.SHUT_WR)

    with pytest.raises(HostError) as error:
        fetched(play)
    assert error.value.code == code


def test_a_page_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_once, "LARGEST", 1000)

    def play(peer: Peer) -> None:
        peer.answer("200 OK", b"x" * 100_000)

    with pytest.raises(HostError) as error:
        fetched(play)
    assert error.value.code == "bad-stream"


def test_nobody_there() -> None:
    port = free_port()
    with pytest.raises(HostError) as error:
        metrics_page("127.0.0.1", port, 5.0)
    assert error.value.code == "connection-refused"
    with pytest.raises(HostError) as error:
        metrics_page("no-such-host.invalid", port, 5.0)
    assert error.value.code == "connection-lost"
