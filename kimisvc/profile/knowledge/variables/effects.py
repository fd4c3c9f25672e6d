"""Values that are legal and change nothing here: the benchmark would compare nothing with nothing.

Each rule names the variables that have no effect, and why. A variable is told
of once, by the first rule that finds it idle. Facts of NCCL are from its user
guide and source, those of vLLM from its source (0.32 and 0.33).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.nccl.selections import COLLECTIVES, PROTOCOLS, allowed_protocols
from kimisvc.profile.knowledge.parallelism import (
    DATA,
    DECODE,
    PIPELINE,
    PREFILL,
    READS,
    TENSOR,
    gpus_used,
    option,
    several_boxes,
    size,
)
from kimisvc.profile.knowledge.variables.conflicts import number, p2p_is_off
from kimisvc.profile.knowledge.variables.table import VARIABLES, ActsOn
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity
from kimisvc.records.profile import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from kimisvc.profile.problems import KeyPath
    from kimisvc.records.profile import Profile

_FOUND_ON_PCIE = 4
"""Channels NCCL finds at most on boxes with eight GPUs over PCIe (2 to 4 were seen)."""

_CUSTOM_ALL_REDUCE = (2, 4, 6, 8)
"""GPUs vLLM's own all-reduce works with (custom_all_reduce.py)."""
_A_PAIR = 2
"""So many GPUs it joins without NVLink as well (custom_all_reduce.py, world_size > 2)."""
_THROUGH_NCCL = (DATA, PIPELINE, DECODE, PREFILL)
"""Ways to spread a model whose traffic nothing but NCCL carries."""

_CAPS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")
_FLOORS = ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NRINGS")
_BUFFERS = {ActsOn.SIMPLE: "Simple", ActsOn.LL: "LL", ActsOn.LL128: "LL128"}


@dataclass(frozen=True, slots=True)
class _Idle:
    """Variables that have no effect, told of in one finding, and why; `alone`: of a single one."""

    names: list[str]
    why: str
    alone: str = ""


@dataclass(frozen=True, slots=True)
class _Rule:
    """What finds variables idle, and the keys that it takes for not set where they are missing."""

    idle: Callable[[Profile], Iterator[_Idle]]
    reads: tuple[KeyPath, ...] = ()


def _each(names: list[str], why: str) -> Iterator[_Idle]:
    """Given variables with one reason, yield each by itself."""
    return (_Idle([name], why) for name in names)


def effect_findings(profile: Profile, refused: Collection[str] = ()) -> Iterator[Finding]:
    """Given a profile, yield a warning for each variable that changes nothing.

    `refused` are variables with an illegal value, of which nothing more is said.
    """
    told = set(refused)
    illegal = {("env", name) for name in refused}
    for rule in RULES:
        if not illegal.isdisjoint(rule.reads):
            continue
        for idle in rule.idle(profile):
            names = [name for name in idle.names if name not in told]
            if not names:
                continue
            told.update(names)
            first, *others = [("env", name) for name in names]
            message = f"{', '.join(names)} {idle.why}" if others else idle.alone or idle.why
            yield Finding(first, message, Severity.WARNING, or_at=tuple(others), reads=rule.reads)


def _set(profile: Profile, *acts_on: ActsOn) -> list[str]:
    """The variables of NCCL that a profile sets and that act on any of these."""
    return [
        name
        for name, value in profile.env.items()
        if value and name.startswith("NCCL_")
        if (row := VARIABLES.get(name)) and row.acts_on in acts_on and not row.removed
    ]


def _tuned(profile: Profile) -> list[str]:
    return _set(profile, *(part for part in ActsOn if part.tunes))


def _one_gpu(profile: Profile) -> Iterator[_Idle]:
    alone = gpus_used(profile.args) == 1 or profile.hardware.gpus == 1
    if alone and not several_boxes(profile.args):
        names = [*_tuned(profile), *_set(profile, ActsOn.NETWORK)]
        yield _Idle(
            names,
            "have no effect: on one GPU NCCL has nothing to do. "
            "Leave them out, or set tensor-parallel-size",
            "has no effect: on one GPU NCCL has nothing to do. "
            "Leave it out, or set tensor-parallel-size",
        )


