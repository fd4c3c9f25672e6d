from __future__ import annotations

from typing import Any

import pytest
from measure_support import Clock, Played, counted, even_stream, token, usage

from kimisvc.errors import KimisvcError
from kimisvc.measure.others import Ours, Traffic, World, judge_traffic
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.measure.probe import Request, engine_speed, play
from kimisvc.records.proof import EngineCounters, Sample


def request(max_tokens: int = 101) -> Request:
    return Request("kimi", "a prompt", max_tokens, 60.0)


def played(
    stream: list[Any], *counters: EngineCounters | KimisvcError | None, max_tokens: int = 101
) -> Sample | Broken:
    clock = Clock()
    api = Played(clock, stream, counters=counters or (None,))
    return play(World(api, clock, clock.sleep), request(max_tokens))


def sample(*args: Any, **more: Any) -> Sample:
    came = played(*args, **more)
    assert isinstance(came, Sample)
    return came


def broken(*args: Any, **more: Any) -> Broken:
    came = played(*args, **more)
    assert isinstance(came, Broken)
    return came


def test_a_hundred_gaps_in_two_seconds_are_fifty_tokens_per_second() -> None:
    came = sample(even_stream(101, 50.0, ttft=3.0))
    assert came.decode_tok_s == pytest.approx(50.0)
    assert came.ttft_s == pytest.approx(3.0)
    assert came.completion_tokens == 101
    assert came.prompt_tokens == 8
    assert came.chunks == 101


def test_the_time_to_first_token_is_no_part_of_the_speed() -> None:
    fast, slow = (
        sample(even_stream(11, 5.0, 0.1), max_tokens=11),
        sample(even_stream(11, 5.0, 40), max_tokens=11),
    )
    assert fast.decode_tok_s == pytest.approx(slow.decode_tok_s)


