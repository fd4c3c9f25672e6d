"""The door to the file system: atomic writes and symlinks, and errors that name the path.

A crash, a full disk or a kill in the middle leaves the old content or the
new, never half of one.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from kimisvc.errors import HostError

LARGEST_TEXT = 16 << 20
"""No unit, profile or file of variables is anywhere near (bytes); /dev/zero has no end."""
_HINTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "a quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.EACCES: "run it with sudo, or check the modes of the folders above",
    errno.EPERM: "run it with sudo, or check for the immutable attribute (lsattr)",
}


def translated(error: OSError, path: Path) -> HostError:
    """Given an error of the file system, return it as ours, naming the path and what helps.

    `path` is named, not the temporary file beside it that the system may speak of.
    """
    words = error.strerror or str(error)
    return HostError("file-error", f"{path}: {words}", hint=_HINTS.get(error.errno or 0, ""))


class UnfitFileError(OSError):
    """What is not to be read: no regular file, or too large. `strerror` says which, after a path."""


class Links(Enum):
    """Whether the last part of a path may be a symlink."""

    FOLLOWED = 0
    REFUSED = os.O_NOFOLLOW


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
}
_NULL = os.makedev(1, 3)
"""/dev/null (Linux, admin-guide/devices.txt)."""


def open_regular(path: Path, links: Links = Links.FOLLOWED) -> BinaryIO:
    """Given a path, open the regular file there for reading, and wait for nothing.

    A pipe can keep its reader waiting for ever, and opening a device may do
    something, so it is looked at first; and again once open, as another may lie
    there by then. /dev/null is the empty file that it stands for. Raise OSError;
    UnfitFileError for what is no regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links.value
    try:
        _refuse_irregular(path, path.stat(follow_symlinks=links is Links.FOLLOWED))
        handle = os.open(path, flags)
    except ValueError as error:  # a NUL in the path
        raise UnfitFileError(errno.EINVAL, "is not the path of a file", str(path)) from error
    try:
        _refuse_irregular(path, os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def refuse_irregular(path: Path) -> None:
    """Given a path, raise UnfitFileError where what lies there is no regular file; nothing there is fine.

    It is only looked at, for who has others open it. /dev/null is a device here: nothing can
    be kept in it. Raise OSError if that may not be known.
    """
    try:
        found = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found):
        raise _unfit(path, found)


def _unfit(path: Path, mode: int) -> UnfitFileError:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return UnfitFileError(errno.EINVAL, f"is no regular file but {kind}", str(path))


def _refuse_irregular(path: Path, found: os.stat_result) -> None:
    """A symlink passes: opening it says why it is not followed."""
    if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
        return
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _unfit(path, found.st_mode)


def read_bytes(path: Path, largest: int = LARGEST_TEXT, links: Links = Links.FOLLOWED) -> bytes:
    """Given a path, return what the regular file there holds, if at most `largest` bytes.

    Raise OSError as `open_regular` does, and UnfitFileError if it is larger.
    """
    with open_regular(path, links) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(largest + 1) if size <= largest else b""  # /proc says 0 of its files
    if size > largest or len(content) > largest:
        raise UnfitFileError(errno.EFBIG, f"is larger than {_human(largest)}", str(path))
    return content


def _human(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 and not size % (1 << 20) else f"{size} bytes"


def real_path(path: Path) -> Path:
    """Given a path, return where its symlinks lead; a loop of them is left as it stands.

    Path.resolve() ends with a RuntimeError there, which is no OSError.
    """
    return Path(os.path.realpath(path))


def read_text(path: Path) -> str:
    """Given a path, return its text, with each line ended by a line feed.

    Raise HostError if it cannot be read, is no regular file, is larger than
    LARGEST_TEXT or not UTF-8.
    """
    try:
        text = read_bytes(path).decode()
    except OSError as error:
        raise translated(error, path) from error
    except UnicodeDecodeError as error:
        raise HostError("not-text", f"{path}: is not UTF-8 text (byte {error.start})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_untrusted(path: Path, limit: int = 1 << 20) -> str:
    """Given a file that an unprivileged user may have made, return its text.

    Follows no symlink, waits for no pipe and reads at most `limit` bytes.
    Raise HostError if it is not a plain UTF-8 file of that size.
    """
    try:
        return read_bytes(path, limit, Links.REFUSED).decode()
    except OSError as error:
        raise translated(error, path) from error
    except UnicodeDecodeError as error:
        raise HostError("not-text", f"{path}: is not UTF-8 text (byte {error.start})") from error


def exists(path: Path) -> bool:
    """Given a path, say whether something is there. Raise HostError if that may not be known."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise translated(error, path) from error
    return True


def changed_since(path: Path, moment: float) -> bool:
    """Given a path and a moment (Unix time), say whether the file was written or put there after it.

    By ctime as well: what is moved into its place keeps the mtime that it had. Raise
    HostError if that may not be known.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise translated(error, path) from error
    return max(found.st_mtime, found.st_ctime) > moment


def entries(folder: Path) -> tuple[Path, ...]:
    """Given a folder, return what lies in it, sorted; nothing if it is not there."""
    try:
        return tuple(sorted(folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise translated(error, folder) from error


def make_folder(path: Path) -> None:
    """Given a path, make the folder and those above it. Raise HostError if that fails."""
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise translated(error, Path(error.filename or path)) from error


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Given a path, text and a mode, replace the file as a whole, on disk when this returns.

    Raise HostError if that fails; then the old file is untouched and
    nothing is left beside it.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise translated(error, path) from error


def set_aside(path: Path, copy: Path, mode: int) -> None:
    """Given a file, copy it as it is to another place; what is no plain file is moved there.

    Raise HostError if that fails.
    """
    try:
        if path.is_symlink():  # not renamed: the copy may lie in another file system
            copy.symlink_to(path.readlink())
            path.unlink()
            return
        if not stat.S_ISREG(path.lstat().st_mode):
            shutil.move(path, copy)
            return
        handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with path.open("rb") as source, os.fdopen(handle, "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(handle)
        sync_folder(copy.parent)  # before what is copied is written over
    except OSError as error:
        raise translated(error, path) from error


def remove(path: Path) -> None:
    """Given a file, remove it; one that is not there is fine. Raise HostError if that fails."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise translated(error, path) from error


def sync_folder(path: Path) -> None:
    """Given a folder, put its entries on disk, so that a rename outlives a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def switch_symlink(link: Path, target: str) -> None:
    """Given a symlink and its new target, switch it atomically. Raise HostError if that fails.

    A folder in its place is set aside: what copies files without their links (cp -rL, scp -r) leaves one.
    """
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        try:
            if link.is_dir() and not link.is_symlink():
                link.rename(link.with_name(f"{link.name}.aside-{time.time_ns()}"))
            temporary.rename(link)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(link.parent)
    except OSError as error:
        raise translated(error, link) from error


def free_bytes(path: Path) -> int:
    """Given a path that may not exist yet, return the free bytes where it would lie.

    Those that anybody may use; root may use some more. Raise HostError if the
    file system does not tell.
    """
    there = path.absolute()
    while True:
        try:
            usage = os.statvfs(there)
        except (FileNotFoundError, NotADirectoryError):
            there = there.parent
        except OSError as error:
            raise translated(error, there) from error
        else:
            return usage.f_bavail * usage.f_frsize
