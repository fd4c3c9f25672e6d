"""What a model's config.json says of its shape, as vLLM reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
"""Where a config says how long a context may be; the least counts, but for model_max_length,
which goes before all (vllm: get_derived_max_model_len)."""
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "num_routed_experts")
_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num",
    "num_attention_groups",
)  # fmt: skip
"""Where a config says how many heads its keys and values have (vllm: get_total_num_kv_heads)."""
_LATENT = "kv_lora_rank"
"""A config with this has one latent for all heads (MLA), which every GPU holds whole."""
_KINDS = ("model_type", "architectures")
_UNSCALED = ("default", "mrope", "su", "longrope", "llama3", "deepseek_llama_scaling")
"""Kinds of RoPE whose factor does not lengthen the context (vllm/config/model.py)."""
_ROPES = ("rope_scaling", "rope_parameters")
_MOST_FACTOR = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model. 0 and () mean: not said.

    `kv_heads` are those of keys and values, where they are divided among GPUs at all;
    `intermediate` is that of its experts where it has some; `block` that of its
    FP8 weights, rows and columns, and `quantized_by` the method of its checkpoint.
    """

    model_type: str = ""
    heads: int = 0
    kv_heads: int = 0
    positions: int = 0
    experts: int = 0
    intermediate: int = 0
    block: tuple[int, ...] = ()
    hidden: int = 0
    quantized_by: str = ""


def shape_of(config: Mapping[str, object]) -> Shape:
    """Given a config.json, return the shape it tells; its language part where it has several.

    What is not as it should be counts as not said.
    """
    nested = _table(config, "text_config") or _table(config, "llm_config")
    text = {**config, **nested}
    experts = _first(text, _EXPERTS)
    own = _first(text, ("moe_intermediate_size",)) if experts else 0
    quantization = _table(text, "quantization_config")
    return Shape(
        model_type=str(config.get("model_type", "")),
        heads=_first(text, ("num_attention_heads",)),
        kv_heads=_kv_heads(text),
        positions=_context(config, text),
        experts=experts,
        intermediate=own or _first(text, ("intermediate_size",)),
        block=_block(quantization),
        hidden=_first(text, ("hidden_size",)),
        quantized_by=str(quantization.get("quant_method", "")),
    )


def is_dense(config: Mapping[str, object]) -> bool:
    """Given a config.json, return whether it tells of a model without experts for sure.

    Names of the keys for experts differ by family: one that speaks of them, anywhere, is enough.
    """
    return bool(shape_of(config).heads) and not _speaks_of_experts(config)


def _speaks_of_experts(table: Mapping[str, object]) -> bool:
    return any(
        re.search(
            "expert|moe|mixtral|block_configs", f"{key} {value if key in _KINDS else ''}".lower()
        )
        or (isinstance(value, Mapping) and _speaks_of_experts(value))
        for key, value in table.items()
    )


def _table(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def _first(config: Mapping[str, object], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _kv_heads(text: Mapping[str, object]) -> int:
    """Those of keys and values; 0 where a latent stands for them, or one of Falcon's for all."""
    if _first(text, (_LATENT,)):
        return 0
    alone = text.get("multi_query") is True and text.get("new_decoder_architecture") is not True
    return 0 if alone and text.get("model_type") == "falcon" else _first(text, _KV_HEADS)


def _context(config: Mapping[str, object], text: Mapping[str, object]) -> int:
    """The longest context that some vLLM takes; 0: not said.

    RoPE lengthens what is said, by whichever key (_get_and_verify_max_len). A
    factor of YaRN counts from the original length up to vLLM 0.19, and not at all
    in 0.33: the longer counts. The outermost model_max_length may allow more.
    """
    said = [length for key in _POSITIONS if (length := _first(text, (key,)))]
    base = _first(text, ("model_max_length",)) or min(said, default=0)
    if not base:
        return 0
    ropes = [rope for key in _ROPES for rope in _ropes(_table(text, key))]
    scaled = [_scaled(base, rope) for rope in ropes]
    return max(base, _first(config, ("model_max_length",)), *scaled)


def _ropes(table: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The table itself, and those in it: Transformers 5 may have one for each kind of layer."""
    return [table, *(inner for inner in table.values() if isinstance(inner, Mapping))]


def _scaled(base: int, rope: Mapping[str, object]) -> int:
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    factor = rope.get("factor")
    if kind in _UNSCALED or isinstance(factor, bool) or not isinstance(factor, int | float):
        return base
    original = _first(rope, ("original_max_position_embeddings",)) if "yarn" in kind else 0
    return int((original or base) * factor) if 0 < factor < _MOST_FACTOR else base


def _block(quantization: Mapping[str, object]) -> tuple[int, ...]:
    """The block that FP8 weights share a scale in; () for other weights and other scales."""
    if quantization.get("quant_method") == "fp8":
        return _pair(quantization.get("weight_block_size"))
    groups = _table(quantization, "config_groups")
    for group in groups.values():
        weights = _table(group, "weights") if isinstance(group, Mapping) else {}
        if (weights.get("type"), weights.get("num_bits")) == ("float", 8):
            return _pair(weights.get("block_structure"))
    return ()


def _pair(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - rows and columns
        return ()
    return tuple(value) if all(isinstance(side, int) and side > 0 for side in value) else ()
