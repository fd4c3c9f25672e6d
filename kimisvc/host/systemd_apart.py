"""Asks systemd from a process of its own, for one who must never wait for it.

pystemd holds Python's interpreter lock while it waits for an answer (0.13 to
0.15: no `nogil` in its source), so a bus that hangs would stop every thread.
The process apart asks, keeps its connection, and is killed when it is late.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from kimisvc.errors import HostError, KimisvcError
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.host.systemd import Systemd

COMMAND = (sys.executable, "-I", "-m", "kimisvc.host.systemd_apart")
BUS_TIMEOUT = "4s"
"""Ends a question in the process itself, where the bus is there and systemd does not answer."""
BLOCK = 65536


class SystemdApart:
    """The door to systemd, in another process. Use it from one thread; `close` it at the end."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        """Given another command than the real one, let that answer."""
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def states(self, units: Sequence[str], timeout: float) -> Mapping[str, UnitState]:
        """Given names of units, return their states, in `timeout` seconds all in all.

        Raise HostError if systemd cannot be asked or is late.
        """
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - it was made with a pipe
        assert process.stdout is not None  # noqa: S101 - as above
        try:
            process.stdin.write(json.dumps(list(units)).encode() + b"\n")
            process.stdin.flush()
            answer = _line(process.stdout, time.monotonic() + timeout)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                words = f"systemd did not answer in {timeout:g} s"
                raise HostError("systemd-timeout", words) from error
            if isinstance(error, OSError):
                raise HostError("systemd-lost", "the process that asks systemd ended") from error
            raise
        return _states(answer)

    def close(self) -> None:
        """End the process, whatever it waits for."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(OSError):
            process.communicate()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            try:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    env={**os.environ, "SYSTEMD_BUS_TIMEOUT": BUS_TIMEOUT},
                )  # fmt: skip
            except OSError as error:
                raise HostError("systemd-lost", f"{self._command[0]}: {error.strerror}") from error
        return self._process


def _line(pipe: IO[bytes], deadline: float) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        block = os.read(pipe.fileno(), BLOCK)
        if not block:
            raise BrokenPipeError
        data += block
    return data


def _states(answer: bytes) -> Mapping[str, UnitState]:
    try:
        told = json.loads(answer)
        if "code" in told:
            raise HostError(str(told["code"]), str(told["message"]), hint=str(told["hint"]))
        states = [UnitState(**{**one, "drop_ins": tuple(one["drop_ins"])}) for one in told["units"]]
    except (ValueError, KeyError, TypeError) as error:
        raise HostError("systemd-lost", "the process that asks systemd answers nonsense") from error
    return {state.name: state for state in states}


# ------------------------------------------------------------ in the process apart


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Given lines with names of units, answer each with one line; end when they end."""
    from kimisvc.host.systemd import Systemd

    door: Systemd | None = None
    for line in questions:
        told: dict[str, Any]
        try:
            if door is None:
                door = Systemd().__enter__()
            told = {"units": [asdict(door.state(unit)) for unit in json.loads(line)]}
        except KimisvcError as error:
            told = {"code": error.code, "message": error.message, "hint": error.hint}
            if door is not None:
                door.__exit__(None, None, None)
            door = None  # the next question tries a new connection
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin, sys.stdout)
