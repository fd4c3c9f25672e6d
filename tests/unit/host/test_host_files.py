"""The file system's door, on real files."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from open_files import descriptors

from kimisvc.errors import HostError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A disk that is full, as far as one process can make it so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------ writing


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: "\r" not in t))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_what_was_written_is_read_and_nothing_lies_beside_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "unit.service"
    files.write_atomic(path, text)
    assert files.read_text(path) == text
    assert names(tmp_path) == ["unit.service"]


@pytest.mark.parametrize("mode", [0o444, 0o600, 0o644])
def test_the_mode_is_the_one_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.write_atomic(tmp_path / "x", "text", mode)
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o7777 == mode


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_atomic(path, "old")
    with files_no_larger_than(10), pytest.raises(HostError) as caught:
        files.write_atomic(path, "new" * 10)
    assert caught.value.message == f"{path}: File too large"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_a_folder_in_the_way_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(HostError, match="Is a directory") as caught:
        files.write_atomic(tmp_path / "x", "text")
    assert caught.value.message.startswith(f"{tmp_path / 'x'}: ")
    assert names(tmp_path) == ["x"]


def test_a_symlink_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    """A masked unit is a symlink to /dev/null."""
    (tmp_path / "target").write_text("old")
    (tmp_path / "x").symlink_to("target")
    files.write_atomic(tmp_path / "x", "new")
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "target").read_text() == "old"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "a quota is used up"),
        (errno.EROFS, "the file system is mounted read-only"),
        (errno.EACCES, "sudo"),
        (errno.ENOENT, ""),
    ],
)
def test_errors_name_the_path_and_what_helps(number: int, hint: str) -> None:
    error = OSError(number, os.strerror(number), "/etc/systemd/system/.x.service.abc")
    ours = files.translated(error, Path("/etc/systemd/system/x.service"))
    assert ours.message == f"/etc/systemd/system/x.service: {os.strerror(number)}"
    assert hint in ours.hint


def test_make_folder_names_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=f"{tmp_path}/file/a"):
        files.make_folder(tmp_path / "file" / "a" / "b")
    files.make_folder(tmp_path / "c" / "d")
    files.make_folder(tmp_path / "c" / "d")
    assert (tmp_path / "c" / "d").is_dir()


# ------------------------------------------------------------------ reading


def test_what_is_not_there_and_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="No such file"):
        files.read_text(tmp_path / "nope")
    with pytest.raises(HostError, match="Is a directory"):
        files.read_text(tmp_path)
    (tmp_path / "x").write_bytes(b"abc\xff")
    with pytest.raises(HostError, match="byte 3") as caught:
        files.read_text(tmp_path / "x")
    assert caught.value.code == "not-text"


@pytest.fixture(params=["pipe", "socket", "device", "sparse", "loop", "behind a symlink"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A path that must not be read, and what is said of it."""
    path = tmp_path / "odd"
    if request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
        return path, "is no regular file but a socket"
    if request.param == "device":
        return Path("/dev/zero"), "is no regular file but a character device"
    if request.param == "sparse":
        with path.open("wb") as file:
            file.truncate(1 << 40)
        return path, "is larger than 16 MiB"
    if request.param == "loop":
        path.symlink_to(path)
        return path, os.strerror(errno.ELOOP)
    os.mkfifo(path)
    if request.param == "pipe":
        return path, "is no regular file but a named pipe"
    (tmp_path / "link").symlink_to(path)
    return tmp_path / "link", "is no regular file but a named pipe"


def test_what_would_wait_or_never_end_is_not_read(odd: tuple[Path, str]) -> None:
    path, said = odd
    with pytest.raises(HostError) as caught:
        files.read_text(path)
    assert caught.value.message == f"{path}: {said}"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/dev/null", "a character device"), ("/dev/zero", "a character device"), ("/", "a folder")],
)
def test_what_others_are_to_open_is_only_looked_at(path: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(files.UnfitFileError) as caught:
        files.refuse_irregular(Path(path))
    assert caught.value.strerror == f"is no regular file but {kind}"
    (tmp_path / "text").touch()
    before = descriptors()
    files.refuse_irregular(tmp_path / "text")
    files.refuse_irregular(tmp_path / "nothing there")
    assert descriptors() == before


def test_a_pipe_that_somebody_writes_into_is_not_read_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    handle = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(handle, b"text")
    with pytest.raises(HostError, match="a named pipe"):
        files.read_text(tmp_path / "pipe")
    os.close(handle)


def test_a_file_that_grew_after_it_was_looked_at_is_still_bounded(tmp_path: Path) -> None:
    """The kernel's own files say 0 bytes of themselves."""
    with pytest.raises(files.UnfitFileError, match="is larger than 5 bytes"):
        files.read_bytes(Path("/proc/self/status"), 5)
    (tmp_path / "x").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "x", 5) == b"12345"


