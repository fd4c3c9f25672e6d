"""What systemd says of units, beside what the preflight said already."""

from __future__ import annotations

import pytest

from kimisvc.deploy.checks.inspection import warning
from kimisvc.deploy.verify import news
from kimisvc.records.problems import Problem

MISSING = Problem(
    "systemd-analyze: kimisvc-kimi.service: Command /opt/vllm/bin/vllm is not executable:"
    " No such file or directory"
)
OTHER = Problem("systemd-analyze: kimisvc-kimi.service:9: Unknown key name 'X' in section 'Unit'")


@pytest.mark.parametrize(
    "said",
    [
        "/opt/vllm/bin/vllm: No such file or directory; install vLLM there",
        "/opt/vllm: No such file or directory; install vLLM there",
        "/opt/vllm/bin/vllm may not be run by others (mode 600); install vLLM there",
        "/opt/vllm/bin/vllm is run by /root/python, and /root may not be entered by others",
    ],
)
def test_a_program_that_was_found_missing_is_told_once(said: str) -> None:
    assert news((MISSING, OTHER), [Problem(said)]) == (OTHER,)


@pytest.mark.parametrize(
    "known",
    [
        Problem("/opt/vllm/bin/vllm2: No such file or directory"),
        Problem("/opt/vl may not be entered by others"),
        Problem("port 8000 is taken by python3"),
        warning("/opt/vllm/bin/vllm: No such file or directory"),  # told, and refused by nobody
    ],
)
def test_what_is_new_is_told(known: Problem) -> None:
    assert news((MISSING, OTHER), [known]) == (MISSING, OTHER)
