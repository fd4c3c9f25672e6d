"""Live speed and stalls: arithmetic over made-up engines, whose true figures are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimisvc.observe.rates import PATIENCE, live
from kimisvc.observe.windows import WINDOW, Reading, Window, grown
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimisvc.observe.rates import Live

STEP = 5.0


def reading(at: float, tokens: float, running: float = 1, **more: float) -> Reading:
    """An engine that makes one token a stream and iteration."""
    values = {"requests_finished": 0.0, "decode_seconds": 0.0, "waiting": 0.0, "iterations": tokens}
    born = more.pop("born", 1.0)
    counters = EngineCounters(generation_tokens=tokens, running=running, **{**values, **more})
    return Reading(at, counters, born)


def seen(readings: Iterable[Reading]) -> Live:
    windows: dict[str, Window] = {}
    for one in readings:
        windows = grown(windows, {"0": one})
    return live(windows.values())


def steady(speed: float, streams: int, seconds: float = 60.0) -> list[Reading]:
    """Streams that run all the time; the counters show whole tokens only."""
    moments = [n * STEP for n in range(int(seconds / STEP) + 1)]
    return [reading(at, float(int(at * speed) * streams), streams, iterations=at) for at in moments]


@pytest.mark.parametrize("speed", [14.7, 41.3, 81.9, 203.1])
@pytest.mark.parametrize("streams", [1, 3, 64])
def test_a_steady_stream_of_a_minute_is_within_one_per_cent(speed: float, streams: int) -> None:
    found = seen(steady(speed, streams))
    assert found.decode_tok_s == pytest.approx(speed, rel=0.01)
    assert found.total_tok_s == pytest.approx(speed * streams, rel=0.01)
    assert not found.stalled


def test_one_reading_says_nothing_of_speed() -> None:
    found = seen([reading(0.0, 500.0)])
    assert found.decode_tok_s is None
    assert found.total_tok_s is None


def test_an_idle_engine_has_a_total_of_zero_and_no_speed() -> None:
    found = seen([reading(at, 500.0, running=0) for at in (0.0, 5.0, 10.0)])
    assert found.total_tok_s == 0.0
    assert found.decode_tok_s is None
    assert not found.stalled


def test_speed_goes_as_soon_as_the_engine_is_idle_though_the_window_holds_tokens() -> None:
    busy = steady(50.0, 1, 20.0)
    found = seen([*busy, reading(25.0, 1100.0, 0, requests_finished=1.0),
                  reading(30.0, 1100.0, 0, requests_finished=1.0)])  # fmt: skip
    assert (found.decode_tok_s, found.total_tok_s) == (None, 0.0)


def test_old_speed_leaves_the_window() -> None:
    slow = steady(10.0, 1, 60.0)
    last = slow[-1]
    fast = [reading(last.at + n * STEP, 600 + n * STEP * 100) for n in range(1, 8)]
    assert seen([*slow, *fast]).decode_tok_s == pytest.approx(100.0, rel=0.01)
    assert WINDOW == 30.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("generation_tokens", 3.0), ("iterations", 0.0), ("requests_finished", 0.0)],
)
def test_a_counter_that_fell_begins_a_new_window(name: str, value: float) -> None:
    before = [
        reading(0.0, 900.0, requests_finished=5.0),
        reading(5.0, 1000.0, requests_finished=5.0),
    ]
    fell = reading(10.0, 1100.0, requests_finished=5.0)
    fell = replace(fell, counters=replace(fell.counters, **{name: value}))
    found = seen([*before, fell])
    assert (found.decode_tok_s, found.total_tok_s) == (None, None)


def test_a_server_that_was_restarted_and_overtook_its_former_counters_begins_a_new_window() -> None:
    before = [reading(0.0, 0.0), reading(5.0, 100.0)]
    assert seen([*before, reading(10.0, 5000.0, born=2.0)]).total_tok_s is None
    after = [reading(at, at * 50.0, born=2.0) for at in (100.0, 105.0, 110.0)]
    assert seen([*before, *after]).decode_tok_s == pytest.approx(50.0)


def test_a_clock_that_stands_begins_a_new_window() -> None:
    assert seen([reading(5.0, 0.0), reading(5.0, 100.0)]).total_tok_s is None


def test_intervals_in_which_requests_end_or_wait_are_left_out_where_there_are_steady_ones() -> None:
    readings = [
        reading(0.0, 0.0, 1),
        reading(5.0, 250.0, 1),
        reading(10.0, 500.0, 1),
        reading(15.0, 900.0, 4),  # three came in between
        reading(20.0, 1300.0, 1, requests_finished=3.0),  # and went
        reading(25.0, 1400.0, 1, requests_finished=3.0, waiting=2.0),
    ]
    assert seen(readings).decode_tok_s == pytest.approx(50.0)


def test_without_a_steady_interval_those_that_finished_speak() -> None:
    done = {"requests_finished": 4.0, "finished_tokens": 404.0, "decode_seconds": 10.0}
    readings = [reading(0.0, 0.0, 2), reading(5.0, 450.0, 4), reading(10.0, 900.0, 2, **done)]
    assert seen(readings).decode_tok_s == pytest.approx(40.0)


def test_where_nothing_is_steady_and_nothing_finished_there_is_nothing_to_say() -> None:
    readings = [reading(0.0, 0.0, 2), reading(5.0, 450.0, 4), reading(10.0, 900.0, 3)]
    assert seen(readings).decode_tok_s is None
    assert seen(readings).total_tok_s == pytest.approx(90.0)


def test_a_first_interval_may_hold_the_rest_of_a_prompt() -> None:
    assert seen([reading(0.0, 0.0, 1), reading(5.0, 50.0, 1)]).decode_tok_s is None


def test_the_prompt_after_a_request_that_ended_is_no_slow_decode() -> None:
    readings = [
        reading(0.0, 0.0, 1),
        reading(5.0, 250.0, 1, requests_finished=1.0),  # the next one's prompt is read
        reading(10.0, 300.0, 1, requests_finished=1.0),  # and is still for four seconds
        reading(15.0, 550.0, 1, requests_finished=1.0),
    ]
    assert seen(readings[:3]).decode_tok_s is None
    assert seen(readings).decode_tok_s == pytest.approx(50.0)


def test_of_two_one_may_read_its_prompt_all_the_time() -> None:
    """The other makes a token in each iteration, which is one where two would be."""
    readings = [reading(at, at * 50.0, 2, iterations=at * 50.0) for at in (0.0, 5.0, 10.0, 15.0)]
    assert seen(readings).decode_tok_s is None
    both = [reading(at, at * 100.0, 2, iterations=at * 50.0) for at in (0.0, 5.0, 10.0, 15.0)]
    assert seen(both).decode_tok_s == pytest.approx(50.0)


def test_a_change_of_load_shows_at_once() -> None:
    alone = steady(80.0, 1, 20.0)
    many = [
        reading(20.0 + n * STEP, 1600.0 + n * STEP * 160, 8, iterations=20.0 + n) for n in (1, 2, 3)
    ]
    assert seen([*alone, *many]).decode_tok_s == pytest.approx(20.0)


def test_requests_shorter_than_the_sampling_leave_the_speed_unsaid() -> None:
    readings = [reading(n * STEP, n * 100.0, 0, requests_finished=float(n)) for n in range(4)]
    found = seen(readings)
    assert found.decode_tok_s is None
    assert found.total_tok_s == pytest.approx(20.0)


def test_reading_a_long_prompt_is_no_slow_decode() -> None:
    readings = [
        reading(0.0, 0.0, 0),
        reading(5.0, 0.0, 1, kv_cache=0.2),
        reading(10.0, 0.0, 1, kv_cache=0.4),
        reading(15.0, 100.0, 1, kv_cache=0.5),  # the first tokens: half prompt, half decode
        reading(20.0, 350.0, 1, kv_cache=0.51),
        reading(25.0, 600.0, 1, kv_cache=0.52),
    ]
    assert seen(readings[:3]).decode_tok_s is None
    assert seen(readings).decode_tok_s == pytest.approx(50.0)


def test_iterations_that_stand_while_requests_run_are_a_stall_after_the_patience() -> None:
    hung = [reading(n * STEP, 100.0, 1) for n in range(int(PATIENCE / STEP) + 1)]
    assert not seen(hung).stalled
    assert seen([*hung, reading(hung[-1].at + STEP, 100.0, 1)]).stalled


def test_requests_that_only_wait_can_stall_too() -> None:
    hung = [reading(n * STEP, 100.0, 0, waiting=3.0) for n in range(int(PATIENCE / STEP) + 2)]
    assert seen(hung).stalled


def test_busy_is_not_stalled() -> None:
    """200 requests wait for minutes, and each step takes as long as a reading: but the engine steps."""
    busy = [reading(n * STEP, n * 64.0, 64, waiting=200.0, iterations=float(n)) for n in range(100)]
    assert not seen(busy).stalled


def test_a_prompt_that_is_read_for_minutes_is_no_stall() -> None:
    """No token, so vLLM counts no iteration: but each step takes more of the cache."""
    prefill = [reading(n * STEP, 100.0, 1, kv_cache=0.1 + n / 1000) for n in range(100)]
    assert not seen(prefill).stalled


def test_a_stall_in_the_middle_of_a_prompt_is_seen_after_the_patience() -> None:
    prefill = [reading(n * STEP, 100.0, 1, kv_cache=0.1 + n / 1000) for n in range(30)]
    last = prefill[-1]
    hung = [replace(last, at=last.at + n * STEP) for n in range(1, int(PATIENCE / STEP) + 2)]
    assert not seen([*prefill, *hung[:-1]]).stalled
    assert seen([*prefill, *hung]).stalled


def test_an_idle_time_and_a_first_step_end_a_stall() -> None:
    hung = [reading(n * STEP, 100.0, 1) for n in range(20)]
    assert not seen([*hung, reading(100.0, 100.0, 0)]).stalled
    assert not seen([*hung, reading(100.0, 101.0, 1)]).stalled
    assert not seen([*hung, reading(100.0, 100.0, 1, born=2.0)]).stalled


counts = st.integers(0, 10**9).map(float)
anything = st.builds(
    Reading,
    at=st.floats(0, 1e6),
    counters=st.builds(
        EngineCounters,
        generation_tokens=counts, requests_finished=counts, decode_seconds=counts,
        iterations=counts, running=st.integers(0, 300).map(float),
        waiting=st.integers(0, 300).map(float), kv_cache=st.floats(0, 1),
    ),
    born=st.sampled_from([0.0, 1.0]),
)  # fmt: skip


@given(st.lists(anything, min_size=1, max_size=12))
@example([reading(0.0, 0.0, 0), reading(2.3e-308, 2.0, 1)])
def test_whatever_a_server_says_no_speed_is_negative(readings: list[Reading]) -> None:
    windows: dict[str, Window] = {}
    for one in sorted(readings, key=lambda r: r.at):
        windows = grown(windows, {"0": one})
        found = live(windows.values())
        for speed in (found.decode_tok_s, found.total_tok_s):
            assert speed is None or 0 <= speed < float("inf")
        kept = windows["0"].readings
        assert kept[-1].at - kept[min(1, len(kept) - 1)].at <= WINDOW
