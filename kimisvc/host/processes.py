"""The door to processes, sockets and users: runs programs, finds who owns a port."""

from __future__ import annotations

import errno
import ipaddress
import os
import pwd
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VLLM_PORT = 8000
"""Where `vllm serve` listens when it is told nothing."""
LISTENING = "listening"
ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program left. `status` is negative where a signal ended it."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class PortOwner:
    """Who has a port: `unit` is the systemd unit it belongs to, empty if none.

    `pid` 0: it may not be seen. `doing` is how it has the port.
    """

    pid: int
    name: str
    unit: str
    doing: str = LISTENING

    def __str__(self) -> str:
        """Return it as one phrase."""
        if not self.pid:
            return f"{self.name} ({self.doing})"
        unit = f", {self.unit}" if self.unit else ""
        return f"{self.name} (PID {self.pid}{unit}, {self.doing})"


@dataclass(frozen=True, slots=True)
class Process:
    """One process: `name` is the title it gave itself, or its command's; `unit` as in PortOwner."""

    pid: int
    name: str
    unit: str

    def __str__(self) -> str:
        """Return it as one phrase."""
        return f"{self.name} (PID {self.pid}{f', {self.unit}' if self.unit else ''})"


# ---------------------------------------------------------------- programs


def run(argv: Sequence[str], timeout: float, text: str = "") -> Finished:
    """Given a program and its arguments, run it with `text` as its input; return what it left.

    It speaks English, and what it starts ends with it. Raise HostError when it
    is not there or does not end in `timeout` seconds.
    """
    try:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE if text else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
            start_new_session=True, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except OSError as error:
        # A folder of PATH that we may not enter makes "not found" a "permission denied".
        there = Path(argv[0]).exists() if "/" in argv[0] else shutil.which(argv[0])
        if not there:
            raise HostError("not-found", f"{argv[0]}: not found") from error
        if isinstance(error, FileNotFoundError):
            raise HostError("not-found", f"{argv[0]}: its interpreter is missing") from error
        raise HostError("cannot-run", f"{argv[0]}: {error.strerror}") from error
    with process:
        try:
            stdout, stderr = process.communicate(text or None, timeout)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # its own children hold the pipes open, too
            if isinstance(error, subprocess.TimeoutExpired):
                words = f"{argv[0]} did not end within {timeout:g} s"
                raise HostError("program-timeout", words) from error
            raise
    return Finished(process.returncode, stdout, stderr)


# ---------------------------------------------------------------- users


def ensure_system_user(name: str) -> None:
    """Given a name, see to it that this system user exists. Raise HostError if it cannot."""
    if user_ids(name) is not None:
        return
    done = run(["systemd-sysusers", "--inline", f'u {name} - "kimisvc gate"'], timeout=30.0)
    if done.status != 0 or user_ids(name) is None:
        raise HostError(
            "no-user",
            f"the system user {name} cannot be made: {done.stderr.strip()}",
            hint=f"make it by hand: useradd --system --no-create-home {name}",
        )


def user_ids(name: str) -> tuple[int, int] | None:
    """Given a user's name, return its user and group number; None if there is no such user."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    return entry.pw_uid, entry.pw_gid


def group_ids(name: str) -> frozenset[int]:
    """Given a user's name, return the numbers of all its groups; none if there is no such user."""
    ids = user_ids(name)
    return frozenset(os.getgrouplist(name, ids[1])) if ids else frozenset()


# ---------------------------------------------------------------- ports


def port_owner(port: int, host: str = "") -> PortOwner | None:
    """Given a TCP port and where it is to be bound, return the first of its owners, or None."""
    return next(iter(port_owners(port, host)), None)


def port_owners(port: int, host: str = "") -> tuple[PortOwner, ...]:
    """Given a TCP port and the address it is to be bound at (""; all), return who has it.

    A vLLM that loads has bound its port and does not listen yet; such a socket
    is in no table of the kernel, and the next vLLM binds the same port happily
    (SO_REUSEADDR) and fails only after its own load. So a bind without that
    option is tried, and processes that were told to serve on that port count.
    """
    owners = [*_connected(port, host), *_claiming(port, host)]
    owners.sort(key=lambda owner: owner.doing == LISTENING)  # said last, it stands
    known = {owner.pid: owner for owner in owners}
    if not known and _is_bound(port, host):
        return (PortOwner(0, "a process that cannot be seen", "", "bound, not listening"),)
    return tuple(known.values())


def _connected(port: int, host: str) -> Iterator[PortOwner]:
    import psutil

    for connection in psutil.net_connections("tcp"):
        here = tuple(connection.laddr)
        if here[1:2] != (port,) or not _overlap(host, str(here[0])):
            continue
        listening = connection.status == psutil.CONN_LISTEN
        # A connection of a server that was stopped lingers without a process; it hinders nobody.
        if not listening and connection.pid is None:
            continue
        doing = LISTENING if listening else "as the near end of a connection"
        if connection.pid is None:
            yield PortOwner(0, "a process of another user", "", doing)
        else:
            yield PortOwner(connection.pid, name_of(connection.pid), unit_of(connection.pid), doing)


