"""While units are switched, nobody's signal gets through, whatever thread it would reach."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from kimisvc.deploy.box import HELD_BACK, uninterrupted


@pytest.mark.parametrize("number", HELD_BACK)
def test_a_signal_waits_for_the_end_of_the_switch(number: signal.Signals) -> None:
    came: list[int] = []
    done = threading.Event()
    other = threading.Thread(target=done.wait)  # as the one that draws the progress
    other.start()
    before = signal.signal(number, lambda got, _: came.append(got))
    try:
        with uninterrupted():
            os.kill(os.getpid(), number)
            for _ in range(1000):  # a handler runs between two steps of Python
                assert came == []
        assert came == [number]
    finally:
        signal.signal(number, before)
        done.set()
        other.join()


def test_ctrl_c_is_raised_after_the_switch() -> None:
    switched: list[str] = []

    def switch() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            switched.append("units")

    with pytest.raises(KeyboardInterrupt):
        switch()
    assert switched == ["units"]
