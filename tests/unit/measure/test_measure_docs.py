"""What the page on measuring says of outcomes and known answers is what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimisvc.measure.comparison import Difference
from kimisvc.measure.outcome import RESPONSES, Trouble

PAGE = (Path(__file__).parents[3] / "docs" / "measuring.md").read_text()


def test_every_trouble_has_its_row_and_no_other_has() -> None:
    table = PAGE.split("### What a request can come to")[1].split("##")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        f"| {trouble.value} | {RESPONSES[trouble].tries} | {RESPONSES[trouble].verdict.value} |"
        for trouble in Trouble
    ]


@pytest.mark.parametrize("verdict", Difference)
def test_every_verdict_of_a_comparison_is_explained(verdict: Difference) -> None:
    table = PAGE.split("| interval of the ratio | verdict |")[1].split("\n\n")[0]
    cells = [line.split("|")[2].strip() for line in table.splitlines() if "|" in line]
    assert any(cell.split(":")[0].split(",")[0] == verdict.value for cell in cells)
