"""Several engines of one server: each has its window, and what is told holds for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.observe.rates import PATIENCE, live
from kimisvc.observe.windows import Reading, Window, grown
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kimisvc.observe.rates import Live

STEP = 5.0
COUNT = 30
"""Readings of a scene: 145 s, longer than the patience."""
NEVER = 10_000.0
BEFORE = 1_000_000.0
"""Tokens that an engine had made of old."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Streams of one speed (tok/s) that run all along; times in seconds.

    It is told of from `comes` until `goes`, counts from 0 again at `resets`, and stands after `hangs`.
    """

    speed: float = 50.0
    streams: int = 1
    comes: float = 0.0
    goes: float = NEVER
    resets: float = NEVER
    hangs: float = NEVER
    waiting: int = 0

    def reading(self, at: float, born: float) -> Reading:
        """What it tells at a moment."""
        began, old = (self.resets, 0.0) if at >= self.resets else (0.0, BEFORE)
        steps = old + (min(at, self.hangs) - began) * self.speed
        counters = EngineCounters(
            generation_tokens=steps * self.streams, requests_finished=0, decode_seconds=0,
            iterations=steps, running=self.streams, waiting=self.waiting, kv_cache=0.5,
        )  # fmt: skip
        return Reading(at, counters, born)

    def there(self, at: float) -> bool:
        """Whether it is told of."""
        return self.comes <= at < self.goes


def seen(*engines: Engine, born: float = 1.0) -> Iterator[tuple[float, Live]]:
    """Yield (moment, what is shown) at each reading of a server with these engines."""
    windows: dict[str, Window] = {}
    for at in (n * STEP for n in range(COUNT)):
        windows = grown(windows, {
            str(n): one.reading(at, born) for n, one in enumerate(engines) if one.there(at)
        })  # fmt: skip
        yield at, live(windows.values())


def last(*engines: Engine, born: float = 1.0) -> Live:
    return list(seen(*engines, born=born))[-1][1]


@pytest.mark.parametrize("count", [1, 2, 4, 16])
@pytest.mark.parametrize("streams", [1, 4])
def test_each_engine_counts_iterations_of_its_own(count: int, streams: int) -> None:
    found = last(*[Engine(streams=streams)] * count)
    assert found.decode_tok_s == pytest.approx(50.0)
    assert found.total_tok_s == pytest.approx(50.0 * streams * count)
    assert found.running == streams * count
    assert not found.stalled


def test_the_speed_of_one_stream_is_a_mean_over_streams_not_over_engines() -> None:
    found = last(Engine(80.0), Engine(40.0, streams=3))
    assert found.decode_tok_s == pytest.approx((80 + 3 * 40) / 4)
    assert found.total_tok_s == pytest.approx(80 + 3 * 40)


def test_an_idle_engine_beside_a_busy_one_adds_nothing() -> None:
    found = last(Engine(), Engine(streams=0), Engine(streams=0))
    assert found.decode_tok_s == pytest.approx(50.0)
    assert found.total_tok_s == pytest.approx(50.0)
    assert not found.stalled


def test_engines_that_are_all_idle_have_a_total_of_zero_and_no_speed() -> None:
    found = last(Engine(streams=0), Engine(streams=0))
    assert (found.decode_tok_s, found.total_tok_s, found.stalled) == (None, 0.0, False)


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("wedged", [
    Engine(hangs=0.0), Engine(hangs=60.0), Engine(hangs=0.0, streams=0, waiting=2),
], ids=["runs", "hangs later", "waits"])  # fmt: skip
def test_one_that_stands_is_a_stall_however_many_others_go_on(wedged: Engine, others: int) -> None:
    told = list(seen(*[Engine(streams=4)] * others, wedged))
    since = wedged.hangs
    assert [at for at, now in told if now.stalled] == [
        at for at, _ in told if at > since + PATIENCE
    ]
    assert told[-1][1].decode_tok_s == pytest.approx(50.0)
    assert told[-1][1].total_tok_s == pytest.approx(200.0 * others)


def test_a_stall_ends_with_the_engine_that_stood() -> None:
    told = dict(seen(Engine(), Engine(hangs=0.0, goes=100.0)))
    assert told[95.0].stalled
    assert not told[100.0].stalled


def test_a_reset_of_one_engine_does_not_hide_that_another_stands() -> None:
    told = dict(seen(Engine(hangs=0.0), Engine(resets=50.0)))
    assert told[65.0].stalled


def test_of_an_engine_that_has_just_come_the_total_is_not_known_yet() -> None:
    told = dict(seen(Engine(), Engine(comes=50.0)))
    assert told[45.0].total_tok_s == pytest.approx(50.0)
    assert told[50.0].decode_tok_s == pytest.approx(50.0)
    assert told[50.0].total_tok_s is None
    assert told[55.0].total_tok_s == pytest.approx(100.0)


def test_an_engine_that_is_gone_is_counted_no_more() -> None:
    told = dict(seen(Engine(), Engine(80.0, goes=50.0)))
    assert told[45.0].total_tok_s == pytest.approx(130.0)
    assert told[50.0].decode_tok_s == pytest.approx(50.0)
    assert told[50.0].total_tok_s == pytest.approx(50.0)


def test_an_engine_that_counts_anew_leaves_the_others_their_speed() -> None:
    told = dict(seen(Engine(), Engine(resets=50.0)))
    assert told[50.0].decode_tok_s == pytest.approx(50.0)
    assert told[50.0].total_tok_s is None
    assert told[55.0].total_tok_s == pytest.approx(100.0)


def test_where_no_birth_is_told_one_reset_is_a_new_server() -> None:
    """Of the other the counters may have overtaken what they were: a speed that nobody had."""
    told = dict(seen(Engine(), Engine(resets=50.0), born=0.0))
    assert (told[50.0].decode_tok_s, told[50.0].total_tok_s) == (None, None)
    assert told[60.0].decode_tok_s == pytest.approx(50.0)
    gone = dict(seen(Engine(), Engine(goes=50.0), born=0.0))
    assert gone[50.0].total_tok_s is None


def test_a_restarted_server_gives_all_its_engines_new_windows() -> None:
    windows: dict[str, Window] = {}
    for at, born in ((0.0, 1.0), (5.0, 1.0), (10.0, 2.0)):
        overtaken = {n: Engine(at * 50).reading(at, born) for n in "01"}
        windows = grown(windows, overtaken)
    found = live(windows.values())
    assert (found.decode_tok_s, found.total_tok_s, found.stalled) == (None, None, False)


moments = st.integers(1, COUNT - 1).map(lambda n: n * STEP)
any_engine = st.builds(
    Engine,
    speed=st.floats(1, 300), streams=st.integers(0, 64),
    comes=st.just(0.0) | moments, goes=st.just(NEVER) | moments, resets=st.just(NEVER) | moments,
)  # fmt: skip


@given(st.lists(any_engine, min_size=1, max_size=5), st.sampled_from([0.0, 1.0]))
def test_engines_that_come_go_and_count_anew_never_make_a_wrong_value(
    engines: list[Engine], born: float
) -> None:
    for at, now in seen(*engines, born=born):
        there = [one for one in engines if one.there(at)]
        speeds = [one.speed for one in there if one.streams] or [0.0]
        truth = sum(one.speed * one.streams for one in there)
        if now.decode_tok_s is not None:
            assert min(speeds) * 0.999 <= now.decode_tok_s <= max(speeds) * 1.001
        if now.total_tok_s is not None:
            assert now.total_tok_s == pytest.approx(truth, rel=0.001)
        assert not now.stalled


@given(st.lists(st.builds(Engine, speed=st.floats(1, 300), streams=st.integers(1, 64)),
                min_size=1, max_size=8))  # fmt: skip
def test_streams_that_run_all_along_are_told_as_their_mean(engines: list[Engine]) -> None:
    found = last(*engines)
    truth = sum(one.speed * one.streams for one in engines)
    assert found.total_tok_s == pytest.approx(truth)
    assert found.decode_tok_s == pytest.approx(truth / sum(one.streams for one in engines))


counts = st.integers(0, 10**6).map(float)
page = st.dictionaries(
    st.sampled_from("0123"),
    st.builds(
        EngineCounters,
        generation_tokens=counts, requests_finished=counts, decode_seconds=counts, iterations=counts,
        running=st.integers(0, 9).map(float), waiting=st.integers(0, 9).map(float),
        finished_tokens=counts, kv_cache=st.floats(0, 1),
    ),
)  # fmt: skip


@given(st.lists(st.tuples(st.floats(0, 1e6), page, st.sampled_from([0.0, 1.0])), max_size=12))
def test_whatever_several_engines_say_no_speed_is_negative(
    pages: Iterable[tuple[float, Mapping[str, EngineCounters], float]],
) -> None:
    windows: dict[str, Window] = {}
    for at, engines, born in sorted(pages, key=lambda one: one[0]):
        windows = grown(windows, {name: Reading(at, c, born) for name, c in engines.items()})
        assert windows.keys() == engines.keys()
        found = live(windows.values())
        for speed in (found.decode_tok_s, found.total_tok_s):
            assert speed is None or 0 <= speed < float("inf")
