"""How a model is divided among GPUs, by its config.json and by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loading import load

from kimisvc.profile.knowledge.model.rules import model_findings
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, GateSettings, HardwareSettings, Profile, VllmSettings
from kimisvc.records.vllm import KnownFrom, VllmKnowledge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.profile.problems import Finding

PROFILES = Path(__file__).parents[3] / "profiles"
NEWEST = shipped_knowledge()
ASKED = replace(NEWEST, known_from=KnownFrom.ASKED)

MINIMAX = {
    "model_type": "minimax_m2",
    "num_attention_heads": 48,
    "num_local_experts": 256,
    "intermediate_size": 1536,
    "max_position_embeddings": 196608,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "num_attention_heads": 64,
        "n_routed_experts": 384,
        "moe_intermediate_size": 2048,
        "intermediate_size": 18432,
        "max_position_embeddings": 262144,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4096,
        },
        "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}},
    },
}


def found(
    model: str,
    config: Mapping[str, object] | None = None,
    gpus: int = 0,
    vllm: VllmKnowledge | None = None,
    **args: Any,
) -> list[Finding]:
    profile = Profile(
        "p",
        VllmSettings("/v/bin/vllm", model),
        args={key.replace("_", "-"): value for key, value in args.items()},
        hardware=HardwareSettings(gpus=gpus),
    )
    return list(model_findings(profile, config, vllm))


def only(model: str, config: Mapping[str, object] | None = None, **rest: Any) -> Finding:
    (finding,) = found(model, config, **rest)
    return finding


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_profile_fits_its_model(path: Path) -> None:
    findings = model_findings(load(path, PROFILES), None)
    assert [f for f in findings if f.severity is Severity.ERROR] == []


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("/srv/models/MiniMax-M2.5", None),
        ("MiniMaxAI/MiniMax-M2.5", None),
        ("/srv/models/minimax_m2.5_fp8/", None),
        ("/srv/models/any-name", MINIMAX),
    ],
)
def test_case_26_minimax_in_fp8_is_not_cut_into_eight(
    model: str, config: Mapping[str, object] | None
) -> None:
    finding = only(model, config, tensor_parallel_size=8)
    assert finding.path == ("args", "tensor-parallel-size")
    assert "1536 / 8 = 192 is not a multiple of 128" in finding.message
    assert "not divisible" in finding.message
    assert finding.message.endswith("enable-expert-parallel = true or tensor-parallel-size = 4")
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("model", "args"),
    [
        ("/m/MiniMax-M2.5", {"tensor_parallel_size": 8, "enable_expert_parallel": True}),
        ("/m/MiniMax-M2.5", {"tensor_parallel_size": 4}),
        ("/m/MiniMax-M2.5", {}),
        ("/m/MiniMax-M2.5-NVFP4", {"tensor_parallel_size": 8}),
        ("/m/MiniMax-M2.5-AWQ", {"tensor_parallel_size": 8}),
        ("/m/MiniMax-M1", {"tensor_parallel_size": 8}),
    ],
)
def test_ways_to_serve_minimax(model: str, args: dict[str, Any]) -> None:
    assert found(model, **args) == []


def test_data_parallel_ranks_cut_experts_as_well() -> None:
    finding = only("/m", MINIMAX, tensor_parallel_size=4, data_parallel_size=2)
    assert finding.message.endswith("Write enable-expert-parallel = true")


def test_a_size_that_is_not_divisible_at_all() -> None:
    config = {**MINIMAX, "num_attention_heads": 50}
    finding = only("/m", config, tensor_parallel_size=5)
    assert "1536 of the experts is not divisible by 5" in finding.message


GROUPED = {**MINIMAX, "num_key_value_heads": 8}


@pytest.mark.parametrize(("parts", "fitting"), [(3, 2), (6, 4), (12, 8)])
def test_heads_of_keys_and_values_are_shared_evenly(parts: int, fitting: int) -> None:
    """48 heads can be divided so, and MiniMax's 8 of keys and values cannot."""
    finding = only("/m", GROUPED, tensor_parallel_size=parts, enable_expert_parallel=True)
    assert finding.path == ("args", "tensor-parallel-size")
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        f"the model's 8 heads of keys and values cannot be shared evenly by {parts} GPUs. "
        f"{fitting} would do"
    )


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16, 24, 48])
def test_fewer_gpus_hold_whole_heads_and_more_hold_each_as_often(parts: int) -> None:
    assert found("/m", GROUPED, tensor_parallel_size=parts, enable_expert_parallel=True) == []


