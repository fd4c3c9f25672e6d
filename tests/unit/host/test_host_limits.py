"""What a staged kernel allows, and what this one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from kimisvc.host import limits

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_memory_of_a_box(tmp_path: Path) -> None:
    write(tmp_path / "meminfo", "MemTotal:       1056764 kB\nMemFree: 1 kB\n")
    assert limits.memory_total(tmp_path) == 1056764 * 1024
    assert limits.memory_total() == psutil.virtual_memory().total


def test_what_is_not_told_is_zero(tmp_path: Path) -> None:
    assert limits.memory_total(tmp_path) == 0
    assert limits.most_open_files(tmp_path) == 0
    assert limits.slice_memory_max(tmp_path) == 0
    assert not limits.promises_strictly(tmp_path)


def test_limits_of_services_files_and_promises(tmp_path: Path) -> None:
    write(tmp_path / "sys" / "fs" / "nr_open", "524288\n")
    write(tmp_path / "sys" / "vm" / "overcommit_memory", "2\n")
    write(tmp_path / "fs" / "cgroup" / "system.slice" / "memory.max", "1073741824\n")
    assert limits.most_open_files(tmp_path) == 524288
    assert limits.promises_strictly(tmp_path)
    assert limits.slice_memory_max(tmp_path) == 1 << 30
    write(tmp_path / "fs" / "cgroup" / "system.slice" / "memory.max", "max\n")
    write(tmp_path / "sys" / "vm" / "overcommit_memory", "0\n")
    assert limits.slice_memory_max(tmp_path) == 0
    assert not limits.promises_strictly(tmp_path)
