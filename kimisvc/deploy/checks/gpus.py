"""Checks of the GPUs: driver, device nodes, how many, how large, how joined, and who is on them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import (
    NO_GPUS_WANTED,
    VISIBLE,
    Unseen,
    few,
    not_asked,
    warning,
)
from kimisvc.host import gpu, hidden, nvidia_driver, pci, processes, reach
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Link
from kimisvc.records.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection

SLACK = GIB
"""What the driver itself may hold of a GPU's memory, and NVML counts as used."""
PREFIX = "VLLM_PROCESS_NAME_PREFIX"
DEFAULT_PREFIX = "VLLM"
OF_ITS_OWN = re.compile(r"\.service$|^(?:docker|libpod|podman|crio|cri-\w+|machine)-.*\.scope$")
"""Units of those who run a vLLM on purpose: services, and the scopes of container engines."""
UTILIZATION = "gpu-memory-utilization"
COUNT = "hardware.gpus"
MOST_NAMED = 6


def driver(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield libraries of the driver that do not match the kernel module that is loaded.

    An upgrade of the driver under a running kernel gives that; nothing on the
    GPUs starts any more until a reboot.
    """
    if not about.profile.hardware.gpus:
        yield NO_GPUS_WANTED
        return
    loaded = nvidia_driver.loaded_version(about.proc)
    libraries = nvidia_driver.library_versions(about.root)
    if not loaded:
        yield Unseen("no NVIDIA kernel module is loaded")  # NVML's words are shown with the GPUs
        return
    for path, version in libraries.items():
        if version != loaded:
            yield Problem(
                f"the NVIDIA kernel module is {loaded}, {path} is {version}: the driver was"
                " upgraded under a loaded module; reboot, or reload the module nvidia",
                key=COUNT,
            )


def nodes(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield device nodes that CUDA needs and that are not there, or not for the service.

    The unit has them made by nvidia-modprobe where that is installed.
    """
    minors = tuple(one.minor for one in about.gpus() if one.minor is not None)
    if not minors:
        yield _none_shown(about)
        return
    dev = about.root / "dev"
    missing = nvidia_driver.missing_nodes(minors, dev)
    if missing and not nvidia_driver.can_make_nodes(about.root):
        yield Problem(
            f"{', '.join(map(str, missing))} not there, and no nvidia-modprobe that would make"
            " it: install nvidia-modprobe, or enable nvidia-persistenced.service",
            key=COUNT,
        )
    for node in nvidia_driver.nodes(minors, dev):
        if node not in missing:
            why = reach.why_unreachable(node, about.viewer, reach.Need.DRIVE)
            if why:
                yield Problem(f"{why}; the service could not use the GPUs", key=COUNT)


def gpus(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield what the profile needs of GPUs and the box has not."""
    wanted = about.profile.hardware
    if not wanted.gpus:
        yield NO_GPUS_WANTED
        return
    if isinstance(about.survey, gpu.NoGpus):
        yield Problem(
            f"needs {wanted.gpus} GPUs: {about.survey.reason}{_on_the_bus(about)}", key=COUNT
        )
        return
    there = about.gpus()
    if len(there) < wanted.gpus:
        chosen = about.profile.env.get(VISIBLE)
        shown = f", and {VISIBLE}={chosen} shows {len(there)}" if chosen is not None else ""
        yield Problem(
            f"needs {wanted.gpus} GPUs, this box has {len(about.survey.gpus)}{shown}", key=COUNT
        )
    for one in there:
        if one.fault:
            yield Problem(f"GPU {one.index}: {one.fault}", key=COUNT)
        elif one.memory / GIB < wanted.memory_gib:
            yield Problem(
                f"GPU {one.index} ({one.name}) has {one.memory / GIB:.1f} GiB,"
                f" {wanted.memory_gib:g} GiB are needed",
                key="hardware.memory_gib",
            )


def occupied(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield the processes on our GPUs that are not our service's, and memory that is held there.

    In a container NVML's ids are of no use: our own service has others there.
    Where /proc hides what is not of who asks, nor are they.
    """
    telling, ours = processes.sees_the_kernels_ids(about.proc), about.gpus()
    if not ours:
        yield _none_shown(about)
    for one in ours:
        named = one.processes if telling else ()
        foreign = [pid for pid in named if not about.is_ours(pid)]
        for pid in foreign:
            if hidden.is_hidden(pid, about.proc):
                yield Unseen(f"what computes on GPU {one.index} (PID {pid}) only root can see")
                continue
            who = processes.process(pid, about.proc)
            yield Problem(f"{who} computes on GPU {one.index} and is not part of {about.service}")
        if not named:
            yield from _held(about, one)


def _held(about: Inspection, one: gpu.Gpu) -> Iterator[Problem | Unseen]:
    """Memory without a process that NVML names: another container's, or a crash's.

    While our own service runs it may be that one's: in some virtual machines
    NVML names no process at all, and in a container none that can be found.
    """
    share = option(about.profile.args, UTILIZATION)
    if not isinstance(share, int | float):
        return
    free, needed = one.memory - one.memory_used, share * one.memory
    if free + SLACK >= needed or processes.runs(about.service, about.proc):
        return
    held = f"{one.memory_used / GIB:.1f} GiB"
    if hidden.hides_others(about.proc):
        yield Unseen(f"who holds {held} of GPU {one.index} only root can see")
    else:
        yield Problem(
            f"GPU {one.index}: {held} are held by a process that NVML does"
            f" not name (of another container?); {UTILIZATION} = {share:g} takes"
            f" {needed / GIB:.1f} GiB and {free / GIB:.1f} are free",
            key=f"args.{UTILIZATION}",
        )


def link(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield a kind of connection that the profile is not for, as P2P states of NVML tell it."""
    wanted = about.profile.hardware.link
    chosen = {one.index for one in about.gpus()}
    if isinstance(about.survey, gpu.NoGpus) or not chosen:
        yield _none_shown(about)
        return
    if wanted is Link.ANY:
        yield not_asked("the profile takes any link between GPUs")
        return
    pairs = [p for p in about.survey.pairs if {p.first, p.second} <= chosen]
    if untold := [f"{p.first}-{p.second}" for p in pairs if p.nvlink is None]:
        which = few(untold, MOST_NAMED, "more pairs")
        yield Unseen(f"NVML does not tell whether NVLink joins GPUs {which}")
    without = [f"{p.first}-{p.second}" for p in pairs if p.nvlink is False]
    joined = [f"{p.first}-{p.second}" for p in pairs if p.nvlink]
    if wanted is Link.NVLINK and without:
        yield Problem(
            f"needs NVLink; no NVLink joins GPUs {few(without, MOST_NAMED, 'more pairs')}",
            key="hardware.link",
        )
    if wanted is Link.PCIE and joined:
        yield warning(
            f"is tuned for GPUs over PCIe; NVLink joins GPUs {few(joined, MOST_NAMED, 'more pairs')}",
            "hardware.link",
        )


def vllm_processes(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield processes of another vLLM: those of a server that was killed live on (vllm#55510).

    One that belongs to a service or a container of its own may be meant so; it
    is in the way only where it is on our GPUs, which `occupied` tells.
    """
    if hidden.hides_others(about.proc):
        yield Unseen(f"{about.proc} shows the processes of others to root alone")
    own = about.profile.env.get(PREFIX, DEFAULT_PREFIX)
    for one in processes.titled(tuple({own, DEFAULT_PREFIX}), about.proc):
        if one.unit == about.service:
            continue
        words = f"{one} is a vLLM that is not part of {about.service}"
        if OF_ITS_OWN.search(one.unit) or not about.profile.hardware.gpus:
            yield warning(words)
        else:
            yield Problem(
                f"{words}; a server that was killed leaves such: kill {one.pid}, if it is one"
            )


def _none_shown(about: Inspection) -> Unseen:
    """Why there are no GPUs to look at; whether that is in the way, `gpus` tells."""
    return Unseen("no GPU to look at") if about.profile.hardware.gpus else NO_GPUS_WANTED


def _on_the_bus(about: Inspection) -> str:
    """What PCI knows of cards that NVML does not show."""
    cards = pci.gpus(about.root / "sys")
    if not cards:
        return ""
    drivers = sorted({card.driver or "none" for card in cards})
    return f" ({len(cards)} NVIDIA cards are on the bus, driver {' and '.join(drivers)})"
