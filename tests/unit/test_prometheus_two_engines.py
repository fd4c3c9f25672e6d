"""The alert rules over a server of two engines (--data-parallel-size 2): each is judged for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_play import firing, needs_promtool, play
from prometheus_scenes import (
    GONE,
    KV_CACHE,
    RUNNING,
    SPEED,
    STALLED,
    STANDING,
    WAITING,
    Scene,
    alerts,
    always,
    growing,
    traffic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ENDED = ("request_generation_tokens", "request_decode_time", "request_success")
DECODE = "instance:vllm_decode_tokens_per_second:rate5m"


def second(series: Mapping[str, str]) -> dict[str, str]:
    """Given vLLM's series of the one engine, return them as those of another beside it."""
    return {
        name.replace('engine="0"', 'engine="1"'): values
        for name, values in series.items()
        if 'engine="0"' in name
    }


ENDLESS = {name: always(50) for name in traffic(1, 80) if any(ended in name for ended in ENDED)}
WEDGED = traffic(1, 80) | STANDING | ENDLESS


@needs_promtool
@pytest.mark.parametrize("scene", [
    Scene("both busy", {**traffic(4, 30), **second(traffic(4, 30))}),
    Scene("one stream on each", {**traffic(1, 80), **second(traffic(1, 80))}),
    Scene("one busy, one idle", second(traffic(0, 80))),
    Scene("one reads a prompt for minutes", second({**WEDGED, KV_CACHE: growing(0.0002, 0.1)})),
    Scene("one stands, and no exporter sees it", {**second(WEDGED), STALLED: GONE, SPEED: GONE},
          ((30, alerts("EngineStalled")),)),
    Scene("one stands, and the exporter does not see it", {**traffic(8, 40), **second(WEDGED)},
          ((30, alerts("EngineStalled")),)),
    Scene("one stands with what waits", second({**WEDGED, RUNNING: always(0), WAITING: always(3)}),
          ((30, alerts("EngineStalled")),)),
], ids=lambda scene: scene.name)  # fmt: skip
def test_exactly_these_alerts_fire(scene: Scene, tmp_path: Path) -> None:
    done = play(tmp_path, scene, promql_expr_test=[firing(*one) for one in scene.fires])
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_speed_of_a_stream_is_that_of_the_streams_of_both(tmp_path: Path) -> None:
    """One at 80 tok/s and one at 40: as much time, and 120 tokens in two seconds of it."""
    scene = Scene("two speeds", {**traffic(1, 80), **second(traffic(1, 40))})
    check = {
        "expr": f"round({DECODE}, 0.1)",
        "eval_time": "30m",
        "exp_samples": [{"labels": '{host="box",instance="kimi"}', "value": 60}],
    }
    done = play(tmp_path, scene, promql_expr_test=[check])
    assert done.returncode == 0, done.stdout + done.stderr
