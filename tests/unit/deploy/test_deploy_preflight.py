"""The preflight as a whole: a good host passes, each check runs, warnings refuse nothing."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from staged_host import Nvml

from kimisvc.deploy import preflight
from kimisvc.deploy.checks.inspection import Finding, Looked, Unseen, not_asked, visible, warning
from kimisvc.errors import HostError
from kimisvc.host.gpu import Gpu
from kimisvc.host.reach import ANYBODY
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Profile

if TYPE_CHECKING:
    from good_host import Host

    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.records.profile import ArgValue

SIX = tuple(Gpu(n, "X", 1, 0, (), f"GPU-{n}abc") for n in range(6))


def test_a_good_host_has_nothing_in_the_way(host: Host) -> None:
    assert host.all() == ()


UNSEEN: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("vLLM version", {"executable": "/no/vllm", "min_version": "1"}, "there is no /no/vllm"),
    ("model", {"model": "org/name"}, "org/name is a name on a hub"),
    ("model files", {"model": "org/name"}, "org/name is a name on a hub"),
    ("model files", {"model": "/nowhere"}, "there is no /nowhere"),
)


@pytest.mark.parametrize(("check", "vllm", "why"), UNSEEN)
def test_what_was_not_looked_at_is_not_called_in_order(
    host: Host, check: str, vllm: dict[str, Any], why: str
) -> None:
    host.vllm(**vllm)
    assert host.unseen(check).startswith(why)


@pytest.mark.parametrize(
    "check", ["tools", "driver", "GPUs", "GPU nodes", "GPU link", "GPU processes"]
)
def test_a_profile_without_gpus_asks_for_no_check_of_them(host: Host, check: str) -> None:
    host.hardware(gpus=0)
    assert host.not_asked(check) == "the profile asks for no GPUs"


def test_a_profile_that_asks_for_no_version_is_not_called_unseen(host: Host) -> None:
    assert host.not_asked("vLLM version") == "the profile asks for no version"
    host.vllm(min_version="0.1")
    assert host.not_asked("vLLM version") == ""


def test_what_could_not_be_seen_goes_before_what_was_not_asked_for(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Problem | Unseen] = [not_asked("no wish"), Unseen("it is dark"), Unseen("and far")]
    monkeypatch.setattr(preflight, "CHECKS", (("half", lambda _: told),))
    dark = Finding("half", (), "it is dark; and far", Looked.NO)
    assert preflight.examine(host.inspected()) == (dark,)
    told.append(Problem("bad"))
    assert preflight.examine(host.inspected()) == (Finding("half", (Problem("bad"),)),)


def test_without_a_driver_nothing_of_the_gpus_was_looked_at(host: Host) -> None:
    assert {host.unseen(name) for name, _ in preflight.CHECKS if "GPU" in name} == {""}
    shutil.rmtree(host.root / "proc" / "driver")
    host.nvml = Nvml()
    assert host.unseen("driver") == "no NVIDIA kernel module is loaded"
    for check in ("GPU nodes", "GPU link", "GPU processes"):
        assert host.unseen(check) == "no GPU to look at"
    assert "needs 8 GPUs" in host.error("GPUs")


def test_what_is_in_the_way_is_told_beside_what_was_not_seen(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_: Inspection) -> list[Problem | Unseen]:
        return [Unseen("it is dark"), Problem("bad")]

    monkeypatch.setattr(preflight, "CHECKS", (("half", half),))
    assert preflight.examine(host.inspected()) == (Finding("half", (Problem("bad"),)),)


def test_everything_that_is_wrong_is_told_at_once(host: Host) -> None:
    host.vllm(executable="/opt/nowhere/vllm", model="/nowhere")
    host.hardware(gpus=9, ram_gib=5000)
    keys = {problem.key for problem in host.all()}
    assert keys == {"vllm.executable", "vllm.model", "hardware.gpus", "hardware.ram_gib"}


@pytest.mark.parametrize(
    "error",
    [
        HostError("file-error", "/dev/shm: Input/output error"),
        OSError(errno.EIO, "Input/output error", "/dev/shm"),
    ],
)
def test_a_door_that_fails_costs_only_its_check(
    host: Host, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(_: Inspection) -> list[Problem]:
        raise error

    monkeypatch.setattr(preflight, "CHECKS", (("broken", broken), *preflight.CHECKS))
    host.hardware(ram_gib=90_000)
    assert [problem.message for problem in host.all()] == [
        "/dev/shm: Input/output error", "needs 90000 GiB of memory, this box has 1100.0",
    ]  # fmt: skip


def test_a_finding_refuses_by_its_errors_alone() -> None:
    assert not Finding("x").refuses
    assert not Finding("x", (warning("odd"),)).refuses
    assert Finding("x", (warning("odd"), Problem("bad"))).refuses


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, [4, 5]),
        ({"CUDA_VISIBLE_DEVICES": " 5 , 0"}, [5, 0]),
        ({"CUDA_VISIBLE_DEVICES": "0,9,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-3ab,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, []),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, [0, 1, 2, 3, 4, 5]),
        ({"CUDA_VISIBLE_DEVICES": "4", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_gpus_as_cuda_shows_them(env: dict[str, str], shown: list[int]) -> None:
    assert [one.index for one in visible(SIX, env)] == shown


def test_who_the_service_runs_as(host: Host) -> None:
    assert host.inspected().viewer == ANYBODY
    host.service(user="root")
    assert host.inspected().viewer.uid == 0
    host.service(user="no-such-user")
    assert host.inspected().viewer == ANYBODY


@pytest.mark.parametrize(
    ("args", "gpus", "ranks"),
    [
        ({"tensor-parallel-size": 8}, 8, 8),
        ({"tensor_parallel_size": 4, "pipeline-parallel-size": 2}, 0, 8),
        ({"tp": 2}, 0, 2),
        ({"tensor-parallel-size": "8"}, 0, 8),
        ({"tensor-parallel-size": 8, "nnodes": 2}, 4, 8),
        ({}, 0, 0),
        ({}, 1, 1),
        ({"tensor-parallel-size": "x"}, 0, 0),
    ],
)
def test_how_many_work_together(
    host: Host, args: dict[str, ArgValue], gpus: int, ranks: int
) -> None:
    host.profile = Profile("p", host.profile.vllm, args=args)
    host.hardware(gpus=gpus)
    assert host.inspected().ranks == ranks
