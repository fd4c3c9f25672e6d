"""Whether a path can be reached as a hardened unit will see it, before a unit fails on it.

ProtectHome= hides /home, /root and /run/user, PrivateTmp= hides /tmp and
/var/tmp, and an unprivileged user needs the x of every folder above. A venv's
python is a symlink, so each link on the way is looked at too (systemd.exec(5)).
"""

from __future__ import annotations

import os
import stat
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


def why_unreachable(path: Path) -> str:
    """Given a path, say why an unprivileged hardened unit cannot reach it; empty if it can."""
    for step in steps(path):
        for folder, why in HIDDEN.items():
            if step.is_relative_to(folder):
                via = f" (through {path})" if step != path else ""
                return f"{step}{via} lies in {folder}: {why} from the service"
        try:
            mode = step.lstat().st_mode
        except FileNotFoundError:
            return f"{step} does not exist"
        except OSError as error:
            return f"{step}: {error.strerror}"
        if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
            return f"{step} may not be entered by others (mode {stat.S_IMODE(mode):o})"
    real = path.resolve()
    mode = real.stat().st_mode
    if not mode & stat.S_IROTH:
        return f"{real} may not be read by others (mode {stat.S_IMODE(mode):o})"
    return ""


def steps(path: Path) -> list[Path]:
    """Given an absolute path, return every folder, link and link target on the way to it."""
    seen: list[Path] = []
    waiting = [path]
    while waiting and len(seen) < LINKS * 20:
        current = waiting.pop()
        for step in [*reversed(current.parents), current]:
            if step in seen:
                continue
            seen.append(step)
            if step.is_symlink():
                target = Path(os.path.normpath(step.parent / step.readlink()))
                waiting.append(target)
                break
    return seen