def test_what_would_do_fits_all_heads() -> None:
    finding = only("/m", GROUPED, tensor_parallel_size=7, enable_expert_parallel=True)
    assert finding.message.endswith("48 attention heads cannot be divided by 7. 4 would do")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llava", "text_config": {"num_attention_heads": 48, "num_key_value_heads": 8}},
        {"model_type": "glm4", "num_attention_heads": 48, "num_key_value_heads": 8},
        {"model_type": "chatglm", "num_attention_heads": 48, "multi_query_group_num": 8},
        {"model_type": "falcon", "num_attention_heads": 48, "num_kv_heads": 8,
         "multi_query": True, "new_decoder_architecture": True},
    ],
)  # fmt: skip
def test_every_config_that_tells_of_such_heads_is_read(config: dict[str, object]) -> None:
    assert "8 heads of keys and values" in only("/m", config, tensor_parallel_size=6).message


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "deepseek_v3", "num_attention_heads": 48, "num_key_value_heads": 8,
         "kv_lora_rank": 512},
        {"model_type": "kimi_k25", "text_config": {"num_attention_heads": 48,
         "num_key_value_heads": 8, "kv_lora_rank": 512}},
        {"model_type": "falcon", "num_attention_heads": 48, "num_kv_heads": 8, "multi_query": True},
        {"model_type": "any", "num_attention_heads": 48, "num_key_value_heads": None},
        {"model_type": "any", "num_attention_heads": 48, "num_key_value_heads": [8, 4]},
    ],
)  # fmt: skip
def test_a_latent_and_a_single_head_are_held_whole(config: dict[str, object]) -> None:
    assert found("/m", config, tensor_parallel_size=6) == []


QWEN = {
    "model_type": "qwen3_moe",
    "num_attention_heads": 32,
    "num_experts": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "max_position_embeddings": 40960,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.28.1", Severity.ERROR),
        ("0.19.1", Severity.ERROR),
        ("0.29.0", Severity.WARNING),
        ("0.33.0", Severity.WARNING),
        ("1.0", Severity.WARNING),
        ("0.1.dev1+gabc", Severity.WARNING),
    ],
)
def test_blocks_that_a_vllm_makes_smaller_are_slow_and_no_error(
    version: str, severity: Severity
) -> None:
    vllm = replace(ASKED, version=version)
    finding = only("Qwen/Qwen3-30B-A3B-FP8", QWEN, vllm=vllm, tensor_parallel_size=4)
    assert "768 / 4 = 192 is not a multiple of 128" in finding.message
    assert finding.severity is severity
    assert ("only slower kernels" in finding.message) is (severity is Severity.WARNING)
    assert finding.message.endswith("enable-expert-parallel = true or tensor-parallel-size = 2")


@pytest.mark.parametrize(
    ("change", "gpus"),
    [
        ({}, 16),  # 48: no block of 32 or more divides it
        ({"hidden_size": 2064}, 4),
        ({"moe_intermediate_size": 769}, 4),  # not divisible at all
        ({"model_type": "minimax_m2"}, 4),
        ({"num_experts": 0, "intermediate_size": 768}, 4),  # layers are not refined
        ({"quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {
                "type": "float", "num_bits": 8, "block_structure": [128, 128]}}}}}, 4),
    ],
)  # fmt: skip
def test_blocks_that_no_vllm_makes_smaller_are_an_error(change: dict[str, Any], gpus: int) -> None:
    finding = only("/m", {**QWEN, **change}, vllm=ASKED, tensor_parallel_size=gpus)
    assert finding.severity is Severity.ERROR


def test_a_backend_that_is_named_may_pad_the_blocks() -> None:
    args: dict[str, Any] = {"tensor_parallel_size": 16, "moe_backend": "deep_gemm"}
    assert only("/m", QWEN, vllm=ASKED, **args).severity is Severity.WARNING


def test_a_dense_model_has_blocks_too() -> None:
    config = {**MINIMAX, "num_local_experts": 0, "model_type": ""}
    finding = only("/m", config, tensor_parallel_size=8, enable_expert_parallel=True)
    assert finding.severity is Severity.ERROR
    assert finding.message.endswith("Write tensor-parallel-size = 4")


def test_blocks_as_compressed_tensors_writes_them() -> None:
    weights = {"type": "float", "num_bits": 8, "block_structure": [128, 128]}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }
    config = {**MINIMAX, "quantization_config": quantization}
    assert "192 is not a multiple" in only("/m", config, tensor_parallel_size=8).message
    weights["num_bits"] = 4
    assert found("/m", config, tensor_parallel_size=8) == []


def test_the_config_goes_before_the_name() -> None:
    config = {**MINIMAX, "quantization_config": {"quant_method": "awq"}}
    assert found("/m/MiniMax-M2.5", config, tensor_parallel_size=8) == []


