"""Checks of NCCL: files of its own that reach a profile which does not say so, and its version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import Unseen, not_asked, warning
from kimisvc.host import nccl_conf, reach, vllm_binary
from kimisvc.profile.knowledge.variables.row import ActsOn
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.profile.secret_signs import secret_in
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection

HARMLESS = frozenset((ActsOn.LOG, ActsOn.NETWORK))
"""What changes no figure on one box: logging, and the network to others."""


OTHER_LIBRARY = ("VLLM_NCCL_SO_PATH", "LD_PRELOAD", "LD_LIBRARY_PATH")
"""Variables that may put another NCCL in the place of the one beside vLLM."""


def version(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each variable that is younger than the NCCL beside vLLM, which ignores it."""
    env = about.profile.env
    young = {name: row.since for name in env if (row := VARIABLES.get(name)) and row.since}
    if not young:
        yield not_asked("no variable of the profile asks for a version")
        return
    other = [name for name in OTHER_LIBRARY if env.get(name)]
    found = vllm_binary.nccl_version(Path(about.profile.vllm.executable))
    if other or found is None:
        yield Unseen(f"{other[0]} may load another" if other else "no NCCL lies beside vLLM")
        return
    for name, since in young.items():
        if release(found) < release(since):
            yield warning(
                f"NCCL {found} lies beside vLLM and ignores it without a word: NCCL {since} is the"
                " first that reads it",
                f"env.{name}",
            )


def leaks(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each variable that a file sets and the profile does not.

    An error where GPUs work together: a baseline with NCCL_PROTO=LL from a
    forgotten file is none, and what is compared with it is compared with
    nothing. The service sees neither files in /home nor those it may not read.
    """
    env, known = about.profile.env, set(about.profile.env)
    chosen = env.get(nccl_conf.CHOSEN_BY, "")
    for path in _paths(about, chosen):
        found = nccl_conf.read(path)
        shut = reach.why_unreachable(path, about.viewer)
        if not shut and (unread := reach.why_unread(path)):
            yield Unseen(unread)
            continue
        if shut or found.why_not:
            yield from _unread(path, shut or found.why_not, chosen)
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
