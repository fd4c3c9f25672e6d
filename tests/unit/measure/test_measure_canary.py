"""A canary measures only what nobody disturbed, asks little, and tries nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from measure_support import Clock, Played, counted, even_stream, profile, serving, token, usage

from kimisvc.errors import HostError
from kimisvc.measure.canary import RUNS, CanaryFigures, Unseen, figures, sing
from kimisvc.measure.outcome import Broken, Trouble
from kimisvc.records.profile import CanarySettings
from kimisvc.records.proof import Sample

if TYPE_CHECKING:
    from kimisvc.records.proof import EngineCounters

TOKENS = 11
ASKED = CanarySettings(60.0, TOKENS)


def alone(requests: int) -> list[EngineCounters]:
    """What an idle server counts around so many requests of ours: looked at thrice for each."""
    return [
        counted(TOKENS * n, n, 0.2 * n)
        for done in range(requests)
        for n in (done, done, done + 1)
    ]  # fmt: skip


def sung(
    *streams: Any, counters: Any = None, **probe: Any
) -> tuple[CanaryFigures | Broken | Unseen, Played]:
    clock = Clock()
    api = Played(clock, *streams, counters=counters or alone(RUNS))
    came = sing(
        api, profile(**({"timeout": 60.0} | probe)), ASKED, seed="s", clock=clock, sleep=clock.sleep
    )
    return came, api


def test_three_requests_make_a_mean_with_its_interval() -> None:
    came, api = sung(*(even_stream(TOKENS, speed) for speed in (49.0, 50.0, 51.0)))
    assert isinstance(came, CanaryFigures)
    assert came.interval is not None
    assert came.decode_tok_s == came.interval.mean == pytest.approx(50.0)
    # t(0.975, 2) = 4.303 times 1 / sqrt(3)
    assert came.interval.high - came.interval.mean == pytest.approx(2.484, abs=0.01)
    assert came.ttft_s == pytest.approx(0.5)
    assert [body["max_tokens"] for body in api.bodies] == [TOKENS] * RUNS


def test_no_prompt_is_like_another_nor_like_the_last_canary_s() -> None:
    streams = [even_stream(TOKENS, 50.0) for _ in range(RUNS)]
    _, api = sung(*streams)
    clock = Clock()
    again = Played(clock, *streams, counters=alone(RUNS))
    sing(again, profile(timeout=60.0), ASKED, clock=clock, sleep=clock.sleep)
    firsts = {body["prompt"].split()[0] for body in api.bodies}
    assert len(firsts) == RUNS
    assert {b["prompt"] for b in api.bodies}.isdisjoint(b["prompt"] for b in again.bodies)


def test_a_slow_server_is_asked_once() -> None:
    """Its first request took all the time of one: nothing more is begun, no interval is made up."""
    came, api = sung(even_stream(TOKENS, 0.2), counters=alone(1), timeout=50.5)
    assert isinstance(came, CanaryFigures)
    assert (len(api.bodies), came.interval) == (1, None)
    assert came.decode_tok_s == pytest.approx(0.2)


def test_nothing_is_sent_to_a_server_that_others_use() -> None:
    came, api = sung(counters=[counted(running=1)])
    assert came == Broken(Trouble.DISTURBED, "1 running and 0 waiting")
    assert api.bodies == []


@pytest.mark.parametrize(
    ("looked", "said"),
    [
        (None, "its /metrics lacks the counters that say so, as under --disable-log-stats"),
        (HostError("http-404", "HTTP status 404: no"), "its /metrics: HTTP status 404: no"),
        (HostError("http-500", "HTTP status 500: oh"), "its /metrics: HTTP status 500: oh"),
        (HostError("http-503", "HTTP status 503: later"), "its /metrics: HTTP status 503: later"),
    ],
    ids=["none", "404", "500", "503"],
)
def test_a_server_without_counters_is_not_called_busy_and_nothing_is_sent(
    looked: HostError | None, said: str
) -> None:
    came, api = sung(counters=[looked])
    assert isinstance(came, Unseen)
    assert str(came) == f"whether others use the server is not known: {said}"
    assert api.bodies == []


def test_a_server_that_does_not_even_count_is_broken() -> None:
    came, api = sung(counters=[HostError("timeout", "it did not answer in time")])
    assert isinstance(came, Broken)
    assert (came.trouble, api.bodies) == (Trouble.UNREACHABLE, [])


@pytest.mark.parametrize(
    "after",
    [counted(TOKENS + 5, 1, 0.2), counted(2 * TOKENS, 2, 0.4), counted(TOKENS, 1, 0.2, running=1)],
    ids=["more tokens", "more requests", "still at work"],
)
def test_what_others_took_part_in_is_no_figure(after: EngineCounters) -> None:
    came, _ = sung(even_stream(TOKENS, 50.0), counters=[counted(), counted(), after])
    assert isinstance(came, Broken)
    assert came.trouble is Trouble.DISTURBED


def test_what_cannot_be_shown_to_have_been_alone_is_no_figure() -> None:
    came, _ = sung(even_stream(TOKENS, 50.0), counters=[counted(), counted(), None])
    assert came == Unseen("its counters do not say that this request was alone")


def test_counters_that_are_gone_when_the_request_begins_make_no_figure() -> None:
    came, _ = sung(even_stream(TOKENS, 50.0), counters=[counted(), None])
    assert isinstance(came, Unseen)


def test_others_in_the_last_request_spoil_the_whole() -> None:
    counters = [*alone(2), *(counted(2 * TOKENS, 2, 0.4),) * 2, counted(4 * TOKENS, 4, 0.8)]
    came, _ = sung(*(even_stream(TOKENS, 50.0) for _ in range(RUNS)), counters=counters)
    assert isinstance(came, Broken)


@pytest.mark.parametrize(
    ("stream", "trouble"),
    [
        ([(1.0, HostError("timeout", "no first token"))], Trouble.SILENT),
        ([(1.0, HostError("http-500", "the engine is dead"))], Trouble.SERVER_ERROR),
        ([(1.0, HostError("http-503", "no"))], Trouble.BUSY),
        ([(0.1, token()), (0.2, token(finish="stop")), (0.2, usage(2))], Trouble.EARLY_STOP),
    ],
    ids=["hung", "500", "503", "short"],
)
def test_a_server_that_fails_is_asked_no_second_time(stream: Any, trouble: Trouble) -> None:
    came, api = sung(stream)
    assert isinstance(came, Broken)
    assert came.trouble is trouble
    assert len(api.bodies) == 1


@pytest.mark.parametrize(
    "late", [[(70.0, token())], [(0.5, token()), (59.9, token()), (61.0, token())]]
)
def test_a_canary_that_others_overtook_was_skipped(late: Any) -> None:
    came, _ = sung(late, counters=[counted(), counted(), counted(90_000, 300, 50, running=20)])
    assert isinstance(came, Broken)
    assert came.trouble is Trouble.DISTURBED


def test_one_run_has_no_interval() -> None:
    assert figures([Sample(8, 11, 50.0, 0.1)]) == CanaryFigures(50.0, None, 0.1)


def test_a_server_like_the_real_one() -> None:
    with serving(decode_tok_s=400.0) as api:
        came = sing(api, profile(), ASKED)
    assert isinstance(came, CanaryFigures)
    assert came.interval is not None
    assert 0 < came.interval.mean < 600


def test_a_hung_engine_is_told_as_what_it_is() -> None:
    with serving(fault="silent") as api:
        came = sing(api, profile(timeout=1.0), ASKED)
    assert isinstance(came, Broken)
    assert str(came).startswith("accepted, no first token")


def test_a_server_that_keeps_no_statistics() -> None:
    with serving(log_stats=False) as api:
        came = sing(api, profile(), ASKED)
    assert isinstance(came, Unseen)


def test_a_server_others_use() -> None:
    with serving(other_requests=1, other_tokens=5) as api:
        came = sing(api, profile(), ASKED)
    assert isinstance(came, Broken)
    assert came.trouble is Trouble.DISTURBED
