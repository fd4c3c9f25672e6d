"""What an option in [args] may cost: a row for each where its value counts, or a word is to be said.

Safe: the same answers, from a server that stays up. Safe-ish: less speed,
memory or accuracy, or trust in files, that goes away with the option. Risky:
wrong answers, crashes under load, or an open door. Ordinary ones stand in
`ordinary`; what has no row anywhere is not judged, and may do anything: it
counts as safe-ish, as such a variable of vLLM does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.profile.knowledge.risk.ordinary import ARGS, ORDINARY
from kimisvc.profile.knowledge.risk.transfer import OFFLOADED, STORED, transfer_risk
from kimisvc.profile.options import option_name
from kimisvc.records.profile import Risk

if TYPE_CHECKING:
    from kimisvc.records.profile import ArgValue, Profile

_DOCS = "https://docs.vllm.ai/en/stable"
_SECURITY = f"{_DOCS}/usage/security/"
_QUANTIZED_KV = f"{_DOCS}/features/quantization/quantized_kvcache/"
_SPECULATIVE = f"{_DOCS}/features/spec_decode/"
_MOST_MEMORY = 0.95
"""The highest share of a GPU that published recipes use (rtx6kpro: 0.90 to 0.95)."""
_EIGHT_BITS = ("fp8", "int8")
_FEWER_BITS = ("int4", "nvfp4", "octave", "turboquant", "ultraquant")
"""How vLLM's words for a cache of such values begin (config/cache.py)."""
_OWN_FORMATS = ("auto", "safetensors", "hf", "pt", "npcache", "mistral")


@dataclass(frozen=True, slots=True)
class _Row:
    """How one option is judged: by its value and the profile; None where it has no such value."""

    name: str
    judge: Callable[[ArgValue, Profile], Judgement | None]


_OFF = Judgement(Risk.SAFE, "is turned off", ARGS)
_NOT_JUDGED = Judgement(
    Risk.SAFE_ISH, "not judged: what it may cost nobody here has looked at", ARGS
)
"""Of an option that has no row, or a value that its row does not know."""


def option_risk(name: str, value: ArgValue, profile: Profile) -> Judgement:
    """Given an option, its value and the profile, return its risk; what has no row may do anything.

    `name` may be written with underscores, with `no-` before it, and may go on after a dot.
    """
    plain = option_name(name).partition(".")[0]
    if plain.startswith("no-") and _is_known(plain[3:]):
        return _OFF
    if not _is_known(plain):
        return _NOT_JUDGED
    if value is False:
        return _OFF
    row = _ROWS.get(plain)
    return (row.judge(value, profile) if row else ORDINARY[plain]) or _NOT_JUDGED


def _is_known(name: str) -> bool:
    return name in _ROWS or name in ORDINARY


def _always(risk: Risk, why: str, source: str = ARGS) -> Callable[[ArgValue, Profile], Judgement]:
    """The same whatever the value."""
    judgement = Judgement(risk, why, source)
    return lambda _value, _profile: judgement


def _memory(value: ArgValue, _profile: Profile) -> Judgement | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value > _MOST_MEMORY:
        return Judgement(
            Risk.RISKY,
            f"above {_MOST_MEMORY} little is left for CUDA graphs, NCCL and activations: out of "
            "memory under load, hours after the start",
            ARGS,
        )
    return Judgement(Risk.SAFE, "what is taken at the start is all that is taken", ARGS)


def _kv_cache_dtype(value: ArgValue, _profile: Profile) -> Judgement | None:
    word = str(value).lower()  # in another case it is named elsewhere, and means the same
    if word in ("auto", "bfloat16", "float16"):
        return Judgement(Risk.SAFE, "the cache is as exact as the model", _QUANTIZED_KV)
    if word.startswith(_EIGHT_BITS):
        why = f"{word[:4].rstrip('_')} halves the cache and costs a little accuracy, more in long contexts"
        return Judgement(Risk.SAFE_ISH, why, _QUANTIZED_KV)
    if word.startswith(_FEWER_BITS):
        why = "fewer than 8 bits a value cost accuracy that nobody has measured for this model"
    else:
        why = "is none of vLLM's own formats: what it costs in accuracy nobody here has looked at"
    return Judgement(Risk.RISKY, why, _QUANTIZED_KV)