def test_kimi_divides_by_eight() -> None:
    assert found("/m/Kimi-K2.5", KIMI, tensor_parallel_size=8, max_model_len=262144) == []


def test_a_number_in_quotes_counts_as_one() -> None:
    finding = only("/m", MINIMAX, gpus=8, tensor_parallel_size="8")
    assert "1536 / 8 = 192" in finding.message
    assert "48 attention heads" in only("/m", {**MINIMAX, "intermediate_size": 0},
                                        tensor_parallel_size="5").message  # fmt: skip
    assert only("/m", gpus=8, tensor_parallel_size="4").message.startswith(
        "tensor-parallel-size 4 takes 4 of the 8 GPUs"
    )


def test_heads_are_not_divided_unevenly() -> None:
    finding = only("/m", KIMI, tensor_parallel_size=6)
    assert finding.message == "the model's 64 attention heads cannot be divided by 6. 4 would do"


@pytest.mark.parametrize("length", [262145, "300k", "1M"])
def test_a_context_longer_than_the_model_can(length: ArgValue) -> None:
    finding = only("/m", KIMI, max_model_len=length)
    assert "more than the 262144 tokens" in finding.message
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize("length", [262144, "256K", "auto", -1, "256k"])
def test_a_context_the_model_can(length: ArgValue) -> None:
    assert found("/m", KIMI, max_model_len=length) == []


def test_a_longer_context_may_be_asked_for() -> None:
    assert found("/m", KIMI, max_model_len=10**6, hf_overrides={"rope_parameters": {}}) == []
    profile = Profile(
        "p",
        VllmSettings("/v", "/m"),
        args={"max-model-len": 10**6},
        env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
    )
    assert list(model_findings(profile, KIMI)) == []


def rope(table: dict[str, Any], key: str = "rope_scaling", **more: Any) -> dict[str, Any]:
    return {"max_position_embeddings": 32768, key: table, **more}


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        (rope({"rope_type": "yarn", "factor": 4.0}), 131072),
        (rope({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}), 32768),
        (rope({"rope_type": "linear", "factor": 2, "original_max_position_embeddings": 8192}), 65536),
        (rope({"rope_type": "llama3", "factor": 8.0}), 32768),
        (rope({"rope_type": "default", "factor": 8.0}), 32768),
        (rope({"rope_type": "yarn", "factor": None}), 32768),
        (rope({"rope_type": "yarn", "factor": 4.0}, model_max_length=131072), 524288),
        (rope({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 131072},
              model_max_length=131072), 524288),
        (rope({"rope_type": "linear", "factor": 4.0}, model_max_length=131072), 524288),
        (rope({"full_attention": {"rope_type": "linear", "factor": 8.0},
               "sliding_attention": {"rope_type": "default"}}, "rope_parameters"), 262144),
        ({"model_max_length": 131072, "text_config": {"max_position_embeddings": 4096}}, 131072),
        ({"model_max_length": 131072, "text_config": {"model_max_length": 4096}}, 131072),
    ],
)  # fmt: skip
def test_rope_lengthens_a_context(config: dict[str, Any], longest: int) -> None:
    assert found("/m", config, max_model_len=longest) == []
    assert f"the {longest} tokens" in only("/m", config, max_model_len=longest + 1).message


def test_a_context_may_be_lengthened_field_by_field() -> None:
    args: dict[str, Any] = {"max-model-len": 10**6, "hf-overrides.rope_parameters.factor": 4.0}
    assert found("/m", KIMI, **args) == []


@pytest.mark.parametrize(
    "config",
    [
        {},
        *({"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "yarn", "factor": odd}}
          for odd in (float("inf"), float("nan"), -1.0, 1e300)),
        {"text_config": 3, "num_attention_heads": "64", "max_position_embeddings": True},
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, "x"]},
         "intermediate_size": 1536},
        {"quantization_config": {"config_groups": {"a": 3}}, "intermediate_size": -1},
        {"rope_scaling": {"factor": "64"}, "max_position_embeddings": 8192},
    ],
)  # fmt: skip
def test_a_config_that_is_odd_says_nothing(config: Mapping[str, object]) -> None:
    assert found("/m", config, tensor_parallel_size=6, max_model_len=4096) == []


# ---------------------------------------------------------------- GPUs


