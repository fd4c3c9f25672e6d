"""The series that rules and dashboard lean on: in the table, and on the pages of real servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kimisvc.host.vllm_contract import CONTRACT, FORMER, LOOKED_AT, SERIES, missing
from kimisvc.host.vllm_metrics import born, missing_counters, series_names

REPOSITORY = Path(__file__).parents[3]
CAPTURED = Path(__file__).parents[1] / "observe" / "captured"
PAGES = sorted(CAPTURED.glob("*.txt"))
LEANING = [
    path
    for path in sorted((REPOSITORY / "packaging").rglob("*"))
    if path.suffix in (".yml", ".yaml", ".json") and "vllm:" in path.read_text()
]


def test_there_are_pages_of_both_versions() -> None:
    seen = {path.name.split("-")[0] for path in PAGES}
    assert seen == {"0.24.0", "0.32.0"}
    assert seen < set(LOOKED_AT)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_real_server_keeps_the_contract_from_its_first_moment_on(page: Path) -> None:
    assert missing(series_names(page.read_text())) == ()


@pytest.mark.parametrize("name", sorted(SERIES))
def test_each_series_that_goes_is_named(name: str) -> None:
    text = PAGES[0].read_text()
    without = "\n".join(line for line in text.split("\n") if not re.match(rf"{name}[{{ ]", line))
    assert missing(series_names(without)) == (name,)
    assert missing(series_names(text.replace(f"{name}{{", f"{name}_renamed{{"))) == (name,)


def test_a_server_without_statistics_lacks_all_of_it() -> None:
    assert missing(series_names("# TYPE python_info gauge\npython_info 1.0\n")) == tuple(
        sorted(SERIES)
    )


def test_what_the_live_figures_need_is_part_of_the_contract() -> None:
    assert set(missing_counters("")) <= SERIES


def test_no_series_is_named_twice() -> None:
    assert len(SERIES) == len(CONTRACT)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_no_former_name_is_leant_on_or_printed_any_more(page: Path) -> None:
    names = (*SERIES, *series_names(page.read_text()))
    assert [name for name in names for row in FORMER if name.startswith(row.name)] == []
    assert {row.now.removesuffix("_seconds") for row in FORMER} <= {
        re.sub("_seconds_(sum|count|bucket)$", "", name) for name in SERIES
    }


@pytest.mark.parametrize("path", LEANING, ids=lambda path: path.name)
def test_rules_and_dashboards_lean_on_nothing_else(path: Path) -> None:
    assert set(re.findall(r"vllm:[a-zA-Z0-9_]+", path.read_text())) <= SERIES


def test_a_page_says_when_its_server_was_started() -> None:
    assert born(PAGES[0].read_text()) > 1.7e9
    assert born("vllm:num_requests_running 1\n") == 0.0
    assert born("process_start_time_seconds nonsense\n") == 0.0
