"""What this /proc keeps from who asks: whose sockets and mappings are, and with hidepid= who runs."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
FIRST = 1
"""The process that every /proc has; it belongs to root."""


def is_hidden(pid: int, proc: Path = PROC) -> bool:
    """Whether who asks may not see what a process is (hidepid= of proc(5)); root may, always.

    Nor is one to be seen that has ended.
    """
    if sees_all():
        return False
    try:
        (proc / str(pid) / "cgroup").read_bytes()
    except OSError:
        return True
    return False


def hides_others(proc: Path = PROC) -> bool:
    """Whether this /proc keeps from who asks what the processes of other users are."""
    return is_hidden(FIRST, proc)


def sees_all() -> bool:
    """Whether who asks is root: others are not shown whose a socket or a mapping is (proc(5))."""
    return os.geteuid() == 0