def _claiming(port: int, host: str) -> Iterator[PortOwner]:
    import psutil

    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        argv = process.info["cmdline"] or ()
        pid = int(process.info["pid"])
        if vllm_port(argv) == port and _overlap(host, _host(argv)) and _in_our_network(pid):
            yield PortOwner(pid, str(process.info["name"]), unit_of(pid), "told to serve there")


def _in_our_network(pid: int) -> bool:
    """Whether a process shares our ports; one of a container may have a network of its own."""
    try:
        theirs = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return True  # it may not be looked at: rather one warned of too many
    ours = Path("/proc/self/ns/net").stat()
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def _host(argv: Sequence[str]) -> str:
    """The address that a command line has a server bind; "" for all."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--host":
            return following
        if word.startswith("--host="):
            return word.removeprefix("--host=")
    return ""


def vllm_port(argv: Sequence[str]) -> int | None:
    """Given a command line, return the port that it has a vLLM serve on; None if it is none."""
    serves = any(
        word.rpartition("/")[2] == "vllm" and following == "serve"
        for word, following in pairwise(argv)
    ) or any(word.startswith("vllm.entrypoints") for word in argv)
    if not serves:
        return None
    port = str(VLLM_PORT)
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--port":
            port = following
        elif word.startswith("--port="):
            port = word.removeprefix("--port=")
    return int(port) if port.isdecimal() else None


def _is_bound(port: int, host: str) -> bool:
    """Whether a socket that is in no table has the port. A lingering connection hides that."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE and not _lingers(port)
    return False


def _lingers(port: int) -> bool:
    import psutil

    return any(
        tuple(connection.laddr)[1:2] == (port,) and connection.pid is None
        for connection in psutil.net_connections("tcp")
    )


def _overlap(ours: str, theirs: str) -> bool:
    """Whether both addresses cannot be bound at once; a name counts as every address."""
    if ours in ANYWHERE or theirs in ANYWHERE:
        return True
    try:
        wanted = ipaddress.ip_address(ours)
    except ValueError:
        return True
    return str(wanted) == theirs.removeprefix("::ffff:")


def name_of(pid: int) -> str:
    """Given a process, return its name; "a process that has ended" where it has."""
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "a process that has ended"


def unit_of(pid: int, proc: Path = PROC) -> str:
    """Given a process, return the systemd unit it belongs to; empty if it belongs to none.

    The innermost: a service may have control groups of its own below.
    """
    try:
        groups = (proc / str(pid) / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""
    for line in groups.splitlines():
        for part in reversed(line.split("/")):
            if part.endswith((".service", ".scope")):
                return part
    return ""


FIRST_NAMESPACE = "pid:[4026531836]"
"""The PID namespace that the kernel itself makes (PROC_PID_INIT_INO, linux/proc_ns.h)."""


def sees_the_kernels_ids(proc: Path = PROC) -> bool:
    """Whether ids that the kernel or a driver tells are those of this /proc.

    In a container they are not: there the same process has another number, and
    the number may be somebody else's.
    """
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == FIRST_NAMESPACE
    except OSError:
        return True  # a /proc that does not say is not one of a container


# ---------------------------------------------------------------- titles

TITLE_MARK = "::"
"""vLLM names its processes PREFIX::Worker_TP0 (setproctitle), PREFIX being VLLM."""


def process(pid: int, proc: Path = PROC) -> Process:
    """Given a process, return what it is called and which unit it belongs to."""
    title = _title(pid, proc)
    if TITLE_MARK not in title:
        try:
            title = (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            title = "a process that cannot be seen from here"
    return Process(pid, title, unit_of(pid, proc))


def titled(prefixes: Sequence[str], proc: Path = PROC) -> tuple[Process, ...]:
    """Given prefixes of titles, return the processes that call themselves PREFIX::something."""
    begin = tuple(f"{prefix}{TITLE_MARK}" for prefix in prefixes)
    return tuple(process(pid, proc) for pid in _pids(proc) if _title(pid, proc).startswith(begin))


def runs(unit: str, proc: Path = PROC) -> bool:
    """Given a systemd unit, say whether a process belongs to it; one that is hidden counts for none."""
    return any(unit_of(pid, proc) == unit for pid in _pids(proc))


def _pids(proc: Path) -> list[int]:
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())


def _title(pid: int, proc: Path) -> str:
    """The first word of a command line; a title that was set takes its place."""
    try:
        line = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return line.split(b"\0", 1)[0].decode("utf-8", "replace").strip()
