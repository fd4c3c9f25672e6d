"""A raw HTTP server for the tests of the doors: it sends the bytes a test says, when it says."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data"
PATIENCE = 20.0


class Peer:
    """One client's connection, on the server's side. `request` is its head, `body` what follows."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(PATIENCE)
        self.head = b""
        self.body = b""

    def receive(self) -> bool:
        """Read one request; False when the client has closed."""
        data = b""
        while b"\r\n\r\n" not in data:
            block = self.connection.recv(65536)
            if not block:
                return False
            data += block
        self.head, _, self.body = data.partition(b"\r\n\r\n")
        for line in self.head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                while len(self.body) < int(line.split(b":")[1]):
                    self.body += self.connection.recv(65536)
        return True

    def answer(self, status: str, body: bytes = b"", *headers: str) -> None:
        """Send a whole answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.connection.sendall("\r\n".join(lines).encode() + body)

    def begin_stream(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        """Send the head of a chunked answer."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.connection.sendall(head.encode())

    def chunk(self, data: bytes) -> None:
        """Send one chunk of it."""
        self.connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """Send the last, empty chunk."""
        self.connection.sendall(b"0\r\n\r\n")

    def until_closed(self) -> None:
        """Wait until the client closes."""
        while self.connection.recv(65536):
            pass


@contextmanager
def server(script: Callable[[Peer], None]) -> Iterator[str]:
    """Run `script` for every request of every connection; give the base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    closing = threading.Event()
    troubles: list[BaseException] = []

    def serve(connection: socket.socket) -> None:
        peer = Peer(connection)
        with connection:
            try:
                while peer.receive():
                    script(peer)
            except OSError as error:
                gone = isinstance(error, ConnectionError) or connection.fileno() < 0
                if not gone and not closing.is_set():
                    troubles.append(error)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if closing.is_set():
                connection.close()
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        closing.set()
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            accepting.join(PATIENCE)
        listener.close()
    assert not troubles, troubles


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
