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
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.model.shape import Shape
from kimisvc.profile.problems import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.records import Profile

_TP, _EP = "tensor-parallel-size", "enable-expert-parallel"
_CUT_BY = (_TP, "data-parallel-size", "prefill-context-parallel-size")
"""Without expert parallelism experts are cut by all of these (FusedMoEParallelConfig.make)."""
_OTHER_WEIGHTS = re.compile("awq|gptq|int4|int8|fp4|bf16|gguf|w4a16|w8a8")


@dataclass(frozen=True, slots=True)
class _Known:
    """A model known to be FP8 by its name, as it was published."""

    pattern: str
    shape: Shape


_BY_NAME = (
    _Known(
        "minimax-?m2",
        Shape(experts=256, intermediate=1536, block=(128, 128)),
    ),
)
"""Models judged without their config.json (MiniMaxAI/MiniMax-M2.5: config.json)."""


def ranks(draft: Profile, option: str) -> int:
    """Given an option that counts ranks, return it; 1 where it is not set, or is no number."""
    value = draft.args.get(option, 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def block_findings(draft: Profile, shape: Shape) -> Iterator[Finding]:
    """Given a profile and the shape of its model, yield whether its blocks cannot be divided."""
    known = shape if shape.intermediate else _by_name(draft.vllm.model)
    if not known.block or not known.intermediate:
        return
    if known.experts and draft.args.get(_EP) is True:
        return
    options = _CUT_BY if known.experts else (_TP,)
    parts = 1
    for option in options:
        parts *= ranks(draft, option)
    fault = _why(known, parts)
    if fault:
        ways = ["enable-expert-parallel = true"] if known.experts else []
        if parts == ranks(draft, _TP):
            smaller = (n for n in range(parts - 1, 0, -1) if parts % n == 0)
            ways += [f"{_TP} = {n}" for n in smaller if not _why(known, n)][:1]
        written = [("args", option) for option in options if option in draft.args]
        where = (*written, ("args", _EP), ("vllm", "model"))
        message = f"{fault}. Write {' or '.join(ways)}" if ways else fault
        yield Finding(where[0], message, or_at=where[1:])


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
