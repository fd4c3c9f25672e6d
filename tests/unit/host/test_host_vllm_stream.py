"""Server-sent events, cut anywhere: what comes out does not depend on how the bytes came in."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from host_support import DATA
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.errors import HostError
from kimisvc.host import vllm_stream
from kimisvc.host.vllm_stream import EventReader, StreamError, plain

CAPTURED = (DATA / "chat.sse").read_bytes()


def read(*blocks: bytes) -> tuple[list[Any], bool]:
    reader = EventReader()
    chunks = [chunk for block in blocks for chunk in reader.feed(block)]
    return chunks, reader.done


def test_a_captured_stream_is_read_whole() -> None:
    chunks, done = read(CAPTURED)
    assert done
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert said == "The capital of France is Paris."
    assert chunks[-1]["usage"]["completion_tokens"] == 8


@given(st.lists(st.integers(0, len(CAPTURED)), max_size=12), st.booleans())
def test_where_the_bytes_are_cut_does_not_matter(cuts: list[int], carriage: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    text = CAPTURED.replace(b"\n", b"\r\n") if carriage else CAPTURED
    edges = [0, *sorted(cuts), len(text)]
    blocks = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*blocks) == read(CAPTURED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b": keep-alive\n\n", []),
        (b':\n\ndata: {"a":1}\n\n', [{"a": 1}]),
        (b'data:{"a":1}\n\n', [{"a": 1}]),
        (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}]),
        (b'event: token\nid: 3\ndata: {"a":1}\n\n', [{"a": 1}]),
        (b'data: {"a":1}\n', []),
        (b'data: [DONE]\n\ndata: {"a":1}\n\n', []),
        (b'data: {"a":"x\xff\xfey"}\n\n', [{"a": "x\ufffd\ufffdy"}]),
        (b'data: {"error":null,"a":1}\n\n', [{"error": None, "a": 1}]),
    ],
)
def test_events_as_the_standard_has_them(text: bytes, expected: list[Any]) -> None:
    assert read(text)[0] == expected


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5))
def test_any_object_comes_through_as_it_was(value: Any) -> None:
    sent = json.dumps({"v": value}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert read(b"data: " + sent + b"\n\n")[0] == [{"v": value}]


DEEP = b"[" * 200_000
HUGE_NUMBER = b'{"a":1' + b"0" * 5000 + b"}"


@pytest.mark.parametrize(
    "event", [b"{broken", b"[1]", b'"text"', b"\xff\xfe", DEEP, b'{"a":' + DEEP, HUGE_NUMBER]
)
def test_a_chunk_that_is_no_object_is_refused(event: bytes) -> None:
    with pytest.raises(HostError) as caught:
        read(b"data: " + event + b"\n\n")
    assert caught.value.code == "bad-stream"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "EngineCore died", "type": "x", "code": 500}}, "EngineCore died"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"error": {"type": "InternalServerError"}}, "InternalServerError"),
    ],
)
def test_an_error_inside_a_good_stream_is_an_error(body: dict[str, Any], words: str) -> None:
    with pytest.raises(StreamError, match=words) as caught:
        read(b'data: {"a":1}\n\n', b"data: " + json.dumps(body).encode() + b"\n\n")
    assert caught.value.code == "stream-error"


def test_the_words_of_an_error_do_not_steer_a_terminal() -> None:
    with pytest.raises(StreamError) as caught:
        read(b'data: {"error":{"message":"\\u001b[2J\\ud800no\\nmemory"}}\n\n')
    assert caught.value.message.endswith("error: [2J no memory")


def test_words_that_are_nested_too_deeply_are_told_as_that() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert plain(deep) == "nested too deeply to be told"


@pytest.mark.parametrize("block", [b"x" * 10, b"data: x\n", b"data:\n"])
def test_an_event_without_an_end_is_not_kept_for_good(
    block: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_stream, "LARGEST_EVENT", 1000)
    with pytest.raises(HostError) as caught:
        read(b'data: {"a":1}\n\n', *itertools.repeat(block, 500))
    assert caught.value.code == "bad-stream"


def test_many_small_events_are_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_stream, "LARGEST_EVENT", 1000)
    assert len(read(*itertools.repeat(b': alive\n\ndata: {"a":1}\n\n', 500))[0]) == 500
