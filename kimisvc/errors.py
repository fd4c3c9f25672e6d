"""The exit statuses and the few exceptions of kimisvc.

First page of the path: this module and `records` are read first and import
nothing of ours. An exception here carries what an operator needs: a stable
code for programs, a message, a hint, and the exit status the command line
ends with. Only the command line turns them into output.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.records.problems import Problem


class ExitStatus(IntEnum):
    """How a kimisvc command ends; the table of the README."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PROFILE_REFUSED = 3
    ROLLED_BACK = 4
    NOT_RESTORED = 5
    INCONCLUSIVE = 6
    PREFLIGHT_REFUSED = 7
    LOCKED = 75
    INTERRUPTED = 130


class KimisvcError(Exception):
    """Something an operator has to know: `code` for programs, message and hint for people."""

    exit_status = ExitStatus.FAILED

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        """Given a kebab-case code, one sentence and an optional next step, hold them."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class ProfileRefusedError(KimisvcError):
    """The profile has problems; all of them are in `problems`. Nothing was touched."""

    exit_status = ExitStatus.PROFILE_REFUSED

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Given at least one problem, hold them all."""
        count = len(problems)
        super().__init__("profile-refused", f"{count} problem{'s' if count > 1 else ''} found")
        self.problems = tuple(problems)


class PreflightRefusedError(KimisvcError):
    """The host, or what lies on it, stands in the way; `reasons` says all of why. Nothing was touched."""

    exit_status = ExitStatus.PREFLIGHT_REFUSED

    def __init__(self, reasons: Sequence[Problem]) -> None:
        """Given at least one reason, hold them all."""
        super().__init__("preflight-refused", "preflight refused; nothing was touched")
        self.reasons = tuple(reasons)


class HostError(KimisvcError):
    """Something outside of us failed: systemd, the server, a file. Raised by the doors only."""


class NoSystemdError(HostError):
    """systemd does not run here: this host cannot run any profile."""

    exit_status = ExitStatus.PREFLIGHT_REFUSED


class LeftAtWorkError(KimisvcError):
    """The operator stopped waiting (Ctrl-C); what was begun goes on without one."""

    exit_status = ExitStatus.INTERRUPTED

    def __init__(self, instance: str) -> None:
        """Given the instance, say how to follow it again."""
        super().__init__(
            "left-at-work",
            "left; the gate goes on and decides without you",
            hint=f"follow again with: kimisvc status --follow --instance {instance}",
        )


class LockedError(KimisvcError):
    """Another kimisvc holds the lock of this instance."""

    exit_status = ExitStatus.LOCKED