def test_dev_null_is_the_empty_file_it_stands_for(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("/dev/null")
    assert files.read_text(tmp_path / "x") == ""


def test_a_path_with_a_nul_is_an_error_like_others() -> None:
    with pytest.raises(HostError, match="is not the path of a file"):
        files.read_text(Path("a\0b"))


def test_lines_end_in_one_way(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb\rc\n")
    assert files.read_text(tmp_path / "x") == "a\nb\nc\n"


def test_what_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    before = descriptors()
    for name in ("dir", "link"):
        (tmp_path / name).symlink_to(tmp_path)
        with pytest.raises(HostError):
            files.read_untrusted(tmp_path / name)
    assert descriptors() == before


def test_a_loop_of_symlinks_has_a_real_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert files.real_path(tmp_path / "a").parent == tmp_path.resolve()


def test_free_bytes_of_a_path_to_come_are_those_of_its_file_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    whole = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    for path in (tmp_path, tmp_path / "a" / "b", tmp_path / "file" / "a", Path("relative/a")):
        assert 0 < files.free_bytes(path) <= max(whole, files.free_bytes(Path()))


# ------------------------------------------------------------------ symlinks


def test_a_symlink_is_made_and_switched(tmp_path: Path) -> None:
    link = tmp_path / "current"
    for target in ("generations/0001", "generations/0002"):
        files.switch_symlink(link, target)
        assert str(link.readlink()) == target
    assert names(tmp_path) == ["current"]


def test_a_folder_where_the_symlink_should_be_is_set_aside_whole(tmp_path: Path) -> None:
    """As cp -rL and scp -r leave one of a symlink to a folder."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "manifest.json").write_text("{}")
    files.switch_symlink(tmp_path / "current", "x")
    aside, link = sorted(tmp_path.iterdir(), key=lambda path: path.is_symlink())
    assert (link.name, link.readlink()) == ("current", Path("x"))
    assert aside.name.startswith("current.aside-")
    assert (aside / "manifest.json").read_text() == "{}"


def test_a_folder_that_cannot_be_set_aside_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount point, say."""

    def busy(path: Path, _: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    (tmp_path / "current").mkdir()
    monkeypatch.setattr(Path, "rename", busy)
    with pytest.raises(HostError, match="busy"):
        files.switch_symlink(tmp_path / "current", "x")
    assert names(tmp_path) == ["current"]


def test_what_a_killed_switch_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".current.{os.getpid()}").symlink_to("old")
    files.switch_symlink(tmp_path / "current", "new")
    assert names(tmp_path) == ["current"]


def test_what_is_set_aside_is_kept_as_it_was(tmp_path: Path) -> None:
    unit = tmp_path / "a.service"
    unit.write_bytes(b"\xff\xfe[Unit]\n")
    files.set_aside(unit, tmp_path / "copy", mode=0o600)
    assert (tmp_path / "copy").read_bytes() == unit.read_bytes()
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_is_moved_aside_even_to_another_file_system(
    tmp_path: Path, kind: str
) -> None:
    unit = tmp_path / "a.service"
    if kind == "link":
        unit.symlink_to("/dev/null")
    else:
        (unit / "deep").mkdir(parents=True)
    other = Path("/dev/shm")
    assert other.stat().st_dev != tmp_path.stat().st_dev
    copy = other / f"kimisvc-test-{os.getpid()}"
    try:
        files.set_aside(unit, copy, mode=0o600)
        assert not os.path.lexists(unit)
        assert copy.is_symlink() if kind == "link" else (copy / "deep").is_dir()
    finally:
        copy.unlink() if copy.is_symlink() else shutil.rmtree(copy)


# ---------------------------------------------------------------- what outlives a power cut


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was put on disk, and what was renamed, in order; a folder ends with a slash."""
    seen: list[str] = []
    whole, renamed = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        seen.append(f"{path.name}/" if path.is_dir() else "file")
        whole(handle)

    def rename(path: Path, target: Path) -> Path:
        seen.append(f"rename to {Path(target).name}")
        return renamed(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    return seen


def test_a_file_is_on_disk_before_its_name_and_that_before_what_follows(
    tmp_path: Path, on_disk: list[str]
) -> None:
    files.write_atomic(tmp_path / "a", "text")
    assert on_disk == ["file", "rename to a", f"{tmp_path.name}/"]


def test_a_switched_link_is_on_disk(tmp_path: Path, on_disk: list[str]) -> None:
    files.switch_symlink(tmp_path / "current", "generations/0001")
    assert on_disk == ["rename to current", f"{tmp_path.name}/"]


def test_a_copy_of_a_hand_edit_is_on_disk_before_the_edit_is_written_over(
    tmp_path: Path, on_disk: list[str]
) -> None:
    (tmp_path / "copies").mkdir()
    (tmp_path / "a").write_text("by hand")
    files.set_aside(tmp_path / "a", tmp_path / "copies" / "a", mode=0o600)
    assert on_disk == ["file", "copies/"]