def _speculative(value: ArgValue, _profile: Profile) -> Judgement | None:
    method = value.get("method") if isinstance(value, Mapping) else None
    extra = "" if method in ("ngram", "mtp", "suffix") else ", and a draft model takes memory"
    return Judgement(
        Risk.SAFE_ISH,
        f"answers are those of the model up to rounding; speed depends on the text{extra}",
        _SPECULATIVE,
    )


def _load_format(value: ArgValue, _profile: Profile) -> Judgement | None:
    if value == "dummy":
        return Judgement(Risk.RISKY, "random weights: every answer is nonsense", ARGS)
    if value in _OWN_FORMATS:
        return Judgement(Risk.SAFE, "changes how files are read, not what is in them", ARGS)
    why = "a package or service besides vLLM reads the weights; without it the start fails"
    return Judgement(Risk.SAFE_ISH, why, ARGS)


def _dtype(value: ArgValue, _profile: Profile) -> Judgement | None:
    if value == "auto":
        return Judgement(Risk.SAFE, "as the checkpoint says, which vLLM does by itself", ARGS)
    if value in ("float32", "float"):
        return Judgement(
            Risk.SAFE, "as exact as any checkpoint: slower, and twice the memory", ARGS
        )
    if value == "bfloat16":
        return Judgement(
            Risk.SAFE, "what nearly every checkpoint of these models is in anyway", ARGS
        )
    why = "rounds otherwise where the checkpoint is in another format; a model of bfloat16 may overflow"
    return Judgement(Risk.SAFE_ISH, why, ARGS)


def _quantization(value: ArgValue, _profile: Profile) -> Judgement | None:
    if str(value).startswith(("fp8", "int8", "experts_int8", "online", "nvfp4_per", "torchao")):
        why = "quantizes the weights while they are loaded, which costs accuracy"
        return Judgement(Risk.SAFE_ISH, why, f"{_DOCS}/features/quantization/")
    return Judgement(Risk.SAFE, "says what the checkpoint is, which vLLM sees by itself", ARGS)


def _offloading(profile: Profile) -> Judgement:
    """kv-offloading-size makes vLLM build the connector that its kv-offloading-backend names."""
    backends = [v for k, v in profile.args.items() if option_name(k) == "kv-offloading-backend"]
    return STORED if backends == ["lmcache"] else OFFLOADED


def _sleep_mode(_value: ArgValue, profile: Profile) -> Judgement | None:
    if profile.env.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"):
        why = "with VLLM_SERVER_DEV_MODE all who reach the port may put the model to sleep"
        return Judgement(Risk.RISKY, why, _SECURITY)
    why = "another allocator for all memory of the GPU; without use where nobody sends it to sleep"
    return Judgement(Risk.SAFE_ISH, why, f"{_DOCS}/features/sleep_mode/")


_PLUGIN = "runs code of that file or package inside the server"
_EMBEDS = (
    "whoever may ask the model may end its engine: embeddings of a wrong shape crash it. vLLM: for "
    "trusted users only"
)
_KERNELS = "other kernels: the same answers up to rounding, another speed, or no start at all"