def _batch_invariant(profile: Profile) -> Iterator[_Idle]:
    if profile.env.get("VLLM_BATCH_INVARIANT") == "1":
        names = [name for name in _PINNED_BY_VLLM if name in profile.env]
        yield from _each(names, "is set anew by vLLM itself while VLLM_BATCH_INVARIANT is 1")


def _own_of_vllm(profile: Profile) -> Iterator[_Idle]:
    if "NCCL_ASYNC_ERROR_HANDLING" in profile.env:
        yield _Idle(["NCCL_ASYNC_ERROR_HANDLING"], "is taken away by vLLM in each worker")
    if profile.env.get("PYTORCH_NVML_BASED_CUDA_CHECK", "1") != "1":
        yield _Idle(["PYTORCH_NVML_BASED_CUDA_CHECK"], "is set to 1 by vLLM itself")
    if (
        number(profile, "NCCL_GRAPH_REGISTER") == 1
        and option(profile.args, "enable-sleep-mode") is True
    ):
        yield _Idle(
            ["NCCL_GRAPH_REGISTER"],
            "keeps memory of CUDA graphs pinned while the model sleeps: vLLM sets it to 0 for "
            "enable-sleep-mode if you do not set it. Leave it out",
        )
    if "NCCL_MAX_CTAS" in profile.env and option(profile.args, "enable-eplb") is True:
        yield _Idle(
            ["NCCL_MAX_CTAS"],
            "stands in the place of the cap of 8 that vLLM sets for enable-eplb to keep two "
            "kernels from waiting for each other",
        )


def _other_all_reduce(profile: Profile) -> Iterator[_Idle]:
    carrier = _carrier(profile)
    if carrier:
        why = (
            f"on decode: {carrier} carries the all-reduce of small batches there, "
            "and NCCL only the large ones of prefill"
        )
        yield _Idle(_tuned(profile), f"hardly act {why}", f"hardly acts {why}")


def _carrier(profile: Profile) -> str:
    """What carries all traffic of decode instead of NCCL, or "".

    vLLM hands its all-reduce to others within the group "tp" of one box alone
    (cuda_communicator.py). What joins replicas (experts span them, with
    enable-expert-parallel or not), stages and parts of a context goes through
    NCCL in every step.
    """
    args = profile.args
    if several_boxes(args) or any(size(args, other) != 1 for other in _THROUGH_NCCL):
        return ""
    used = size(args, TENSOR)
    if profile.env.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC") == "1" and used in (2, 4, 8):
        return "FlashInfer's all-reduce over PCIe (VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC)"
    if option(args, "disable-custom-all-reduce") or used not in _CUSTOM_ALL_REDUCE:
        return ""
    if profile.hardware.link is Link.NVLINK:
        return "vLLM's own all-reduce (unless disable-custom-all-reduce = true)"
    if used == _A_PAIR:
        return (
            "vLLM's own all-reduce, where P2P works between the two GPUs (and unless "
            "disable-custom-all-reduce = true),"
        )
    return ""


def _protocol_not_used(profile: Profile) -> Iterator[_Idle]:
    allowed = allowed_protocols(profile.env.get("NCCL_PROTO", ""))
    used = frozenset(PROTOCOLS)
    if len(allowed) == len(COLLECTIVES):
        used = frozenset().union(*allowed.values())
    if not allowed and profile.hardware.link is Link.PCIE:
        used = frozenset({"LL", "Simple"})
    for part, protocol in _BUFFERS.items():
        if used and protocol not in used:  # that nothing is left is told of as it is
            yield from _each(
                _set(profile, part),
                f"has no effect but to take memory: it is for the {protocol} protocol, and "
                + (
                    f"NCCL_PROTO allows {', '.join(sorted(used))} only"
                    if allowed
                    else "NCCL leaves that alone over PCIe"
                ),
            )


