"""What bench and probe say of a server that cannot be measured now: one word for both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from deploy_support import Quiet, add_generation, box_at, profile

from kimisvc.deploy.measurable import free_target_of, target_of
from kimisvc.errors import KimisvcError, LockedError
from kimisvc.host import locks

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.units import UnitState

WATCH = "watch it with: kimisvc status --follow --instance kimi"


def box(folder: Path, **states: str) -> Box:
    made = box_at(folder, Quiet(**states))
    add_generation(made, profile("base"))
    made.generations.make_current(made.generations.get(1))
    return made


@pytest.mark.parametrize("gate", ["inactive", "failed", "deactivating"])
def test_one_that_runs_and_is_at_rest_is_measured(tmp_path: Path, gate: str) -> None:
    found = free_target_of(box(tmp_path, kimisvc_kimi="active", kimisvc_kimi_gate=gate))
    assert (found.generation.number, found.profile.name, found.invocation) == (1, "base", "running")


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("inactive", "kimisvc apply starts it"),
        ("failed", "kimisvc apply starts it"),
        ("activating", WATCH),  # it waits for its automatic restart
        ("deactivating", WATCH),
    ],
)
def test_one_that_does_not_run(tmp_path: Path, state: str, hint: str) -> None:
    with pytest.raises(KimisvcError) as refused:
        target_of(box(tmp_path, kimisvc_kimi=state))
    assert refused.value.message == f"kimisvc-kimi.service is {state}"
    assert (refused.value.hint, refused.value.exit_status) == (hint, 1)


class Queued(Quiet):
    """A systemd that has a job for the gate."""

    def state(self, unit: str) -> UnitState:
        found = super().state(unit)
        return replace(found, job=7) if "gate" in unit else found


@pytest.mark.parametrize(
    ("systemd", "gate"), [(Quiet, "activating"), (Queued, "inactive"), (Queued, "failed")]
)
def test_one_whose_gate_is_at_work_or_awaited_loads_or_is_measured(
    tmp_path: Path, systemd: type[Quiet], gate: str
) -> None:
    box(tmp_path)
    made = box_at(tmp_path, systemd(kimisvc_kimi="active", kimisvc_kimi_gate=gate))
    with pytest.raises(LockedError, match=r"kimisvc-kimi-gate\.service is at work") as refused:
        target_of(made)
    assert (refused.value.hint, refused.value.exit_status) == (WATCH, 75)


def test_a_gate_that_only_settles_hinders_nobody(tmp_path: Path) -> None:
    """Its start job is there until it is at rest; the verdict came before."""
    box(tmp_path)
    made = box_at(tmp_path, Queued(kimisvc_kimi="active", kimisvc_kimi_gate="deactivating"))
    assert target_of(made).generation.number == 1


def test_who_holds_the_lock_is_named_before_the_unit_is_looked_at(tmp_path: Path) -> None:
    made = box(tmp_path)
    with (
        locks.Lock(made.layout.operator_lock),
        pytest.raises(LockedError, match="another kimisvc is at work"),
    ):
        free_target_of(made)
    with pytest.raises(KimisvcError, match="inactive"):  # and no lock was kept by the look
        free_target_of(made)
