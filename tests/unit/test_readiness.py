"""Waiting for readiness: each way it can end is told apart."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from kimisvc.deploy.gate.readiness import Ended, Eyes, unit_verdict, wait_ready
from kimisvc.records.proof import Health
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = UnitState("s.service", "loaded", "active", "running", invocation_id="one")


@dataclass
class Played:
    """A clock that only sleeping moves, and answers in a row, the last one for ever."""

    units: list[UnitState] = field(default_factory=lambda: [RUNS])
    healths: list[Health] = field(default_factory=lambda: [Health.READY])
    now: float = 0.0
    told: int = 0

    def eyes(self) -> Eyes:
        units, healths = _row(self.units), _row(self.healths)
        return Eyes(lambda: next(units), lambda: next(healths), self, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def tell(self, seen: Health) -> None:
        del seen
        self.told += 1


T = TypeVar("T")


def _row(values: list[T]) -> Iterator[T]:
    yield from values
    while True:
        yield values[-1]


def test_ready_after_refusals_and_503() -> None:
    played = Played(healths=[Health.REFUSED, Health.UNAVAILABLE, Health.READY])
    waited = wait_ready(played.eyes(), "one", 100.0)
    assert (waited.ended, waited.first) == (Ended.READY, Health.REFUSED)
    assert played.told == 2


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Health.REFUSED, "connection refused"),
        (Health.UNAVAILABLE, "503"),
        (Health.SERVER_ERROR, "5xx"),
        (Health.NO_ANSWER, "does not answer"),
        (Health.UNEXPECTED, "not vLLM"),
    ],
)
def test_the_deadline_says_what_was_last_seen(seen: Health, words: str) -> None:
    played = Played(healths=[seen])
    waited = wait_ready(played.eyes(), "one", 30.0)
    assert waited.ended is Ended.DEADLINE
    assert words in waited.reason
    assert 30.0 <= played.now < 32.0


@pytest.mark.parametrize(
    ("unit", "ended"),
    [
        (replace(RUNS, active_state="failed", result="start-limit-hit"), Ended.START_LIMIT),
        (replace(RUNS, active_state="failed", result="exit-code"), Ended.UNIT_FAILED),
        (replace(RUNS, active_state="inactive"), Ended.STOPPED),
        (replace(RUNS, active_state="deactivating"), Ended.STOPPED),
        (replace(RUNS, active_state="activating", sub_state="auto-restart"), Ended.REPLACED),
        (replace(RUNS, invocation_id="two"), Ended.REPLACED),
    ],
)
def test_a_start_that_ended_is_not_waited_for(unit: UnitState, ended: Ended) -> None:
    played = Played(units=[RUNS, unit], healths=[Health.REFUSED])
    assert wait_ready(played.eyes(), "one", 1e9).ended is ended


def test_a_server_that_lies_after_its_unit_died_is_not_believed() -> None:
    died = replace(RUNS, active_state="failed", result="exit-code")
    assert wait_ready(Played(units=[died]).eyes(), "one", 9.0).ended is Ended.UNIT_FAILED


def test_a_start_that_lives_has_no_verdict() -> None:
    assert unit_verdict(RUNS, "one") is None
