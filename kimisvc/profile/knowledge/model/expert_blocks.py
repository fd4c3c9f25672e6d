"""Whether blocks of FP8 weights can be divided among GPUs.

Tensor parallelism cuts the intermediate size of a layer; a scale holds for a
whole block of it, so what a GPU gets has to be a multiple of the block
(vLLM: validate_fp8_block_shape). vLLM before 0.29 ends while it loads; later
ones make the experts' blocks smaller, which one slower kernel alone can read,
and the recipe of MiniMax-M2 calls it unsupported all the same. With expert
parallelism experts stay whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.model.families import family_of
from kimisvc.profile.knowledge.model.shape import Shape
from kimisvc.profile.knowledge.parallelism import DATA, PREFILL, READS, TENSOR, option, ranks
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

_EP = "enable-expert-parallel"
_CUT_BY = (TENSOR, DATA, PREFILL)
"""Without expert parallelism experts are cut by all of these (FusedMoEParallelConfig.make)."""
_REFINING, _FINEST = (0, 29), 32
"""The first vLLM that makes blocks smaller, and how small it makes them at most."""
_UNSUPPORTED = ("MiniMax-M2",)
"""Families whose recipe says that tensor parallelism alone is not supported (recipes.vllm.ai)."""
_OTHER_WEIGHTS = re.compile("awq|gptq|int4|int8|fp4|bf16|gguf|w4a16|w8a8")


@dataclass(frozen=True, slots=True)
class _Known:
    """A model known to be FP8 by its name, as it was published."""

    pattern: str
    shape: Shape


_BY_NAME = (
    _Known(
        "minimax-?m2",
        Shape(experts=256, intermediate=1536, block=(128, 128), quantized_by="fp8"),
    ),
)
"""Models judged without their config.json (MiniMaxAI/MiniMax-M2.5: config.json)."""


def block_findings(draft: Profile, shape: Shape, vllm: VllmKnowledge) -> Iterator[Finding]:
    """Given a profile, the shape of its model and its vLLM, yield whether blocks cannot be divided."""
    known = shape if shape.intermediate else _by_name(draft.vllm.model)
    args = draft.args
    if not known.block or not known.intermediate:
        return
    if known.experts and option(args, _EP) is True:
        return
    options = _CUT_BY if known.experts else (TENSOR,)
    parts = 1
    for name in options:
        parts *= ranks(args, name)
    fault = _why(known, parts)
    if not fault:
        return
    ways = [f"{_EP} = true"] if known.experts else []
    if parts == ranks(args, TENSOR):
        smaller = (n for n in range(parts - 1, 0, -1) if parts % n == 0)
        ways += [f"{TENSOR} = {n}" for n in smaller if not _why(known, n)][:1]
    severity = Severity.ERROR
    if _refines(draft, known, parts, vllm):
        severity = Severity.WARNING
        fault += (
            f". vLLM {vllm.version} makes the blocks smaller, so that it starts; only slower "
            "kernels (Triton) read them"
        )
    written = [("args", name) for name in options if option(args, name) is not None]
    where = (*written, ("args", _EP), ("vllm", "model"))
    message = f"{fault}. Write {' or '.join(ways)}" if ways else fault
    reads = (*READS, ("args", _EP), ("args", "moe-backend"))
    yield Finding(where[0], message, severity, or_at=where[1:], reads=reads)


def _refines(draft: Profile, shape: Shape, parts: int, vllm: VllmKnowledge) -> bool:
    """Whether vLLM makes the blocks of the experts so small that these parts fit.

    It does so for its own FP8 format, to 32 or more that divide all sizes
    (vllm 0.33, refine_fp8_moe_block_shape; quantization/fp8.py), or pads for a
    backend that is named; not for layers without experts, and not for the format
    of compressed-tensors.
    """
    size, remainder = divmod(shape.intermediate, parts)
    if remainder or not shape.experts or shape.quantized_by != "fp8":
        return False
    version = release(vllm.version)
    if version and version < _REFINING:
        return False
    family = family_of(draft.vllm.model, shape.model_type)
    if family and family.name in _UNSUPPORTED:
        return False
    backend = option(draft.args, "moe-backend")
    finest = gcd(size, shape.hidden, *shape.block)
    return finest >= _FINEST or backend not in (None, "auto")


def _by_name(model: str) -> Shape:
    name = model.lower().replace("_", "-").rstrip("/").rpartition("/")[2]
    if _OTHER_WEIGHTS.search(name):
        return Shape()
    return next((row.shape for row in _BY_NAME if re.search(row.pattern, name)), Shape())


def _why(shape: Shape, parts: int) -> str:
    """Say why so many parts do not fit; "" if they do."""
    whose = "the experts" if shape.experts else "the layers"
    size, remainder = divmod(shape.intermediate, parts)
    if remainder:
        return f"the intermediate size {shape.intermediate} of {whose} is not divisible by {parts}"
    if parts > 1 and any(size % side for side in shape.block):
        side = next(side for side in shape.block if size % side)
        return (
            f"the intermediate size of {whose} is not divisible so: {shape.intermediate} / {parts} "
            f"= {size} is not a multiple of {side}, the block of the FP8 weights"
        )
    return ""
