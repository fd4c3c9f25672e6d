"""The chart of one profile's decode speed over time: verdicts with intervals, canaries, target."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from markupsafe import Markup

from kimisvc.deploy.history import CanaryResult
from kimisvc.observe.report.axes import Scale, around, number_ticks, time_ticks
from kimisvc.observe.report.ink import (
    LEFT,
    RIGHT,
    WIDTH,
    chart,
    label,
    line,
    mark,
    node,
    time_axis,
    value_axis,
)
from kimisvc.observe.report.words import moment, speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.history import CanaryRow, VerdictRow
    from kimisvc.observe.report.story import Story

HEIGHT, TOP, BOTTOM = 206.0, 24.0, 180.0
MOST_MARKS = 400
"""Verdicts that are drawn of a profile: the newest."""
BUCKETS = 240
"""Canaries are drawn as the median and the range of so many equal parts of time."""
GAP = 4
"""So many times the usual distance between two parts without a canary break the line."""

Bucket = tuple[int, float, float, float]
"""Its number, and the least, the median and the greatest speed in it."""


def frame(story: Story) -> tuple[Scale, Scale]:
    """Given a story, return the scales of time and speed that all its charts share."""
    first, last = story.moments()
    room = max((last - first) * 0.02, 1800.0)
    seen = [v.decode_tok_s.mean for v in story.verdicts if v.decode_tok_s]
    seen += [c.decode_tok_s for c in story.canaries if c.decode_tok_s is not None]
    seen += [bound for v in story.verdicts for bound in (v.floor, v.goal) if bound is not None]
    low, high = around(seen or [0.0])
    return (
        Scale(first - room, last + room, LEFT, WIDTH - RIGHT),
        Scale(low, high, BOTTOM, TOP),
    )


def speed_chart(story: Story, profile: str, scales: tuple[Scale, Scale], identity: str) -> Markup:
    """Given a story, one of its profiles and the scales of all, return its chart of speed."""
    across, up = scales
    all_of_it = [v for v in story.verdicts if v.profile == profile]
    verdicts = [v for v in all_of_it if v.decode_tok_s][-MOST_MARKS:]
    canaries = [c for c in story.canaries if c.profile == profile]
    return chart(
        identity, f"Decode speed of {profile} over time",
        f"{len(verdicts)} gate verdicts with their confidence intervals and "
        f"{sum(c.result is CanaryResult.MEASURED for c in canaries)} canaries, in tokens per "
        "second; the figures are in the table below.",
        HEIGHT,
        time_axis(across, time_ticks(across.low, across.high), TOP, BOTTOM),
        value_axis(up, number_ticks(up.low, up.high), across.start, across.end),
        label(LEFT - 8, 12.0, "tok/s", anchor="end"),
        _target(all_of_it, across, up),
        _band(buckets(story, canaries, across), across, up),
        *[_point(story, row, across, up) for row in verdicts],
    )  # fmt: skip


def buckets(story: Story, canaries: Sequence[CanaryRow], across: Scale) -> list[Bucket]:
    """Given canaries and the scale of time, return their figures by equal parts of it."""
    parts: dict[int, list[float]] = {}
    for row in canaries:
        if row.result is CanaryResult.MEASURED and row.decode_tok_s is not None:
            share = (story.clock.place(row.sequence, row.at) - across.low) / (
                across.high - across.low
            )
            parts.setdefault(int(share * BUCKETS), []).append(row.decode_tok_s)
    return [(part, min(s), median(s), max(s)) for part, s in sorted(parts.items())]


def runs(parts: Sequence[Bucket]) -> list[list[Bucket]]:
    """Given buckets, return them cut where canaries were missing for long."""
    if not parts:
        return []
    usual = median([b[0] - a[0] for a, b in pairwise(parts)] or [1])
    pieces = [[parts[0]]]
    for before, part in pairwise(parts):
        if part[0] - before[0] > GAP * usual:
            pieces.append([])
        pieces[-1].append(part)
    return pieces


def _band(parts: list[Bucket], across: Scale, up: Scale) -> Markup:
    drawn = []
    width = (across.end - across.start) / BUCKETS
    for run in runs(parts):
        xs = [across.start + (part[0] + 0.5) * width for part in run]
        if len(run) == 1:
            xs, run = [xs[0] - width / 2, xs[0] + width / 2], [run[0], run[0]]  # noqa: PLW2901 - seen as a line
        upper = [f"{x:.1f},{up.at(part[3]):.1f}" for x, part in zip(xs, run, strict=True)]
        lower = [f"{x:.1f},{up.at(part[1]):.1f}" for x, part in zip(xs, run, strict=True)]
        middle = [f"{x:.1f},{up.at(part[2]):.1f}" for x, part in zip(xs, run, strict=True)]
        drawn += [
            node("polygon", points=" ".join(upper + lower[::-1]), class_="band"),
            node("polyline", points=" ".join(middle), class_="canary"),
        ]
    return Markup("").join(drawn)


def _target(verdicts: Sequence[VerdictRow], across: Scale, up: Scale) -> Markup:
    """The floor and goal of the newest gate, as lines with their figures beside."""
    newest = next((v for v in reversed(verdicts) if v.floor is not None), None)
    if newest is None or newest.floor is None or newest.goal is None:
        return Markup("")
    same = newest.floor == newest.goal
    drawn = []
    for value, name in ((newest.floor, "floor"), (newest.goal, "goal")):
        words = "floor = goal" if same else name
        y = up.at(value)
        drawn += [
            line(across.start, y, across.end, y, f"target {name}"),
            label(across.end + 8, y + 4, f"{words} {value:g}", f"label {name}"),
        ]
    return Markup("").join(drawn[: 2 if same else 4])


def _point(story: Story, row: VerdictRow, across: Scale, up: Scale) -> Markup:
    seen = row.decode_tok_s
    if seen is None:
        return Markup("")
    x = across.at(story.clock.place(row.sequence, row.at))
    low, high = up.at(seen.low), up.at(seen.high)
    whisker = [line(x, low, x, high, "whisker")]
    whisker += [
        line(x - 3, y, x + 3, y, "whisker")
        for value, y in ((seen.low, low), (seen.high, high))
        if up.holds(value)
    ]
    words = (
        f"{moment(row.at)}, generation {row.generation}: {row.verdict.kind.value}, "
        f"{speed(seen)} tok/s. {row.verdict.reason}"
    )
    return Markup("").join([*whisker, mark(row.verdict.kind, x, up.at(seen.mean), words)])
