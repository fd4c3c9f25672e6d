"""Rules between the model and how it is divided: by its config.json where that is there, else by name.

Each of them fails in vLLM only once the workers build the model, minutes in,
or costs GPUs that stay idle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.profile.context_length import (
    AS_THE_MODEL,
    ASKERS,
    LENGTH,
    longest_need,
    tokens,
)
from kimisvc.profile.knowledge.model.expert_blocks import block_findings
from kimisvc.profile.knowledge.model.families import parser_findings
from kimisvc.profile.knowledge.model.shape import Shape, is_dense, shape_of
from kimisvc.profile.knowledge.parallelism import (
    DATA,
    DATA_HERE,
    DECODE,
    NODES,
    PREFILL,
    READS,
    SIZES,
    TENSOR,
    gpus_here,
    option,
    ranks,
)
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.options import option_name
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import KnownFrom

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

_EXPERT_PARALLEL = "enable-expert-parallel"
_WITHOUT_GGUF = (0, 24)
"""The first vLLM without GGUF of its own (quantization/gguf.py is in the wheel of 0.23.0)."""
_FORMATS = ("quantization", "load-format")
_GGUF_QUANT = r"[\w.-]+/[\w.-]*gguf[\w.-]*:\w+"


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
    yield from block_findings(draft, shape, known)
    yield from _context(draft, shape)
    yield from _too_short(draft, shape)
    yield from _gguf(draft, known)
    yield from _encoder(draft)
    yield from _no_experts(draft, config or {})


def _gpus(draft: Profile) -> Iterator[Finding]:
    """A rank each on a GPU of its own: the sizes multiply."""
    gpus, args = draft.hardware.gpus, draft.args
    needed = gpus_here(args)
    if not gpus or needed is None or needed == gpus:
        return
    names = [*SIZES, DATA_HERE, NODES]
    if option(args, DATA_HERE) is not None:
        names.remove(DATA)
    factors = [(name, ranks(args, name)) for name in names]
    product = " x ".join(
        f"{name} {n}" for name, n in factors if name != NODES and (n > 1 or name == TENSOR)
    )
    if ranks(args, NODES) > 1:
        product += f" over {NODES} {ranks(args, NODES)}"
    named = [("args", name) for name, _ in factors if option(args, name) is not None]
    where = (*named, ("hardware", "gpus"))
    if needed > gpus:
        message = f"{product} takes {needed} GPUs, but [hardware] gpus is {gpus}"
        yield Finding(where[0], message, or_at=where[1:], reads=READS)
    else:
        message = f"{product} takes {needed} of the {gpus} GPUs of [hardware]: the rest stay idle"
        yield Finding(where[0], message, Severity.WARNING, or_at=where[1:], reads=READS)


def _context_parallel(draft: Profile) -> Iterator[Finding]:
    parts, whole = ranks(draft.args, DECODE), ranks(draft.args, TENSOR)
    if option(draft.args, PREFILL) is None and whole % parts:
        yield Finding(
            ("args", DECODE),
            f"{parts} does not divide {TENSOR} {whole}, as vLLM asks for",
            or_at=(("args", TENSOR),),
            reads=READS,
        )


def _heads(draft: Profile, shape: Shape) -> Iterator[Finding]:
    """Each GPU has as many heads; of keys and values it may share one with others, evenly.

    All layers of attention divide so (QKVParallelLinear of vllm/model_executor/layers/linear.py,
    and the asserts of models/minimax_m2.py and most others).
    """
    parts = ranks(draft.args, TENSOR)
    if shape.heads and shape.heads % parts:
        fault = f"{shape.heads} attention heads cannot be divided by {parts}"
    elif not _shares(shape.kv_heads, parts):
        fault = f"{shape.kv_heads} heads of keys and values cannot be shared evenly by {parts} GPUs"
    else:
        return
    fitting = max(n for n in range(1, parts) if shape.heads % n == 0 and _shares(shape.kv_heads, n))
    yield Finding(
        ("args", TENSOR),
        f"the model's {fault}. {fitting} would do",
        or_at=(("vllm", "model"),),
    )


def _shares(heads: int, parts: int) -> bool:
    """Whether so many GPUs hold whole heads, or each head as many of them; 0 heads are no matter."""
    return heads == 0 or (heads % parts == 0 if heads >= parts else parts % heads == 0)


def _context(draft: Profile, shape: Shape) -> Iterator[Finding]:
    longest = tokens(option(draft.args, LENGTH))
    allowed = draft.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("", "0")
    if not shape.positions or longest <= shape.positions or _overrides(draft) or allowed:
        return
    yield Finding(
        ("args", LENGTH),
        f"{longest} is more than the {shape.positions} tokens the model was made for, and vLLM "
        f"ends. Write {shape.positions} at most",
        or_at=(("vllm", "model"),),
        reads=(("args", "hf-overrides"), ("env", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")),
    )


def _too_short(draft: Profile, shape: Shape) -> Iterator[Finding]:
    """Where [args] leave the length to the model: a length of their own is judged without it."""
    if option(draft.args, LENGTH) not in AS_THE_MODEL or not shape.positions or _overrides(draft):
        return
    need = longest_need(draft)
    if need.tokens > shape.positions:
        yield Finding(
            need.keys[0],
            f"{need.asker}, but the model's own context holds {shape.positions}. "
            f"Shorten {need.table}",
            or_at=(*need.keys[1:], ("vllm", "model")),
            reads=(("args", LENGTH), ("args", "hf-overrides"), *ASKERS),
        )


def _overrides(draft: Profile) -> bool:
    """Whether [args] change the model's own config: as a table, or field by field."""
    return any(option_name(name).partition(".")[0] == "hf-overrides" for name in draft.args)


