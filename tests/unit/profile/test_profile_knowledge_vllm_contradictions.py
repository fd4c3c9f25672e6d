"""Numbers in [args] that vLLM refuses together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimisvc.profile.knowledge.vllm.contradictions import contradictions
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import KnownFrom

ASKED = replace(shipped_knowledge(), known_from=KnownFrom.ASKED)
SEQS, BATCH, LENGTH = "max-num-seqs", "max-num-batched-tokens", "max-model-len"
LORAS, CPU_LORAS = "max-loras", "max-cpu-loras"
CHUNKED, LONG = "enable-chunked-prefill", "long-prefill-token-threshold"


def told(args: dict[str, ArgValue], version: str = "0.33.0") -> list[str]:
    profile = Profile("p", VllmSettings("/v", "m"), args=args)
    return [
        f"{fault.path[1]}: {fault.message}"
        for fault in contradictions(profile, replace(ASKED, version=version))
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({SEQS: 512, BATCH: 256}, "max-num-seqs: 512 is more than max-num-batched-tokens 256"),
        ({"max_num_seqs": "512", BATCH: 256}, "max_num_seqs: 512 is more than"),
        ({LENGTH: "8K", BATCH: 8000, CHUNKED: False},
         "8000, which vLLM refuses with enable-chunked-prefill = false"),
        ({LORAS: 4, CPU_LORAS: 2, "enable-lora": True}, "max-loras: 4 is more than max-cpu-loras 2"),
        ({LORAS: 0, "enable-lora": True}, "max-loras: 0 is refused: at least 1"),
        ({LONG: 9000, LENGTH: 8192}, "long-prefill-token-threshold: 9000 is more than max-model-len"),
    ],
)  # fmt: skip
def test_what_is_refused(args: dict[str, ArgValue], message: str) -> None:
    (fault,) = told(args)
    assert message in fault


@pytest.mark.parametrize(
    "args",
    [
        {SEQS: 256, BATCH: 256},
        {SEQS: 4096},
        {SEQS: 512, BATCH: "8K"},
        {LENGTH: 8192, BATCH: 8192, CHUNKED: False},
        {LENGTH: 8192, BATCH: 2048, CHUNKED: True},
        {LENGTH: 8192, BATCH: 2048},
        {LENGTH: "auto", BATCH: 2048, CHUNKED: False},
        {LORAS: 4, CPU_LORAS: 2},
        {LORAS: 4, CPU_LORAS: 0, "enable-lora": True},
        {LONG: 9000, LENGTH: -1},
        {LONG: 9000},
        {SEQS: True, BATCH: "many"},
    ],
)
def test_what_is_not(args: dict[str, ArgValue]) -> None:
    assert told(args) == []


def test_older_ones_did_not_compare_all() -> None:
    assert told({LONG: 9000, LENGTH: 8192}, "0.26.0") == []
    assert told({LENGTH: 8192, BATCH: 2048, CHUNKED: False}, "0.11.2") == []
    assert told({LENGTH: 8192, BATCH: 2048, CHUNKED: False}, "0.12.0")


def test_a_number_that_only_the_shipped_table_refuses_is_doubted() -> None:
    profile = Profile("p", VllmSettings("/v", "m"), args={LORAS: 0, "enable-lora": True})
    (fault,) = contradictions(profile, shipped_knowledge())
    assert fault.severity is Severity.WARNING
    assert fault.message == "0 would be refused by vLLM 0.33.0: at least 1"
