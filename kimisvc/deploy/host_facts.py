"""What an installation needs of the host before its first unit, and what a generation keeps of it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.host import files, processes, vllm_binary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.host.systemd import Systemd
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import Installation


def prepare(place: Installation) -> None:
    """Given where kimisvc lives, make the gate's user and the folders of state and runtime."""
    processes.ensure_system_user(place.user)
    files.make_folder(place.state)
    files.make_folder(place.runtime)


def facts(profile: Profile, systemd: Systemd) -> Mapping[str, str | float]:
    """Given a profile, return what a generation keeps of the host it was made for."""
    from kimisvc import __version__

    return {
        "kimisvc": __version__,
        "vllm": vllm_binary.vllm_version(Path(profile.vllm.executable)) or "",
        "systemd": systemd.version(),
        "host": platform.node(),
        "kernel": platform.release(),
    }
