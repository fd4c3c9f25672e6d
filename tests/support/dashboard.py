"""The dashboard that ships: its panels, and its queries as Grafana sends them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[2] / "packaging" / "grafana" / "kimisvc.json"
BOARD: dict[str, Any] = json.loads(PATH.read_text())


def _rows() -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for panel in BOARD["panels"]:
        if panel["type"] == "row":
            rows[panel["title"]] = list(panel["panels"])
        else:
            rows[next(reversed(rows))].append(panel)
    return rows


ROWS = _rows()
"""The panels of each row. One that is collapsed holds its own; of others they follow it."""
PANELS = [panel for panels in ROWS.values() for panel in panels]
EXPRESSIONS: dict[str, list[str]] = {
    panel["title"]: [target["expr"] for target in panel["targets"]] for panel in PANELS
} | {one["name"]: [one["expr"]] for one in BOARD["annotations"]["list"] if "expr" in one}
"""Of each panel and annotation, with the variables of the dashboard in them."""


def sent(expr: str, instance: str, host: str = ".*", interval: str = "1m") -> str:
    """Given an expression of the dashboard and what was chosen there, return what Prometheus gets."""
    for name, value in (
        ("$instance", instance),
        ("$host", host),
        ("$__rate_interval", interval),
    ):
        expr = expr.replace(name, value)
    return expr


def queries(instance: str) -> list[tuple[str, str]]:
    """Given an instance, return title and expression of each query, for all hosts."""
    return [
        (title, sent(expr, instance))
        for title, expressions in EXPRESSIONS.items()
        for expr in expressions
    ]
