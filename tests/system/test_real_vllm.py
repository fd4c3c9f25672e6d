"""The whole loop with the real vLLM (CPU build) and a real model, on a real systemd."""

from __future__ import annotations

import pytest
from stage import Sandbox, Stage

pytestmark = [pytest.mark.system, pytest.mark.vllm]

WRONG = """schema = 1
extends = "cpu_smollm2.toml"
name = "wrong_answer"

[[golden]]
prompt = "What is the capital of France?"
expect = "Atlantis"
"""


def test_load_answer_measure_keep_fail_restore(sandbox: Sandbox) -> None:
    stage = Stage(sandbox, "kimi", port=8000)
    status, answer = stage.apply("cpu_smollm2")
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "PASS"), answer
    client, engine = answer["decode_tok_s"], answer["engine_decode_tok_s"]
    assert engine == pytest.approx(client, rel=0.05)
    first = stage.status()
    assert (first["ready"], first["vllm_version"]) == (True, "0.32.0")
    assert first["load_s"] > 1

    status, answer = stage.apply("cpu_smollm2")
    assert (status, answer["outcome"]) == (0, "unchanged")
    assert stage.status()["main_pid"] == first["main_pid"]

    sandbox.write("/etc/wrong.toml", WRONG)
    status, answer = stage.apply("/etc/wrong.toml")
    assert (status, answer["outcome"], answer["verdict"]) == (4, "rolled-back", "FAIL")
    assert "Atlantis" in answer["reason"]
    last = stage.status()
    assert (last["profile"], last["verdict"]) == ("cpu_smollm2", "PASS")
    assert last["main_pid"] == first["main_pid"]
    assert [v["verdict"] for v in stage.history()["verdicts"]] == ["PASS", "FAIL", "PASS"]
    stage.stop()
