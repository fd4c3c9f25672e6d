from __future__ import annotations

from typing import Any

import pytest
from measure_support import Clock, Played, even_stream, events, token, usage

from kimisvc.errors import KimisvcError
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.stream import Answered, read_answer

Stream = list[tuple[float, Any]]


def read(stream: Stream, timeout: float = 60.0) -> Answered | Broken:
    clock = Clock()
    api = Played(clock, stream)
    return read_answer(api.stream("/v1/completions", {}, timeout), clock.now, timeout)


def answer(stream: Stream) -> Answered:
    answered = read(stream)
    assert isinstance(answered, Answered)
    return answered


def broken(stream: Stream, timeout: float = 60.0) -> Broken:
    came = read(stream, timeout)
    assert isinstance(came, Broken)
    return came


def chat(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_a_captured_chat_starts_at_its_first_word_and_ends_with_its_last_token() -> None:
    said = answer(events("chat.sse"))
    # Chunks at 0.1 (role), 0.2 "The" … 0.9 the end-of-text token, 1.0 usage.
    assert said.ttft_s == pytest.approx(0.2)
    assert said.last_at - said.first_at == pytest.approx(0.7)
    assert said.completion_tokens == 8
    assert said.content == "The capital of France is Paris."
    assert said.finish_reason == "stop"


def test_a_captured_completion_without_token_ids_starts_at_its_first_text() -> None:
    said = answer(events("completions.sse"))
    assert said.finish_reason == "length"
    assert said.completion_tokens == said.chunks
    assert said.first_tokens is None
    assert said.ttft_s == pytest.approx(0.1)


def test_running_totals_on_every_chunk_are_not_added_up() -> None:
    said = answer(events("completions.continuous.sse"))
    assert said.completion_tokens == 4
    assert said.prompt_tokens == 2
    assert said.first_tokens == 1
    assert said.chunks == 4


def test_running_totals_tell_the_tokens_of_the_first_chunk() -> None:
    first = {**token(" a b c"), "usage": {"completion_tokens": 3}}
    second = {**token(" d e f", "length"), "usage": {"completion_tokens": 6}}
    assert answer([(1.0, first), (2.0, second), (2.0, usage(6))]).first_tokens == 3


def test_a_chunk_with_token_ids_and_no_text_is_a_token() -> None:
    said = answer([(1.0, token("", ids=[7])), (2.0, token(" x", "length", [8])), (2.0, usage(2))])
    assert said.ttft_s == pytest.approx(1.0)
    assert said.chunks == 2


def test_without_token_ids_a_chunk_without_text_is_no_token() -> None:
    said = answer([(1.0, token("")), (2.0, token(" x", "length")), (2.0, usage(2))])
    assert said.ttft_s == pytest.approx(2.0)
    assert said.first_tokens is None


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "Hm"},
        {"reasoning_content": "Hm"},
        {"reasoning": "Hm", "reasoning_content": "Hm"},
    ],
)
def test_reasoning_starts_the_clock_in_every_spelling_and_is_read_once(delta: Any) -> None:
    said = answer(
        [
            (0.5, chat(role="assistant", content="")),
            (1.0, chat(**delta)),
            (2.0, chat(content="42")),
            (2.5, chat("stop", content="")),
            (2.5, usage(3)),
        ]
    )
    assert said.ttft_s == pytest.approx(1.0)
    assert said.reasoning == "Hm"
    assert said.content == "42"


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_content"])
def test_an_answer_of_nothing_but_reasoning_is_an_answer(spelling: str) -> None:
    said = answer(
        [
            (0.5, chat(role="assistant", content="")),
            (1.0, chat(**{spelling: "Hm", "content": None})),
            (1.5, chat(**{spelling: ", 42", "content": None})),
            (2.0, chat("length", **{spelling: "."})),
            (2.0, usage(3)),
        ]
    )
    assert (said.reasoning, said.content) == ("Hm, 42.", "")
    assert (said.ttft_s, said.last_at - said.first_at) == pytest.approx((1.0, 1.0))
    assert said.chunks == 3


def test_chunks_without_choices_do_no_harm() -> None:
    stream = [(0.1, {"choices": []}), (0.2, {"choices": None}), (0.3, {}), *even_stream(3, 10.0)]
    assert answer(stream).completion_tokens == 3


