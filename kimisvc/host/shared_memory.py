"""The door to /dev/shm: how much is free there, what a crash left behind, and who still uses it.

vLLM's message queues, NCCL without peer-to-peer and Python's shared memory lie
there; what is killed leaves its files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kimisvc.host import files

SHM, PROC = Path("/dev/shm"), Path("/proc")  # noqa: S108 - asked for its size
KINDS = (
    ("nccl-", "NCCL"),
    ("psm_", "Python's shared memory"),
    ("sem.", "a semaphore"),
    ("torch_", "PyTorch"),
    ("VLLM_", "vLLM"),
    ("vllm", "vLLM"),
    ("cuda.shm.", "CUDA"),
)
"""How the files begin that a model server leaves, and whose they are."""
BLOCK = 512
"""What st_blocks counts in (stat(2)); a file there may be sparse."""
_MAPPING = re.compile(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file there: its size in memory (bytes), its owner, and the processes that map it."""

    name: str
    kind: str
    size: int
    uid: int
    users: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What /dev/shm holds: its free bytes and the segments in it, largest first.

    `unseen` counts processes that did not let us see what they map: a segment
    without users may be theirs.
    """

    free: int
    segments: tuple[Segment, ...]
    unseen: int


def look(shm: Path = SHM, proc: Path = PROC) -> SharedMemory:
    """Return what is free in /dev/shm and what lies in it. Raise HostError if it does not tell."""
    free = files.free_bytes(shm)
    found = _found(shm)
    users, unseen = _users(set(found), proc) if found else ({}, 0)
    segments = [
        Segment(name, kind, size, uid, tuple(sorted(users.get(key, ()))))
        for key, (name, kind, size, uid) in found.items()
    ]
    segments.sort(key=lambda segment: (-segment.size, segment.name))
    return SharedMemory(free, tuple(segments), unseen)


Key = tuple[int, int, int]
"""A file by device and inode: its path may look different from another mount namespace."""


def _found(shm: Path) -> dict[Key, tuple[str, str, int, int]]:
    found = {}
    for path in files.entries(shm):
        kind = next((whose for begin, whose in KINDS if path.name.startswith(begin)), None)
        try:
            stat = path.lstat()
        except OSError:
            continue  # it has just gone
        if kind is not None:
            key = os.major(stat.st_dev), os.minor(stat.st_dev), stat.st_ino
            found[key] = (path.name, kind, stat.st_blocks * BLOCK, stat.st_uid)
    return found


def _users(wanted: set[Key], proc: Path) -> tuple[dict[Key, set[int]], int]:
    """Return who maps what is wanted, and how many processes could not be looked at."""
    users: dict[Key, set[int]] = {}
    unseen = 0
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            maps = (process / "maps").read_bytes()
        except PermissionError:
            unseen += 1
            continue
        except OSError:
            continue  # it has just ended
        for major, minor, inode in set(_MAPPING.findall(maps)):
            key = int(major, 16), int(minor, 16), int(inode)
            if key in wanted:
                users.setdefault(key, set()).add(int(process.name))
    return users, unseen
