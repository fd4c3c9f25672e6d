"""What a history does not tell: what it held is lost, or it has not taken all that happened. Only looks.

Asks no systemd: who only reads history need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.deploy.history.rows import ALL
from kimisvc.deploy.unkept import waiting_records, waiting_rollbacks
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from kimisvc.deploy.history import History
    from kimisvc.deploy.layout import Layout


class Memory(Enum):
    """Whether history could be asked; its words in JSON. MISSING: what it held is lost."""

    READ = "read"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Gaps:
    """How what a history held got lost ("": it did not), and how many verdicts and rollbacks wait for it."""

    lost: str = ""
    verdicts: int = 0
    rollbacks: int = 0

    @property
    def memory(self) -> Memory:
        """Whether history has what it once held."""
        return Memory.MISSING if self.lost else Memory.READ

    @property
    def waiting(self) -> int:
        """How many rows history has not taken yet."""
        return self.verdicts + self.rollbacks

    @property
    def words(self) -> str:
        """What is to be told of it, on one line; "" where nothing is missing."""
        said = [f"{self.lost}: what the history held is lost"] if self.lost else []
        if self.waiting:
            counted = ((self.verdicts, "verdict"), (self.rollbacks, "rollback"))
            what = " and ".join(f"{n} {name}{'s'[n == 1 :]}" for n, name in counted if n)
            said.append(f"the history has not taken {what} yet")
        return "; ".join(said)


WHOLE = Gaps()
"""Of a history that lacks nothing."""


def gaps(layout: Layout, history: History) -> Gaps:
    """Given where an instance lies and its history, return what that does not tell.

    Records of gates that may not be read here are not counted. Raise KimisvcError
    where the history cannot be read.
    """
    try:
        verdicts = len(waiting_records(layout))
    except KimisvcError:
        verdicts = 0
    return Gaps(lost(layout, history), verdicts, len(waiting_rollbacks(layout)))


def lost(layout: Layout, history: History) -> str:
    """Given where an instance lies and its history, say how what that held got lost; "" where it did not.

    A file that is gone is made anew by whoever writes next, be it a canary: so one that
    begins after the first apply is no better, until a gate has judged. Every generation
    became current by an apply that is kept before, and `prune` takes none of them out.
    Raise KimisvcError where the history cannot be read.
    """
    if not files.exists(layout.current):
        return ""
    if not files.exists(layout.history):
        return f"{layout.history} is not there"
    if history.verdicts(limit=1):
        return ""
    first = next(reversed(history.applies(ALL)), None)
    if first is not None and first.previous is None:
        return ""
    return f"{layout.history} was begun anew, and no gate has judged since"
