"""A source that fails or hangs: nobody waits for it, and it is told."""

from __future__ import annotations

import threading

import pytest

from kimisvc.errors import HostError
from kimisvc.observe.sampler import Pace, Sampler

PACE = Pace(every=5.0, patience=2.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Answers:
    """A source that says one thing after the other; an exception is raised."""

    def __init__(self, *said: str | Exception) -> None:
        self.said = list(said)

    def __call__(self) -> str:
        one = self.said.pop(0)
        if isinstance(one, Exception):
            raise one
        return one


GONE = HostError("gone", "the source is gone")


def test_what_was_said_last_is_given_out_until_it_is_too_old() -> None:
    clock = Clock()
    sampler = Sampler("x", Answers("one"), PACE, clock=clock)
    assert sampler.fresh() is None
    sampler.look()
    clock.now += PACE.stale_after
    assert sampler.fresh() == "one"
    assert sampler.age() == PACE.stale_after
    clock.now += 0.1
    assert sampler.fresh() is None


def test_age_grows_from_the_beginning_where_nothing_was_ever_said() -> None:
    clock = Clock()
    sampler = Sampler("x", Answers(GONE), PACE, clock=clock)
    clock.now += 7
    sampler.look()
    assert (sampler.age(), sampler.errors(), sampler.fresh()) == (7.0, 1, None)


def test_data_is_as_old_as_the_beginning_of_its_reading() -> None:
    clock = Clock()

    def slow() -> str:
        clock.now += 4
        return "late"

    sampler = Sampler("x", slow, PACE, clock=clock)
    sampler.look()
    assert sampler.age() == 4.0


@pytest.mark.parametrize("fault", [GONE, ValueError("a fault of ours"), OSError(5, "I/O error")])
def test_a_failure_counts_and_leaves_what_was_said_before(fault: Exception) -> None:
    sampler = Sampler("x", Answers("one", fault, "two"), PACE, clock=Clock())
    sampler.look()
    sampler.look()
    assert (sampler.fresh(), sampler.errors()) == ("one", 1)
    sampler.look()
    assert (sampler.fresh(), sampler.errors()) == ("two", 1)


def test_a_failure_can_take_the_place_of_what_was_said_without_making_it_younger() -> None:
    clock = Clock()
    sampler = Sampler("x", Answers("there", GONE), PACE, "not there", clock=clock)
    sampler.look()
    clock.now += 3
    sampler.look()
    assert (sampler.fresh(), sampler.age()) == ("not there", 3.0)


@pytest.mark.parametrize(("end", "value"), [(None, "one"), (GONE, None)])
def test_a_reading_that_hangs_counts_once_while_it_hangs(
    end: Exception | None, value: str | None
) -> None:
    clock = Clock()
    begun, free = threading.Event(), threading.Event()

    def hangs() -> str:
        begun.set()
        assert free.wait(20)
        if end:
            raise end
        return "one"

    sampler = Sampler("x", hangs, PACE, clock=clock)
    thread = threading.Thread(target=sampler.look)
    thread.start()
    assert begun.wait(20)
    assert sampler.errors() == 0
    clock.now += PACE.patience + 0.1
    assert [sampler.errors(), sampler.errors(), sampler.fresh()] == [1, 1, None]
    free.set()
    thread.join(20)
    assert (sampler.errors(), sampler.fresh()) == (1, value)


def test_the_journal_hears_of_a_failure_once_and_of_the_recovery(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sampler = Sampler("kimi: files", Answers("a", GONE, GONE, "b", "c"), PACE)
    for _ in range(5):
        sampler.look()
    assert capsys.readouterr().err.splitlines() == [
        "kimi: files: the source is gone",
        "kimi: files: can be read again",
    ]


def test_a_thread_reads_until_it_is_stopped() -> None:
    read, names = threading.Semaphore(0), []

    def source() -> int:
        names.append(threading.current_thread().name)
        read.release()
        return len(names)

    sampler = Sampler("kimi: files", source, Pace(0.01, 1.0))
    sampler.start()
    assert read.acquire(timeout=20)
    assert read.acquire(timeout=20)
    sampler.stop()
    assert set(names) == {"kimi: files"}
