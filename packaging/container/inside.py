"""Runs a command in the container, with or without a terminal of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import select
import signal
import socket
import termios
import tty
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from container.box import PATH, Box, SandboxError, alive, call, close_all_but, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
}
NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt")  # mnt last: it changes /proc


def leader_of(box: Box) -> int:
    """Return the host's id of the container's PID 1."""
    if not alive(box.read(), "keeper"):
        raise SandboxError(f"{box.name}: is not running{tail(box)}")
    group = box.group / "machine/payload/init.scope"
    with contextlib.suppress(FileNotFoundError):
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            if (found := re.search(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)) and found[1] == "1":
                return int(pid)
    raise SandboxError(f"{box.name}: its systemd is not up at this moment")


def enter(box: Box) -> int:
    """Join the container's namespaces; return the open cgroup.procs of a group in it."""
    leader = leader_of(box)
    group = box.group / "machine/payload/sandbox.run"
    group.mkdir(exist_ok=True)
    # Opened before the namespaces change: the kernel judges a move by who opened the file.
    procs = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    doors = [os.open(f"/proc/{leader}/ns/{kind}", os.O_RDONLY) for kind in NAMESPACES]
    root = os.open(f"/proc/{leader}/root", os.O_RDONLY | os.O_DIRECTORY)
    bounds = bounding_set(leader)
    for door in doors:
        call("setns", door, 0)
        os.close(door)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.chdir("/root")
    drop_from_bounding_set(~bounds)
    return procs


def bounding_set(pid: int) -> int:
    """Given a process, return the mask of capabilities that it and its children can ever have."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^CapBnd:\t([0-9a-f]+)$", status, re.MULTILINE)
    if found is None:
        raise SandboxError(f"/proc/{pid}/status names no bounding set")
    return int(found[1], 16)


def drop_from_bounding_set(mask: int) -> None:
    """Given a mask of capabilities, see to it that no program run from here gets one of them.

    A command has no more power than the container's own services: it must not set the clock of
    the host, load modules or reboot it (capabilities(7): execve(2) by root gives what is bounded).
    """
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        if mask >> capability & 1:
            call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)


def run_inside(box: Box, command: Sequence[str], extra: dict[str, str]) -> int:
    """Run a command with our stdin, stdout and stderr; return its exit status.

    128 + N where signal N killed it, 127 where it was not found, 126 where it did not start. The
    signals that end a program are passed on to it; who kills us with SIGKILL kills it, too.
    """
    line = begin(box, command, ENVIRONMENT | extra, None)
    pass_signals_on(line)
    return status_from(line)


def run_on_terminal(box: Box, command: Sequence[str], extra: dict[str, str]) -> int:
    """Do as run_inside, on a pseudo terminal of the container that copies ours."""
    master, environment = -1, {"TERM": os.environ.get("TERM", "xterm")} | ENVIRONMENT | extra

    def make_terminal() -> int:
        nonlocal master
        master, slave = pty.openpty()
        copy_window_size(slave)
        return slave

    line = begin(box, command, environment, make_terminal)
    pass_signals_on(line)
    signal.signal(signal.SIGWINCH, lambda *_: copy_window_size(master))
    play_terminal(master)
    return status_from(line)


def begin(
    box: Box,
    command: Sequence[str],
    environment: dict[str, str],
    make_terminal: Callable[[], int] | None,
) -> socket.socket:
    """Start the command under a supervisor in the container; return the line to the supervisor.

    The process between the supervisor and us ends at once, so that the container's own PID 1
    inherits and reaps what we leave: a dead process with a parent outside would hold up a shutdown.
    """
    procs = enter(box)
    slave = make_terminal() if make_terminal else None  # of the container's /dev/pts
    ours, theirs = socket.socketpair()
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            supervise(command, environment, slave, procs, theirs)
        os._exit(0)
    os.waitpid(between, 0)
    theirs.close()
    if slave is not None:
        os.close(slave)
    return ours


def supervise(
    command: Sequence[str],
    environment: dict[str, str],
    slave: int | None,
    procs: int,
    line: socket.socket,
) -> NoReturn:
    """Run the command, pass on the signals that come by the line, report the status by it."""
    try:
        os.write(procs, b"0")
        child = os.fork()
        if child == 0:
            become(command, environment, slave)
        os.setsid()  # a Ctrl-C at our terminal is not for this process
        end = os.pidfd_open(child)
        close_all_but({line.fileno(), end})
        while end not in select.select([line.fileno(), end], [], [])[0]:
            for number in line.recv(64) or [signal.SIGKILL]:  # nothing to read: the caller is gone
                signal_to(child, number)
        line.sendall(bytes([shell_status(os.waitpid(child, 0)[1])]))
    finally:
        os._exit(0)


def become(command: Sequence[str], environment: dict[str, str], slave: int | None) -> NoReturn:
    """In the child: turn into the command, in a session of its own."""
    try:
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        if slave is None:
            os.setsid()
        else:
            os.login_tty(slave)
        os.execvpe(command[0], list(command), environment)  # noqa: S606  a list, no shell
    except OSError as error:
        os.write(2, f"sandbox: {command[0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)  # never back into the parent's code


def pass_signals_on(line: socket.socket) -> None:
    """Hand the signals that end a program to the supervisor."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, _: line.sendall(bytes([number])))


def signal_to(child: int, number: int) -> None:
    """Deliver as a terminal would: to all of the command's group, but SIGTERM to it alone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child if number == signal.SIGTERM else -child, number)


def status_from(line: socket.socket) -> int:
    """Wait for the status; 137 where the container went down first."""
    reply = line.recv(1)
    return reply[0] if reply else 128 + signal.SIGKILL


def shell_status(raw: int) -> int:
    """Given a status of waitpid, return it as a shell would name it."""
    status = os.waitstatus_to_exitcode(raw)
    return status if status >= 0 else 128 - status


def copy_window_size(terminal: int) -> None:
    """Give the terminal the size of ours, or 100 by 40 where we have none."""
    size = os.get_terminal_size(0) if os.isatty(0) else os.terminal_size((100, 40))
    termios.tcsetwinsize(terminal, (size.lines, size.columns))


def play_terminal(master: int) -> None:
    """Copy between our stdin and stdout and the pseudo terminal until its other side is closed."""
    before = termios.tcgetattr(0) if os.isatty(0) else None
    sources = [master, 0]
    try:
        if before:
            tty.setraw(0)
        while True:
            for source in select.select(sources, [], [])[0]:
                try:
                    data = os.read(source, 65536)
                except OSError:  # EIO: the last process closed the terminal
                    data = b""
                if source == master and not data:
                    return
                if source == master:
                    os.write(1, data)
                elif data:
                    os.write(master, data)
                else:
                    sources.remove(0)
                    os.write(master, b"\x04")  # our stdin ended: say so as a terminal does
    finally:
        if before:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
