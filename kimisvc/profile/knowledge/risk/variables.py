"""What a variable in [env] may cost: the row says it, or a rule where value, others or box count."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kimisvc.profile.context_length import AS_THE_MODEL, LENGTH
from kimisvc.profile.knowledge.nccl.selections import (
    COLLECTIVES,
    allowed_algorithms,
    allowed_protocols,
)
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.profile.knowledge.variables.conflicts import number, p2p_is_off
from kimisvc.profile.knowledge.variables.row import NCCL_GUIDE
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.options import option_name
from kimisvc.records.profile import Link, Risk

if TYPE_CHECKING:
    from kimisvc.profile.problems import KeyPath
    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

Rule = Callable[[str, "Profile"], "Judgement | None"]


def _protocol(value: str, profile: Profile) -> Judgement | None:
    """LL128 that is allowed by name, or by a ^ without it, is on even where NCCL keeps it off.

    parseList sets 1 for "on" in the place of 2 for "where it is safe"
    (src/tuning/cost_model.cc of NCCL; for ^LL seen in the log of NCCL 2.28.9,
    "Enabled NCCL Func/Proto/Algo Matrix").
    """
    allowed = allowed_protocols(value)
    if profile.hardware.link is Link.NVLINK or not any(
        "LL128" in some for some in allowed.values()
    ):
        return None
    how = "a ^ without LL128 turns it on" if "^" in value else "LL128 is turned on"
    return Judgement(
        Risk.RISKY,
        f"{how} even where NCCL keeps it off, over PCIe above all, and it can then corrupt data; "
        "^LL128 or LL,Simple is safe",
        f"{NCCL_GUIDE}, NCCL_PROTO",
    )


def _algorithm(value: str, _profile: Profile) -> Judgement | None:
    """Each collective needs an algorithm that works on one box: rings, or trees for all-reduce.

    One that is not named keeps all of them, unless NCCL_PROTO names it, which is
    refused already (conflicts): NCCL 2.31.2 strikes what NCCL_ALGO leaves out
    only from collectives that one of both names (src/tuning/cost_model.cc, forced).
    NCCL 2.28.9 with Tree alone was seen to fail at the first all-gather.
    """
    allowed = allowed_algorithms(value)
    without = [
        name
        for name in COLLECTIVES
        if name in allowed
        if not allowed[name] & ({"Ring", "Tree"} if name == "AllReduce" else {"Ring"})
    ]
    if without:
        return Judgement(
            Risk.RISKY,
            f"{', '.join(without)} may find no algorithm: since NCCL 2.24 nothing falls back to "
            "Ring, and the start then fails",
            f"{NCCL_GUIDE}, NCCL_ALGO",
        )
    return None


def _p2p_level(value: str, profile: Profile) -> Judgement | None:
    if value == "LOC":
        return _only_the_network(value, profile)
    if value != "SYS" or profile.hardware.link is Link.NVLINK:
        return None
    return Judgement(
        Risk.RISKY,
        "P2P across processors hangs where IOMMU or ACS is on, and the driver may still say that "
        "it works",
        "nccl#1999, nccl#2079",
    )


def _only_the_network(_value: str, profile: Profile) -> Judgement | None:
    if not (p2p_is_off(profile) and number(profile, "NCCL_SHM_DISABLE") == 1):
        return None
    return Judgement(
        Risk.RISKY,
        "without P2P and shared memory all GPUs of the box talk through network sockets",
        f"{NCCL_GUIDE}, NCCL_SHM_DISABLE",
    )


def _debug(value: str, _profile: Profile) -> Judgement | None:
    if value.upper() not in ("INFO", "TRACE"):
        return None
    return Judgement(
        Risk.SAFE_ISH,
        "writes many lines at each start, and with some NCCL_DEBUG_SUBSYS at each collective",
        f"{NCCL_GUIDE}, NCCL_DEBUG",
    )


_ROPE = re.compile(r"rope[_-](scaling|parameters|theta)")
"""Keys of a model's config.json that say how positions are scaled, under a key or in JSON."""


def _long_context(_value: str, profile: Profile) -> Judgement | None:
    """A length beyond the model's own is sound where positions are scaled: YaRN of Qwen's recipes.

    Where the length is the model's, nothing goes beyond it (vLLM, config/model.py).
    """
    source = "vLLM, config/model.py"
    if option(profile.args, LENGTH) in AS_THE_MODEL:
        why = f"without effect while {LENGTH} is left to the model"
        return Judgement(Risk.SAFE_ISH, why, source)
    written = profile.args.items()
    overrides = (f"{name} {value}" for name, value in written if _is_of(name, "hf-overrides"))
    if not any(_ROPE.search(override) for override in overrides):
        return None
    why = "hf-overrides scale positions; that the length fits their factor nobody checks any more"
    return Judgement(Risk.SAFE_ISH, why, source)


def _is_of(written: str, option: str) -> bool:
    """Whether it is that option, or a field of it behind a dot."""
    return option_name(written).partition(".")[0] == option


_ENVS = "vLLM, envs.py"
_NOT_JUDGED = Judgement(
    Risk.SAFE_ISH, "not judged: what it may cost nobody here has looked at", _ENVS
)
"""Of a variable of vLLM that has no row."""
VALUE_RULES: Mapping[str, Rule] = {
    "NCCL_PROTO": _protocol,
    "NCCL_ALGO": _algorithm,
    "NCCL_P2P_LEVEL": _p2p_level,
    "NCCL_P2P_DISABLE": _only_the_network,
    "NCCL_SHM_DISABLE": _only_the_network,
    "NCCL_DEBUG": _debug,
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": _long_context,
}
"""The rule of each variable that has one; None of it leaves the row's own risk."""
RULES_READ: Mapping[str, tuple[KeyPath, ...]] = {
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": (("args", LENGTH), ("args", "hf-overrides")),
}
"""What else than [env] and the link of the box such a rule reads."""


def variable_risk(
    name: str, value: str, profile: Profile, vllm: VllmKnowledge | None = None
) -> Judgement | None:
    """Given a variable and its value in a profile, return its risk, or None if nothing is known.

    Of VLLM_* something always is: what has no row may do anything. With the vLLM
    that will run, what its makers removed before it is known to do nothing.

    The value counts (NCCL_DEBUG=WARN is not NCCL_DEBUG=TRACE), and so do the
    other variables and the link of the box.
    """
    row = VARIABLES.get(name)
    gone = REMOVED.get(name) if vllm and name not in vllm.variables else None
    if gone:
        why = f"removed in vLLM {gone.removed_in}, which ignores it"
        return Judgement(Risk.SAFE, why, _ENVS)
    if row is None:
        return _NOT_JUDGED if name.startswith("VLLM_") else None
    if not value:
        return Judgement(Risk.SAFE, row.empty or "an empty value is as good as none", row.source)
    if value in row.harmless:
        return Judgement(Risk.SAFE, "what happens without it as well", row.source)
    rule = VALUE_RULES.get(name)
    judged = rule(value, profile) if rule else None
    return judged or Judgement(row.risk, row.why, row.source)
