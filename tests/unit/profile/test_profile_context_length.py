"""A context that is too short for what the gate or the canary asks, however its length is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kimisvc.measure import canary, golden
from kimisvc.profile import context_length
from kimisvc.profile.consistency import inconsistencies
from kimisvc.profile.context_length import longest_need, tokens
from kimisvc.profile.knowledge.model.rules import model_findings
from kimisvc.profile.problems import key_name
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    ProbeSettings,
    Profile,
    VllmSettings,
)

if TYPE_CHECKING:
    from kimisvc.records.profile import ArgValue

PROFILE = Profile("p", VllmSettings("/v/bin/vllm", "/m"))
ASKING: dict[str, dict[str, Any]] = {
    "probe.max_tokens": {"probe": ProbeSettings(prompt_tokens=3000, max_tokens=1001)},
    "golden[0].max_tokens": {"golden": (GoldenQuestion("one two", "x", max_tokens=3999),)},
    "canary.max_tokens": {"canary": CanarySettings(every=60.0, max_tokens=3985)},
}
"""What needs 4001 tokens, by the key that is to be made smaller."""
EACH = pytest.mark.parametrize("asks", ASKING.values(), ids=ASKING.keys())


def said(profile: Profile, length: ArgValue | None, config: dict[str, object] | None) -> list[str]:
    args = {} if length is None else {"max-model-len": length}
    profile = replace(profile, args={**args, **profile.args})
    found = (*inconsistencies(profile, set()), *model_findings(profile, config))
    return [finding.message for finding in found]


@EACH
@pytest.mark.parametrize("length", [4000, "4000", "4_000", "4k", "4.0k", " 4000"])
def test_a_length_is_judged_however_it_is_written(asks: dict[str, Any], length: ArgValue) -> None:
    (message,) = said(replace(PROFILE, **asks), length, None)
    assert "needs 4001 tokens" in message
    assert "the context holds 4000. Raise max-model-len or shorten [" in message
    assert said(replace(PROFILE, **asks), 4001, None) == []
    assert said(replace(PROFILE, **asks), "4K", None) == []


@EACH
@pytest.mark.parametrize("length", [None, "auto", -1])
def test_without_a_length_that_of_the_model_counts(
    asks: dict[str, Any], length: ArgValue | None
) -> None:
    profile = replace(PROFILE, **asks)
    (message,) = said(profile, length, {"max_position_embeddings": 4000})
    assert "needs 4001 tokens" in message
    assert "the model's own context holds 4000. Shorten [" in message
    assert said(profile, length, {"max_position_embeddings": 4001}) == []
    assert said(profile, length, None) == []
    overridden = replace(profile, args={"hf-overrides.max_position_embeddings": 8192})
    assert said(overridden, length, {"max_position_embeddings": 4000}) == []


def test_the_key_that_asks_most_is_named() -> None:
    for key, asks in ASKING.items():
        need = longest_need(replace(PROFILE, **asks))
        assert key_name(need.keys[0]) == key
        assert need.tokens == 4001


def test_a_question_of_our_own_counts_as_well() -> None:
    profile = replace(PROFILE, gate=GateSettings(require_reasoning=True), probe=ProbeSettings(1, 1))
    (ours,) = golden.questions((), profile.gate)
    assert longest_need(profile).tokens == ours.max_tokens + len(ours.prompt.split())


def test_a_canary_asks_as_much_as_is_counted() -> None:
    assert canary.PROMPT_TOKENS == context_length.CANARY_PROMPT


@pytest.mark.parametrize(
    ("value", "length"),
    [("1M", 2**20), ("1.5m", 1_500_000), ("2g", 2 * 10**9), (True, 0), ("long", 0), (0.5, 0),
     (-1, 0), ("-1", 0), ("auto", 0), (None, 0), ("", 0)],
)  # fmt: skip
def test_a_length_is_read_as_vllm_reads_it(value: object, length: int) -> None:
    assert tokens(value) == length