@pytest.mark.parametrize(
    ("gpus", "args", "severity", "words"),
    [
        (8, {"tensor_parallel_size": 16}, Severity.ERROR, "takes 16 GPUs, but"),
        (
            8,
            {"tensor_parallel_size": 8, "pipeline_parallel_size": 2},
            Severity.ERROR,
            "tensor-parallel-size 8 x pipeline-parallel-size 2 takes 16 GPUs",
        ),
        (8, {"tensor_parallel_size": 4, "data_parallel_size": 4}, Severity.ERROR, "takes 16"),
        (8, {"tensor_parallel_size": 4}, Severity.WARNING, "takes 4 of the 8 GPUs"),
        (8, {}, Severity.WARNING, "takes 1 of the 8 GPUs"),
        (
            8,
            {"tensor_parallel_size": 8, "pipeline_parallel_size": 4, "nnodes": 2},
            Severity.ERROR,
            "tensor-parallel-size 8 x pipeline-parallel-size 4 over nnodes 2 takes 16 GPUs",
        ),
        (
            8,
            {"tensor_parallel_size": 4, "data_parallel_size": 8, "data_parallel_size_local": 4},
            Severity.ERROR,
            "tensor-parallel-size 4 x data-parallel-size-local 4 takes 16 GPUs",
        ),
    ],
)
def test_ranks_that_do_not_fit_the_gpus(
    gpus: int, args: dict[str, Any], severity: Severity, words: str
) -> None:
    finding = only("/m", gpus=gpus, **args)
    assert words in finding.message
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("gpus", "args"),
    [
        (8, {"tensor_parallel_size": 8}),
        (8, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}),
        (8, {"tensor_parallel_size": 8, "data_parallel_size": 2, "data_parallel_size_local": 1}),
        (8, {"tensor_parallel_size": 16, "nnodes": 2}),
        (8, {"data_parallel_size": 16, "data_parallel_size_local": 8}),
        (8, {"tensor_parallel_size": 16, "distributed_executor_backend": "ray"}),
        (8, {"tensor_parallel_size": "8"}),
        (8, {"tensor_parallel_size": "many"}),
        (4, {"tensor_parallel_size": 4, "data_parallel_size": 4, "data_parallel_rank": 3}),
        (0, {"tensor_parallel_size": 16}),
    ],
)
def test_ranks_that_fit(gpus: int, args: dict[str, Any]) -> None:
    assert found("/m", gpus=gpus, **args) == []


def test_context_parallel_ranks_divide_the_tensor_parallel_ones() -> None:
    args: dict[str, Any] = {"tensor_parallel_size": 8, "decode_context_parallel_size": 3}
    assert "3 does not divide tensor-parallel-size 8" in only("/m", **args).message
    assert found("/m", **{**args, "decode_context_parallel_size": 4}) == []


# ---------------------------------------------------------------- parsers


@pytest.mark.parametrize(
    ("model", "option", "parser", "right"),
    [
        ("/m/Kimi-K2.5", "tool-call-parser", "hermes", '"kimi_k2"'),
        ("/m/Kimi-K2.5", "reasoning-parser", "deepseek_r1", '"kimi_k2"'),
        ("/m/MiniMax-M2.5", "reasoning-parser", "minimax_m3", '"minimax_m2"'),
        ("zai-org/GLM-5-FP8", "tool-call-parser", "hermes", '"glm47"'),
        ("openai/gpt-oss-120b", "tool-call-parser", "hermes", '"openai"'),
    ],
)
def test_a_parser_of_another_family(model: str, option: str, parser: str, right: str) -> None:
    args: dict[str, Any] = {option: parser, "enable-auto-tool-choice": True}
    if option != "tool-call-parser":
        del args["enable-auto-tool-choice"]
    finding = only(model, **args)
    assert right in finding.message
    assert finding.severity is Severity.WARNING


def test_the_family_is_seen_in_the_config_too() -> None:
    finding = only("/m/our-model", KIMI, reasoning_parser="glm45")
    assert "not for Kimi-K2" in finding.message


def test_a_parser_that_does_not_exist() -> None:
    finding = only("/m", vllm=ASKED, reasoning_parser="kimi_k22")
    assert finding.message.endswith("Did you mean kimi_k2?")
    assert finding.severity is Severity.ERROR
    assert only("/m", reasoning_parser="kimi_k22").severity is Severity.WARNING
    assert only("/m", reasoning_parser="zzzzz").severity is Severity.WARNING
    assert only("/m", vllm=ASKED, reasoning_parser="zzzzz").severity is Severity.ERROR
    assert found("/m", reasoning_parser="zzzzz", reasoning_parser_plugin="/x.py") == []


