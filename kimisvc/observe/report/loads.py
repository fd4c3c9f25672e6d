"""The chart of load times: how long each start took from its start to being ready."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from markupsafe import Markup

from kimisvc.observe.report.axes import MINUTE, Scale, number_ticks, time_ticks
from kimisvc.observe.report.ink import (
    LEFT,
    RIGHT,
    WIDTH,
    chart,
    label,
    line,
    node,
    shape,
    time_axis,
    value_axis,
)
from kimisvc.observe.report.words import moment, span
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from kimisvc.deploy.history import StartRow
    from kimisvc.observe.report.story import Story

HEIGHT, TOP, BOTTOM = 206.0, 24.0, 180.0
MOST_MARKS = 400
LONG = 5 * MINUTE
"""Loads longer than this are written in minutes."""


def load_chart(story: Story, model: str, across: Scale, identity: str) -> Markup:
    """Given a story, one of its models and the scale of time, return its chart of loads."""
    starts = [row for row in story.starts if row.model == model][-MOST_MARKS:]
    loads = [row.load_s for row in starts if row.load_s is not None]
    longest = max([1.0, *loads])
    unit, name = (MINUTE, "minutes") if longest > LONG else (1.0, "seconds")
    across = Scale(across.low, across.high, LEFT, WIDTH - RIGHT)
    up = Scale(0.0, longest * 1.1 / unit, BOTTOM, TOP)
    return chart(
        identity, f"Load times of {model}",
        f"How long {len(loads)} starts took until the server was ready, in {name}; "
        f"{len(starts) - len(loads)} starts without a known load time. The table is below.",
        HEIGHT,
        time_axis(across, time_ticks(across.low, across.high), TOP, BOTTOM),
        value_axis(up, number_ticks(up.low, up.high), across.start, across.end),
        label(LEFT - 8, 12.0, name, anchor="end"),
        _middle(loads, unit, across, up),
        *[_start(story, row, unit, across, up) for row in starts],
    )  # fmt: skip


def _middle(loads: list[float], unit: float, across: Scale, up: Scale) -> Markup:
    if not loads:
        return Markup("")
    usual = median(loads)
    y = up.at(usual / unit)
    return Markup("").join(
        [
            line(across.start, y, across.end, y, "target goal"),
            label(across.end + 8, y + 4, f"median {span(usual)}", "label goal"),
        ]
    )


def _start(story: Story, row: StartRow, unit: float, across: Scale, up: Scale) -> Markup:
    x = across.at(story.clock.place(row.sequence, row.started_at))
    words = f"{moment(row.started_at)}, generation {row.generation} ({row.profile}): "
    if row.load_s is None:
        if row.ready_at is not None:
            return Markup("")
        drawn = shape(VerdictKind.FAIL, x, up.start - 8)
        return node("g", node("title", words + "never seen ready"), drawn, class_="mark fail")
    y = up.at(row.load_s / unit)
    stem = line(x, up.start, x, y, "stem")
    title = node("title", words + f"loaded in {span(row.load_s)}")
    return node("g", title, stem, node("circle", cx=x, cy=y, r=4.0), class_="mark load")
