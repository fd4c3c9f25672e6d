"""The alert rules: promtool plays the table of scenes, and documents and names are held."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from dashboard import EXPRESSIONS
from prometheus_play import (
    ALERTS,
    FOLDER,
    REPOSITORY,
    ROWS,
    firing,
    needs_promtool,
    play,
)
from prometheus_scenarios import SCENES, UNSEEN, WITHOUT
from prometheus_scenes import GONE, HEALTHY, Scene, seldom

from kimisvc.host.vllm_contract import SERIES
from kimisvc.observe.families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = {row["record"] for row in ROWS if "record" in row}
DOCUMENT = (REPOSITORY / "docs" / "alerts.md").read_text()
PROMETHEUS_OWN = {"up"}
NAME = re.compile(r"(?<![\w:\"])(?:kimisvc_\w+|vllm:\w+|instance:\w+(?::\w+)?|up)(?![\w:(])")


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        ("promtool", "check", "rules", "kimisvc.rules.yml"),
        ("promtool", "check", "config", "prometheus.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ],
    ids=" ".join,
)
def test_the_programs_accept_the_files(words: tuple[str, ...]) -> None:
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}: packaging/setup apt")
    done = subprocess.run(
        words, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_exactly_these_alerts_fire(scene: Scene, tmp_path: Path) -> None:
    done = play(tmp_path, scene, promql_expr_test=[firing(*one) for one in scene.fires])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(
    "scene", [one for one in SCENES if one.name not in UNSEEN], ids=lambda scene: scene.name
)
def test_the_same_alerts_fire_at_a_scrape_a_minute(scene: Scene, tmp_path: Path) -> None:
    """All is seen one evaluation later. The first two hours, for what comes later is no different."""
    slow = {name: seldom(values) for name, values in {**HEALTHY, **scene.changes}.items()}
    early = [one for one in scene.fires if one[0] <= 130] or scene.fires
    checks = [firing(minute + 0.5, names) for minute, names in early]
    done = play(tmp_path, Scene(scene.name, slow), interval="15s", promql_expr_test=checks)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", HEALTHY)
def test_a_missing_series_alerts_where_its_absence_means_something(
    name: str, tmp_path: Path
) -> None:
    scene = Scene(f"without {name}", {name: GONE})
    done = play(tmp_path, scene, promql_expr_test=[firing(30, WITHOUT.get(name, frozenset()))])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", ALERTS)
def test_the_words_of_a_firing_alert_are_whole(name: str, tmp_path: Path) -> None:
    """promtool prints what it got instead of nothing."""
    scene, minute = next(
        (scene, minute) for scene in SCENES for minute, names in scene.fires if name in names
    )
    expected = {"eval_time": f"{minute * 60:g}s", "alertname": name, "exp_alerts": []}
    done = play(tmp_path, scene, alert_rule_test=[expected])
    said = done.stdout + done.stderr
    assert done.returncode != 0
    words = re.findall(r"Annotations:\{(.*)\}$", said, re.MULTILINE)
    assert words, said
    assert not re.search(r"no value|error|template|%!|: \"|  |kimisvc-\.|: :", words[0]), words


def test_each_alert_has_scenes_in_which_it_fires_and_in_which_it_is_silent() -> None:
    for name in ALERTS:
        fires = [name in names for scene in SCENES for _, names in scene.fires]
        assert any(fires), f"{name} never fires"
        assert not all(fires), f"{name} is never silent"
    told = {name for scene in SCENES for _, names in scene.fires for name in names}
    assert told == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_says_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    words = alert["annotations"]
    assert set(words) == {"summary", "description", "action", "runbook"}
    assert words["runbook"] == f"docs/alerts.md#{name.lower()}"
    section = DOCUMENT.split(f"## {name}\n")[1].split("\n## ")[0]
    assert f"Severity: {alert['labels']['severity']}." in section
    assert "First:" in section


def test_the_document_has_no_alert_that_is_none() -> None:
    assert re.findall(r"^## (Kimisvc\w+)$", DOCUMENT, re.MULTILINE) == list(ALERTS)


def test_every_series_of_a_rule_exists() -> None:
    known = {family.name for family in FAMILIES} | SERIES | RECORDS | PROMETHEUS_OWN
    for row in ROWS:
        names = NAME.findall(row["expr"])
        assert names, row
        for name in names:
            assert name in known, f"{row.get('alert') or row.get('record')}: {name}"


def test_no_range_over_a_counter_is_shorter_than_two_scrapes_a_minute() -> None:
    drawn = [expr for expressions in EXPRESSIONS.values() for expr in expressions]
    for expr in (*(row["expr"] for row in ROWS), *drawn):
        for count, of in re.findall(r"\[(\d+)([smhd])\]", expr):
            assert int(count) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[of] >= 120, expr


def test_every_series_of_the_healthy_scene_exists() -> None:
    known = {family.name for family in FAMILIES} | SERIES | PROMETHEUS_OWN
    assert {series.partition("{")[0] for series in HEALTHY} <= known
