"""The timeline of the gate: which profile ran when, what the gate said, and what was rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from kimisvc.observe.report.axes import Scale, time_ticks
from kimisvc.observe.report.ink import LEFT, WIDTH, chart, label, line, mark, node, time_axis
from kimisvc.observe.report.words import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.history import RollbackRow
    from kimisvc.observe.report.story import Story

LANE = 30.0
NAMES = 120.0
"""Room for the names of profiles (user units)."""
LONGEST_NAME = 20
MOST_MARKS = 600


def timeline(story: Story, profiles: Sequence[str], across: Scale, identity: str) -> Markup:
    """Given a story, the profiles to show and the scale of time, return the timeline."""
    across = Scale(across.low, across.high, LEFT + NAMES, WIDTH - 40.0)
    lanes = {name: 22.0 + LANE * row for row, name in enumerate(profiles)}
    bottom = 22.0 + LANE * len(lanes) - 8
    return chart(
        identity, "Gate timeline",
        "A bar for each start, until the next start of any profile; the gate's verdicts upon it; "
        f"{len(story.rollbacks)} rollbacks as lines across. The table of events is below.",
        bottom + 28,
        time_axis(across, time_ticks(across.low, across.high, 6), 8, bottom),
        *[label(LEFT + NAMES - 10, y + 4, _short(name), anchor="end") for name, y in lanes.items()],
        _bars(story, lanes, across),
        *[_rollback(story, row, across, bottom) for row in story.rollbacks[-MOST_MARKS:]],
        *[
            mark(
                row.verdict.kind, across.at(story.clock.place(row.sequence, row.at)),
                lanes[row.profile],
                f"{moment(row.at)}, generation {row.generation}: {row.verdict.kind.value}. "
                f"{row.verdict.reason}",
            )
            for row in story.verdicts[-MOST_MARKS:]
            if row.profile in lanes
        ],
    )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _bars(story: Story, lanes: dict[str, float], across: Scale) -> Markup:
    """What ran when. Nothing tells when a service was stopped, so a bar ends at the next start."""
    starts = story.starts[-MOST_MARKS:]
    begins = [story.clock.place(row.sequence, row.started_at) for row in starts]
    ends = [*begins[1:], across.high]
    bars = []
    for row, begin, end in zip(starts, begins, ends, strict=False):
        if row.profile not in lanes:
            continue
        x = across.at(begin)
        title = node("title", f"{moment(row.started_at)}: generation {row.generation} started")
        bar = node("rect", x=x, y=lanes[row.profile] - 8, rx=2.0, height=16.0,
                   width=max(1.5, across.at(end) - x))  # fmt: skip
        bars.append(node("g", title, bar, class_="ran"))
    return Markup("").join(bars)


def _rollback(story: Story, row: RollbackRow, across: Scale, bottom: float) -> Markup:
    x = across.at(story.clock.place(row.sequence, row.at))
    to = f"to {row.to_generation}" if row.to_generation else "nothing to restore"
    words = f"{moment(row.at)}: rolled back from {row.from_generation}, {to}. {row.reason}"
    flag = node("path", d=f"M{x:.1f},2 l-9,4.5 l9,4.5 z")
    return node("g", node("title", words), line(x, 2, x, bottom, "back"), flag, class_="rollback")