def _nothing_left_out(profile: Profile) -> Iterator[_Idle]:
    """NCCL leaves LL128 alone over PCIe by itself: to allow the two others changes nothing."""
    allowed = allowed_protocols(profile.env.get("NCCL_PROTO", ""))
    both = frozenset({"LL", "Simple"})
    if profile.hardware.link is Link.PCIE and allowed and set(allowed.values()) == {both}:
        yield _Idle(
            ["NCCL_PROTO"],
            "has no effect: over PCIe NCCL uses LL and Simple, and chooses between them by size",
        )


def _cap_above_found(profile: Profile) -> Iterator[_Idle]:
    if profile.hardware.link is not Link.PCIE or any(profile.env.get(name) for name in _FLOORS):
        return
    for name in _CAPS:
        if (number(profile, name) or 0) > _FOUND_ON_PCIE:
            yield _Idle(
                [name],
                f"probably has no effect: it is a cap, and NCCL finds 2 to {_FOUND_ON_PCIE} "
                "channels over PCIe. To have more, set NCCL_MIN_CTAS as well",
            )


def _no_nvlink(profile: Profile) -> Iterator[_Idle]:
    if profile.hardware.link is Link.PCIE:
        yield from _each(
            _set(profile, ActsOn.NVLINK), 'has no effect without NVLink (hardware.link = "pcie")'
        )


def _no_network(profile: Profile) -> Iterator[_Idle]:
    through_network = p2p_is_off(profile) and number(profile, "NCCL_SHM_DISABLE") == 1
    if not through_network and not several_boxes(profile.args):
        yield from _each(
            _set(profile, ActsOn.NETWORK),
            "has no effect: it is for the network between boxes, and this service runs on one",
        )


def _p2p_not_used(profile: Profile) -> Iterator[_Idle]:
    if p2p_is_off(profile):
        disabled = number(profile, "NCCL_P2P_DISABLE") == 1
        cause = "NCCL_P2P_DISABLE" if disabled else "NCCL_P2P_LEVEL"
        names = [name for name in _set(profile, ActsOn.P2P) if name != cause]
        yield from _each(names, f"has no effect while {cause} turns P2P off")


def _nothing_logged(profile: Profile) -> Iterator[_Idle]:
    level = profile.env.get("NCCL_DEBUG", "").upper().replace("NONE", "")
    if level not in ("INFO", "TRACE") and "NCCL_DEBUG_LEVELS" not in profile.env:
        yield _Idle(
            [name for name in ("NCCL_DEBUG_SUBSYS",) if profile.env.get(name)],
            "has no effect: it filters the lines of NCCL_DEBUG=INFO",
        )
        if not level:
            yield _Idle(
                [name for name in ("NCCL_DEBUG_FILE",) if profile.env.get(name)],
                "has no effect: NCCL logs nothing without NCCL_DEBUG",
            )


_PINNED_BY_VLLM = (
    "NCCL_LAUNCH_MODE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_PROTO",
    "NCCL_ALGO",
    "NCCL_NTHREADS",
    "NCCL_SOCKET_NTHREADS",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""What vLLM sets for itself under VLLM_BATCH_INVARIANT (batch_invariant.py)."""


def _env(*names: str) -> tuple[KeyPath, ...]:
    return tuple(("env", name) for name in names)


RULES: tuple[_Rule, ...] = (
    _Rule(_one_gpu, READS),
    _Rule(_batch_invariant),
    _Rule(_own_of_vllm),
    _Rule(_no_nvlink),
    _Rule(_no_network, (*READS, *_env("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE"))),
    _Rule(_p2p_not_used),
    _Rule(_protocol_not_used, _env("NCCL_PROTO")),
    _Rule(_nothing_left_out),
    _Rule(_cap_above_found, _env(*_FLOORS)),
    _Rule(_nothing_logged, _env("NCCL_DEBUG", "NCCL_DEBUG_LEVELS")),
    _Rule(_other_all_reduce, (*READS, ("args", "disable-custom-all-reduce"))),
)
"""Every rule, the strongest reason first."""
