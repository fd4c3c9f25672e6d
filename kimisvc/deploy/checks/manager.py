"""Check of systemd's own environment: every service has it, and no unit tells of it.

`systemctl set-environment` and DefaultEnvironment= reach vLLM as a forgotten
nccl.conf does; Environment= and EnvironmentFile= of the unit win over them
(systemd.exec(5), "Environment variables in spawned processes").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import Unseen, warning
from kimisvc.deploy.checks.nccl import is_harmless, shown
from kimisvc.errors import NoSystemdError
from kimisvc.host import secrets_file, systemd
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.secret_signs import SETTINGS, names_a_secret
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Risk
from kimisvc.render.units import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.deploy.checks.inspection import Inspection

_OF_THE_PROCESS = re.compile(
    r"LD_[A-Z_]+|PYTHON(?:PATH|HOME|USERBASE|MALLOC|OPTIMIZE)|GLIBC_TUNABLES|(?:MKL|KMP)_\w+"
)
"""Beside what is known of NCCL, CUDA, vLLM and their like: what code is loaded, how memory is taken."""


def leaks(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each variable of systemd's own that tunes vLLM, and that the profile does not set."""
    try:
        with systemd.Systemd(about.root / systemd.RUNNING.relative_to("/")) as manager:
            given = manager.environment()
    except NoSystemdError:
        yield Unseen("systemd does not run here")  # nothing starts, so nothing leaks
        return
    ours = {*environment(about.profile), *_of_the_secrets_file(about)}
    for name, value in given.items():
        if name not in ours and _matters(name):
            yield _leak(about, name, value)


def _matters(name: str) -> bool:
    return name in VARIABLES or any(p.fullmatch(name) for p in (SETTINGS, _OF_THE_PROCESS))


def _of_the_secrets_file(about: Inspection) -> Mapping[str, str]:
    path = about.profile.service.secrets_file
    return secrets_file.variables(secrets_file.contents(Path(path))) if path else {}


def _leak(about: Inspection, name: str, value: str) -> Problem:
    words = (
        f"{about.profile.name} would run with {shown(name, value)} from systemd's own environment "
        "(systemctl show-environment)"
    )
    alone = name.startswith("NCCL_") and about.ranks <= 1
    without_gpus = name.startswith("CUDA_") and not about.ranks
    if is_harmless(name) or _is_a_hubs_or_pythons(name) or alone or without_gpus:
        return warning(words, "env")
    where = "the secrets file" if names_a_secret(name) else "[env]"
    return Problem(
        f"{words}; write it into {where}, or take it out of there: systemctl unset-environment "
        f"{name}, or DefaultEnvironment= in system.conf",
        key="env",
    )


def _is_a_hubs_or_pythons(name: str) -> bool:
    """Whether a variable only says how models are fetched, or what changes no figure of Python's."""
    row = VARIABLES.get(name)
    safe = row is not None and row.risk is Risk.SAFE
    return name.startswith("HF_") or (safe and name.startswith("PYTHON"))
