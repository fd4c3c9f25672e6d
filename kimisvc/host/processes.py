"""The door to processes, sockets and users: runs programs, finds who owns a port."""

from __future__ import annotations

import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program left."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who has a port: `unit` is the systemd unit it belongs to, empty if none."""

    pid: int
    name: str
    unit: str

    def __str__(self) -> str:
        """Return it as one phrase."""
        return f"{self.name} (PID {self.pid}{f', {self.unit}' if self.unit else ''})"


def run(argv: Sequence[str], timeout: float, text: str = "") -> Finished:
    """Given a program and its arguments, run it and return what it left.

    Raise KimisvcError when it is not there or does not end in time.
    """
    try:
        done = subprocess.run(
            list(argv), input=text, capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise KimisvcError("not-found", f"{argv[0]}: not found") from error
    except OSError as error:
        raise KimisvcError("cannot-run", f"{argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise KimisvcError("timeout", f"{argv[0]} did not end within {timeout:g} s") from error
    return Finished(done.returncode, done.stdout, done.stderr)


def ensure_system_user(name: str) -> None:
    """Given a name, see to it that this system user exists. Raise KimisvcError if it cannot."""
    if user_ids(name) is not None:
        return
    done = run(["systemd-sysusers", "--inline", f'u {name} - "kimisvc gate"'], timeout=30.0)
    if done.status != 0 or user_ids(name) is None:
        raise KimisvcError(
            "no-user",
            f"the system user {name} cannot be made: {done.stderr.strip()}",
            hint=f"make it by hand: useradd --system --no-create-home {name}",
        )


def user_ids(name: str) -> tuple[int, int] | None:
    """Given a user's name, return its user and group number; None if there is no such user."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def port_owner(port: int) -> PortOwner | None:
    """Given a TCP port, return who listens on it; None if nobody does, or we may not see it."""
    import psutil

    for connection in psutil.net_connections("tcp"):
        if connection.status != psutil.CONN_LISTEN or tuple(connection.laddr)[1:2] != (port,):
            continue
        if connection.pid is None:
            return PortOwner(0, "somebody", "")
        try:
            name = psutil.Process(connection.pid).name()
        except psutil.Error:
            continue
        return PortOwner(connection.pid, name, unit_of(connection.pid))
    return None


def unit_of(pid: int) -> str:
    """Given a process, return the systemd unit it belongs to; empty if it belongs to none."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""
    for line in groups.splitlines():
        last = line.rsplit("/", 1)[-1]
        if last.endswith(".service"):
            return last
    return ""