@pytest.mark.parametrize(
    ("model", "option", "parser", "right"),
    [
        ("/m/Kimi-K2.5", "tool-call-parser", "kimi", "kimi_k2"),
        ("/m/MiniMax-M2.5", "tool-call-parser", "minimax", "minimax_m2"),
        ("/m/MiniMax-M2.5", "reasoning-parser", "minimax", "minimax_m2"),
        ("/m/Kimi-K2.5", "reasoning-parser", "kimi_k4", "kimi_k2"),
        ("/m", "tool-call-parser", "kimi", "kimi_k2 or kimi_k3"),
    ],
)
def test_what_is_offered_for_an_unknown_parser_fits_the_model(
    model: str, option: str, parser: str, right: str
) -> None:
    args: dict[str, Any] = {option: parser, "enable-auto-tool-choice": True}
    if option != "tool-call-parser":
        del args["enable-auto-tool-choice"]
    assert only(model, vllm=ASKED, **args).message.endswith(f"Did you mean {right}?")


def test_tool_choice_needs_a_parser_and_a_parser_needs_tool_choice() -> None:
    assert only("/m", enable_auto_tool_choice=True).severity is Severity.ERROR
    finding = only("/m", tool_call_parser="hermes")
    assert finding.severity is Severity.WARNING
    assert "enable-auto-tool-choice = true" in finding.message


def test_a_gate_on_reasoning_needs_its_parser() -> None:
    profile = Profile("p", VllmSettings("/v", "/m"), gate=GateSettings(require_reasoning=True))
    (finding,) = model_findings(profile, None)
    assert finding.path == ("gate", "require_reasoning")


# ---------------------------------------------------------------- the rest


def test_gguf_needs_an_old_vllm_or_a_plug_in() -> None:
    assert "vllm-gguf-plugin" in only("/m/GLM-5-Q4.gguf").message
    assert only("/m/GLM-5-Q4.gguf").severity is Severity.WARNING
    assert only("unsloth/GLM-5-GGUF:Q4", vllm=ASKED).severity is Severity.ERROR
    assert only("/m/x", load_format="gguf").path == ("vllm", "model")
    assert only("/m/x", vllm=ASKED, quantization="GGUF").severity is Severity.ERROR
    assert found("/m/GLM-5-Q4.gguf", vllm=replace(ASKED, version="0.23.0")) == []
    loader = replace(ASKED.options["load-format"], choices=("auto", "gguf"))
    plugged = replace(ASKED, options={**ASKED.options, "load-format": loader})
    assert found("/m/GLM-5-Q4.gguf", vllm=plugged) == []


@pytest.mark.parametrize(
    "model",
    [
        "/srv/models/SmolLM2-from-gguf",
        "/srv/models/SmolLM2-from-gguf/",
        "/srv/gguf/Kimi-K2.5",
        "org/SmolLM2-from-gguf",
        "/srv/models/gguf:1/x",
    ],
)
def test_a_folder_is_not_known_by_its_name(model: str) -> None:
    assert found(model, vllm=ASKED) == []


def test_a_vllm_that_does_not_tell_its_version_may_read_gguf() -> None:
    for version in ("dev", "0.1.dev1+g1234567"):
        assert found("/m/x.gguf", vllm=replace(ASKED, version=version)) == []


def test_an_encoder_that_is_left_out_has_no_mode() -> None:
    finding = only("/m", language_model_only=True, mm_encoder_tp_mode="data")
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("word", ["none", "None"])
def test_no_reasoning_parser_is_called_none(word: str) -> None:
    finding = only("/m", vllm=ASKED, reasoning_parser=word)
    assert f'has no parser "{word}"' in finding.message
    assert found("/m", vllm=ASKED, reasoning_parser="") == []


# ---------------------------------------------------------------- experts


def test_expert_parallelism_of_a_model_without_experts() -> None:
    dense = {"model_type": "llama", "num_attention_heads": 32, "hidden_size": 4096}
    finding = only("/m/dense", dense, enable_expert_parallel=True)
    assert "tells of none" in finding.message
    assert finding.severity is Severity.WARNING
    assert found("/m/dense", dense, enable_expert_parallel=False) == []


@pytest.mark.parametrize(
    "config",
    [
        None,
        {"model_type": "llama"},  # too little to say
        {"model_type": "llama", "num_attention_heads": 8, "moe_num_experts": 4},
        {"num_attention_heads": 8, "architectures": ["MixtralForCausalLM"]},
        {"text_config": {"num_attention_heads": 8, "num_experts_per_tok": 2}},
        {"num_attention_heads": 8, "block_configs": [{"ffn": {}}]},
    ],
)
def test_a_config_that_may_tell_of_experts(config: Mapping[str, object] | None) -> None:
    assert found("/m/sparse", config, enable_expert_parallel=True) == []
