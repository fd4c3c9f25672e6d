"""Looks at the host before a load is begun: what would fail late has to fail now. Changes nothing.

Each check reads through a door, decides, and yields what stands in the way;
all of them are asked, so that an operator mends everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.checks import (
    files,
    gpus,
    host,
    manager,
    memory,
    model,
    nccl,
    secrets,
    vllm,
    writable,
)
from kimisvc.deploy.checks.inspection import Finding, Inspection, Looked, Unseen
from kimisvc.errors import KimisvcError
from kimisvc.host import gpu
from kimisvc.records.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimisvc.records.profile import Profile
    from kimisvc.records.units import Installation

    Check = Callable[[Inspection], Iterator[Problem | Unseen]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("vLLM", vllm.executable),
    ("vLLM version", vllm.version),
    ("kimisvc", vllm.kimisvc),
    ("tools", vllm.tools),
    ("model", model.reachable),
    ("model files", model.complete),
    ("option files", files.of_options),
    ("write access", writable.folders),
    ("port", host.port),
    ("user", host.user),
    ("start folder", host.start_folder),
    ("secrets", secrets.secrets),
    ("units", host.masked),
    ("disk", host.disk),
    ("limits", host.kernel_limits),
    ("memory", memory.memory),
    ("shared memory", memory.shm),
    ("driver", gpus.driver),
    ("GPUs", gpus.gpus),
    ("GPU nodes", gpus.nodes),
    ("GPU link", gpus.link),
    ("GPU processes", gpus.occupied),
    ("other vLLMs", gpus.vllm_processes),
    ("NCCL version", nccl.version),
    ("NCCL files", nccl.leaks),
    ("environment", manager.leaks),
)
"""Every check and what it looks at, in the order `doctor` shows them."""


def examine(about: Inspection) -> tuple[Finding, ...]:
    """Given a profile and its host, ask every check. A door that fails costs only its check."""
    return tuple(_found(name, _ask(check, about)) for name, check in CHECKS)


def preflight(
    profile: Profile, place: Installation, survey: gpu.Survey | gpu.NoGpus | None = None
) -> tuple[Problem, ...]:
    """Given a checked profile and where kimisvc lives, return all that is odd, or in its way, here.

    A warning refuses nothing. NVML is asked, unless its survey is given.
    """
    found = examine(Inspection(profile, place, survey or gpu.survey()))
    return tuple(problem for finding in found for problem in finding.problems)


def _found(name: str, told: tuple[Problem | Unseen, ...]) -> Finding:
    """What is in the way is told, whatever else could not be seen; that, whatever was not asked for."""
    problems = tuple(one for one in told if isinstance(one, Problem))
    for looked in (Looked.NO, Looked.NOT_ASKED):
        why = [one.why for one in told if isinstance(one, Unseen) and one.looked is looked]
        if why and not problems:
            return Finding(name, (), "; ".join(why), looked)
    return Finding(name, problems)


def _ask(check: Check, about: Inspection) -> tuple[Problem | Unseen, ...]:
    """What a check yields; a door that is shut to who asks is nothing that it saw."""
    told: list[Problem | Unseen] = []
    try:
        told.extend(check(about))
    except KimisvcError as error:
        blind = isinstance(error.__cause__, PermissionError)
        told.append(Unseen(error.message) if blind else Problem(error.message))
    except PermissionError as error:
        told.append(Unseen(f"{error.filename}: {error.strerror}"))
    except OSError as error:  # a disk that fails, a folder that goes while it is read
        told.append(Problem(f"{error.filename}: {error.strerror}"))
    return tuple(told)
