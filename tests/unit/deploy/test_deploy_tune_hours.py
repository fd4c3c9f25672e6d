"""When a search may restart a service: the hours, and whether somebody uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deploy_support import box_at
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.deploy.traffic import Traffic, drain, traffic
from kimisvc.deploy.tune.begin import refuse_traffic
from kimisvc.deploy.tune.state import Asked
from kimisvc.deploy.tune.window import DAY, Window, parse_window
from kimisvc.errors import HostError, KimisvcError
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("hour", "need", "wait"),
    [(23, 0, 0), (2, 4, 0), (2, 5, 20), (7, 1, 15), (21.5, 1, 0.5), (7, 100, 15), (22, 100, 0)],
)
def test_a_window_over_midnight(hour: float, need: float, wait: float) -> None:
    window = parse_window("22:00-06:00")
    assert window.wait(hour * 3600, need * 3600) == pytest.approx(wait * 3600)


@given(st.floats(0, DAY - 1), st.floats(60, DAY - 60), st.floats(0, DAY - 1), st.floats(0, 2 * DAY))
def test_who_has_waited_need_not_wait_again(
    opens: float, length: float, moment: float, need: float
) -> None:
    window = Window(opens, (opens + length) % DAY)
    wait = window.wait(moment, need)
    assert 0 <= wait <= DAY
    assert wait == 0 or window.wait((moment + wait + 1e-4) % DAY, need) == 0


@pytest.mark.parametrize("text", ["", "22", "22:00", "25:00-01:00", "22:60-23:00", "6:00-6:00"])
def test_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="no window"):
        parse_window(text)


def counters(finished: float = 0, tokens: float = 0, running: float = 0) -> EngineCounters:
    return EngineCounters(tokens, finished, 0.0, 0.0, running, 0.0)


class Server:
    """Answers with these counters, one after the other, the last for good."""

    def __init__(self, *answers: EngineCounters | HostError | None) -> None:
        self.answers = list(answers)

    def counters(self) -> EngineCounters | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, HostError):
            raise answer
        return answer


DOWN, HUNG = HostError("connection-refused", "x"), HostError("timeout", "x")


@pytest.mark.parametrize(
    ("server", "seen"),
    [
        (Server(counters(5, 90)), Traffic.NONE),
        (Server(counters(running=1), counters()), Traffic.LIVE),
        (Server(counters(5), counters(6)), Traffic.LIVE),
        (Server(counters(5, 90), counters(5, 95)), Traffic.LIVE),
        (Server(None), Traffic.UNKNOWN),
        (Server(DOWN), Traffic.NONE),
        (Server(HUNG), Traffic.UNKNOWN),
    ],
)
def test_traffic(tmp_path: Path, server: Server, seen: Traffic) -> None:
    found = traffic(Server(*server.answers), lambda _: None)
    assert found is seen
    box = box_at(tmp_path)
    refuse_traffic(box, Asked(window="1:00-2:00"), Server(*server.answers))
    refuse_traffic(box, Asked(drain_s=1.0), Server(*server.answers))
    refuse_traffic(box, Asked(), None)
    if seen is Traffic.NONE:
        refuse_traffic(box, Asked(), Server(*server.answers))
    else:
        with pytest.raises(KimisvcError, match="restarts it"):
            refuse_traffic(box, Asked(), Server(*server.answers))


def test_drain_waits_until_nothing_runs_or_patience_ends() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    busy, idle = counters(running=2), counters()
    assert drain(Server(busy, busy, idle, busy, idle), 60.0, lambda: now[0], sleep)
    assert now[0] == 6.0  # two busy, one idle, one busy again, then three idle in a row
    assert not drain(Server(busy), 5.0, lambda: now[0], sleep)
    assert drain(Server(busy, DOWN), 5.0, lambda: now[0], sleep)
    assert not drain(Server(None), 0.0, lambda: now[0], sleep)


@pytest.mark.parametrize("silence", [HUNG, HostError("http-500", "x"), None])
def test_a_server_that_does_not_say_it_is_idle_is_not_taken_for_idle(
    silence: HostError | None,
) -> None:
    """A busy one answers late: that is no sign that nobody uses it."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    busy, idle = counters(running=40), counters()
    assert not drain(Server(silence), 5.0, lambda: now[0], sleep)
    assert not drain(Server(busy, busy, silence, busy), 5.0, lambda: now[0], sleep)
    now[0] = 0.0
    assert drain(Server(idle, idle, silence, idle), 60.0, lambda: now[0], sleep)
    assert now[0] == 5.0  # silence in between begins the count of quiet looks anew
