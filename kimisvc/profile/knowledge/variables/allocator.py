"""PYTORCH_ALLOC_CONF: options of PyTorch's allocator of GPU memory.

name:value,name:value; an unknown name ends the start of vLLM with an error
(PyTorch, CUDA semantics, Optimizing memory usage with PYTORCH_ALLOC_CONF).
"""

from __future__ import annotations

import re

from kimisvc.profile.knowledge.variables.slips import nearest
from kimisvc.profile.values import shown

_TRUTH = ("True", "False")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "backend": ("native", "cudaMallocAsync"),
    "expandable_segments": _TRUTH,
    "garbage_collection_threshold": (),
    "graph_capture_record_stream_reuse": _TRUTH,
    "large_segment_size_mb": (),
    "max_non_split_rounding_mb": (),
    "max_split_size_mb": (),
    "per_process_memory_fraction": (),
    "pinned_max_cached_size_mb": (),
    "pinned_max_round_threshold_mb": (),
    "pinned_num_register_threads": (),
    "pinned_reserve_segment_size_mb": (),
    "pinned_use_background_threads": _TRUTH,
    "pinned_use_cuda_host_register": _TRUTH,
    "release_lock_on_cudamalloc": _TRUTH,
    "roundup_power2_divisions": (),
    "throw_on_cudamalloc_oom": _TRUTH,
}
"""Each option with the words it takes; () where it takes a number or more."""

_OPTION = r"([^:,\[\]]*):(\[[^\[\]]*\]|[^,\[\]]*)(?:,|\Z)"


def allocator_options(value: str) -> str:
    """Given a value, return what is wrong with it, or ""."""
    at = 0
    bare = "".join(value.split())
    while at < len(bare):
        found = re.match(_OPTION, bare[at:])
        if not found:
            write = bare.replace("=", ":") if "=" in bare and ":" not in bare else ""
            how = f"Write {write}" if write else "Write name:value,name:value"
            return f"{shown(value)} ends vLLM's start: it is no list of options. {how}"
        problem = _option_problem(found[1], found[2])
        if problem:
            return problem
        at += found.end()
    return ""


def _option_problem(name: str, setting: str) -> str:
    if name not in _OPTIONS:
        near = nearest(name, _OPTIONS)
        # A newer PyTorch may know more: what is like nothing known is left to it.
        return f"{shown(name)} ends vLLM's start. Write {near}" if near else ""
    choices = _OPTIONS[name]
    if not choices or setting in choices:
        return ""
    write = [choice for choice in choices if choice.lower() == setting.lower()] or choices
    return f"{shown(f'{name}:{setting}')} ends vLLM's start. Write {name}:{' or '.join(write)}"
