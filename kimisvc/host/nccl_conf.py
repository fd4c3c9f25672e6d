"""The door to NCCL's configuration files, read as NCCL reads them.

NCCL takes variables from NCCL_CONF_FILE, or without one from ~/.nccl.conf,
then from /etc/nccl.conf, and what is set already stays (nccl, src/misc/param.cc:
setenv() without overwriting). The home is that of the user database, whatever
HOME says.
"""

from __future__ import annotations

import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from kimisvc.host import files

SYSTEM_WIDE = "etc/nccl.conf"
OF_A_USER = ".nccl.conf"
CHOSEN_BY = "NCCL_CONF_FILE"
LONGEST = 1023
"""NCCL cuts names and values there."""
DYNAMIC_HOME = Path("/")
"""The home of a user that systemd makes up for a service (nss-systemd(8))."""


@dataclass(frozen=True, slots=True)
class ConfFile:
    """One file that NCCL would read: its variables as NCCL takes them, `why_not` if it cannot."""

    path: Path
    variables: dict[str, str]
    why_not: str = ""


def conf_paths(chosen: str, home: Path | None, root: Path = Path("/")) -> tuple[Path, ...]:
    """Given the value of NCCL_CONF_FILE ("": not set) and a home, return what NCCL reads, in order.

    `home` None: the user is in no database, and NCCL looks in no home.
    """
    first = [Path(chosen)] if chosen else [home / OF_A_USER] if home else []
    return (*first, root / SYSTEM_WIDE)


def home_of(user: str) -> Path | None:
    """Given a user's name ("": one that systemd makes up), return the home the database has."""
    if not user:
        return DYNAMIC_HOME
    try:
        return Path(pwd.getpwnam(user).pw_dir)
    except (KeyError, ValueError):
        return None


def read(path: Path) -> ConfFile:
    """Given the path of such a file, return what NCCL makes of it."""
    try:
        text = files.read_bytes(path).decode("utf-8", "replace")
    except OSError as error:
        return ConfFile(path, {}, f"{path}: {error.strerror}")
    return ConfFile(path, parse(text))


def is_waited_for(path: Path) -> bool:
    """Given the path of such a file, return whether NCCL would wait for ever to read it.

    A pipe: fopen(3) ends when somebody opens the other end (fifo(7)).
    """
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def parse(text: str) -> dict[str, str]:
    """Given the text of such a file, return its variables.

    `#` begins a comment in the first column only, nothing is trimmed or
    unquoted, and the first of two lines with one name counts.
    """
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            variables.setdefault(name[:LONGEST], value[:LONGEST])
    return variables
