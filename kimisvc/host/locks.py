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
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kimisvc.errors import LockedError
from kimisvc.host.files import translated

if TYPE_CHECKING:
    from types import TracebackType

LOCK_POLL = 0.1
"""How often a lock that another holds is tried (s): flock(2) waits for ever or not at all."""


class Lock:
    """An advisory lock on a file, held while the `with` block runs; freed by the kernel on death.

    `wait` is how long to wait for it (s). The file tells who holds it, for the
    message to the one who came second. It is for its owner alone: whoever may
    open a file may lock it, and could keep root waiting.
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
                    raise _locked(handle) from None
                time.sleep(LOCK_POLL)
            except OSError as error:
                raise translated(error, self._path) from error
            else:
                break
        note = {"pid": os.getpid(), "since": time.time(), "command": _command()}
        with contextlib.suppress(OSError):  # who holds it is a comfort, the lock is the kernel's
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(note).encode(), 0)


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
        raise _locked(handle) from None
    except OSError as error:
        raise translated(error, path) from error
    finally:
        os.close(handle)  # and the lock is free


def _command() -> str:
    """What this process does, in the operator's words: "kimisvc apply". No argument: no secret."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])


def _locked(handle: int) -> LockedError:
    try:
        note = json.loads(os.pread(handle, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(float(note["since"])))
        who = f"{note['command']}, PID {int(note['pid'])}, since {since}"
    except (ValueError, KeyError, TypeError, OSError, OverflowError):
        who = "it has not said who it is"
    return LockedError(
        "locked",
        f"another kimisvc is at work on this instance ({who})",
        hint="watch it with: kimisvc status --follow",
    )