def several_a_chunk(tokens: int, each: int, step: float, ids: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - a test's shorthand
    chunks: list[Any] = []
    for n in range(tokens // each):
        finish = "length" if (n + 1) * each == tokens else None
        chunks.append(
            (1.0 + n * step, token(" a" * each, finish, list(range(each)) if ids else None))
        )
    return [*chunks, (chunks[-1][0], usage(tokens))]


def test_four_tokens_a_chunk_count_four() -> None:
    # 25 chunks of 4, one every 0.1 s: 96 tokens after the first chunk in 2.4 s.
    assert sample(several_a_chunk(100, 4, 0.1), max_tokens=100).decode_tok_s == pytest.approx(40.0)


def test_without_token_ids_the_first_chunk_is_taken_for_one_token() -> None:
    stream = several_a_chunk(100, 4, 0.1, ids=False)
    assert sample(stream, max_tokens=100).decode_tok_s == pytest.approx(99 / 2.4)


def test_what_is_asked_for_is_a_fixed_number_of_tokens_streamed_with_usage() -> None:
    clock = Clock()
    api = Played(clock, even_stream(101, 50.0))
    play(World(api, clock, clock.sleep), request())
    assert api.paths == ["/v1/completions"]
    assert api.bodies == [
        {
            "model": "kimi",
            "prompt": "a prompt",
            "max_tokens": 101,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
    ]


def test_fewer_tokens_than_asked_for_are_no_sample() -> None:
    assert broken(even_stream(50, 50.0)).trouble is Trouble.EARLY_STOP


def test_a_stop_at_the_right_length_is_no_sample() -> None:
    stream = [(1.0, token()), (2.0, token(finish="stop")), (2.0, usage(2))]
    came = broken(stream, max_tokens=2)
    assert str(came) == "ended before max_tokens: 2 of 2 tokens, finish reason stop"


def test_no_usage_is_no_sample() -> None:
    assert broken(even_stream(101, 50.0)[:-1]).trouble is Trouble.NO_USAGE


def test_all_tokens_in_one_chunk_have_no_speed() -> None:
    stream = [(1.0, token(" a" * 9, "length", list(range(9)))), (1.0, usage(9))]
    assert broken(stream, max_tokens=9).trouble is Trouble.NO_SPEED


def test_tokens_that_all_arrive_at_one_moment_have_no_speed() -> None:
    stream = [(1.0, token()), (1.0, token(finish="length")), (1.0, usage(2))]
    assert broken(stream, max_tokens=2).trouble is Trouble.NO_SPEED


def test_counters_that_moved_by_this_request_confirm_it_and_give_the_engines_figure() -> None:
    came = sample(even_stream(101, 50.0), counted(1000, 7, 10.0), counted(1101, 8, 12.5))
    assert came.engine_decode_tok_s == pytest.approx(100 / 2.5)


def test_counters_that_lag_are_waited_for() -> None:
    came = sample(
        even_stream(101, 50.0),
        counted(),
        counted(40, 0, 0, running=1),
        counted(101, 0, 0, running=1),
        counted(101, 1, 2.0),
    )
    assert came.engine_decode_tok_s == pytest.approx(50.0)


def test_counters_that_never_catch_up_leave_the_sample_unconfirmed() -> None:
    came = sample(even_stream(101, 50.0), counted(), counted(40))
    assert came.decode_tok_s == pytest.approx(50.0)
    assert came.engine_decode_tok_s is None


@pytest.mark.parametrize("nothing", [None, KimisvcError("http-404", "no metrics")])
def test_without_counters_a_sample_is_unconfirmed(nothing: KimisvcError | None) -> None:
    assert sample(even_stream(101, 50.0), nothing).engine_decode_tok_s is None


def test_a_server_that_stays_busy_is_not_measured() -> None:
    clock = Clock()
    api = Played(clock, counters=[counted(running=2)])
    came = play(World(api, clock, clock.sleep), request())
    assert came == Broken(Trouble.DISTURBED, "2 running and 0 waiting before this request")
    assert 30.0 <= sum(clock.slept) < 31.0
    assert api.bodies == []


def test_a_server_that_becomes_idle_is_measured_then() -> None:
    busy, idle, done = counted(running=1), counted(5, 1, 1), counted(106, 2, 3)
    assert sample(even_stream(101, 50.0), busy, busy, idle, done).engine_decode_tok_s == 50.0


BEFORE = counted(1000, 10, 20.0)


@pytest.mark.parametrize(
    ("after", "traffic"),
    [
        (counted(1101, 11, 22.0), Traffic.OURS),
        (counted(1101, 12, 22.0), Traffic.OTHERS),  # another request ended
        (counted(1102, 11, 22.0), Traffic.OTHERS),  # another request made a token
        (counted(1101, 11, 22.0, running=1), Traffic.OTHERS),  # another request runs
        (counted(101, 1, 2.0), Traffic.OTHERS),  # started again: counted anew
        (counted(1000, 10, 20.0), Traffic.UNKNOWN),  # not yet counted
        (counted(1101, 10, 20.0), Traffic.UNKNOWN),
        (None, Traffic.UNKNOWN),
    ],
)
def test_the_counters_say_whose_work_it_was(after: EngineCounters | None, traffic: Traffic) -> None:
    assert judge_traffic(BEFORE, after, Ours(1, 101)) is traffic


def test_a_disturbed_run_is_no_sample() -> None:
    came = broken(even_stream(101, 50.0), counted(), counted(150, 2, 3.0))
    assert came.trouble is Trouble.DISTURBED


@pytest.mark.parametrize(
    ("after", "trouble"),
    [
        (BEFORE, Trouble.SILENT),  # it stood still
        (
            counted(1101, 11, 22.0, running=1),
            Trouble.SILENT,
        ),  # no more than ours, which may still run
        (counted(1040, 10, 20.0, running=1), Trouble.SILENT),
        (counted(1000, 10, 20.0, running=60), Trouble.SILENT),  # it hangs with others in it
        (counted(1102, 10, 22.0), Trouble.DISTURBED),  # made more tokens than ours
        (counted(1101, 12, 22.0), Trouble.DISTURBED),  # finished more requests
        (counted(1001, 10, 22.0, running=2), Trouble.DISTURBED),  # somebody is served, beside ours
        (counted(3, 1, 1.0), Trouble.SILENT),  # started again
        (None, Trouble.SILENT),
        (KimisvcError("timeout", "late"), Trouble.SILENT),
    ],
)
@pytest.mark.parametrize("late", [[(70.0, token())], [(9.0, KimisvcError("timeout", "silence"))]])
def test_what_was_given_up_is_blamed_on_others_only_where_they_were_served(
    late: list[Any], after: EngineCounters | KimisvcError | None, trouble: Trouble
) -> None:
    came = broken(late, BEFORE, after)
    assert came.trouble is trouble
    assert "accepted, no first token" in str(came)


@pytest.mark.parametrize("code", ["http-500", "connection-lost", "stream-error"])
def test_no_load_of_others_excuses_an_error(code: str) -> None:
    came = broken([(1.0, KimisvcError(code, "x"))], BEFORE, counted(9999, 99, 99, 9))
    assert came.trouble is not Trouble.DISTURBED


def test_the_engines_figure_is_that_of_the_captured_server() -> None:
    # Two warm-ups of 128 and six runs of 512 tokens on real GPUs, decode seconds summed.
    after = EngineCounters(3328.0, 8.0, 56.58236587799996, 3328.0, 0.0, 0.0)
    assert engine_speed(counted(), after) == pytest.approx(58.68, abs=0.005)


def test_no_decode_time_is_no_figure() -> None:
    assert engine_speed(counted(5, 5, 1), counted(10, 10, 1)) is None
