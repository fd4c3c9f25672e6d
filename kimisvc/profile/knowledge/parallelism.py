"""Over how many GPUs [args] spread a model: altogether, and on this box.

One reading for all: whatever the spelling of an option, and whether its number
stands as one or in quotes, which vLLM takes as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kimisvc.profile.options import option_name

Value = TypeVar("Value")
Args = Mapping[str, object]
"""The options of `vllm serve` as [args] holds them."""

TENSOR, PIPELINE, DATA = "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"
PREFILL, DECODE = "prefill-context-parallel-size", "decode-context-parallel-size"
DATA_HERE, DATA_RANK, NODES = "data-parallel-size-local", "data-parallel-rank", "nnodes"
SIZES = (TENSOR, PIPELINE, PREFILL, DATA)
"""Options whose product is the number of GPUs altogether; each is 1 if not given."""
_ONE_REPLICA = (TENSOR, PIPELINE, PREFILL)

_SHORT = {TENSOR: "tp", PIPELINE: "pp", PREFILL: "pcp", DECODE: "dcp", DATA: "dp", DATA_HERE: "dpl",
          DATA_RANK: "dpn", NODES: "n"}  # fmt: skip
_ELSEWHERE = ("data-parallel-address", "data-parallel-start-rank", "headless")
"""Options of a service that is one of several: without DATA_HERE they do not say what runs here."""
READS = tuple(
    ("args", name)
    for name in (*SIZES, DECODE, DATA_HERE, DATA_RANK, NODES, *_ELSEWHERE,
                 "data-parallel-external-lb", "data-parallel-backend",
                 "distributed-executor-backend")
)  # fmt: skip
"""Every key that these counts are made from: a finding that counts names them as what it reads."""
_MOST_DIGITS = 4


def option(args: Mapping[str, Value], *names: str) -> Value | None:
    """Given [args] and an option's names, return its value, or None; spelling does not matter."""
    for written, value in args.items():
        if option_name(written) in names:
            return value
    return None


def size(args: Args, name: str) -> int | None:
    """Given an option that counts ranks, return its number: 1 if not given, None if it is none."""
    found = _count(args, name)
    return 1 if found is None and not _given(args, name) else found or None


def ranks(args: Args, name: str) -> int:
    """Given an option that counts ranks, return its number; 1 if it is not given, or is none."""
    return size(args, name) or 1


def gpus_used(args: Args) -> int | None:
    """Given [args], return how many GPUs work together, on all boxes; None if that is not said."""
    return _product(args, SIZES)


def gpus_here(args: Args) -> int | None:
    """Given [args], return how many GPUs vLLM takes on this box; None if they do not say.

    Ray and other launchers place ranks by themselves. With nnodes every box has
    the same share; of several services each says how many replicas it has, or
    is one (vllm 0.33: EngineArgs.create_engine_config, ParallelConfig.local_world_size).
    """
    replica, data, nodes = _product(args, _ONE_REPLICA), size(args, DATA), size(args, NODES)
    if replica is None or data is None or nodes is None or _placed_by_others(args):
        return None
    if _given(args, DATA_RANK) or option(args, "data-parallel-external-lb") is True:
        return _shared(replica, max(nodes // data, 1))
    if nodes > 1:
        return _shared(replica * data, nodes)
    if _given(args, DATA_HERE):
        here = _count(args, DATA_HERE)
        return None if here is None else replica * here
    if any(_given(args, name) for name in _ELSEWHERE):
        return None
    return replica * data


def several_boxes(args: Args) -> bool:
    """Given [args], return whether other boxes may work on the same model."""
    if _placed_by_others(args) or any(_given(args, name) for name in (DATA_RANK, *_ELSEWHERE)):
        return True
    return gpus_here(args) != gpus_used(args)


def _product(args: Args, names: tuple[str, ...]) -> int | None:
    product = 1
    for name in names:
        found = size(args, name)
        if found is None:
            return None
        product *= found
    return product


def _shared(gpus: int, boxes: int) -> int:
    return -(-gpus // boxes)


def _placed_by_others(args: Args) -> bool:
    executor = option(args, "distributed-executor-backend")
    ray = option(args, "data-parallel-backend", "dpb") == "ray"
    return ray or executor not in (None, "mp", "uni")


def _given(args: Args, name: str) -> bool:
    value = _value(args, name)
    return value is not None and value is not False  # 0 is a number here


def _value(args: Args, name: str) -> object:
    return option(args, name, _SHORT.get(name, name))


def _count(args: Args, name: str) -> int | None:
    """The whole number an option says, which 0 is too; None if it is not given, or says none."""
    value = _value(args, name)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value) if len(value) <= _MOST_DIGITS else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**_MOST_DIGITS:
        return value
    return None
