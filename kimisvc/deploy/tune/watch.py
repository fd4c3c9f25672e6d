"""Follows a search that its unit carries out. Only looks: a watcher who is lost changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.follow import read_progress
from kimisvc.deploy.tune.meanwhile import down
from kimisvc.deploy.tune.state import read_state
from kimisvc.errors import ExitStatus, KimisvcError

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.tune.state import TuneState
    from kimisvc.records.progress import Progress

TICK = 0.5
PATIENCE = 15.0
"""How long the unit may be down before a watcher believes it (s); it is started again after 5."""


class SearchGoesOnError(KimisvcError):
    """The operator stopped watching (Ctrl-C); the search goes on without one."""

    exit_status = ExitStatus.INTERRUPTED


def watch(box: Box, reporter: Reporter) -> TuneState:
    """Given a box, follow its search to its end and return it.

    Raise SearchGoesOnError on Ctrl-C, KimisvcError where there is no search or
    its unit has given up.
    """
    try:
        return _watch(box, reporter)
    except KeyboardInterrupt:
        name = box.layout.instance
        raise SearchGoesOnError(
            "left-at-work",
            "left; the search goes on without you",
            hint=f"kimisvc tune --follow --instance {name} watches it again, --cancel ends it",
        ) from None


def _watch(box: Box, reporter: Reporter) -> TuneState:
    told = 0.0
    shown: Progress | None = None
    down_since: float | None = None
    while True:
        state = read_state(box.layout)
        if state is None:
            raise KimisvcError("no-search", f"there is no search of {box.layout.instance}")
        for line in [line for line in state.log if line[0] > told]:
            reporter.step(line[1])
        told = max((line[0] for line in state.log), default=told)
        if state.ended is not None:
            return state
        progress = read_progress(box.layout)
        if progress is not None and progress != shown:
            shown = progress
            reporter.progress(progress)
        halted = down(box)
        if halted is None:
            down_since = None
        else:
            down_since = down_since or box.clock()
            if box.clock() - down_since > PATIENCE:
                raise KimisvcError(
                    "search-stopped",
                    f"the search is not at its end, and {halted.words}",
                    hint=halted.hint,
                )
        box.sleep(TICK)
