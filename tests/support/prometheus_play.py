"""Has promtool play scenes against the shipped rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from prometheus_scenes import Scene

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "packaging" / "prometheus"
RULES = FOLDER / "kimisvc.rules.yml"
TEXT = RULES.read_text()
ROWS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(TEXT)["groups"] for rule in group["rules"]
]
ALERTS = {row["alert"]: row for row in ROWS if "alert" in row}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: packaging/setup apt"
)


def promtool(*words: str, cwd: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


def play(folder: Path, scene: Scene, **checks: Any) -> subprocess.CompletedProcess[str]:
    """Have promtool play a scene against the shipped rules."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": k, "values": v} for k, v in scene.series.items()],
                **checks,
            }
        ],
    }
    path = folder / "scene.yml"
    path.write_text(json.dumps(test))  # JSON is YAML
    return promtool("test", "rules", str(path))


def firing(minute: float, names: frozenset[str]) -> dict[str, Any]:
    """Return a check that exactly these alerts fire at that minute."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"} > 0)',
        "eval_time": f"{minute * 60:g}s",
        "exp_samples": [
            {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
        ],
    }
