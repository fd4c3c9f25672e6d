"""What the kernel allows on this box: memory, open files, how memory is promised."""

from __future__ import annotations

from pathlib import Path

PROC, SYS = Path("/proc"), Path("/sys")
KIB = 1024
STRICT = 2
"""vm.overcommit_memory: promise no more than there is (proc(5))."""


def memory_total(proc: Path = PROC) -> int:
    """Return the memory of this box in bytes; 0 where it is not told."""
    for line in _text(proc / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split():
            return int(value.split()[0]) * KIB
    return 0


def slice_memory_max(sys: Path = SYS) -> int:
    """Return what all services together may take (bytes); 0: no limit."""
    return _number(_text(sys / "fs" / "cgroup" / "system.slice" / "memory.max"))


def most_open_files(proc: Path = PROC) -> int:
    """Return the largest limit of open files that can be set (fs.nr_open); 0: not told."""
    return _number(_text(proc / "sys" / "fs" / "nr_open"))


def promises_strictly(proc: Path = PROC) -> bool:
    """Whether the kernel promises no more memory than there is."""
    return _number(_text(proc / "sys" / "vm" / "overcommit_memory")) == STRICT


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
