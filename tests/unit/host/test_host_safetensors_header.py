"""Files of weights, whole and spoilt in every way that was seen: real bytes on a real disk."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from staged_host import lfs_pointer, safetensors

from kimisvc.host.safetensors_header import LONGEST_HEADER, fault, human


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    assert fault(safetensors(tmp_path / "a.safetensors", 10, 0, 20)) == ""
    assert fault(write(tmp_path / "b.safetensors", struct.pack("<Q", 2) + b"{}")) == ""


@given(
    sizes=st.lists(st.integers(0, 1 << 33), min_size=1, max_size=5).filter(sum),
    data=st.data(),
)
def test_what_is_missing_at_the_end_is_counted(sizes: list[int], data: st.DataObject) -> None:
    short = data.draw(st.integers(1, sum(sizes)))
    with TemporaryDirectory() as folder:
        path = safetensors(Path(folder, "a.safetensors"), *sizes, short=short)
        whole = path.stat().st_size + short
        said = fault(path)
    assert said == f"is cut off: {short:,} of {whole:,} bytes are missing; fetch it again"


def test_tensors_in_any_order_end_where_the_last_one_does(tmp_path: Path) -> None:
    header = b'{"b":{"dtype":"U8","shape":[4],"data_offsets" : [4, 8]},"a":{"data_offsets":[0,4]}}'
    content = struct.pack("<Q", len(header)) + header + bytes(8)
    assert fault(write(tmp_path / "a.safetensors", content)) == ""
    assert "1 of" in fault(write(tmp_path / "a.safetensors", content[:-1]))


def test_a_tensor_whose_name_looks_like_offsets_changes_nothing(tmp_path: Path) -> None:
    header = rb'{"\"data_offsets\":[0,99]":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    content = struct.pack("<Q", len(header)) + header + b"x"
    assert fault(write(tmp_path / "a.safetensors", content)) == ""


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    said = fault(safetensors(tmp_path / "a.safetensors", 10, extra=3))
    assert said == "is 3 bytes longer than its header says; fetch it again"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x05", "at least"),
        (struct.pack("<Q", 100) + b"{", "cut off in its header: at least 99 bytes are missing"),
        (struct.pack("<Q", LONGEST_HEADER + 1) + b"{", "longer than 100 MB"),
        (b"<!DOCTYPE html><html>not found</html>", "longer than 100 MB"),
        (struct.pack("<Q", 4) + b"nope", "no JSON object"),
        (struct.pack("<Q", 4) + b'{"a"', "no JSON object"),
        (struct.pack("<Q", 4) + b'"a"}', "no JSON object"),
    ],
)
def test_what_is_no_whole_safetensors_file(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in fault(write(tmp_path / "a.safetensors", content))


def test_a_header_is_never_read_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 40))
        file.truncate(1 << 41)  # sparse: reading the header would take a terabyte of memory
    assert "longer than 100 MB" in fault(path)


@pytest.mark.parametrize("suffix", ["safetensors", "bin", "gguf", "pt"])
def test_a_pointer_of_git_lfs_in_place_of_the_file(tmp_path: Path, suffix: str) -> None:
    said = fault(lfs_pointer(tmp_path / f"a.{suffix}", 9_800_000_000))
    assert said == "is a git-lfs pointer and not the file of 9.8 GB: run git lfs pull there"


def test_files_whose_size_nobody_tells(tmp_path: Path) -> None:
    assert fault(write(tmp_path / "a.bin", b"PK\x03\x04")) == ""
    assert fault(write(tmp_path / "a.gguf", b"GGUF\x03\0\0\0")) == ""
    assert "no GGUF file" in fault(write(tmp_path / "b.gguf", b"PK\x03\x04"))
    assert fault(write(tmp_path / "b.bin", b"")) == "is empty"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert fault(tmp_path / "none.safetensors") == "No such file or directory"
    (tmp_path / "dir.safetensors").mkdir()
    assert fault(tmp_path / "dir.safetensors") == "Is a directory"
    (tmp_path / "gone.safetensors").symlink_to("../blobs/0123")
    assert fault(tmp_path / "gone.safetensors") == "No such file or directory"


def test_sizes_as_hubs_show_them() -> None:
    assert [human(n) for n in (12, 4_200, 4_200_000, 9_812_345_678)] == [
        "12 bytes", "4.2 kB", "4.2 MB", "9.8 GB",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", ["safetensors", "bin", "gguf"])
def test_a_pipe_or_a_device_in_place_of_the_file(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"a.{suffix}")
    assert fault(tmp_path / f"a.{suffix}") == "is no regular file but a named pipe"
    (tmp_path / f"b.{suffix}").symlink_to("/dev/zero")
    assert fault(tmp_path / f"b.{suffix}") == "is no regular file but a character device"
