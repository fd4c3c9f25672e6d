"""Rules between the model and how it is divided: by its config.json where that is there, else by name.

Each of them fails in vLLM only once the workers build the model, minutes in,
or costs GPUs that stay idle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.model.expert_blocks import block_findings, ranks
from kimisvc.profile.knowledge.model.families import parser_findings
from kimisvc.profile.knowledge.model.shape import Shape, shape_of
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.problems import Finding
from kimisvc.records import KnownFrom, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records import Profile, VllmKnowledge

_TP, _PP, _DP = "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"
_SEVERAL_NODES = ("nnodes", "data-parallel-address", "data-parallel-rank", "headless")
_LONG = re.compile(r"(\d+(?:\.\d+)?)([kKmM])")
_MULTIPLIERS = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}
_WITHOUT_GGUF = (0, 24)
"""The first vLLM without GGUF of its own (quantization/gguf.py is in the wheel of 0.23.0)."""


def model_findings(
    draft: Profile, config: Mapping[str, object] | None, vllm: VllmKnowledge | None = None
) -> Iterator[Finding]:
    """Given a profile, its model's config.json (None: not there) and its vLLM, yield what breaks.

    Without a vLLM the newest is taken.
    """
    known = vllm or shipped_knowledge()
    shape = shape_of(config or {})
    yield from parser_findings(draft, shape.model_type, known)
    yield from _gpus(draft)
    yield from _context_parallel(draft)
    yield from _heads(draft, shape)
    yield from block_findings(draft, shape)
    yield from _context(draft, shape)
    yield from _gguf(draft, known)
    yield from _encoder(draft)


def _gpus(draft: Profile) -> Iterator[Finding]:
    """A rank each on a GPU of its own: the sizes multiply."""
    gpus = draft.hardware.gpus
    if not gpus or any(draft.args.get(option) not in (None, 1, False) for option in _SEVERAL_NODES):
        return
    here = "data-parallel-size-local" if "data-parallel-size-local" in draft.args else _DP
    options = (_TP, _PP, "prefill-context-parallel-size", here)
    factors = [(option, ranks(draft, option)) for option in options]
    needed = 1
    for _, factor in factors:
        needed *= factor
    if needed == gpus:
        return
    product = " x ".join(f"{option} {n}" for option, n in factors if n > 1 or option == _TP)
    named = [("args", option) for option, _ in factors if option in draft.args]
    where = (*named, ("hardware", "gpus"))
    if needed > gpus:
        message = f"{product} takes {needed} GPUs, but [hardware] gpus is {gpus}"
        yield Finding(where[0], message, or_at=where[1:])
    else:
        message = f"{product} takes {needed} of the {gpus} GPUs of [hardware]: the rest stay idle"
        yield Finding(where[0], message, Severity.WARNING, or_at=where[1:])


def _context_parallel(draft: Profile) -> Iterator[Finding]:
    option = "decode-context-parallel-size"
    parts, whole = ranks(draft, option), ranks(draft, _TP)
    if "prefill-context-parallel-size" not in draft.args and whole % parts:
        yield Finding(
            ("args", option),
            f"{parts} does not divide tensor-parallel-size {whole}, as vLLM asks for",
            or_at=(("args", _TP),),
        )


def _heads(draft: Profile, shape: Shape) -> Iterator[Finding]:
    parts = ranks(draft, _TP)
    if shape.heads and shape.heads % parts:
        fitting = max(n for n in range(1, parts) if shape.heads % n == 0)
        yield Finding(
            ("args", _TP),
            f"the model's {shape.heads} attention heads cannot be divided by {parts}. "
            f"{fitting} would do",
            or_at=(("vllm", "model"),),
        )


def _context(draft: Profile, shape: Shape) -> Iterator[Finding]:
    option = "max-model-len"
    longest = _tokens(draft.args.get(option))
    allowed = draft.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("", "0")
    if not shape.positions or longest <= shape.positions or "hf-overrides" in draft.args or allowed:
        return
    yield Finding(
        ("args", option),
        f"{longest} is more than the {shape.positions} tokens the model was made for, and vLLM "
        f"ends. Write {shape.positions} at most",
        or_at=(("vllm", "model"),),
    )


def _tokens(value: object) -> int:
    """Given a max-model-len, return it in tokens; 0 for "auto", and for what is no length."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _LONG.fullmatch(value) if isinstance(value, str) else None
    if match:
        return int(float(match[1]) * _MULTIPLIERS[match[2]])
    return int(value) if isinstance(value, str) and value.isdecimal() else 0


def _gguf(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    named = "gguf" in draft.vllm.model.lower().rpartition("/")[2]
    asked = "gguf" in (draft.args.get("quantization"), draft.args.get("load-format"))
    if not (named or asked) or _release(vllm.version) < _WITHOUT_GGUF:
        return
    options = (vllm.options.get(name) for name in ("quantization", "load-format"))
    if any(option and "gguf" in option.choices for option in options):
        return  # a plug-in brought it
    sure = vllm.known_from is KnownFrom.ASKED
    yield Finding(
        ("vllm", "model"),
        f"GGUF is not read by vLLM {vllm.version}: it went with 0.24. Install vllm-gguf-plugin "
        "beside it, take the safetensors of the model, or serve the file with llama.cpp",
        Severity.ERROR if sure else Severity.WARNING,
    )


def _release(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _encoder(draft: Profile) -> Iterator[Finding]:
    option = "mm-encoder-tp-mode"
    if draft.args.get("language-model-only") is True and option in draft.args:
        yield Finding(
            ("args", option),
            "does nothing beside language-model-only, which leaves the encoder out. Keep one",
            Severity.WARNING,
            or_at=(("args", "language-model-only"),),
        )