def test_values_of_the_wrong_type_do_no_harm() -> None:
    odd: list[dict[str, Any]] = [
        {"choices": [None, {"delta": "x", "text": 5, "token_ids": "ids"}], "usage": "much"},
        {"choices": {"0": {}}, "usage": {"completion_tokens": "many"}},
    ]
    said = answer([(0.1, odd[0]), (0.2, odd[1]), *even_stream(3, 10.0)])
    assert said.completion_tokens == 3
    assert said.ttft_s == pytest.approx(0.5)


def test_an_error_inside_a_stream_is_told_in_the_servers_words() -> None:
    error = {"message": "EngineCore is dead", "type": "InternalServerError", "code": 500}
    came = broken([(0.5, token()), (0.6, {"error": error})])
    assert came == Broken(Trouble.STREAM_ERROR, "EngineCore is dead")


def test_an_error_may_be_the_first_thing_a_stream_says() -> None:
    assert broken([(0.1, {"error": "Unauthorized"})]) == Broken(
        Trouble.STREAM_ERROR, "Unauthorized"
    )


def test_a_whole_answer_on_a_connection_that_then_breaks_was_cut_off() -> None:
    lost = KimisvcError("connection-lost", "the stream ended without [DONE]")
    came = broken([*even_stream(3, 10.0), (1.0, lost)])
    assert came == Broken(Trouble.CUT_OFF, "the stream ended without [DONE]")


def test_a_stream_without_a_finish_was_cut_off() -> None:
    assert broken([(0.5, token()), (0.6, token())]).trouble is Trouble.CUT_OFF
    assert broken([]).trouble is Trouble.CUT_OFF


def late(after: float) -> tuple[float, KimisvcError]:
    return after, KimisvcError("timeout", "no answer in time")


def test_silence_before_the_first_token_says_so() -> None:
    came = broken([late(60.0)])
    assert str(came) == "accepted, no first token: nothing in 60 s"


def test_a_role_is_no_first_token() -> None:
    assert broken([(0.5, chat(role="assistant", content="")), late(60.0)]).trouble is Trouble.SILENT


def test_silence_in_the_middle_is_a_stall() -> None:
    came = broken([(0.5, token()), (0.6, token()), late(60.0)])
    assert str(came) == ("stopped in the middle of an answer: no token in the last 59 s of 60 s")


def test_a_server_that_only_crawls_is_too_slow_and_its_speed_is_known() -> None:
    crawl: Stream = [(float(i), token(ids=[i])) for i in range(1, 100)]
    came = broken(crawl, timeout=10.0)
    assert came.trouble is Trouble.UNFINISHED
    assert came.decode_tok_s == pytest.approx(1.0)


def test_an_answer_that_ends_just_in_time_is_an_answer() -> None:
    stream = [(9.0, token()), (9.9, token(finish="length")), (10.5, usage(2))]
    assert isinstance(read(stream, timeout=10.0), Answered)


def test_an_answer_that_goes_on_for_good_after_its_finish_is_none() -> None:
    stream = [(1.0, token()), (2.0, token(finish="length"))]
    stream += [(2.0 + n, token(finish="length")) for n in range(1, 100)]
    assert broken(stream, timeout=10.0).trouble is Trouble.UNFINISHED


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("connection-refused", Trouble.UNREACHABLE),
        ("connection-lost", Trouble.CUT_OFF),
        ("bad-stream", Trouble.GARBLED),
        ("stream-error", Trouble.STREAM_ERROR),
        ("http-302", Trouble.REFUSED),
        ("http-400", Trouble.REFUSED),
        ("http-401", Trouble.REFUSED),
        ("http-404", Trouble.REFUSED),
        ("http-429", Trouble.BUSY),
        ("http-500", Trouble.SERVER_ERROR),
        ("http-502", Trouble.SERVER_ERROR),
        ("http-503", Trouble.BUSY),
        ("never-heard-of", Trouble.GARBLED),
    ],
)
def test_each_error_of_the_door_is_one_trouble(code: str, trouble: Trouble) -> None:
    assert broken([(0.1, KimisvcError(code, "why"))]) == Broken(trouble, "why")


def test_an_abandoned_stream_is_closed_at_once() -> None:
    closed: list[str] = []

    def stream() -> Any:
        try:
            yield 1.0, {"error": "x"}
            yield 2.0, token()
        finally:
            closed.append("yes")

    kept = stream()
    read_answer(kept, 0.0, 10.0)
    assert closed == ["yes"]
