"""Tells the journal what goes wrong, once: the first failure, another one, the recovery."""

from __future__ import annotations

import contextlib
import sys

from kimisvc.errors import KimisvcError


class Troubles:
    """What was said last about whom; it is not said again."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, whose: str, trouble: str) -> None:
        """Given whom it is about and what is wrong ("": nothing any more), write a line if that is new.

        A journal that is gone is no reason to stop watching.
        """
        if self._said.get(whose, "") == trouble:
            return
        self._said[whose] = trouble
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{whose}: {trouble or 'can be read again'}\n")


def words_of(error: Exception) -> str:
    """Given what a reading raised, return what the journal says of it, with what mends it."""
    if isinstance(error, KimisvcError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    return f"unexpected {type(error).__name__}: {error}"
