"""All that a report tells of one instance, read from its history at once, oldest first."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.contests import Contests, contests
from kimisvc.deploy.gaps import WHOLE
from kimisvc.observe.report.clock import Clock
from kimisvc.observe.report.words import plain
from kimisvc.records.proof import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gaps import Gaps
    from kimisvc.deploy.history import (
        ApplyRow,
        BenchRow,
        CanaryRow,
        RollbackRow,
        StartRow,
        VerdictRow,
        Which,
    )

MOST_EVENTS = 2000
"""Of the newest starts, verdicts, applies, rollbacks and benches each that a report looks at."""
MOST_CANARIES = 100_000


@dataclass(frozen=True, slots=True)
class Story:
    """The rows a report is made of, oldest first, their texts made plain; and where they stand.

    `profiles` are named by their newest start or verdict, newest first; `gaps` is what
    the history does not tell, for who looked.
    """

    instance: str
    made_at: float
    clock: Clock
    profiles: tuple[str, ...]
    starts: tuple[StartRow, ...]
    verdicts: tuple[VerdictRow, ...]
    applies: tuple[ApplyRow, ...]
    rollbacks: tuple[RollbackRow, ...]
    canaries: tuple[CanaryRow, ...]
    benches: tuple[BenchRow, ...]
    contests: Contests
    gaps: Gaps = WHOLE

    def moments(self) -> tuple[float, float]:
        """Return the first and the last moment of all events, by the clock that is believed."""
        placed = [self.clock.place(sequence, at) for sequence, at in _events(self)]
        return (min(placed), max(placed)) if placed else (self.made_at, self.made_at)


def read_story(box: Box, which: Which, now: float | None = None) -> Story:
    """Given a box and which rows of its history, return the story. Raise KimisvcError if unreadable.

    Profiles are compared by all of their history. `now` is Unix time, of this moment where it is not given.
    """
    made_at = time.time() if now is None else now
    history = box.history
    few = replace(which, limit=MOST_EVENTS)
    starts = tuple(replace(r, profile=plain(r.profile)) for r in reversed(history.find_starts(few)))
    verdicts = tuple(
        replace(
            row, profile=plain(row.profile),
            verdict=Verdict(row.verdict.kind, plain(row.verdict.reason)),
        )
        for row in reversed(history.find_verdicts(few))
    )  # fmt: skip
    canaries = history.find_canaries(replace(which, limit=MOST_CANARIES))
    story = Story(
        instance=box.layout.instance,
        made_at=made_at,
        clock=Clock((), made_at),
        profiles=(),
        starts=starts,
        verdicts=verdicts,
        applies=tuple(reversed(history.find_applies(few))),
        rollbacks=tuple(
            replace(row, reason=plain(row.reason)) for row in reversed(history.find_rollbacks(few))
        ),
        canaries=_named_plainly(reversed(canaries)),
        benches=tuple(reversed(history.find_benches(few))),
        contests=Contests(),
    )
    names = _profiles(story)
    return replace(
        story, clock=Clock(_events(story), made_at), profiles=names, contests=contests(box, names)
    )


def _named_plainly(rows: Iterable[CanaryRow]) -> tuple[CanaryRow, ...]:
    """Given canaries, make the names of their profiles plain; they are many, and few have to be."""
    names: dict[str, str] = {}
    made = []
    for row in rows:
        name = names.get(row.profile) or names.setdefault(row.profile, plain(row.profile))
        made.append(row if name == row.profile else replace(row, profile=name))
    return tuple(made)


def _events(story: Story) -> list[tuple[int, float]]:
    dated: Sequence[VerdictRow | ApplyRow | RollbackRow | CanaryRow | BenchRow] = (
        *story.verdicts, *story.applies, *story.rollbacks, *story.canaries, *story.benches,
    )  # fmt: skip
    return [(row.sequence, row.at) for row in dated] + [
        (row.sequence, row.started_at) for row in story.starts
    ]


def _profiles(story: Story) -> tuple[str, ...]:
    newest: dict[str, int] = {}
    rows: tuple[StartRow | VerdictRow | CanaryRow, ...] = (
        *story.starts, *story.verdicts, *story.canaries,
    )  # fmt: skip
    for row in rows:
        newest[row.profile] = max(newest.get(row.profile, 0), row.sequence)
    return tuple(sorted(newest, key=lambda name: -newest[name]))
