"""Words that vLLM chooses from: how it compares them, and which one was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MANY_SHOWN = 12
_LONG = 8
"""Characters from which on names share whole words without meaning the same: `fuse_..._norm`."""
_ALIKE, _LONG_ALIKE = 0.6, 0.8
"""How alike two short words, and two long ones, must be for one to be meant by the other."""


def meant(word: str, known: Sequence[str]) -> str:
    """Given a word that is not among those known, return what was meant, or which there are."""
    from difflib import get_close_matches  # only a profile with a problem pays

    low = {other.lower(): other for other in known}
    near = [name for name in low if word and name.startswith(word.lower())]
    alike = _LONG_ALIKE if len(word) >= _LONG else _ALIKE
    near = near or get_close_matches(word.lower(), low, 1, alike)
    if near and len(near) <= _MANY_SHOWN:
        return f"Did you mean {' or '.join(low[name] for name in near)}?"
    rest = len(known) - _MANY_SHOWN
    return f"There are: {', '.join(known[:_MANY_SHOWN])}" + (
        f" and {rest} more" if rest > 0 else ""
    )


def folded(word: str) -> str:
    """Given a word that is taken in any case, return it as such are compared."""
    return word.lower().replace("-", "_")
