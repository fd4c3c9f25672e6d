"""The templates and profiles that ship with kimisvc, and one made up to use everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    HardwareSettings,
    Profile,
    ServiceSettings,
    SpeedTarget,
    VllmSettings,
    Where,
)
from kimisvc.records.units import Installation

TOP = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def templates() -> dict[str, str]:
    return {path.name: path.read_text() for path in (TOP / "units").iterdir()}


@pytest.fixture(scope="session")
def place() -> Installation:
    return Installation(kimisvc=Path("/usr/bin/kimisvc"))


@pytest.fixture(scope="session")
def everything() -> Profile:
    """Every optional setting is set, and the values are awkward."""
    return Profile(
        name="everything",
        vllm=VllmSettings(
            "/opt/vllm 100%/bin/vllm", "/srv/models/K 2.5", "::1", 8123, "kimi k2 %H $HOME"
        ),
        service=ServiceSettings(
            instance="box-2",
            user="vllm",
            load_timeout=90.5,
            starts=3,
            restart_delay=0.25,
            stop_timeout=20,
            secrets_file="/etc/kimisvc/secrets 50%",
            working_directory="/srv/work here",
            memory_max=64 * 1024**3,
            limit_nofile=65536,
            cpu_quota_percent=350,
        ),
        args={
            "trust-remote-code": True,
            "enable-prefix-caching": False,
            "speculative-config": {"method": "eagle3", "num_speculative_tokens": 3},
            "cudagraph-capture-sizes": (1, 2, 4),
            "seed": -1,
            "chat-template": '{{ it\'s \\ "quoted" $x 5% }}',
        },
        env={
            "ZULU": "first, though last by name",
            "PASS_THROUGH": "p@ss$word 50% %H \\ \"x\" 'y' あ",
            "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
            "ALPHA": "",
        },
        hardware=HardwareSettings(gpus=2),
        gate=GateSettings(SpeedTarget(40, 50), 2.5, require_reasoning=True),
        golden=(GoldenQuestion("What is 6 * 7?", "/4.?2/", Where.REASONING, 128),),
        canary=CanarySettings(every=90.5, max_tokens=16),
    )
