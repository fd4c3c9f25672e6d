"""While units are switched, nobody's signal gets through, whatever thread it would reach."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kimisvc.deploy.box import HELD_BACK, uninterrupted
from kimisvc.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

POLLIN = 1
ENOUGH_MS = 20_000
SENDER = """
import os, sys, time
parent, number = int(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
while open(f"/proc/{parent}/task/{parent}/stat").read().rpartition(")")[2].split()[0] != "S":
    pass  # until its main thread waits
os.kill(parent, number)
time.sleep(0.1)  # a call that the signal interrupts returns before there is something to read
print("after the signal", flush=True)
"""


class Descriptor(ctypes.Structure):
    """A struct pollfd (poll(2))."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


@contextlib.contextmanager
def another_thread() -> Iterator[None]:
    """One that waits and blocks no signal, as that which draws the progress."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        yield
    finally:
        done.set()
        other.join()


@contextlib.contextmanager
def collecting(number: signal.Signals) -> Iterator[list[int]]:
    """Have a handler of ours collect a signal, as it stood before a switch."""
    came: list[int] = []
    before = signal.signal(number, lambda got, _: came.append(got))
    try:
        yield came
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def sender(number: signal.Signals) -> Iterator[subprocess.Popen[str]]:
    """A process that sends us a signal once it was told to and our main thread waits; then it speaks."""
    argv = [sys.executable, "-c", SENDER, str(os.getpid()), str(int(number))]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process


def poll(process: subprocess.Popen[str]) -> str:
    """Wait with poll(2) until a process speaks, as libsystemd does: PEP 475 repeats no call of C's."""
    assert process.stdin is not None
    assert process.stdout is not None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = Descriptor(process.stdout.fileno(), POLLIN, 0)
    process.stdin.write("go\n")
    ready = libc.poll(ctypes.byref(descriptor), 1, ENOUGH_MS)
    return "read" if ready == 1 else os.strerror(ctypes.get_errno())


def blocked() -> set[signal.Signals | int]:
    """The mask of this thread."""
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@pytest.mark.parametrize("number", HELD_BACK)
def test_a_signal_waits_for_the_end_of_the_switch(number: signal.Signals) -> None:
    with collecting(number) as came, another_thread():
        with uninterrupted():
            os.kill(os.getpid(), number)
            for _ in range(1000):  # a handler runs between two steps of Python
                assert came == []
        assert came == [number]


@pytest.mark.parametrize("beside", [contextlib.nullcontext, another_thread])
@pytest.mark.parametrize("number", HELD_BACK)
def test_a_signal_does_not_break_the_call_in_progress(
    number: signal.Signals, beside: type[contextlib.AbstractContextManager[None]]
) -> None:
    with collecting(number) as came, beside(), sender(number) as process:
        with uninterrupted():
            assert poll(process) == "read"
            assert came == []
        assert came == [number]


def test_without_it_a_signal_would_break_the_call_in_progress() -> None:
    """So the test above can fail: its signal does come while the call waits."""
    with collecting(signal.SIGHUP) as came, sender(signal.SIGHUP) as process:
        assert poll(process) == os.strerror(4)
    assert came == [signal.SIGHUP]


def test_ctrl_c_is_raised_after_the_switch() -> None:
    switched: list[str] = []

    def switch() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            switched.append("units")

    with pytest.raises(KeyboardInterrupt):
        switch()
    assert switched == ["units"]


def test_the_error_of_a_switch_that_failed_is_seen_in_spite_of_ctrl_c() -> None:
    def switch() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            raise HostError("no-space", "the disk is full")

    with pytest.raises(HostError, match="the disk is full"):
        switch()


def test_a_kill_ends_a_switch_that_failed_all_the_same() -> None:
    def switch() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            raise HostError("no-space", "the disk is full")

    with collecting(signal.SIGTERM) as came:
        with pytest.raises(HostError):
            switch()
        assert came == [signal.SIGTERM]


@pytest.mark.parametrize("number", HELD_BACK)
def test_all_is_as_before_however_the_switch_ended(number: signal.Signals) -> None:
    before = blocked(), {held: signal.getsignal(held) for held in HELD_BACK}
    with uninterrupted():
        assert set(HELD_BACK) <= blocked()
    assert (blocked(), {held: signal.getsignal(held) for held in HELD_BACK}) == before

    def switch() -> None:
        with uninterrupted():
            raise HostError("no-space", "the disk is full")

    with pytest.raises(HostError):
        switch()
    assert (blocked(), {held: signal.getsignal(held) for held in HELD_BACK}) == before

    with collecting(number), uninterrupted():
        os.kill(os.getpid(), number)
    assert (blocked(), {held: signal.getsignal(held) for held in HELD_BACK}) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup(1)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
