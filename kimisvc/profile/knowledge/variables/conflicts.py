"""Variables that are legal one by one and contradict each other, or the rest of the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.nccl.selections import (
    COLLECTIVES,
    allowed_algorithms,
    allowed_protocols,
)
from kimisvc.profile.knowledge.parallelism import READS, gpus_here
from kimisvc.profile.knowledge.variables.devices import devices, visible_devices
from kimisvc.profile.knowledge.variables.integers import as_read, is_clear
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimisvc.records.profile import Profile

_MOST_SOCKETS = 64


def conflicts(profile: Profile) -> Iterator[Finding]:
    """Given a profile, yield each contradiction between its variables."""
    for rule in RULES:
        yield from rule(profile)


def number(profile: Profile, name: str) -> int | None:
    """Given the name of a variable, return the number it is set to, or None."""
    value = profile.env.get(name, "")
    return as_read(value) if is_clear(value) else None


def p2p_is_off(profile: Profile) -> bool:
    """Given a profile, return whether its variables keep GPUs from each other's memory."""
    return number(profile, "NCCL_P2P_DISABLE") == 1 or profile.env.get("NCCL_P2P_LEVEL") == "LOC"


def _no_algorithm(profile: Profile) -> Iterator[Finding]:
    """A collective that NCCL_PROTO names and NCCL_ALGO does not has no algorithm (NCCL 2.31).

    With NCCL_ALGO set, the table of algorithms begins empty and a collective
    that either variable names is held to it (src/tuning/cost_model.cc of NCCL,
    ncclTuningCostModelInit; seen as vllm#58179).
    """
    algorithms = allowed_algorithms(profile.env.get("NCCL_ALGO", ""))
    protocols = allowed_protocols(profile.env.get("NCCL_PROTO", ""))
    left = [name for name in COLLECTIVES if name in protocols and name not in algorithms]
    if algorithms and left:
        value = profile.env["NCCL_ALGO"]
        yield Finding(
            ("env", "NCCL_ALGO"),
            f"{shown(value)} leaves {', '.join(left)} without an algorithm: since NCCL 2.31 a "
            "collective that NCCL_PROTO names and NCCL_ALGO does not fails (ncclInvalidUsage). "
            f"Write a list for all first: ring,tree;{value}",
            or_at=(("env", "NCCL_PROTO"),),
        )


def _nothing_left(profile: Profile) -> Iterator[Finding]:
    """A ^ before all the names there are: no protocol, or no algorithm, may be used."""
    for name, allowed in (("NCCL_ALGO", allowed_algorithms), ("NCCL_PROTO", allowed_protocols)):
        value = profile.env.get(name, "")
        left = allowed(value)
        without = [one for one in COLLECTIVES if one in left and not left[one]]
        if without:
            yield Finding(
                ("env", name),
                f"{shown(value)} leaves nothing for {', '.join(without)}, and NCCL fails. "
                "Name fewer after the ^, or leave it out",
            )


def _too_many_sockets(profile: Profile) -> Iterator[Finding]:
    threads = number(profile, "NCCL_SOCKET_NTHREADS")
    sockets = number(profile, "NCCL_NSOCKS_PERTHREAD")
    if threads and sockets and threads * sockets > _MOST_SOCKETS:
        yield Finding(
            ("env", "NCCL_NSOCKS_PERTHREAD"),
            f"{threads} threads with {sockets} sockets each are {threads * sockets} sockets, and "
            f"NCCL takes {_MOST_SOCKETS} at most. Lower NCCL_SOCKET_NTHREADS or "
            "NCCL_NSOCKS_PERTHREAD",
            or_at=(("env", "NCCL_SOCKET_NTHREADS"),),
        )


def _least_above_most(profile: Profile) -> Iterator[Finding]:
    for unit in ("CTAS", "NCHANNELS"):
        least, most = number(profile, f"NCCL_MIN_{unit}"), number(profile, f"NCCL_MAX_{unit}")
        if least is not None and most is not None and least > most > 0:
            yield Finding(
                ("env", f"NCCL_MIN_{unit}"),
                f"NCCL_MIN_{unit} {least} is more than NCCL_MAX_{unit} {most}. "
                "Lower the one or raise the other",
                or_at=(("env", f"NCCL_MAX_{unit}"),),
            )


def _two_names(profile: Profile) -> Iterator[Finding]:
    for old, new, wins in (
        ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL takes the smaller of both"),
        ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS", "NCCL takes the larger of both"),
        ("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS", "NCCL ignores the older"),
        ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS", "NCCL ignores the older"),
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PyTorch reads one of them only"),
    ):
        if profile.env.get(old) and profile.env.get(new):
            yield Finding(
                ("env", old),
                f"{old} and {new} are one setting: {wins}. Keep {new}",
                Severity.WARNING,
                or_at=(("env", new),),
            )


def _too_few_devices(profile: Profile) -> Iterator[Finding]:
    value = profile.env.get("CUDA_VISIBLE_DEVICES", "")
    asked = profile.hardware.gpus
    if asked and "CUDA_VISIBLE_DEVICES" in profile.env and not value.strip():  # -1 is meant
        yield Finding(
            ("env", "CUDA_VISIBLE_DEVICES"),
            f"{shown(value)} hides every GPU from vLLM, and [hardware] gpus is {asked}. Leave it "
            "out, or list the GPUs",
            or_at=(("hardware", "gpus"),),
        )
    listed, used = len(devices(value)), gpus_here(profile.args)
    if listed and not visible_devices(value) and used and used > listed:
        yield Finding(
            ("env", "CUDA_VISIBLE_DEVICES"),
            f"{shown(value)} lets vLLM see {listed} GPU{'s' * (listed > 1)}, and [args] spread "
            f"the model over {used} here. List {used}, or lower tensor-parallel-size",
            or_at=(("args", "tensor-parallel-size"),),
            reads=READS,
        )


RULES: tuple[Callable[[Profile], Iterator[Finding]], ...] = (
    _no_algorithm,
    _nothing_left,
    _too_many_sockets,
    _least_above_most,
    _two_names,
    _too_few_devices,
)
"""Every rule between variables."""
