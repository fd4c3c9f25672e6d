"""The environment of one start: what must be alike before two starts are held against each other.

Taken by `settle`, as the gate has ended: from the generation what it was made
with, from the host what may have changed since (a reboot brings another kernel
or driver), and the clocks that the GPUs have right after the runs. Those alone
need NVML, whose devices the unit of the gate lets `settle` reach and not the gate;
units of an earlier kimisvc let neither. The driver is read from /proc, where it is always told.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.host import gpu, nvidia_driver
from kimisvc.measure.probe import TEMPERATURE

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history.rows import Fact, Facts

FACTS = (
    "kimisvc", "vllm", "systemd", "kernel", "host", "driver", "gpus", "prompt_tokens", "max_tokens",
    "temperature", "clocks",
)  # fmt: skip
"""The names of the facts, in the order they are shown; one that is not known is not there."""
MOMENTARY = ("clocks",)
"""Those that are of a moment: they differ from start to start, and nobody changed anything."""
UNKNOWN: tuple[Fact, ...] = (None, "", [])
"""What stands for a fact that is not known."""


def start_facts(box: Box, record: GateRecord) -> Facts:
    """Given a box and the record of a start of it, return the environment of that start.

    Of a start that runs no more the host is not told: it may have changed since.
    """
    try:
        generation = box.generations.get(record.generation)
        known = dict(_of_generation(generation))
        if box.systemd.state(box.layout.units.service).invocation_id == record.invocation:
            known |= host_now(box)
            if record.proof is not None and record.proof.samples:
                known["clocks"] = clocks_now()
    except KimisvcError:
        return {}  # a comfort, not a condition: what was proven is kept without it
    if record.vllm_version:
        known["vllm"] = record.vllm_version
    return {name: known[name] for name in FACTS if known.get(name) not in UNKNOWN}


def _of_generation(generation: Generation) -> Facts:
    probe = generation.settings().probe
    return {
        **generation.facts,
        "prompt_tokens": probe.prompt_tokens,
        "max_tokens": probe.max_tokens,
        "temperature": TEMPERATURE,
    }


def clocks_now() -> list[str]:
    """Return the clocks of each GPU in words; none where no driver is loaded or NVML is out of reach."""
    return [one.words for one in gpu.clocks()] if nvidia_driver.loaded_version() else []


def host_now(box: Box) -> dict[str, Fact]:
    """Given a box, return what is known of the host that runs it now."""
    from kimisvc import __version__

    return {
        "kimisvc": __version__,
        "systemd": box.systemd.version(),
        "kernel": platform.release(),
        "host": platform.node(),
        "driver": nvidia_driver.loaded_version(),
        "gpus": list(nvidia_driver.gpu_names()),
    }