def _gguf(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    version = release(vllm.version)
    if not _is_gguf(draft) or version < _WITHOUT_GGUF:
        return
    options = (vllm.options.get(name) for name in _FORMATS)
    if any(option and "gguf" in option.choices for option in options):
        return  # a plug-in brought it
    sure = vllm.known_from is KnownFrom.ASKED
    yield Finding(
        ("vllm", "model"),
        f"GGUF is not read by vLLM {vllm.version}: it went with 0.24. Install vllm-gguf-plugin "
        "beside it, take the safetensors of the model, or serve the file with llama.cpp",
        Severity.ERROR if sure else Severity.WARNING,
    )


def _is_gguf(draft: Profile) -> bool:
    """Whether a file, or a quant of a repository (org/name-GGUF:Q4_K_M), or an option says so.

    What lies in a folder its name does not say; the preflight looks into it.
    """
    name = draft.vllm.model.lower()
    asked = any(str(option(draft.args, one)).lower() == "gguf" for one in _FORMATS)
    return asked or name.endswith(".gguf") or re.fullmatch(_GGUF_QUANT, name) is not None


def _encoder(draft: Profile) -> Iterator[Finding]:
    mode = "mm-encoder-tp-mode"
    if option(draft.args, "language-model-only") is True and option(draft.args, mode) is not None:
        yield Finding(
            ("args", mode),
            "does nothing beside language-model-only, which leaves the encoder out. Keep one",
            Severity.WARNING,
            or_at=(("args", "language-model-only"),),
        )


def _no_experts(draft: Profile, config: Mapping[str, object]) -> Iterator[Finding]:
    """VllmConfig of 0.32 refuses expert parallelism for a model of no experts."""
    if option(draft.args, _EXPERT_PARALLEL) is True and is_dense(config):
        yield Finding(
            ("args", _EXPERT_PARALLEL),
            "is for models with experts, and the config.json of this one tells of none: vLLM ends. "
            "Leave it out",
            Severity.WARNING,
            or_at=(("vllm", "model"),),
        )
