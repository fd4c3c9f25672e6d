"""Whether a path can be reached as a hardened unit will see it, before a unit fails on it.

ProtectHome= hides /home, /root and /run/user, PrivateTmp= hides /tmp and
/var/tmp (systemd.exec(5)), and an unprivileged user needs the x of every
folder above. A venv's python is a symlink, and so may be its folder, so each
link on the way is followed as the kernel would (path_resolution(7)). What has
an access control list is taken as reachable: the mode beside it does not tell.
Modes hold for root as for anybody: CapabilityBoundingSet= leaves it none of the
capabilities that pass over them (capabilities(7)). What this process itself may
not look at (it is not root's, or lies on an NFS that trusts no root) is told
apart by `why_unseen`: of that nobody can say here whether the service could.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from dataclasses import dataclass
from enum import Enum, IntFlag
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = {
    "/home": "ProtectHome= hides it",
    "/root": "ProtectHome= hides it",
    "/run/user": "ProtectHome= hides it",
    "/tmp": "PrivateTmp= hides it",  # noqa: S108 - named, not used
    "/var/tmp": "PrivateTmp= hides it",  # noqa: S108 - named, not used
}
ROOTS = frozenset({0})
"""The users that root's own programs may belong to."""
LINKS = 40
"""The kernel's own limit of symlinks in one path (path_resolution(7))."""
SHEBANG_LINE = 256
"""So much of a first line is read as the name of an interpreter (execve(2))."""
BLIND = frozenset({errno.EACCES, errno.EPERM})
"""What the kernel answers a process that may not look, whatever is there."""


class Need(IntFlag):
    """What is to be done with a file, as the bits of a mode: read it, run it, drive a device.

    ENTER and FILL are for folders: to start in one, for which it need not be
    listed (chdir(2)); to list one, and make and take away what is in it.
    """

    ENTER = 1
    READ = 4
    RUN = 5
    DRIVE = 6
    FILL = 7


class Presence(Enum):
    """Whether something lies at a path; of what may not be looked at nobody can say."""

    THERE = "there"
    GONE = "not there"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who wants to reach it: a user and its groups; `uid` None is any user, as of DynamicUser=."""

    uid: int | None = None
    gids: frozenset[int] = frozenset()


ANYBODY = Viewer()


def why_unreachable(path: Path, viewer: Viewer = ANYBODY, need: Need = Need.READ) -> str:
    """Given an absolute path, say why a hardened unit of `viewer` cannot reach it; "" if it can.

    A folder has to be listable, unless it is only to be entered. Only what this process may
    see itself is judged: where it gets no further, `why_unseen` says so.
    """
    for step in _walk(path):
        if isinstance(step, _End):
            return "" if step.is_blind else step.words
        why = _hidden(step.path, path)
        if why:
            return why
        # Where a list stands beside the mode, that shows its mask, which says nothing of one user.
        if step.is_link or _has_list(step.path):
            continue
        why = _denied(step, viewer, need)
        if why:
            return f"{_named(step.path, path)} {why} (mode {stat.S_IMODE(step.found.st_mode):o})"
    return ""


def why_unseen(path: Path) -> str:
    """Given an absolute path, say why this process may not look whether it is there; "" if it may."""
    blind = (step.words for step in _walk(path) if isinstance(step, _End) and step.is_blind)
    return next((f"{words} (to who asks; root may see more)" for words in blind), "")


def why_unread(path: Path) -> str:
    """Given an absolute path, say why this process may not look at it or read it; "" if it may."""
    why = why_unseen(path)
    if why or presence(path) is not Presence.THERE or os.access(path, os.R_OK, effective_ids=True):
        return why
    return f"{path}: {os.strerror(errno.EACCES)} (to who asks; root may see more)"


def presence(path: Path) -> Presence:
    """Given a path, say whether something is there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Presence.GONE
    except OSError:
        return Presence.UNKNOWN
    return Presence.THERE


def why_not_roots(path: Path) -> str:
    """Given an absolute path, say who but root may change what is found there; "" if nobody may.

    Whoever may write a folder on the way may put another one in its place, but
    for one with the sticky bit (inode(7)). A path that is not there is nobody's.
    """
    for step in _walk(path):
        if isinstance(step, _End):
            return ""
        if step.is_link:
            continue
        mode, where = step.found.st_mode, _named(step.path, path)
        if step.found.st_uid not in ROOTS:
            return f"{where} belongs to user {step.found.st_uid}"
        if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
            continue
        if mode & stat.S_IWOTH:
            return f"{where} may be written by anybody"
        # Beside a list the bits of the group are its mask: the most that anybody named there may.
        if mode & stat.S_IWGRP and _has_list(step.path):
            return f"{where} may be written by those in its access control list"
        if mode & stat.S_IWGRP and step.found.st_gid != 0:
            return f"{where} may be written by group {step.found.st_gid}"
    return ""


