"""The canary's record: what the unprivileged canary hands over to `settle`, as JSON.

As with the gate's, it is data to be checked and not trusted: a record that does
not fit is refused whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from kimisvc.deploy.gate.record import check_types, json_text
from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.errors import KimisvcError
from kimisvc.foreign_text import printable

if TYPE_CHECKING:
    from kimisvc.measure.canary import CanaryFigures


def canary_to_json(row: CanaryRow) -> str:
    """Given what became of a canary, return its JSON text."""
    return json_text(asdict(row))


def canary_from_json(text: str) -> CanaryRow:
    """Given the text of a record, return it. Raise KimisvcError if it is not one."""
    try:
        data = json.loads(text)
        data["result"] = CanaryResult(data["result"])
        data["reason"] = printable(data["reason"])
        row = CanaryRow(**data)
        check_types(row)
        _plausible(row)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        what = f"the canary left a record that is none: {error}"
        raise KimisvcError("bad-record", what) from error
    return row


def figures_of(figures: CanaryFigures) -> dict[str, float | None]:
    """Given what a canary measured, return it as the fields of its row; no speed is negative."""
    interval = figures.interval
    return {
        "decode_tok_s": figures.decode_tok_s,
        "low": max(0.0, interval.low) if interval else None,
        "high": interval.high if interval else None,
        "ttft_s": figures.ttft_s,
    }


def _plausible(row: CanaryRow) -> None:
    """Raise ValueError unless exactly a measured one has a speed, and none is negative."""
    if (row.result is CanaryResult.MEASURED) != (row.decode_tok_s is not None):
        raise ValueError(f"{row.result.value} with a speed of {row.decode_tok_s}")
    if any(value is not None and value < 0 for value in (row.decode_tok_s, row.low, row.ttft_s)):
        raise ValueError("a negative figure")
