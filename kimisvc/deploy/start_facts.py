"""The environment of one start: what must be alike before two starts are held against each other.

Taken by `settle`, as the gate has ended: from the generation what it was made
with, from the host what may have changed since (a reboot brings another kernel
or driver). The driver is read from /proc and not asked through NVML: the unit
of the gate has no device of a GPU, and `settle` runs in that unit.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.host import nvidia_driver

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.history.rows import Fact, Facts

FACTS = (
    "kimisvc", "vllm", "systemd", "kernel", "host", "driver", "gpus", "prompt_tokens", "max_tokens",
)  # fmt: skip
"""The names of the facts, in the order they are shown; one that is not known is not there."""


def start_facts(box: Box, record: GateRecord) -> Facts:
    """Given a box and the record of a start of it, return the environment of that start.

    Of a start that runs no more the host is not told: it may have changed since.
    """
    try:
        generation = box.generations.get(record.generation)
        known = dict(_of_generation(generation))
        if box.systemd.state(box.layout.units.service).invocation_id == record.invocation:
            known |= _of_host(box)
    except KimisvcError:
        return {}  # a comfort, not a condition: what was proven is kept without it
    if record.vllm_version:
        known["vllm"] = record.vllm_version
    return {name: known[name] for name in FACTS if known.get(name)}


def _of_generation(generation: Generation) -> Facts:
    probe = generation.settings().probe
    tokens = {"prompt_tokens": probe.prompt_tokens, "max_tokens": probe.max_tokens}
    return {**generation.facts, **tokens}


def _of_host(box: Box) -> dict[str, Fact]:
    from kimisvc import __version__

    return {
        "kimisvc": __version__,
        "systemd": box.systemd.version(),
        "kernel": platform.release(),
        "host": platform.node(),
        "driver": nvidia_driver.loaded_version(),
        "gpus": list(nvidia_driver.gpu_names()),
    }
