"""Whether the server of an instance may be measured now, and what is said where it may not.

What `bench` and `probe` look at first: a server that loads listens nowhere, and one that was
stopped does not either. Neither is a fault of the server, and no figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import AT_WORK
from kimisvc.errors import KimisvcError, LockedError
from kimisvc.host import locks

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation
    from kimisvc.records.profile import Profile


@dataclass(frozen=True, slots=True)
class Target:
    """The instance that is measured: its generation, profile and the start that runs."""

    generation: Generation
    profile: Profile
    invocation: str


def target_of(box: Box) -> Target:
    """Given a box, return what runs on it and is at rest.

    Raise KimisvcError where nothing does, LockedError while its gate is at work: the server
    loads then (the unit counts as active as soon as vLLM was executed), or is measured already.
    """
    current = box.generations.current()
    if current is None:
        raise KimisvcError("nothing-applied", f"{box.layout.instance}: nothing was applied here")
    names = box.layout.units
    service = box.systemd.state(names.service)
    if service.active_state != "active":
        moves = service.active_state in AT_WORK
        raise KimisvcError(
            "not-running",
            f"{service.name} is {service.active_state}",
            hint=_watch(box) if moves else "kimisvc apply starts it",
        )
    gate = box.systemd.state(names.gate)
    # One that is deactivating has measured and only settles; `apply` may have ended with its verdict.
    awaited = gate.job and gate.active_state != "deactivating"
    if awaited or gate.active_state == "activating":
        raise LockedError(
            "gate-at-work",
            f"{gate.name} is at work: the server loads, or is being measured",
            hint=_watch(box),
        )
    return Target(current, current.settings(), service.invocation_id)


def free_target_of(box: Box) -> Target:
    """Given a box, return what runs on it and nobody works on; take no lock.

    Raise LockedError while another command is at work, which others than root may not see,
    and what `target_of` raises.
    """
    locks.refuse_held(box.layout.operator_lock)
    return target_of(box)


def _watch(box: Box) -> str:
    return f"watch it with: kimisvc status --follow --instance {box.layout.instance}"