@dataclass(frozen=True, slots=True)
class _Step:
    """One name on the way to a path, as the kernel comes by it."""

    path: Path
    found: os.stat_result
    is_last: bool

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.found.st_mode)


@dataclass(frozen=True, slots=True)
class _End:
    """Why there is no further step, in words, and the kernel's own number of it."""

    words: str
    error: int

    @property
    def is_blind(self) -> bool:
        return self.error in BLIND


def _walk(path: Path) -> Iterator[_Step | _End]:
    """Yield each step of an absolute path, links followed; last why there is no further one."""
    waiting = deque(path.parts[1:])
    at, links = Path("/"), 0
    while waiting:
        part = waiting.popleft()
        if part == "..":
            at = at.parent
            continue
        here = at / part
        try:
            step = _Step(here, here.lstat(), not waiting)
        except OSError as error:
            yield _End(f"{_named(here, path)}: {error.strerror}", error.errno or 0)
            return
        yield step
        if not step.is_link:
            at = here
            continue
        links += 1
        if links > LINKS:
            yield _End(f"{path}: too many symlinks", errno.ELOOP)
            return
        target = here.readlink()
        at = Path("/") if target.is_absolute() else at
        waiting.extendleft(reversed([p for p in target.parts if p != "/"]))


def why_unrunnable(program: Path, viewer: Viewer = ANYBODY) -> str:
    """Given a program, say why a hardened unit of `viewer` cannot run it; "" if it can.

    A script needs its interpreter too: that of a venv is a symlink, often into
    somebody's home. What this process may not look at is not judged (`why_program_unseen`).
    """
    why = why_unreachable(program, viewer, Need.RUN)
    if why or why_unseen(program):
        return why
    if not program.is_file():
        return f"{program} is not a file"
    interpreter = shebang(program)
    if interpreter is None:
        return ""
    why = why_unreachable(interpreter, viewer, Need.RUN)
    return f"{program} is run by {interpreter}, and {why}" if why else ""


def why_program_unseen(program: Path) -> str:
    """Given a program, say why this process may not look at it or its interpreter; "" if it may."""
    interpreter = shebang(program)
    return why_unread(program) or (why_unseen(interpreter) if interpreter else "")


def shebang(program: Path) -> Path | None:
    """Given a program, return the interpreter its first line names; None if it names none."""
    try:
        with program.open("rb") as file:
            first = file.readline(SHEBANG_LINE)
    except OSError:
        return None
    words = first.removeprefix(b"#!").split()
    if not first.startswith(b"#!") or not words:
        return None
    named = Path(words[0].decode("utf-8", "replace"))
    return named if named.is_absolute() else None


def _has_list(step: Path) -> bool:
    """Whether an access control list stands beside the mode (acl(5))."""
    try:
        return bool(os.getxattr(step, "system.posix_acl_access"))
    except OSError:
        return False


def _hidden(step: Path, path: Path) -> str:
    why = HIDDEN.get(str(step))
    if why is None:
        return ""
    return f"{path} {_via(step, path)}lies in {step}: {why} from the service"


def _named(step: Path, path: Path) -> str:
    return str(step) if path.is_relative_to(step) else f"{step} (through {path})"


def _via(step: Path, path: Path) -> str:
    return "" if path.is_relative_to(step) else "(through a symlink) "


def _denied(step: _Step, viewer: Viewer, need: Need) -> str:
    """What the mode of one step forbids: a folder on the way needs x, one at the end r and x."""
    mode, found = step.found.st_mode, step.found
    shift = 6 if viewer.uid == found.st_uid else 3 if found.st_gid in viewer.gids else 0
    granted = mode >> shift & 7
    who = "others" if viewer.uid is None else f"user {viewer.uid}"
    is_folder = stat.S_ISDIR(mode)
    if not step.is_last or need is Need.ENTER:
        # What is no folder is told as that: by the kernel at the next step, by who asked at the end.
        may_enter = granted & Need.ENTER or not is_folder
        return "" if may_enter else f"may not be entered by {who}"
    if is_folder:
        fill = need is Need.FILL and granted & Need.RUN == Need.RUN
        wanted, done = (Need.FILL, "written") if fill else (Need.RUN, "listed")
        return "" if granted & wanted == wanted else f"may not be {done} by {who}"
    if granted & need == need:
        return ""
    if not granted & Need.READ:
        return f"may not be read by {who}"
    return f"may not be {'run' if need is Need.RUN else 'written'} by {who}"
