"""The door to locks: files that one kimisvc at a time holds, and that tell who it is.

A lock is flock(2)'s, so the kernel frees it when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kimisvc.errors import HostError, LockedError
from kimisvc.host.files import translated

if TYPE_CHECKING:
    from types import TracebackType

LOCK_POLL = 0.1
"""How often a lock that another holds is tried (s): flock(2) waits for ever or not at all."""
_LONGEST_NOTE = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as `kimisvc apply, PID 7, since 12:00:00`, and what that waits for; "": nothing."""

    who: str
    waits: str = ""

    @property
    def words(self) -> str:
        """Both on one line."""
        return f"{self.who}; {self.waits}" if self.waits else self.who


class Lock:
    """An advisory lock on a file, held while the `with` block runs; freed by the kernel on death.

    `wait` is how long to wait for it (s). The file tells who holds it, for the
    message to the one who came second. It is for its owner alone: whoever may
    open a file may lock it, and could keep root waiting. It lies in the folder of its instance.
    """

    def __init__(self, path: Path, wait: float = 0.0) -> None:
        self._path = path
        self._wait = wait
        self._handle = -1

    def __enter__(self) -> Self:
        """Take the lock. Raise LockedError when another holds it for longer than we wait."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise translated(error, self._path) from error
        try:
            self._take(handle)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free the lock, also where a child that was forked meanwhile still has the file open."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)

    def _take(self, handle: int) -> None:
        deadline = time.monotonic() + max(self._wait, LOCK_POLL)  # one may only be looking
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise _locked(self._path, handle) from None
                time.sleep(LOCK_POLL)
            except OSError as error:
                raise translated(error, self._path) from error
            else:
                break
        _note(handle, {"pid": os.getpid(), "since": time.time(), "command": _command()})


def tell(path: Path, waits: str) -> None:
    """Given the file of a lock that this process holds, tell in it what that waits for; "": nothing."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _note(handle, {**json.loads(os.pread(handle, _LONGEST_NOTE, 0)), "waits": waits})
        finally:
            os.close(handle)


def holder(path: Path) -> Holder | None:
    """Given the file of a lock, return who holds it; None where nobody does, or none may be seen."""
    try:
        refuse_held(path)
    except LockedError:
        return _holder(_read(path))
    except HostError:
        return None
    return None


def refuse_held(path: Path) -> None:
    """Given the file of a lock, raise LockedError while another holds that. Nothing is changed.

    Nobody holds one that is not there. Who may not open it, others than root, is
    told nothing. It is tried as one that may be shared: two who look do not see
    each other, and whoever takes it meanwhile tries once more (`Lock`).
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        raise translated(error, path) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _locked(path, handle) from None
    except OSError as error:
        raise translated(error, path) from error
    finally:
        os.close(handle)  # and the lock is free


def _command() -> str:
    """What this process does, in the operator's words: "kimisvc apply". No argument: no secret."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])


def _note(handle: int, note: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # who holds it is a comfort, the lock is the kernel's
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(note).encode(), 0)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()[:_LONGEST_NOTE]
    except OSError:
        return b""


def _holder(told: bytes) -> Holder:
    try:
        note = json.loads(told)
        since = time.strftime("%H:%M:%S", time.localtime(float(note["since"])))
        who = f"{note['command']}, PID {int(note['pid'])}, since {since}"
        return Holder(who, str(note.get("waits", "")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return Holder("it has not said who it is")


def _locked(path: Path, handle: int) -> LockedError:
    try:
        told = os.pread(handle, _LONGEST_NOTE, 0)
    except OSError:
        told = b""
    return LockedError(
        "locked",
        f"another kimisvc is at work on this instance ({_holder(told).words})",
        hint=f"watch it with: kimisvc status --follow --instance {path.parent.name}",
    )
