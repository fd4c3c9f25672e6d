"""What needs GPUs is skipped where there are none, and says why."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest

PLACES = Path(__file__).parent / "places"


def why_not() -> str:
    """Say why the evidence cannot be taken here; empty if it can."""
    executable = tomllib.loads((PLACES / "h200_base.toml").read_text())["vllm"]["executable"]
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("nvidia-smi") is None:
        return "needs GPUs: there is no nvidia-smi"
    if not Path("/run/systemd/system").is_dir():
        return "needs a systemd as PID 1: tests/gpu/README.md"
    return "" if Path(executable).exists() else f"needs vLLM as {executable}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if reason and item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
