"""A canary in words: one line, whatever became of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimisvc.cli.output import canary_words
from kimisvc.deploy.history import CanaryResult, CanaryRow

MEASURED = CanaryRow(1.0, "a", 7, "ll_ring", CanaryResult.MEASURED, 81.42, 81.1, 81.7, 0.2)
NOTHING = CanaryRow(1.0, "a", 7, "ll_ring", CanaryResult.SKIPPED_BUSY)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (MEASURED, "measured 81.42 tok/s (81.1 to 81.7), TTFT 0.200 s"),
        (replace(MEASURED, low=0.0), "measured 81.42 tok/s (0 to 81.7), TTFT 0.200 s"),
        (replace(MEASURED, low=None, high=None, ttft_s=None), "measured 81.42 tok/s"),
        (replace(NOTHING, reason="1 running"), "skipped busy: 1 running"),
        (NOTHING, "skipped busy"),
        (
            replace(NOTHING, result=CanaryResult.SKIPPED_NOT_READY, reason="its gate is at work"),
            "skipped not ready: its gate is at work",
        ),
        (
            replace(NOTHING, result=CanaryResult.SKIPPED_UNKNOWN, reason="HTTP status 404"),
            "skipped unknown: HTTP status 404",
        ),
        (
            replace(NOTHING, result=CanaryResult.FAILED, reason="accepted, no first token"),
            "failed: accepted, no first token",
        ),
    ],
)
def test_a_canary_in_words(row: CanaryRow, words: str) -> None:
    assert canary_words(row) == words
