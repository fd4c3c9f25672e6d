"""Finds the unit templates and profiles that ship with kimisvc.

A wheel carries them inside the package; a checkout has them at its top level.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(kind: str) -> Path:
    """Given "units" or "profiles", return the folder that holds what this kimisvc ships."""
    packed = _PACKAGE / "_shipped" / kind
    return packed if packed.is_dir() else _PACKAGE.parent / kind
