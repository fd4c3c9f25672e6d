"""The small drawing of a comparison: the interval of a ratio against 1 and the margin around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.observe.report.axes import Scale
from kimisvc.observe.report.ink import line, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from kimisvc.deploy.contests import Contest

WIDTH, HEIGHT = 240.0, 26.0


def reach(rows: Sequence[Contest]) -> Scale:
    """Given comparisons, return the scale that all of them are drawn on; 1 is in its middle."""
    far = [abs(bound - 1) for row in rows for bound in (row.low, row.high, 1 + 2 * row.margin)]
    most = min(max(far, default=0.05) * 1.1, 1.0)
    return Scale(1 - most, 1 + most, 4.0, WIDTH - 4.0)


def drawing(row: Contest, across: Scale) -> Markup:
    """Given a comparison and the scale, return its drawing; the words beside it say the same."""
    middle = HEIGHT / 2
    low, high = across.at(1 / (1 + row.margin)), across.at(1 + row.margin)
    return node(
        "svg",
        node("rect", x=low, y=0.0, width=high - low, height=HEIGHT, class_="margin"),
        line(across.at(1.0), 0.0, across.at(1.0), HEIGHT, "one"),
        line(across.at(row.low), middle, across.at(row.high), middle, "whisker"),
        node("circle", cx=across.at(row.ratio), cy=middle, r=4.0, class_="ratio"),
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", aria_hidden="true", class_="contest",
    )  # fmt: skip
