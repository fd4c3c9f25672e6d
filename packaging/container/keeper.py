"""The keeper: PID 1 of a PID namespace, in a mount namespace of its own.

Every process and every mount of the sandbox is inside these two: the keeper's end, however it
comes, ends them all.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from container.box import (
    PATH,
    Box,
    SandboxError,
    call,
    close_all_but,
    pass_controllers_on,
    remove_cgroup,
)
from container.layers import UP_NOTICE, build_root, layers

REBOOTED = 133  # systemd-nspawn --keep-unit ends so when the container asks for a reboot
CLONE_NEWNS, CLONE_NEWCGROUP = 0x20000, 0x2000000


class Keeper:
    """Boots the container, boots it again after a reboot or a crash, and answers who waits."""

    def __init__(self, box: Box, options: list[str], owner: int | None) -> None:
        self.box, self.options, self.owner = box, options, owner
        self.boot = 0  # how many boots were begun
        self.ready = False
        self.leader = 0  # the container's PID 1 in the keeper's PID namespace
        self.crashed = False
        self.waiting: list[tuple[socket.socket, int]] = []
        self.events = selectors.DefaultSelector()
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.bind(str(box.control))
        self.control.listen()
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(box.notices))

    def run(self) -> None:
        """Boot, and serve for as long as the container or its owner lives."""
        self.events.register(self.control, selectors.EVENT_READ, self.on_request)
        self.events.register(self.notices, selectors.EVENT_READ, self.on_notice)
        if self.owner is not None:
            self.events.register(self.owner, selectors.EVENT_READ, self.on_owner_gone)
        self.start()
        while True:
            for key, _ in self.events.select():
                key.data()

    def start(self) -> None:
        """Begin a boot."""
        machine = Path("/sys/fs/cgroup/machine")
        remove_cgroup(machine)  # a crash leaves the dead container's groups
        machine.mkdir()
        self.boot, self.ready, self.crashed, self.leader = self.boot + 1, False, False, 0
        command = ["/usr/bin/systemd-nspawn", "--quiet", "--boot", "--settings=no"]
        command += [f"--directory={self.box.home}/root", f"--machine={self.box.name}"]
        command += ["--register=no", "--keep-unit", "--private-network"]
        command += ["--link-journal=no", "--resolv-conf=off", "--timezone=off"]
        command += ["--console=read-only", *self.options]
        environment = {"PATH": PATH, "NOTIFY_SOCKET": str(self.box.notices)}
        self.nspawn = os.fork()
        if self.nspawn == 0:
            (machine / "cgroup.procs").write_text("0", encoding="ascii")
            os.execve(command[0], command, environment)  # noqa: S606  a list, no shell
        self.nspawn_fd = os.pidfd_open(self.nspawn)
        self.events.register(self.nspawn_fd, selectors.EVENT_READ, self.on_end)

    def on_notice(self) -> None:
        """Take what systemd-nspawn (who is PID 1) and the container (it is up) say of this boot."""
        for line in self.notices.recv(65536).decode(errors="replace").splitlines():
            if line.startswith("X_NSPAWN_LEADER_PID="):
                self.leader = int(line.partition("=")[2])
            if line == UP_NOTICE:
                self.ready = True
        self.answer()

    def on_request(self) -> None:
        """Take "wait N" (say when a boot after the Nth is up) or "crash 0" (make it be the next)."""
        peer, _ = self.control.accept()
        peer.settimeout(1)
        try:
            verb, after = peer.recv(64).decode().split()
        except (ValueError, TimeoutError):
            peer.close()
            return
        self.waiting.append((peer, int(after)))
        if verb == "crash" and not self.crashed:
            self.waiting[-1] = (peer, self.boot)
            self.crashed = True
            for pid in filter(None, (self.leader, self.nspawn)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.answer()

    def answer(self) -> None:
        """Tell every one who waits for this boot that it is up."""
        if not self.ready or self.crashed:
            return
        for peer, _ in [one for one in self.waiting if one[1] < self.boot]:
            with contextlib.suppress(OSError):
                peer.sendall(f"{self.boot}\n".encode())
            peer.close()
        self.waiting = [one for one in self.waiting if one[1] >= self.boot]

    def on_end(self) -> None:
        """Boot again after a reboot or a crash; end with a container that ended otherwise."""
        self.events.unregister(self.nspawn_fd)
        os.close(self.nspawn_fd)
        status = 0
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:  # orphans fall to this PID 1, too
                if found[0] == self.nspawn:
                    status = os.waitstatus_to_exitcode(found[1])
        if not self.crashed and status != REBOOTED:
            sys.exit(f"sandbox: the container ended with status {status}")
        with contextlib.suppress(BlockingIOError):
            while self.notices.recv(65536, socket.MSG_DONTWAIT):
                pass  # the dead container's last words are not about the next boot
        self.start()

    def on_owner_gone(self) -> None:
        """End, and the container with us."""
        sys.exit("sandbox: the process that owned this sandbox is gone")


def keep(box: Box, binds: list[tuple[Path, str]], owner: int | None, go: int) -> NoReturn:
    """Be the keeper: PID 1 of a new PID namespace. Ends with the container, or by SIGKILL."""
    try:
        os.setsid()
        # Above all the lock: a forked flock(2) is held until its last copy is closed.
        close_all_but({go} if owner is None else {go, owner})
        if os.read(go, 1) != b"!":  # the starter died before it wrote our id down
            os._exit(1)
        log = os.open(box.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        (box.group / "cgroup.procs").write_text("0", encoding="ascii")
        stack = layers(box)
        call("unshare", CLONE_NEWNS | CLONE_NEWCGROUP)
        options = build_root(box, stack, binds)
        keeper = Path("/sys/fs/cgroup/keeper")
        keeper.mkdir()
        (keeper / "cgroup.procs").write_text("0", encoding="ascii")
        pass_controllers_on(Path("/sys/fs/cgroup"))
        Keeper(box, options, owner).run()
    except SystemExit as end:
        sys.stderr.write(f"{end}\n")
    except (OSError, SandboxError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"sandbox: {error}\n")
    finally:
        os._exit(1)  # never back into the starter's code
