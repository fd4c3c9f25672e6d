"""The door to systemd where a signal comes while systemd is asked. The rest needs a systemd."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from pystemd.dbusexc import DBusError

from kimisvc.errors import HostError
from kimisvc.host import systemd
from kimisvc.host.systemd import Systemd

INTERRUPTED = -errno.EINTR, b"System.Error.EINTR", b"Interrupted system call"


class Answer:
    """What pystemd returns of a call."""

    body = b"done"


class Bus:
    """Its calls fail as often as a test says, as libsystemd's do when a signal has come."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def call_method(self, *_: Any) -> Answer:
        self.calls += 1
        if self.calls <= self.failures:
            raise DBusError(*INTERRUPTED)
        return Answer()

    def get_property(self, *_: Any) -> bytes:
        self.call_method()
        return b"252"

    def close(self) -> None:
        pass


def door(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    monkeypatch.setattr(systemd, "AWAY_LOOK", 0.0)
    made = Systemd()
    monkeypatch.setattr(made, "_bus", bus)
    monkeypatch.setattr(made, "_connect", lambda: setattr(made, "_bus", bus))
    return made


def test_a_question_that_a_signal_interrupted_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = Bus(failures=2)
    assert door(bus, monkeypatch).version() == "252"
    assert bus.calls == 3


def test_an_act_that_a_signal_interrupted_may_have_been_done_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = Bus(failures=1)
    with pytest.raises(HostError, match="daemon-reload: Interrupted system call"):
        door(bus, monkeypatch).reload()
    assert bus.calls == 1
