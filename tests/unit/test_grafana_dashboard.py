"""The dashboard as a file: every series exists, no panel lies on another, GPUs only where asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from dashboard import BOARD, EXPRESSIONS, PANELS, ROWS, sent
from dcgm_page import FIELDS, NAMES, Names, named, page
from prometheus_play import needs_promtool, play
from prometheus_scenes import Scene

from kimisvc.host.vllm_contract import SERIES
from kimisvc.observe.families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

PROMETHEUS_OWN = {"up", "ALERTS"}
KNOWN = {family.name for family in FAMILIES} | SERIES | PROMETHEUS_OWN | NAMES
METRIC = re.compile(r"([A-Za-z_:][\w:]*)\{")
GPU_ROW = "GPUs (needs dcgm-exporter, scraped as the job dcgm)"
OF_GPUS = {panel["title"] for panel in ROWS[GPU_ROW]}
DRAWN = {
    "Utilization": 87,
    "Power": 402.5,
    "Temperature": 41,
    "Clock": 1.98e9,
    "Memory used": 135_000 * 2**20,
    "Errors (XID)": 0,
}
"""What the GPU panels show of the pages, in the unit of each panel."""


@pytest.mark.parametrize("title", EXPRESSIONS)
def test_every_series_of_the_dashboard_exists(title: str) -> None:
    for expr in EXPRESSIONS[title]:
        names = set(METRIC.findall(expr))
        assert names, expr
        assert names <= KNOWN, names - KNOWN


def test_each_panel_asks_the_source_that_was_chosen() -> None:
    for panel in PANELS:
        assert panel["targets"], panel["title"]
        for target in (panel, *panel["targets"]):
            assert target["datasource"]["uid"] == "${datasource}"


def test_each_panel_has_a_number_and_a_title_of_its_own_and_lies_on_no_other() -> None:
    rows = [panel for panel in BOARD["panels"] if panel["type"] == "row"]
    every = [*rows, *PANELS]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)
    taken = [
        (column, line)
        for p in (panel["gridPos"] for panel in every)
        for column in range(p["x"], p["x"] + p["w"])
        for line in range(p["y"], p["y"] + p["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(column for column, _ in taken) < 24


def test_the_dashboard_asks_for_a_source_an_instance_and_a_host() -> None:
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "host"]
    host = variables["host"]
    # A box without the label has no host to choose, and "all" is any or none.
    assert (host["includeAll"], host["allValue"]) == (True, ".*")
    assert host["query"]["query"] == 'label_values(kimisvc_up{instance="$instance"}, host)'


def test_gpus_are_asked_for_by_who_opens_their_row_and_by_nothing_else() -> None:
    """Grafana sends no query of a row that is closed: where dcgm-exporter is not, no panel stays empty."""
    closed = {p["title"] for p in BOARD["panels"] if p["type"] == "row" and p["collapsed"]}
    assert closed == {GPU_ROW}
    asking = {title for title, exprs in EXPRESSIONS.items() if "DCGM_" in "".join(exprs)}
    assert asking == OF_GPUS == set(DRAWN)
    # A row that is closed holds its panels, and is the last: it has none behind it that would be closed.
    assert BOARD["panels"][-1]["title"] == GPU_ROW


def test_a_gpu_is_called_in_legends_by_what_no_release_of_dcgm_exporter_renames() -> None:
    legends = {t["legendFormat"] for panel in ROWS[GPU_ROW] for t in panel["targets"]}
    assert legends == {"{{host}} GPU {{gpu}}"}


@needs_promtool
@pytest.mark.parametrize("names", Names, ids=lambda names: names.value)
@pytest.mark.parametrize("title", DRAWN)
def test_a_gpu_panel_shows_the_same_by_old_names_and_new(
    title: str, names: Names, tmp_path: Path
) -> None:
    (expr,) = EXPRESSIONS[title]
    shown = {
        "expr": f"sum by (host, gpu) ({sent(expr, 'kimi')})",
        "eval_time": "5m",
        "exp_samples": [{"labels": '{host="box",gpu="0"}', "value": DRAWN[title]}],
    }
    done = play(tmp_path, Scene("a GPU", _gpu(names)), promql_expr_test=[shown])
    assert done.returncode == 0, done.stdout + done.stderr


def _gpu(names: Names) -> dict[str, str]:
    """The fields as series of ten minutes, to the last digit."""
    return {
        f'{name}{{host="box",job="dcgm",gpu="0"{field.labels}}}': f"{value:f}+0x20"
        for field in FIELDS
        for name, value in (named(field, names),)
    }


@pytest.mark.parametrize("names", Names, ids=lambda names: names.value)
def test_the_pages_of_dcgm_exporter_are_pages(names: Names) -> None:
    samples = [line for line in page(names).splitlines() if not line.startswith("#")]
    assert {line.partition("{")[0] for line in samples} == {named(f, names)[0] for f in FIELDS}
    assert all(re.fullmatch(r'\w+\{(\w+="[^"]*",?)+\} \d+\.\d{6}', line) for line in samples)


def test_no_name_is_that_of_two_fields() -> None:
    assert len(NAMES) == len(Names) * len(FIELDS)
