"""Check of NCCL's configuration files: what they set reaches a profile that does not say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import warning
from kimisvc.host import nccl_conf, reach
from kimisvc.profile.knowledge.variables.row import ActsOn
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.secret_signs import secret_in
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Risk

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
        unseen = reach.why_unreachable(path, about.viewer)
        if unseen or found.why_not:
            yield from _unread(path, unseen or found.why_not, chosen)
            continue
        for name, value in found.variables.items():
            if name not in known:
                known.add(name)  # the first file counts
                yield _leak(about, path, name, value)


def _unread(path: Path, why: str, chosen: str) -> Iterator[Problem]:
    """What NCCL waits for, or was told to read and does not; a usual file may be missing."""
    if nccl_conf.is_waited_for(path):
        yield Problem(
            f"{path} is a named pipe, and NCCL would wait for what is written there; remove it",
            key=f"env.{nccl_conf.CHOSEN_BY}" if str(path) == chosen else "env",
        )
    elif str(path) == chosen:
        yield Problem(
            f"{why}; NCCL would say nothing and go on without it", key=f"env.{nccl_conf.CHOSEN_BY}"
        )


def _paths(about: Inspection, chosen: str) -> tuple[Path, ...]:
    home = nccl_conf.home_of(about.profile.service.user)
    staged = about.root / home.relative_to("/") if home else None
    return nccl_conf.conf_paths(chosen, staged, about.root)


def _leak(about: Inspection, path: Path, name: str, value: str) -> Problem:
    words = f"{about.profile.name} would run with {shown(name, value)} from {path}"
    if (
        is_harmless(name)
        or about.ranks <= 1
        or str(path) == about.profile.env.get("NCCL_CONF_FILE")
    ):
        return warning(words, "env")
    return Problem(f"{words}; write it into [env], or take it out of there", key="env")


def shown(name: str, value: str) -> str:
    """Given a variable and its value, return them, and of one that may be a secret the name."""
    tunes = name.startswith(("NCCL_", "CUDA_"))
    return f"{name}={value}" if tunes and not secret_in(name, value) else name


def is_harmless(name: str) -> bool:
    """Given a variable, return whether it changes no figure on one box.

    Of how NCCL starts only what loads no code.
    """
    row = VARIABLES.get(name)
    if row is None:
        return False
    return row.acts_on in HARMLESS or (row.acts_on is ActsOn.START and row.risk is Risk.SAFE)
