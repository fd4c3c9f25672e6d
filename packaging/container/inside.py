"""Runs a command in the container, with or without a terminal of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import select
import signal
import termios
import tty
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from container.box import PATH, Box, SandboxError, alive, call, tail

if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_PDEATHSIG = 1
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
    for door in doors:
        call("setns", door, 0)
        os.close(door)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)
    os.chdir("/root")
    return procs


def run_inside(box: Box, command: Sequence[str], extra: dict[str, str]) -> int:
    """Run a command with our stdin, stdout and stderr; return its exit status.

    128 + N where signal N killed it, 127 where it was not found, 126 where it did not start. The
    signals that end a program are passed on to it; who kills us with SIGKILL kills it, too.
    """
    procs = enter(box)
    child = os.fork()
    if child == 0:
        become(command, ENVIRONMENT | extra, procs)
    return wait_for(child)


def run_on_terminal(box: Box, command: Sequence[str], extra: dict[str, str]) -> int:
    """Do as run_inside, on a pseudo terminal of the container that copies ours."""
    procs = enter(box)
    master, slave = pty.openpty()
    copy_window_size(slave)
    child = os.fork()
    if child == 0:
        os.close(master)
        os.login_tty(slave)
        terminal = {"TERM": os.environ.get("TERM", "xterm")}
        become(command, ENVIRONMENT | terminal | extra, procs)
    os.close(slave)
    pass_signals_on(child)
    signal.signal(signal.SIGWINCH, lambda *_: copy_window_size(master))
    play_terminal(master)
    return wait_for(child)


def become(command: Sequence[str], environment: dict[str, str], procs: int) -> NoReturn:
    """In the child: move into the container's control group and turn into the command."""
    try:
        call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        os.write(procs, b"0")
        os.execvpe(command[0], list(command), environment)  # noqa: S606  a list, no shell
    except OSError as error:
        os.write(2, f"sandbox: {command[0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)  # never back into the parent's code


def pass_signals_on(child: int) -> None:
    """Hand the signals that end a program to the child."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda number, _: os.kill(child, number))


def wait_for(child: int) -> int:
    """Return the exit status of the child, as a shell would name it."""
    pass_signals_on(child)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
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
