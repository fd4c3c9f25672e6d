"""A sandbox by name: its paths, its processes, its control group; and the kernel's calls."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

HOME = Path("/var/lib/kimisvc-sandbox")
CGROUP_PREFIX = "kimisvc-sandbox."
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KILL_TIMEOUT_S = 20
LIBC = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """A plain sentence for the user; `status` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Box:
    """The paths of one sandbox."""

    name: str

    @property
    def home(self) -> Path:
        """Holds all that it has on disk."""
        return HOME / self.name

    @property
    def facts(self) -> Path:
        """Says which processes keep and own it (JSON)."""
        return self.home / "facts.json"

    @property
    def control(self) -> Path:
        """The socket at which the keeper takes requests."""
        return self.home / "control"

    @property
    def notices(self) -> Path:
        """The socket at which the container says that it is up."""
        return self.home / "notices"

    @property
    def log(self) -> Path:
        """What the container wrote to its console."""
        return self.home / "console.log"

    @property
    def group(self) -> Path:
        """Its control group."""
        return cgroup_root() / f"{CGROUP_PREFIX}{self.name}"

    def read(self) -> dict[str, int]:
        """Return the ids of keeper and owner; raise SandboxError where there is no such sandbox."""
        try:
            facts: dict[str, int] = json.loads(self.facts.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if self.home.is_dir():
                raise SandboxError(f"{self.name}: was never started fully; stop it first") from None
            raise SandboxError(f"{self.name}: no such sandbox (see `sandbox list`)") from None
        return facts


def call(name: str, *arguments: object) -> None:
    """Call libc's function `name`; raise OSError where it fails."""
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def close_all_but(kept: set[int]) -> None:
    """Close every open file of this process but these; stdin, stdout and stderr become null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for link in list(Path("/proc/self/fd").iterdir()):
        if int(link.name) not in kept | {0, 1, 2}:
            with contextlib.suppress(OSError):
                os.close(int(link.name))


def mount(*arguments: str | Path) -> None:
    """Mount as the command of that name does; raise CalledProcessError where it fails."""
    subprocess.run(["/bin/mount", *map(str, arguments)], check=True)


def started_at(pid: int) -> int:
    """Return the start time of a process in clock ticks after boot, 0 where it is gone.

    proc(5): field 22 of /proc/PID/stat; a zombie (field 3) counts as gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def alive(facts: dict[str, int], role: str) -> bool:
    """Say whether the process of that role is still the one that was written down."""
    pid = facts[role]
    return pid == 0 or started_at(pid) == facts[f"{role}_start"]


def cgroup_root() -> Path:
    """Return where the host has its cgroup2 tree (hybrid hosts: /sys/fs/cgroup/unified)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            found.append(Path(left.split()[4]))
    if not found:
        raise SandboxError(
            "no cgroup2 tree is mounted; on a host with cgroup v1 only: "
            "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
        )
    return found[-1]


def pass_controllers_on(group: Path) -> None:
    """Let the groups below have what this one has. A hybrid host has none to give."""
    for controller in (group / "cgroup.controllers").read_text(encoding="ascii").split():
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def remove_cgroup(group: Path) -> None:
    """Kill what still runs in the group, wait for its end, remove it and the groups below."""
    if not group.is_dir():
        return
    kill = group / "cgroup.kill"
    if kill.exists():  # Linux 5.14
        kill.write_text("1", encoding="ascii")
    else:
        for procs in group.rglob("cgroup.procs"):
            for pid in procs.read_text(encoding="ascii").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    # cgroups(7): a change of "populated" in cgroup.events wakes poll with POLLPRI.
    deadline = time.monotonic() + KILL_TIMEOUT_S
    with (group / "cgroup.events").open(encoding="ascii") as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while "populated 1" in events.read():
            left = deadline - time.monotonic()
            if left <= 0:
                raise SandboxError(f"{group}: processes in it do not die", 124)
            watch.poll(min(left, 1) * 1000)
            events.seek(0)
    for folder, _, _ in os.walk(group, topdown=False):
        Path(folder).rmdir()


def tail(box: Box) -> str:
    """Return the end of the container's console, to be put under an error message."""
    if not box.log.is_file():
        return ""
    lines = box.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    return "\n  console: ".join(["", *lines])
