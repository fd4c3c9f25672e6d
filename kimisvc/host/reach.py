"""Whether a path can be reached as a hardened unit will see it, before a unit fails on it.

ProtectHome= hides /home, /root and /run/user, PrivateTmp= hides /tmp and
/var/tmp (systemd.exec(5)), and an unprivileged user needs the x of every
folder above. A venv's python is a symlink, and so may be its folder, so each
link on the way is followed as the kernel would (path_resolution(7)). What has
an access control list is taken as reachable: the mode beside it does not tell.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

HIDDEN = {
    "/home": "ProtectHome= hides it",
    "/root": "ProtectHome= hides it",
    "/run/user": "ProtectHome= hides it",
    "/tmp": "PrivateTmp= hides it",  # noqa: S108 - named, not used
    "/var/tmp": "PrivateTmp= hides it",  # noqa: S108 - named, not used
}
LINKS = 40
"""The kernel's own limit of symlinks in one path (path_resolution(7))."""
SHEBANG_LINE = 256
"""So much of a first line is read as the name of an interpreter (execve(2))."""


class Need(IntFlag):
    """What is to be done with a file, as the bits of a mode: read it, run it, drive a device."""

    READ = 4
    RUN = 5
    DRIVE = 6


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who wants to reach it: a user and its groups; `uid` None is any user, as of DynamicUser=."""

    uid: int | None = None
    gids: frozenset[int] = frozenset()


ANYBODY = Viewer()


def why_unreachable(path: Path, viewer: Viewer = ANYBODY, need: Need = Need.READ) -> str:
    """Given an absolute path, say why a hardened unit of `viewer` cannot reach it; "" if it can.

    A folder has to be listable. Only what this process may see itself is judged.
    """
    waiting = deque(path.parts[1:])
    at, links = Path("/"), 0
    while waiting:
        part = waiting.popleft()
        if part == "..":
            at = at.parent
            continue
        step = at / part
        why = _hidden(step, path)
        if why:
            return why
        try:
            found = step.lstat()
        except OSError as error:
            return f"{_named(step, path)}: {error.strerror}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > LINKS:
                return f"{path}: too many symlinks"
            target = step.readlink()
            at = Path("/") if target.is_absolute() else at
            waiting.extendleft(reversed([p for p in target.parts if p != "/"]))
            continue
        at = step
        if _has_list(step):
            continue  # its mode shows the list's mask, which says nothing of one user
        why = _denied(found.st_mode, found.st_uid, found.st_gid, viewer, need, waiting)
        if why:
            return f"{_named(step, path)} {why} (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def why_unrunnable(program: Path, viewer: Viewer = ANYBODY) -> str:
    """Given a program, say why a hardened unit of `viewer` cannot run it; "" if it can.

    A script needs its interpreter too: that of a venv is a symlink, often into
    somebody's home.
    """
    why = why_unreachable(program, viewer, Need.RUN)
    if why:
        return why
    if not program.is_file():
        return f"{program} is not a file"
    interpreter = shebang(program)
    if interpreter is None:
        return ""
    why = why_unreachable(interpreter, viewer, Need.RUN)
    return f"{program} is run by {interpreter}, and {why}" if why else ""


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


def _denied(mode: int, owner: int, group: int, viewer: Viewer, need: Need, rest: deque[str]) -> str:
    """What the mode of one step forbids: a folder on the way needs x, one at the end r and x."""
    if viewer.uid == 0:
        return ""
    shift = 6 if viewer.uid == owner else 3 if group in viewer.gids else 0
    granted = mode >> shift & 7
    who = "others" if viewer.uid is None else f"user {viewer.uid}"
    if rest:
        return "" if granted & 1 else f"may not be entered by {who}"
    if stat.S_ISDIR(mode):
        return "" if granted & Need.RUN == Need.RUN else f"may not be listed by {who}"
    if granted & need == need:
        return ""
    if not granted & Need.READ:
        return f"may not be read by {who}"
    return f"may not be {'run' if need is Need.RUN else 'written'} by {who}"
