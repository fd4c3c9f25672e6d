"""Sets a damaged history aside for an operator's command, and tells that it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter


def mend_history(box: Box, reporter: Reporter) -> None:
    """Given a box, set its history aside where that is damaged, and say so. Raise KimisvcError."""
    damaged = box.history.mend(box.now())
    if damaged is not None:
        reporter.step(f"warning: the history is damaged; kept as {damaged}, a new one begins")
