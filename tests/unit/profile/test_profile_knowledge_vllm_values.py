"""Values in [args]: what argparse would refuse, and what it would misread."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import ChoiceRule, KnownFrom, OptionKind, VllmKnowledge

if TYPE_CHECKING:
    from kimisvc.profile.problems import Finding

NEWEST = shipped_knowledge()
ASKED = replace(NEWEST, known_from=KnownFrom.ASKED)


def found(option: str, value: ArgValue, vllm: VllmKnowledge = ASKED) -> list[Finding]:
    profile = Profile("p", VllmSettings("/v/bin/vllm", "/m"), args={option: value})
    return list(option_findings(profile, vllm))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tensor-parallel-size", 8),
        ("tensor-parallel-size", "8"),
        ("gpu-memory-utilization", 1),
        ("gpu-memory-utilization", 0.92),
        ("max-model-len", 262144),
        ("max-model-len", "256K"),
        ("max-model-len", "auto"),
        ("max-model-len", -1),
        ("max-num-batched-tokens", "8K"),
        ("kv-cache-memory-bytes", "80G"),
        ("dtype", "bfloat16"),
        ("attention-backend", "triton_mla"),
        ("moe-backend", "Flashinfer-Cutlass"),
        ("cudagraph-capture-sizes", (1, 2, 4)),
        ("cudagraph-capture-sizes", 1),
        ("compilation-config", {"cudagraph_mode": "PIECEWISE"}),
        ("compilation-config", '{"cudagraph_mode": "PIECEWISE"}'),
        ("kv-transfer-config", '{"kv_port": 14k}'),
        ("hf-overrides", "a.function"),
        ("hf-overrides", "{half a table"),
        ("additional-config", ' {"a": [1]} '),
        ("pt-load-map-location", "cuda"),
        ("lora-modules", "l=/l"),
        ("lora-modules", '{"name": "l", "path": "/l"}'),
        ("lora-modules", "None"),
        ("lora-modules", ({"name": "l", "path": "/l"},)),
        ("allowed-origins", ("*",)),
        ("middleware", ("a.B", "c.D")),
        ("quantization", "None"),
        ("reasoning-parser", "no_such_parser"),  # judged with the model
        ("chat-template", "/etc/x.jinja"),
    ],
)
def test_what_vllm_takes_as_it_is_meant(option: str, value: ArgValue) -> None:
    assert found(option, value) == []


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("tensor-parallel-size", 8.0, "8.0 is refused: tensor-parallel-size takes a whole number"),
        ("tensor-parallel-size", "8k", "reads no k or K"),
        ("tensor-parallel-size", 0, "at least 1"),
        ("tensor-parallel-size", "None", "takes a whole number"),
        ("tensor-parallel-size", (8,), "takes one value"),
        ("tensor-parallel-size", {"a": 1}, "not a table"),
        ("gpu-memory-utilization", 92, "a share of the memory"),
        ("gpu-memory-utilization", "92%", "takes a number"),
        ("max-model-len", "25.6K", "no fraction before K"),
        ("max-model-len", "long", "as 256k (times 1000) or 256K (times 1024)"),
        ("max-model-len", 0.5, "takes a whole number"),
        ("dtype", "bfloat61", "Did you mean bfloat16?"),
        ("dtype", "BFLOAT16", "Did you mean bfloat16?"),
        ("chat-template-content-format", "xml", "There are: auto, openai, string"),
        ("attention-backend", "FLASH-MLAX", "Did you mean"),
        ("attention-backend", "TRITON_MS", "Did you mean TRITON_MSA?"),
        (
            "speculative-config",
            {"num_spec": 3},
            "num_speculative_tokens or num_speculative_tokens_per",
        ),
        ("speculative-config", {"zzz": 3}, " more"),
        ("enforce-eager", "true", "Write enforce-eager = true or false"),
        ("enforce-eager", 1, "Write enforce-eager = true or false"),
        ("compilation-config", "{'a': 1}", "is not JSON"),
        ("additional-config", "{a:1}", "Write a table: additional-config = { key = value }"),
        ("hf-overrides", " {a:1}\t", "ends vLLM at its start"),
        ("hf-overrides", '{"a": 80g}', "is not JSON"),  # no multipliers are read here
        ("model-loader-extra-config", "{}{}", "is not JSON"),
        ("pt-load-map-location", "{cuda}", "is not JSON"),
        ("lora-modules", "{a:1}", "is not JSON"),
        ("lora-modules", ("l=/l", "l"), "an adapter is written NAME=PATH"),
        ("lora-modules", "1", "an adapter is written NAME=PATH"),
        ("compilation-config", '{"cudagraph_mod": 1}', "Did you mean cudagraph_mode?"),
        ("speculative-config", 3, "Write a table"),
        ("speculative-config", "[]", "takes a table"),
        ("chat-template", ("a", "b"), "takes one value (a string), not a list"),
    ],
)
def test_what_vllm_would_refuse(option: str, value: ArgValue, words: str) -> None:
    (finding,) = found(option, value)
    assert words in finding.message
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("value", "small", "large"),
    [("256k", 256_000, 262_144), ("25.6k", 25_600, 26_214), ("1m", 1_000_000, 1_048_576)],
)
def test_a_small_multiplier_is_told_from_a_large_one(value: str, small: int, large: int) -> None:
    (finding,) = found("max-model-len", value)
    assert f'"{value}" is {small}; {value.upper()} would be {large}' in finding.message
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("option", "value"), [("quantization", "gguf"), ("load-format", "my_loader")]
)
def test_a_word_that_a_plug_in_may_bring_is_doubted(option: str, value: str) -> None:
    (finding,) = found(option, value)
    assert finding.severity is Severity.WARNING
    assert "not among those vLLM knows itself" in finding.message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dtype", "fp5"),
        ("attention-backend", "TRITON_MS"),
        ("speculative-config", {"num_spec": 3}),
        ("compilation-config", '{"cudagraph_mod": 1}'),
    ],
)
def test_a_choice_or_a_field_of_a_newer_vllm_is_doubted(option: str, value: ArgValue) -> None:
    (finding,) = found(option, value, NEWEST)
    (sure,) = found(option, value)
    assert finding.severity is Severity.WARNING
    assert finding.path == sure.path
    assert re.sub(rf" (of|in) vLLM {NEWEST.version}", "", finding.message, count=1) == sure.message
    assert finding.message != sure.message


def test_a_type_is_no_news_of_a_newer_vllm() -> None:
    (finding,) = found("max-num-seqs", "many", NEWEST)
    assert finding.severity is Severity.ERROR


@given(st.data())
def test_every_choice_of_every_option_is_legal(data: st.DataObject) -> None:
    chosen = [
        option
        for option in NEWEST.options.values()
        if option.choices and option.kind is OptionKind.TEXT
    ]
    option = data.draw(st.sampled_from(sorted(chosen, key=lambda o: o.name)))
    word = data.draw(st.sampled_from(option.choices))
    errors = [f for f in found(option.name, word) if f.severity is Severity.ERROR]
    assert errors == []
    other = data.draw(st.text("xyz", min_size=9))
    told = [f for f in found(option.name, other) if "mong" in f.message]
    doubted = option.choice_rule is ChoiceRule.OPEN
    judged_with_the_model = option.name in ("tool-call-parser", "reasoning-parser")
    assert [f.severity for f in told] == (
        [] if judged_with_the_model else [Severity.WARNING if doubted else Severity.ERROR]
    )
