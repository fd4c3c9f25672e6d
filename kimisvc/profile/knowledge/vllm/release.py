"""Versions of vLLM, to be compared."""

from __future__ import annotations

import re

_UNTAGGED = re.compile(r"0\.1\.dev")
"""What a build from a checkout without tags calls itself (setuptools_scm): it says nothing."""


def release(version: str) -> tuple[int, ...]:
    """Given a version, return its release numbers: 0.32.0+cpu and 0.32.0rc1 give (0, 32, 0).

    () where it says none.
    """
    found = re.match(r"\d+(\.\d+)*", version)
    if found is None or _UNTAGGED.match(version):
        return ()
    return tuple(int(part) for part in found[0].split("."))
