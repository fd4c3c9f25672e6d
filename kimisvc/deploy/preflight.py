"""Looks at the host before a load is begun: what would fail late has to fail now. Changes nothing.

Each check reads through a door, decides, and yields what stands in the way;
all of them are asked, so that an operator mends everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy import (
    checks_files,
    checks_gpu,
    checks_host,
    checks_memory,
    checks_model,
    checks_nccl,
    checks_secrets,
    checks_vllm,
)
from kimisvc.deploy.inspection import Finding, Inspection
from kimisvc.errors import KimisvcError
from kimisvc.host import gpu
from kimisvc.records import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimisvc.records import Installation, Profile

    Check = Callable[[Inspection], Iterator[Problem]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("vLLM", checks_vllm.executable),
    ("vLLM version", checks_vllm.version),
    ("kimisvc", checks_vllm.kimisvc),
    ("tools", checks_vllm.tools),
    ("model", checks_model.reachable),
    ("model files", checks_model.complete),
    ("option files", checks_files.of_options),
    ("port", checks_host.port),
    ("user", checks_host.user),
    ("secrets", checks_secrets.secrets),
    ("units", checks_host.masked),
    ("disk", checks_host.disk),
    ("limits", checks_host.kernel_limits),
    ("memory", checks_memory.memory),
    ("shared memory", checks_memory.shm),
    ("driver", checks_gpu.driver),
    ("GPUs", checks_gpu.gpus),
    ("GPU nodes", checks_gpu.nodes),
    ("GPU link", checks_gpu.link),
    ("GPU processes", checks_gpu.occupied),
    ("other vLLMs", checks_gpu.vllm_processes),
    ("NCCL files", checks_nccl.leaks),
)
"""Every check and what it looks at, in the order `doctor` shows them."""


def examine(about: Inspection) -> tuple[Finding, ...]:
    """Given a profile and its host, ask every check. A door that fails costs only its check."""
    return tuple(Finding(name, _ask(check, about)) for name, check in CHECKS)


def preflight(
    profile: Profile, place: Installation, survey: gpu.Survey | gpu.NoGpus | None = None
) -> tuple[Problem, ...]:
    """Given a checked profile and where kimisvc lives, return all that is odd, or in its way, here.

    A warning refuses nothing. NVML is asked, unless its survey is given.
    """
    found = examine(Inspection(profile, place, survey or gpu.survey()))
    return tuple(problem for finding in found for problem in finding.problems)


def _ask(check: Check, about: Inspection) -> tuple[Problem, ...]:
    try:
        return tuple(check(about))
    except KimisvcError as error:
        return (Problem(error.message),)
    except OSError as error:  # a disk that fails, a folder that goes while it is read
        return (Problem(f"{error.filename}: {error.strerror}"),)
