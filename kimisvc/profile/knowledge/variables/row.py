"""What is known of one environment variable: the row that the tables of variables are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.profile.knowledge.variables.grammar import Grammar
    from kimisvc.records.profile import Risk

NCCL_GUIDE = "NCCL user guide, Environment Variables"
"""The document most rows are from, read in the edition of NCCL 2.32."""


class ActsOn(Enum):
    """What a variable changes; where a profile leaves none of that, its value has no effect."""

    COLLECTIVES = "the collectives of NCCL"
    SIMPLE = "the Simple protocol of NCCL"
    LL = "the LL protocol of NCCL"
    LL128 = "the LL128 protocol of NCCL"
    P2P = "direct access between GPUs"
    NVLINK = "NVLink and NVSwitch"
    NETWORK = "the network between boxes"
    START = "how NCCL starts"
    LOG = "what is logged"
    CUDA = "CUDA"
    PROCESS = "the whole process"

    @property
    def tunes(self) -> bool:
        """Whether it changes how NCCL moves data between the GPUs of one box."""
        return self in _TUNING


_TUNING = frozenset(
    {ActsOn.COLLECTIVES, ActsOn.SIMPLE, ActsOn.LL, ActsOn.LL128, ActsOn.P2P, ActsOn.NVLINK}
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: what it does, what it takes, and what it may cost.

    `syntax` None: any text. `harmless` values are safe whatever `risk` says
    (defaults, for the most part). `empty` says what an empty value means where it
    is not as good as none. `since` and `removed` are versions of its
    library, `instead` is what to write where the variable is deprecated or
    removed, `changed` says what later versions read differently.
    """

    name: str
    does: str
    syntax: Grammar | None
    risk: Risk
    why: str
    acts_on: ActsOn = ActsOn.COLLECTIVES
    document: str = NCCL_GUIDE
    harmless: tuple[str, ...] = ()
    empty: str = ""
    since: str = ""
    removed: str = ""
    deprecated: str = ""
    instead: str = ""
    changed: str = ""

    @property
    def ages(self) -> str:
        """Since when it is read, what versions read differently, and since when it is not; or ""."""
        old = self.removed or self.deprecated
        what = "without effect" if self.removed else "deprecated"
        words = (
            f"since {_versioned(self.since)}" if self.since else "",
            self.changed,
            f"{what} since {_versioned(old)}" if old else "",
            f"use {self.instead}" if self.instead else "",
        )
        told = "; ".join(word for word in words if word)
        return f"{told[0].upper()}{told[1:]}." if told else ""

    @property
    def source(self) -> str:
        """The document and the place in it that say so."""
        return f"{self.document}, {self.name}"


def _versioned(version: str) -> str:
    """A version with its library, which is NCCL where none is said."""
    return version if " " in version else f"NCCL {version}"
