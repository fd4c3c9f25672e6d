"""What lies in /dev/shm and who maps it: a staged folder and processes, and once the real ones."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
from staged_host import mapping, process

from kimisvc.host import shared_memory


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "sys").mkdir(parents=True)
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm"


def segment(shm: Path, name: str, size: int) -> Path:
    path = shm / name
    path.write_bytes(b"x" * size)
    return path


def look(shm: Path) -> shared_memory.SharedMemory:
    return shared_memory.look(shm, shm.parent / "proc")


def test_an_empty_one(shm: Path) -> None:
    found = look(shm)
    assert (found.segments, found.unseen) == ((), 0)
    assert found.free > 0


def test_what_is_left_is_named_the_largest_first(shm: Path) -> None:
    for name, size in (("nccl-Ab12", 1 << 20), ("psm_1f", 3 << 20), ("sem.mp-x", 32), ("other", 9)):
        segment(shm, name, size)
    found = look(shm).segments
    assert [(one.name, one.kind) for one in found] == [
        ("psm_1f", "Python's shared memory"), ("nccl-Ab12", "NCCL"), ("sem.mp-x", "a semaphore"),
    ]  # fmt: skip
    assert found[0].size >= 3 << 20
    assert {one.uid for one in found} == {os.getuid()}
    assert {one.users for one in found} == {()}


def test_who_maps_it_is_found_by_the_file_not_by_its_path(shm: Path) -> None:
    path = segment(shm, "nccl-Ab12", 4096)
    segment(shm, "nccl-Cd34", 4096)
    elsewhere = mapping(path).replace(str(path), "/dev/shm/nccl-renamed (deleted)")
    process(shm.parent / "proc", 41, "python3", maps=f"55d0-55d1 r-xp 0 00:00 0\n{elsewhere}")
    process(shm.parent / "proc", 7, "python3", maps=mapping(path) * 2)
    assert {one.name: one.users for one in look(shm).segments} == {
        "nccl-Ab12": (7, 41), "nccl-Cd34": (),
    }  # fmt: skip


def test_a_sparse_file_counts_as_what_it_takes(shm: Path) -> None:
    with (shm / "psm_x").open("wb") as file:
        file.truncate(1 << 30)
    assert look(shm).segments[0].size < 1 << 20


def test_a_process_that_ends_meanwhile_is_nobody(shm: Path) -> None:
    segment(shm, "nccl-x", 10)
    (shm.parent / "proc" / "99").mkdir()
    assert look(shm).unseen == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root sees every process")
def test_processes_that_cannot_be_seen_are_counted(shm: Path) -> None:
    segment(shm, "nccl-x", 10)
    (process(shm.parent / "proc", 7, "python3") / "maps").chmod(0)
    assert look(shm).unseen == 1


def test_the_real_one_with_a_real_mapping() -> None:
    path = Path("/dev/shm", f"psm_kimisvc_test_{os.getpid()}")
    try:
        with path.open("wb+") as file:
            file.write(bytes(8192))
            file.flush()
            with mmap.mmap(file.fileno(), 8192):
                mine = [s for s in shared_memory.look().segments if s.name == path.name]
        after = [s for s in shared_memory.look().segments if s.name == path.name]
    finally:
        path.unlink()
    assert [one.users for one in mine] == [(os.getpid(),)]
    assert [one.users for one in after] == [()]
