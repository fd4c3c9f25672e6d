"""What vLLM removed, when, and what to write instead: one row an option or variable.

Found by comparing the parsers and vllm/envs.py of the released wheels 0.7.3 to
0.33.0, the last release of each minor version; replacements are what the last
version that knew the name says in its deprecation notice. Rows only speak of
names the vLLM at hand does not know: some came back (--disable-log-requests
is a name of --no-enable-log-requests since 0.33).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOW_ONLY_V1 = "It had no meaning any more. Leave it out"
_MOE = 'Write moe-backend in [args] instead ("flashinfer_trtllm", "flashinfer_cutlass", ...)'
_LINEAR = "Write linear-backend in [args] instead"
_ATTENTION = "Write attention-config in [args] instead"
_PROFILER = "Write profiler-config in [args] instead"
_STRUCTURED = "Write structured-outputs-config in [args] instead"
_EPLB = "Write eplb-config in [args] instead"
_OVERRIDES = "Write hf-overrides = { rope_parameters = ... } instead"
_SPECULATIVE = "Write speculative-config = { ... } instead"
_LEAVE = "Leave it out"
_RAY = "Ray's compiled graph is set up by vLLM itself now. Leave it out"


@dataclass(frozen=True, slots=True)
class Removed:
    """A name vLLM no longer knows: the first version without it, and what to do."""

    name: str
    removed_in: str
    instead: str


_OPTIONS = (
    Removed("speculative-model", "0.8", _SPECULATIVE),
    Removed("num-speculative-tokens", "0.8", _SPECULATIVE),
    Removed("ngram-prompt-lookup-max", "0.8", _SPECULATIVE),
    Removed("use-v2-block-manager", "0.10", _NOW_ONLY_V1),
    Removed("device", "0.10", "The device is that of the build of vLLM. Leave it out"),
    Removed("enable-reasoning", "0.10", "reasoning-parser alone turns it on. Leave it out"),
    Removed("num-scheduler-steps", "0.10", _NOW_ONLY_V1),
    Removed("multi-step-stream-outputs", "0.10", _NOW_ONLY_V1),
    Removed("enable-prompt-adapter", "0.10", _LEAVE),
    Removed("tokenizer-pool-size", "0.10", _NOW_ONLY_V1),
    Removed("tokenizer-pool-type", "0.10", _NOW_ONLY_V1),
    Removed("max-seq-len-to-capture", "0.11", "Write max-cudagraph-capture-size instead"),
    Removed("rope-scaling", "0.11", _OVERRIDES),
    Removed("rope-theta", "0.11", _OVERRIDES),
    Removed("preemption-mode", "0.11", _NOW_ONLY_V1),
    Removed("scheduler-delay-factor", "0.11", _NOW_ONLY_V1),
    Removed("disable-async-output-proc", "0.11", _NOW_ONLY_V1),
    Removed("enable-lora-bias", "0.11", _LEAVE),
    Removed("num-lookahead-slots", "0.12", _NOW_ONLY_V1),
    Removed("guided-decoding-backend", "0.12", _STRUCTURED),
    Removed("guided-decoding-disable-fallback", "0.12", _STRUCTURED),
    Removed("guided-decoding-disable-any-whitespace", "0.12", _STRUCTURED),
    Removed("guided-decoding-disable-additional-properties", "0.12", _STRUCTURED),
    Removed("num-redundant-experts", "0.12", _EPLB),
    Removed("eplb-window-size", "0.12", _EPLB),
    Removed("eplb-step-interval", "0.12", _EPLB),
    Removed("eplb-log-balancedness", "0.12", _EPLB),
    Removed("lora-extra-vocab-size", "0.12", _LEAVE),
    Removed("override-pooler-config", "0.12", "Write pooler-config instead"),
    Removed("cuda-graph-sizes", "0.13", "Write cudagraph-capture-sizes instead"),
    Removed("disable-mm-preprocessor-cache", "0.13", "Write mm-processor-cache-gb = 0 instead"),
    Removed("enable-multimodal-encoder-data-parallel", "0.13",
            'Write mm-encoder-tp-mode = "data" instead'),
    Removed("task", "0.13", "Write runner and convert instead"),
    Removed("disable-log-requests", "0.17",
            "Requests are not logged unless enable-log-requests = true. Leave it out"),
    Removed("logits-processor-pattern", "0.17", "Write logits-processors instead"),
    Removed("swap-space", "0.18",
            "vLLM no longer swaps: a request that does not fit is computed again. Leave it out"),
    Removed("use-gpu-for-pooling-score", "0.18", _LEAVE),
    Removed("disable-frontend-multiprocessing", "0.19",
            "Its engine always runs in a process of its own. Leave it out"),
    Removed("max-num-partial-prefills", "0.27", _LEAVE),
    Removed("max-long-partial-prefills", "0.27", _LEAVE),
    Removed("calculate-kv-scales", "0.28",
            "Scales come from the checkpoint, or are 1.0. Leave it out"),
    Removed("override-attention-dtype", "0.28", _LEAVE),
    Removed("enable-bf16x3-router-gemm", "0.30", _LEAVE),
    Removed("enable-mamba-fine-grained-prefix-cache", "0.31", _LEAVE),
)  # fmt: skip

_VARIABLES = (
    Removed("VLLM_USE_V1", "0.11", "There is no other engine. Leave it out"),
    Removed("VLLM_USE_TRITON_FLASH_ATTN", "0.11", _LEAVE),
    Removed("VLLM_SKIP_DEEP_GEMM_WARMUP", "0.11", 'Write VLLM_DEEP_GEMM_WARMUP = "skip" instead'),
    Removed("VLLM_USE_RAY_SPMD_WORKER", "0.11", _RAY),
    Removed("VLLM_USE_RAY_COMPILED_DAG", "0.11", _RAY),
    Removed("VLLM_USE_TRTLLM_FP4_GEMM", "0.11", _LINEAR),
    Removed("VLLM_MM_INPUT_CACHE_GIB", "0.13", "Write mm-processor-cache-gb in [args] instead"),
    Removed("VLLM_ATTENTION_BACKEND", "0.15", "Write attention-backend in [args] instead"),
    Removed("VLLM_FLASH_ATTN_VERSION", "0.15", _ATTENTION),
    Removed("VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH", "0.15", _ATTENTION),
    Removed("VLLM_USE_TRTLLM_ATTENTION", "0.15", _ATTENTION),
    Removed("VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL", "0.15", _ATTENTION),
    Removed("VLLM_USE_CUDNN_PREFILL", "0.15", _ATTENTION),
    Removed("VLLM_DISABLE_FLASHINFER_PREFILL", "0.15", _ATTENTION),
    Removed("VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION", "0.15", _ATTENTION),
    Removed("VLLM_V1_USE_PREFILL_DECODE_ATTENTION", "0.15", _ATTENTION),
    Removed("VLLM_ALL2ALL_BACKEND", "0.16", "Write all2all-backend in [args] instead"),
    Removed("VLLM_TORCH_PROFILER_DIR", "0.16", _PROFILER),
    Removed("VLLM_TORCH_PROFILER_RECORD_SHAPES", "0.16", _PROFILER),
    Removed("VLLM_TORCH_PROFILER_WITH_STACK", "0.16", _PROFILER),
    Removed("VLLM_TORCH_PROFILER_WITH_FLOPS", "0.16", _PROFILER),
    Removed("VLLM_TORCH_PROFILER_WITH_PROFILE_MEMORY", "0.16", _PROFILER),
    Removed("VLLM_TORCH_CUDA_PROFILE", "0.16", _PROFILER),
    Removed("VLLM_PROFILER_DELAY_ITERS", "0.16", _PROFILER),
    Removed("VLLM_PROFILER_MAX_ITERS", "0.16", _PROFILER),
    Removed("VLLM_SLEEP_WHEN_IDLE", "0.18", _LEAVE),
    Removed("VLLM_FUSED_MOE_CHUNK_SIZE", "0.18", _LEAVE),
    Removed("VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING", "0.18", _LEAVE),
    Removed("VLLM_ROCM_CUSTOM_PAGED_ATTN", "0.19", _LEAVE),
    Removed("VLLM_ENABLE_MOE_DP_CHUNK", "0.20", _LEAVE),
    Removed("VLLM_MOE_DP_CHUNK_SIZE", "0.20", _LEAVE),
    Removed("VLLM_RPC_TIMEOUT", "0.23", _LEAVE),
    Removed("VLLM_USE_FLASHINFER_MOE_FP4", "0.24", _MOE),
    Removed("VLLM_USE_FLASHINFER_MOE_FP8", "0.24", _MOE),
    Removed("VLLM_USE_FLASHINFER_MOE_FP16", "0.24", _MOE),
    Removed("VLLM_USE_FLASHINFER_MOE_MXFP4_BF16", "0.24", _MOE),
    Removed("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "0.24", _MOE),
    Removed("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "0.24", _MOE),
    Removed("VLLM_FLASHINFER_MOE_BACKEND", "0.24", _MOE),
    Removed("VLLM_MXFP4_USE_MARLIN", "0.24",
            'Write moe-backend = "marlin" or linear-backend = "marlin" in [args] instead'),
    Removed("VLLM_NVFP4_GEMM_BACKEND", "0.24", _LINEAR),
    Removed("VLLM_USE_FBGEMM", "0.24", 'Write linear-backend = "fbgemm" in [args] instead'),
    Removed("VLLM_USE_NVFP4_CT_EMULATIONS", "0.24",
            'Write linear-backend = "emulation" in [args] instead'),
    Removed("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB", "0.26", _LEAVE),
    Removed("VLLM_CPU_SGL_KERNEL", "0.28", _LEAVE),
    Removed("VLLM_TEST_FORCE_FP8_MARLIN", "0.29",
            'Write moe-backend = "marlin" or linear-backend = "marlin" in [args] instead'),
    Removed("VLLM_TRITON_ATTN_USE_TD", "0.29", "Write VLLM_TRITON_USE_TD instead"),
    Removed("VLLM_MM_HASHER_ALGORITHM", "0.30", _LEAVE),
    Removed("VLLM_ENGINE_ITERATION_TIMEOUT_S", "0.32", _LEAVE),
    Removed("VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE", "0.33", _RAY),
    Removed("VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM", "0.33", _RAY),
    Removed("VLLM_USE_RAY_WRAPPED_PP_COMM", "0.33", _RAY),
    Removed("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "0.33", _RAY),
)  # fmt: skip

REMOVED: Mapping[str, Removed] = MappingProxyType({row.name: row for row in _OPTIONS + _VARIABLES})
"""Every removed option and variable, by its name (options without leading dashes)."""
