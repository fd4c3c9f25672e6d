"""CUDA_VISIBLE_DEVICES: numbers or UUIDs of GPUs, in the order vLLM shall number them.

CUDA stops at the first entry that is no GPU and hides all after it, without a
word (CUDA programming guide, CUDA Environment Variables, CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import re

from kimisvc.profile.values import shown

_DEVICE = r"[0-9]{1,4}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,120}"

_NONE = "-1"


def devices(value: str) -> tuple[str, ...]:
    """Given a value, return the GPUs it lists; none in "" and in -1, the usual words for that."""
    if value.strip() in ("", _NONE):
        return ()
    return tuple(device.strip() for device in value.split(","))


def visible_devices(value: str) -> str:
    """Given a value, return what is wrong with it; empty and -1 are legal and hide every GPU."""
    seen: set[str] = set()
    for device in devices(value):
        if not re.fullmatch(_DEVICE, device):
            return (
                f"{shown(device)} is neither the number nor the UUID of a GPU, and hides all after "
                "it. Write 0,1,2,3, for example, or what nvidia-smi -L shows"
            )
        if device in seen:
            return f"{shown(device)} is listed twice, and CUDA then sees no GPU. Keep one"
        seen.add(device)
    return ""
