"""The HTTP door, against real sockets that do what servers do, and worse."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from host_support import DATA, PATIENCE, Peer, free_port, server

from kimisvc.errors import HostError
from kimisvc.host import http_once
from kimisvc.host.vllm_api import ApiError, ModelInfo, VllmApi
from kimisvc.records.proof import Health

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "sk-planted-0123"
COMPLETIONS = "/v1/completions"
STREAM = {"stream": True}


def replies(status: str, body: bytes = b"", *headers: str) -> Callable[[Peer], None]:
    return lambda peer: peer.answer(status, body, *headers)


def raised(api: VllmApi, timeout: float = PATIENCE) -> tuple[HostError, list[Any]]:
    """Read a stream that must fail; return how, and the chunks before."""
    chunks: list[Any] = []
    with pytest.raises(HostError) as caught:
        chunks.extend(chunk for _, chunk in api.stream(COMPLETIONS, STREAM, timeout))
    return caught.value, chunks


# ------------------------------------------------------------------ health


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ("200 OK", Health.READY),
        ("503 Service Unavailable", Health.UNAVAILABLE),
        ("500 Internal Server Error", Health.SERVER_ERROR),
        ("502 Bad Gateway", Health.SERVER_ERROR),
        ("404 Not Found", Health.UNEXPECTED),
        ("401 Unauthorized", Health.UNEXPECTED),
    ],
)
def test_what_a_status_of_health_means(status: str, health: Health) -> None:
    with server(replies(status)) as base:
        assert VllmApi(base, None).health() is health


def test_a_redirect_is_not_followed() -> None:
    asked = []

    def script(peer: Peer) -> None:
        asked.append(peer.head.split(b" ")[1])
        peer.answer("307 Temporary Redirect", b"", "Location: /elsewhere")

    with server(script) as base:
        assert VllmApi(base, None).health() is Health.UNEXPECTED
    assert asked == [b"/health"]


def test_nothing_listens() -> None:
    assert VllmApi(f"http://127.0.0.1:{free_port()}", None).health() is Health.REFUSED


def test_bound_and_not_listening_is_refused_too_as_vllm_is_while_it_loads() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert VllmApi(f"http://127.0.0.1:{bound.getsockname()[1]}", None).health() is (
            Health.REFUSED
        )


def test_an_address_that_cannot_be_reached_is_no_late_answer() -> None:
    api = VllmApi("http://255.255.255.255:9", None)  # no TCP goes to a broadcast address
    assert api.health() is Health.NO_ANSWER
    error, _ = raised(api)
    assert error.code == "connection-lost"


def test_accepted_and_never_answered() -> None:
    with server(Peer.until_closed) as base:
        assert VllmApi(base, None, quick=0.05).health() is Health.NO_ANSWER


def test_accepted_and_closed() -> None:
    with server(lambda peer: peer.connection.shutdown(socket.SHUT_RDWR)) as base:
        assert VllmApi(base, None).health() is Health.NO_ANSWER


def test_what_speaks_no_http_is_not_vllm() -> None:
    with server(lambda peer: peer.connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as base:
        assert VllmApi(base, None).health() is Health.UNEXPECTED


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server(replies("200 OK")) as base:
        assert VllmApi(base, None).health() is Health.READY


# ------------------------------------------------------------------ questions


def test_version_and_models_of_a_captured_server() -> None:
    bodies = {
        b"/version": b'{"version":"0.32.0"}',
        b"/v1/models": b'{"object":"list","data":[{"id":"kimi","max_model_len":2048},{"id":"b"}]}',
    }
    with server(lambda peer: peer.answer("200 OK", bodies[peer.head.split(b" ")[1]])) as base:
        api = VllmApi(base, None)
        assert api.version() == "0.32.0"
        assert api.models() == (ModelInfo("kimi", 2048), ModelInfo("b", None))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>"])
def test_a_version_that_is_none(body: bytes) -> None:
    with server(replies("200 OK", body)) as base:
        assert VllmApi(base, None).version() is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":[1]}', b'{"data":null}'])
def test_models_that_are_none(body: bytes) -> None:
    with server(replies("200 OK", body)) as base, pytest.raises(HostError) as caught:
        VllmApi(base, None).models()
    assert caught.value.code == "bad-stream"


def test_metrics_and_counters() -> None:
    text = (DATA / "metrics-0.32.0-after.txt").read_bytes()
    with server(replies("200 OK", text, "Content-Type: text/plain")) as base:
        counters = VllmApi(base, None).counters()
    assert counters is not None
    assert counters.generation_tokens == 588


def test_a_chat_is_answered_whole() -> None:
    got = []

    def script(peer: Peer) -> None:
        got.append((peer.head.split(b" ")[1], json.loads(peer.body)))
        peer.answer("200 OK", b'{"choices":[{"message":{"content":"Paris"}}]}')

    with server(script) as base:
        answer = VllmApi(base, None).chat({"model": "kimi"}, PATIENCE)
    assert answer["choices"][0]["message"]["content"] == "Paris"
    assert got == [(b"/v1/chat/completions", {"model": "kimi"})]


# ------------------------------------------------------------------ the key


def test_the_key_is_in_its_header_and_nowhere_else() -> None:
    heads = []

    def script(peer: Peer) -> None:
        heads.append(peer.head)
        peer.answer("401 Unauthorized", b'{"error":"Unauthorized"}')

    with server(script) as base:
        api = VllmApi(base, f"{SECRET}\n")
        with pytest.raises(ApiError) as caught:
            api.models()
    assert heads[0].count(SECRET.encode()) == 1
    assert f"\r\nAuthorization: Bearer {SECRET}\r\n".encode() in heads[0] + b"\r\n"
    error = caught.value
    assert (error.code, error.status) == ("http-401", 401)
    assert error.message == "HTTP status 401: Unauthorized"
    assert "VLLM_API_KEY" in error.hint
    assert SECRET not in repr(error) + error.hint + repr(api)


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-ü", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_named(key: str) -> None:
    with pytest.raises(HostError) as caught:
        VllmApi("http://127.0.0.1:1", key)
    assert caught.value.code == "bad-api-key"
    assert key not in caught.value.message


# ------------------------------------------------------------------ streams


def test_chunks_are_stamped_when_they_arrive() -> None:
    """The server sends the next chunk only after it was told that the last one was seen."""
    seen = threading.Semaphore(0)
    ticks = itertools.count(1.0)

    def script(peer: Peer) -> None:
        peer.begin_stream()
        for n in range(5):
            peer.chunk(b'data: {"n":%d}\n\n' % n)
            assert seen.acquire(timeout=PATIENCE)
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_stream()

    with server(script) as base:
        api = VllmApi(base, None, clock=lambda: next(ticks))
        stamped = []
        for moment, chunk in api.stream(COMPLETIONS, STREAM, PATIENCE):
            stamped.append((moment, chunk["n"]))
            seen.release()
    assert [n for _, n in stamped] == [0, 1, 2, 3, 4]
    assert len({moment for moment, _ in stamped}) == 5


def test_two_events_in_one_block_came_at_one_moment() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\ndata: {"a":2}\n\ndata: [DONE]\n\n')
        peer.end_stream()

    with server(script) as base:
        moments = [m for m, _ in VllmApi(base, None).stream(COMPLETIONS, STREAM, PATIENCE)]
    assert moments[0] == moments[1]


def test_closing_the_iterator_aborts_the_request() -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\n')
        peer.until_closed()
        closed.set()

    with server(script) as base:
        chunks = VllmApi(base, None).stream(COMPLETIONS, STREAM, PATIENCE)
        next(iter(chunks))
        chunks.close()  # type: ignore[attr-defined]  # it is a generator
        assert closed.wait(PATIENCE)


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        ("400 Bad Request", {"error": {"message": "max_tokens=99999 cannot"}}, "http-400",
         "max_tokens=99999 cannot"),
        ("404 Not Found", {"error": {"message": "The model `nope` does not exist."}}, "http-404",
         "The model `nope` does not exist."),
        ("401 Unauthorized", {"error": "Unauthorized"}, "http-401", "Unauthorized"),
        ("429 Too Many Requests", {"detail": "busy"}, "http-429", '{"detail": "busy"}'),
        ("503 Service Unavailable", None, "http-503", "Service Unavailable"),
    ],
)  # fmt: skip
def test_a_refused_request_says_why_in_the_servers_words(
    status: str, body: dict[str, Any] | None, code: str, words: str
) -> None:
    with server(replies(status, json.dumps(body).encode() if body else b"")) as base:
        error, chunks = raised(VllmApi(base, None))
    assert isinstance(error, ApiError)
    assert (error.code, error.status, chunks) == (code, int(status[:3]), [])
    assert error.message == f"HTTP status {error.status}: {words}"


def test_accepted_and_no_first_token() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.until_closed()

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None), timeout=0.05)
    assert (error.code, chunks) == ("timeout", [])
    assert "accepted, and no first token" in error.message


def test_accepted_and_not_even_a_head() -> None:
    with server(Peer.until_closed) as base:
        error, _ = raised(VllmApi(base, None), timeout=0.05)
    assert error.code == "timeout"
    assert "accepted, and no first token" in error.message


def test_a_stall_in_the_middle_says_how_far_it_came() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\ndata: {"a":2}\n\n')
        peer.until_closed()

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None), timeout=1.0)
    assert (error.code, len(chunks)) == ("timeout", 2)
    assert "after 2 chunks" in error.message


def test_comments_that_keep_the_connection_alive_do_not_hide_a_stall() -> None:
    """An engine that hangs behind an API server that goes on sending `: keep-alive`."""
    borne = []

    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\n')
        for _ in range(300):
            peer.chunk(b": keep-alive\n\n")  # fails when the client has closed
            threading.Event().wait(0.01)
        borne.append("all of them")

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None), timeout=1.0)
    assert (error.code, len(chunks), borne) == ("timeout", 1, [])


def test_a_connection_cut_in_the_middle() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\n')
        peer.connection.shutdown(socket.SHUT_RDWR)

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None))
    assert (error.code, len(chunks)) == ("connection-lost", 1)


def test_a_connection_reset_in_the_middle() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\n')
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # close with RST, as a killed process's kernel
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.connection.close()

    with server(script) as base:
        error, _ = raised(VllmApi(base, None))
    assert error.code == "connection-lost"


def test_a_stream_that_ends_without_done_was_cut() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\n')
        peer.end_stream()

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None))
    assert (error.code, len(chunks)) == ("connection-lost", 1)


def test_an_answer_that_is_no_stream() -> None:
    with server(replies("200 OK", b"{}", "Content-Type: application/json")) as base:
        error, _ = raised(VllmApi(base, None))
    assert error.code == "bad-stream"
    assert "application/json" in error.message


def test_an_error_inside_the_stream_has_the_servers_words() -> None:
    def script(peer: Peer) -> None:
        peer.begin_stream()
        peer.chunk(b'data: {"a":1}\n\ndata: {"error":{"message":"EngineCore died"}}\n\n')
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_stream()

    with server(script) as base:
        error, chunks = raised(VllmApi(base, None))
    assert (error.code, len(chunks)) == ("stream-error", 1)
    assert "EngineCore died" in error.message


def test_nothing_listens_for_a_stream() -> None:
    error, _ = raised(VllmApi(f"http://127.0.0.1:{free_port()}", None))
    assert error.code == "connection-refused"


# ------------------------------------------------------------------ hostile answers

SHORT = 0.3
HEAD = b"HTTP/1.1 200 OK\r\n"
NO_LENGTH = HEAD + b"Connection: close\r\n\r\n"
EVENTS = HEAD + b"Content-Type: text/event-stream\r\n"
CHUNKED = EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"


def trickles(begin: bytes, drop: bytes, borne: list[str]) -> Callable[[Peer], None]:
    """Send a little every 20 ms, so that no read is ever late, for much longer than it may last.

    `borne` says where a client took it all.
    """

    def script(peer: Peer) -> None:
        peer.connection.sendall(begin)
        for _ in range(250):
            peer.connection.sendall(drop)  # fails when the client has closed
            time.sleep(0.02)
        borne.append("all of it")

    return script


def floods(begin: bytes) -> Callable[[Peer], None]:
    """Send a body without an end, as fast as it is taken."""

    def script(peer: Peer) -> None:
        peer.connection.sendall(begin)
        while True:
            peer.connection.sendall(b"x" * 65536)

    return script


QUESTIONS: dict[str, Callable[[VllmApi], Any]] = {
    "models": VllmApi.models,
    "metrics": VllmApi.metrics,
    "chat": lambda api: api.chat({}, SHORT),
    "stream": lambda api: list(api.stream(COMPLETIONS, STREAM, SHORT)),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (HEAD + b"X: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (EVENTS + b"\r\n", b" "),
        (CHUNKED, b"0"),
    ],
    ids=["head", "heads without end", "body of a refusal", "body", "size of a chunk"],
)
def test_a_trickle_is_late_though_no_read_is(question: str, begin: bytes, drop: bytes) -> None:
    borne: list[str] = []
    with server(trickles(begin, drop, borne)) as base, pytest.raises(HostError) as caught:
        QUESTIONS[question](VllmApi(base, None, quick=SHORT))
    assert (caught.value.code, borne) == ("timeout", [])


@pytest.mark.parametrize("begin", [HEAD + b"X: ", NO_LENGTH])
def test_a_trickle_on_health_and_version(begin: bytes) -> None:
    borne: list[str] = []
    with server(trickles(begin, b"x", borne)) as base:
        api = VllmApi(base, None, quick=SHORT)
        assert api.health() is Health.NO_ANSWER
        assert api.version() is None
    assert borne == []


@pytest.mark.parametrize("question", ["models", "metrics", "chat"])
@pytest.mark.parametrize(
    "begin",
    [NO_LENGTH, HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
     b"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n"],
    ids=["body", "chunk", "refusal"],
)  # fmt: skip
def test_an_answer_without_an_end_is_not_taken_in(
    question: str, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_once, "LARGEST", 1 << 20)
    with server(floods(begin)) as base, pytest.raises(HostError) as caught:
        QUESTIONS[question](VllmApi(base, None, quick=PATIENCE))
    assert caught.value.code == "bad-stream"
    assert "more than 1048576 bytes" in caught.value.message


def test_health_without_an_end_is_not_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_once, "LARGEST", 1 << 20)
    with server(floods(NO_LENGTH)) as base:
        assert VllmApi(base, None, quick=PATIENCE).health() is Health.UNEXPECTED


def test_a_stream_may_be_longer_than_its_timeout_and_than_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_once, "LARGEST", 2000)

    def script(peer: Peer) -> None:
        peer.begin_stream()
        for n in range(20):
            peer.chunk(b'data: {"n":%d,"x":"%s"}\n\n' % (n, b"x" * 500))
            time.sleep(0.1)
        peer.chunk(b"data: [DONE]\n\n")

    with server(script) as base:
        chunks = [c["n"] for _, c in VllmApi(base, None).stream(COMPLETIONS, STREAM, 1.5)]
    assert chunks == list(range(20))


DEEP = b"[" * 200_000


@pytest.mark.parametrize("body", [DEEP, b'{"data":' + DEEP, b'{"a":1' + b"0" * 5000 + b"}"])
@pytest.mark.parametrize("question", ["models", "chat"])
def test_an_answer_that_no_json_reader_takes(body: bytes, question: str) -> None:
    with server(replies("200 OK", body)) as base, pytest.raises(HostError) as caught:
        QUESTIONS[question](VllmApi(base, None))
    assert caught.value.code == "bad-stream"
    with server(replies("200 OK", body)) as base:
        assert VllmApi(base, None).version() is None


def test_a_refusal_that_no_json_reader_takes() -> None:
    with server(replies("400 Bad Request", DEEP)) as base:
        error, _ = raised(VllmApi(base, None))
    assert error.code == "http-400"


def test_the_words_of_a_refusal_do_not_steer_a_terminal() -> None:
    body = b'{"error":{"message":"\\u001b]0;pwn\\u0007no key\\ud800"}}'
    with server(replies("400 Bad Request", body)) as base:
        error, _ = raised(VllmApi(base, None))
    assert error.message == "HTTP status 400: ]0;pwn no key"


def test_an_answer_cut_in_its_body_is_no_answer() -> None:
    def script(peer: Peer) -> None:
        peer.connection.sendall(HEAD + b'Content-Length: 99\r\n\r\n{"data":[]}')
        peer.connection.shutdown(socket.SHUT_RDWR)

    with server(script) as base, pytest.raises(HostError) as caught:
        VllmApi(base, None).models()
    assert caught.value.code == "connection-lost"
