"""What every check of the host gets, and what it finds: the values of the preflight.

The doors are asked under one root folder, so that a bad host can be staged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.host import gpu, hidden, processes, reach
from kimisvc.profile.knowledge.parallelism import gpus_used
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.units import Installation, UnitNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kimisvc.records.profile import Profile

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
BY_ADDRESS = "PCI_BUS_ID"
"""NVML's own order, and what kimisvc sets where the profile does not say."""


class Looked(Enum):
    """Whether a check looked at what it is for; what it did not see, nobody can call in order.

    NOT_ASKED: the profile asks for nothing of the kind, so there is nothing to be found out.
    """

    YES = "looked at"
    NO = "not looked at"
    NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Unseen:
    """What a check yields in place of problems where it looked at nothing, and why.

    `looked` is NO where it could not see what may be wrong all the same, NOT_ASKED where the
    reason lies in the profile, and whoever sees more would find nothing to look at either.
    """

    why: str
    looked: Looked = Looked.NO


def not_asked(why: str) -> Unseen:
    """Given what the profile does not ask for, in words, return that there was nothing to look at."""
    return Unseen(why, Looked.NOT_ASKED)


NO_GPUS_WANTED = not_asked("the profile asks for no GPUs")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: nothing in `problems` means that what it looked at is in order.

    `said` is what it saw, or why it saw nothing; empty where there is nothing to say.
    """

    check: str
    problems: tuple[Problem, ...] = ()
    said: str = ""
    looked: Looked = Looked.YES

    @property
    def refuses(self) -> bool:
        """Whether it stands in the way: a warning does not."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A checked profile and the host it is to run on: what all checks are asked about."""

    profile: Profile
    place: Installation
    survey: gpu.Survey | gpu.NoGpus
    root: Path = field(default=Path("/"))

    @property
    def proc(self) -> Path:
        """The folder of processes."""
        return self.root / "proc"

    @property
    def service(self) -> str:
        """Our own service: what belongs to it is stopped before the load."""
        return UnitNames.of(self.profile.service.instance).service

    @property
    def viewer(self) -> reach.Viewer:
        """Who vLLM runs as: the user of the profile, or one that systemd makes up."""
        user = self.profile.service.user
        ids = processes.user_ids(user) if user else None
        return reach.ANYBODY if ids is None else reach.Viewer(ids[0], processes.group_ids(user))

    @property
    def ranks(self) -> int:
        """How many GPUs work together; 0 where the profile does not say."""
        used = gpus_used(self.profile.args) or 1
        return max(self.profile.hardware.gpus, used if used > 1 else 0)

    def is_ours(self, pid: int) -> bool:
        """Given a process, say whether it belongs to our own service."""
        return processes.unit_of(pid, self.proc) == self.service

    @property
    def may_run(self) -> bool:
        """Whether our own service has processes, or may have some that are hidden from who asks."""
        return processes.runs(self.service, self.proc) or hidden.hides_others(self.proc)

    def gpus(self) -> tuple[gpu.Gpu, ...]:
        """Return the GPUs that vLLM will be shown and that the profile asks for."""
        if isinstance(self.survey, gpu.NoGpus):
            return ()
        shown = tuple(visible(self.survey.gpus, self.profile.env))
        return shown[: self.profile.hardware.gpus]


def visible(gpus: tuple[gpu.Gpu, ...], env: Mapping[str, str]) -> Iterator[gpu.Gpu]:
    """Given the GPUs of a box and [env], yield those that CUDA shows, in its order.

    The first entry that names none ends the list (CUDA C++ programming guide,
    "CUDA environment variables"). Where CUDA would order them by speed, or
    slices of GPUs are named, all are taken: that cannot be told here.
    """
    wanted = env.get(VISIBLE)
    if wanted is None or env.get(ORDER, BY_ADDRESS) != BY_ADDRESS or "MIG-" in wanted:
        yield from gpus
        return
    for entry in (part.strip() for part in wanted.split(",")):
        found = [
            one for one in gpus if entry and (str(one.index) == entry or one.uuid.startswith(entry))
        ]
        if len(found) != 1:
            return
        yield found[0]


def warning(message: str, key: str = "") -> Problem:
    """Given what is odd but refuses nothing, return it as a problem."""
    return Problem(message, key=key, severity=Severity.WARNING)


def few(words: Sequence[str], most: int, rest: str = "more") -> str:
    """Given words, return the first `most` of them as a list, and how many `rest` there are."""
    more = f" and {len(words) - most} {rest}" if len(words) > most else ""
    return ", ".join(words[:most]) + more