OPTION_ROWS = (
    _Row("trust-remote-code", _always(Risk.SAFE_ISH,
         "code from the model's folder runs with all rights of the service", _SECURITY)),
    _Row("speculative-config", _speculative),
    _Row("spec-method", _speculative),
    _Row("kv-cache-dtype", _kv_cache_dtype),
    _Row("gpu-memory-utilization", _memory),
    _Row("device-memory-utilization", _memory),
    _Row("load-format", _load_format),
    _Row("dtype", _dtype),
    _Row("quantization", _quantization),
    _Row("enable-sleep-mode", _sleep_mode),
    _Row("enforce-eager", _always(Risk.SAFE, "no CUDA graphs: slower, and the same answers")),
    _Row("disable-custom-all-reduce", _always(Risk.SAFE,
         "NCCL reduces instead; on more than two PCIe GPUs it does anyway")),
    _Row("enable-expert-parallel", _always(Risk.SAFE, "whole experts lie on a GPU each")),
    _Row("attention-backend", _always(Risk.SAFE_ISH, _KERNELS)),
    _Row("moe-backend", _always(Risk.SAFE_ISH, _KERNELS)),
    _Row("linear-backend", _always(Risk.SAFE_ISH, _KERNELS)),
    _Row("all2all-backend", _always(Risk.SAFE_ISH, _KERNELS)),
    _Row("compilation-config", _always(Risk.SAFE_ISH,
         "other graphs and fusions: another speed, memory and time to start",
         f"{_DOCS}/design/torch_compile/")),
    _Row("optimization-level", _always(Risk.SAFE_ISH,
         "other graphs and fusions: another speed, memory and time to start")),
    _Row("async-scheduling", _always(Risk.SAFE_ISH,
         "schedules a step ahead; not every feature works with it")),
    _Row("decode-context-parallel-size", _always(Risk.SAFE_ISH,
         "splits the cache of a sequence; not every attention backend can")),
    _Row("hf-overrides", _always(Risk.SAFE_ISH,
         "changes the model's own configuration: a wrong key changes its answers")),
    _Row("enable-dbo", _always(Risk.SAFE_ISH, "overlaps batches; made for many requests")),
    _Row("disable-log-stats", _always(Risk.SAFE_ISH,
         "without its metrics nobody sees the engine stall")),
    _Row("tool-parser-plugin", _always(Risk.SAFE_ISH, _PLUGIN, _SECURITY)),
    _Row("reasoning-parser-plugin", _always(Risk.SAFE_ISH, _PLUGIN, _SECURITY)),
    _Row("middleware", _always(Risk.RISKY, f"{_PLUGIN}, and sees every request", _SECURITY)),
    _Row("worker-cls", _always(Risk.RISKY, _PLUGIN, _SECURITY)),
    _Row("worker-extension-cls", _always(Risk.RISKY, _PLUGIN, _SECURITY)),
    _Row("scheduler-cls", _always(Risk.RISKY, _PLUGIN, _SECURITY)),
    _Row("logits-processors", _always(Risk.RISKY, f"{_PLUGIN}, and changes answers", _SECURITY)),
    _Row("io-processor-plugin", _always(Risk.RISKY,
         f"{_PLUGIN}, and sees every request", _SECURITY)),
    _Row("model-class-overrides", _always(Risk.RISKY,
         f"{_PLUGIN}, in the place of vLLM's own model", _SECURITY)),
    _Row("enable-prompt-embeds", _always(Risk.RISKY, _EMBEDS)),
    _Row("enable-mm-embeds", _always(Risk.RISKY, _EMBEDS)),
    _Row("trust-request-mm-kwargs", _always(Risk.RISKY,
         "whoever asks the model may set how the server reads pictures and sound")),
    _Row("allowed-local-media-path", _always(Risk.RISKY,
         "whoever may ask the model may read files below that folder", _SECURITY)),
    _Row("trust-request-chat-template", _always(Risk.RISKY,
         "whoever asks the model may send templates that the server runs", _SECURITY)),
    _Row("enable-tokenizer-info-endpoint", _always(Risk.SAFE_ISH,
         "shows the chat template to all who reach the port", _SECURITY)),
    _Row("enable-log-outputs", _always(Risk.SAFE_ISH,
         "writes all answers of the model into the journal")),
    _Row("enable-log-requests", _always(Risk.SAFE_ISH,
         "writes what is asked into the journal")),
    _Row("kv-transfer-config", transfer_risk),
    _Row("kv-offloading-size", lambda _value, profile: _offloading(profile)),
    _Row("enable-elastic-ep", _always(Risk.RISKY, "experimental: changes the GPUs while serving")),
)  # fmt: skip
"""Every option where a word is to be said, or its value counts."""
_ROWS = MappingProxyType({row.name: row for row in OPTION_ROWS})
