"""SVG as values: elements whose every text and attribute is escaped, axes, and the verdicts' marks.

A verdict has a shape as well as a colour, so that it is told apart without
colour. Colours are classes: the page gives them, for light and for dark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimisvc.observe.report.axes import Scale

WIDTH = 960.0
LEFT, RIGHT = 64.0, 124.0
SIZE = 5.0
"""Half the width of a mark (user units)."""


def node(name: str, *inner: str, **attributes: str | float) -> Markup:
    """Given an element's name, what is in it and its attributes, return it as SVG.

    Inner strings that are no Markup are text. `class_` is class, `_` is a dash.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
    )
    content = Markup("").join(escape(part) for part in inner)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, content)  # noqa: S704 - our own word


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def chart(identity: str, title: str, text: str, height: float, *inner: str) -> Markup:
    """Given a chart's id, title, description, height and elements, return it whole."""
    return node(
        "svg",
        node("title", title, id=f"{identity}-title"),
        node("desc", text, id=f"{identity}-desc"),
        *inner,
        id=identity, viewBox=f"0 0 {WIDTH:.0f} {height:.0f}", role="img",
        aria_labelledby=f"{identity}-title {identity}-desc",
    )  # fmt: skip


def mark(kind: VerdictKind, x: float, y: float, text: str) -> Markup:
    """Given a verdict, its place and its words, return its mark with the words as a tooltip."""
    return node("g", node("title", text), shape(kind, x, y), class_=f"mark {kind.value.lower()}")


def shape(kind: VerdictKind, x: float, y: float) -> Markup:
    """Given a verdict and a place, return its shape: circle, triangle, cross, hollow diamond."""
    s = SIZE
    if kind is VerdictKind.PASS:
        return node("circle", cx=x, cy=y, r=s)
    paths = {
        VerdictKind.DEGRADED: f"M{x:.1f},{y - s:.1f} l{s:.1f},{2 * s:.1f} h{-2 * s:.1f} z",
        VerdictKind.FAIL: f"M{x - s:.1f},{y - s:.1f} l{2 * s:.1f},{2 * s:.1f} m0,{-2 * s:.1f}"
        f" l{-2 * s:.1f},{2 * s:.1f}",
        VerdictKind.INCONCLUSIVE: f"M{x:.1f},{y - s:.1f} l{s:.1f},{s:.1f} l{-s:.1f},{s:.1f}"
        f" l{-s:.1f},{-s:.1f} z",
    }
    return node("path", d=paths[kind])


def line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    """Given two places and a class, return the line between them."""
    return node("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=name)


def label(x: float, y: float, text: str, name: str = "label", anchor: str = "start") -> Markup:
    """Given a place and a text, return it there."""
    return node("text", text, x=x, y=y, class_=name, text_anchor=anchor)


def time_axis(
    scale: Scale, ticks: Iterable[tuple[float, str]], top: float, bottom: float
) -> Markup:
    """Given the scale of time and what is written on it, return it below a chart."""
    parts = [line(scale.start, bottom, scale.end, bottom, "axis")]
    for at, text in ticks:
        x = scale.at(at)
        parts += [line(x, top, x, bottom, "grid"), label(x, bottom + 16, text, anchor="middle")]
    return Markup("").join(parts)


def value_axis(scale: Scale, ticks: Iterable[float], left: float, right: float) -> Markup:
    """Given the scale of values and what is written on it, return it left of a chart."""
    parts = []
    for value in ticks:
        y = scale.at(value)
        parts += [
            line(left, y, right, y, "grid"),
            label(left - 8, y + 4, f"{value:g}", anchor="end"),
        ]
    return Markup("").join(parts)
