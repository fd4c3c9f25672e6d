"""Asks the installed vLLM what it is, without starting it where that can be helped.

Starting vLLM costs seconds of imports; its version stands in the metadata of
its virtual environment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.host.processes import run

if TYPE_CHECKING:
    from pathlib import Path

ASK_TIMEOUT = 120.0
_VERSION = re.compile(r"\b(\d+\.\d+[\w.+]*)")


def vllm_version(executable: Path) -> str | None:
    """Given the vllm program, return the version that is installed; None if nothing tells."""
    for site in sorted(executable.parent.parent.glob("lib/python3.*/site-packages")):
        for metadata in sorted(site.glob("vllm-*.dist-info")):
            return metadata.name.removeprefix("vllm-").removesuffix(".dist-info")
    try:
        done = run([str(executable), "--version"], timeout=ASK_TIMEOUT)
    except KimisvcError:
        return None
    found = _VERSION.search(done.stdout)
    return found[1] if done.status == 0 and found else None
