"""Check of NCCL's configuration files: what they set reaches a profile that does not say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import warning
from kimisvc.host import nccl_conf, reach
from kimisvc.profile.knowledge.variables.row import ActsOn
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.records import Problem, Risk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kimisvc.deploy.checks.inspection import Inspection

HARMLESS = frozenset((ActsOn.LOG, ActsOn.NETWORK))
"""What changes no figure on one box: logging, and the network to others."""


def leaks(about: Inspection) -> Iterator[Problem]:
    """Yield each variable that a file sets and the profile does not.

    An error where GPUs work together: a baseline with NCCL_PROTO=LL from a
    forgotten file is none, and what is compared with it is compared with
    nothing. The service sees neither files in /home nor those it may not read.
    """
    env, known = about.profile.env, set(about.profile.env)
    chosen = env.get(nccl_conf.CHOSEN_BY, "")
    for path in _paths(about, chosen):
        found = nccl_conf.read(path)
        why = reach.why_unreachable(path, about.viewer) or found.why_not
        if why:
            if str(path) == chosen:
                yield Problem(
                    f"{why}; NCCL would say nothing and go on without it",
                    key=f"env.{nccl_conf.CHOSEN_BY}",
                )
            continue
        for name, value in found.variables.items():
            if name not in known:
                known.add(name)  # the first file counts
                yield _leak(about, path, f"{name}={value}", name)


def _paths(about: Inspection, chosen: str) -> tuple[Path, ...]:
    home = nccl_conf.home_of(about.profile.service.user)
    staged = about.root / home.relative_to("/") if home else None
    return nccl_conf.conf_paths(chosen, staged, about.root)


def _leak(about: Inspection, path: Path, setting: str, name: str) -> Problem:
    shown = setting if name.startswith(("NCCL_", "CUDA_")) else name  # others may be secrets
    words = f"{about.profile.name} would run with {shown} from {path}"
    if (
        _is_harmless(name)
        or about.ranks <= 1
        or str(path) == about.profile.env.get("NCCL_CONF_FILE")
    ):
        return warning(words, "env")
    return Problem(f"{words}; write it into [env], or take it out of there", key="env")


def _is_harmless(name: str) -> bool:
    """Whether a variable changes no figure here; of how NCCL starts only what loads no code."""
    row = VARIABLES.get(name)
    if row is None:
        return False
    return row.acts_on in HARMLESS or (row.acts_on is ActsOn.START and row.risk is Risk.SAFE)
