"""Looks at the host before a load is begun: what would fail late has to fail now. Changes nothing.

Each check reads through a door, decides, and returns what stands in the way;
all of them are asked, so that an operator mends everything at once.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.host import files, gpu, processes, reach, vllm_binary
from kimisvc.records import Installation, Problem, Profile, UnitFile, UnitNames

if TYPE_CHECKING:
    from kimisvc.host.systemd import Systemd

LEAST_FREE = 64 << 20
"""What state and history may need of the disk while a service runs (bytes)."""
GIB = 1 << 30

Check = Callable[[Profile, Installation], list[Problem]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: nothing in `problems` means that it is in order."""

    check: str
    problems: tuple[Problem, ...]


def examine(profile: Profile, place: Installation) -> tuple[Finding, ...]:
    """Given a checked profile and where kimisvc lives, ask every check."""
    return tuple(Finding(name, tuple(check(profile, place))) for name, check in CHECKS)


def preflight(profile: Profile, place: Installation) -> tuple[Problem, ...]:
    """Given a checked profile and where kimisvc lives, return all that stands in its way here."""
    return tuple(problem for found in examine(profile, place) for problem in found.problems)


def _executable(profile: Profile, place: Installation) -> list[Problem]:
    del place
    why = reach.why_unrunnable(Path(profile.vllm.executable), _viewer(profile))
    return [Problem(f"{why}; install vLLM there", key="vllm.executable")] if why else []


def _kimisvc(profile: Profile, place: Installation) -> list[Problem]:
    """The gate runs this kimisvc as a user of its own, behind ProtectHome=."""
    del profile
    why = reach.why_unrunnable(place.kimisvc)
    hint = "install kimisvc under /opt or /usr, where its units can run it"
    return [Problem(f"{why}; {hint}")] if why else []


def _viewer(profile: Profile) -> reach.Viewer:
    """Who vLLM runs as: the user of the profile, or one that systemd makes up."""
    ids = processes.user_ids(profile.service.user) if profile.service.user else None
    if ids is None:
        return reach.ANYBODY
    return reach.Viewer(ids[0], processes.group_ids(profile.service.user))


def _model(profile: Profile, place: Installation) -> list[Problem]:
    """A model given as a path has to be there; a name on a hub is vLLM's own business."""
    del place
    model = Path(profile.vllm.model)
    if not model.is_absolute():
        return []
    why = reach.why_unreachable(model, _viewer(profile))
    if why:
        return [Problem(f"{why}; the service could not read the model", key="vllm.model")]
    if model.is_dir() and not (model / "config.json").is_file():
        return [
            Problem(f"{model} holds no config.json, so it is no model folder", key="vllm.model")
        ]
    return []


def _port(profile: Profile, place: Installation) -> list[Problem]:
    """Who is there now: our own service may be, it will be stopped; anybody else will not."""
    del place
    ours = UnitNames.of(profile.service.instance).service
    return [
        Problem(f"port {profile.vllm.port} is taken by {owner}", key="vllm.port")
        for owner in processes.port_owners(profile.vllm.port, profile.vllm.host)
        if owner.unit != ours
    ]


def _user(profile: Profile, place: Installation) -> list[Problem]:
    del place
    user = profile.service.user
    if not user or processes.user_ids(user) is not None:
        return []
    return [Problem(f"there is no user {user} on this box", key="service.user")]


def _secrets(profile: Profile, place: Installation) -> list[Problem]:
    del place
    if not profile.service.secrets_file:
        return []
    path = Path(profile.service.secrets_file)
    try:
        found = path.stat()
    except OSError as error:
        return [Problem(f"{path}: {error.strerror}", key="service.secrets_file")]
    if found.st_mode & 0o077 or found.st_uid != 0:
        return [
            Problem(
                f"{path} may be read by others than root (mode {found.st_mode & 0o777:o}, owner"
                f" {found.st_uid}); chown root: and chmod 600 it",
                key="service.secrets_file",
            )
        ]
    return []


def _disk(profile: Profile, place: Installation) -> list[Problem]:
    del profile
    free = files.free_bytes(place.state)
    if free >= LEAST_FREE:
        return []
    return [Problem(f"only {free >> 20} MiB are free where {place.state} lies; 64 MiB are needed")]


def _gpus(profile: Profile, place: Installation) -> list[Problem]:
    """Count, memory, and foreign processes: of a box without NVML only what the profile needs."""
    del place
    wanted = profile.hardware
    if not wanted.gpus:
        return []
    found = gpu.gpus()
    if isinstance(found, gpu.NoGpus):
        return [Problem(f"needs {wanted.gpus} GPUs: {found.reason}", key="hardware.gpus")]
    problems = []
    if len(found) < wanted.gpus:
        problems.append(
            Problem(f"needs {wanted.gpus} GPUs, this box has {len(found)}", key="hardware.gpus")
        )
    ours = UnitNames.of(profile.service.instance).service
    for one in found[: wanted.gpus]:
        if one.memory / GIB < wanted.memory_gib:
            problems.append(
                Problem(
                    f"GPU {one.index} ({one.name}) has {one.memory / GIB:.1f} GiB,"
                    f" {wanted.memory_gib:g} GiB are needed",
                    key="hardware.memory_gib",
                )
            )
        problems += [
            Problem(f"PID {pid} computes on GPU {one.index} and is not part of {ours}")
            for pid in one.processes
            if processes.unit_of(pid) != ours
        ]
    return problems


def _memory(profile: Profile, place: Installation) -> list[Problem]:
    del place
    problems = []
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if pages / GIB < profile.hardware.ram_gib:
        problems.append(
            Problem(
                f"needs {profile.hardware.ram_gib:g} GiB of memory, this box has {pages / GIB:.1f}",
                key="hardware.ram_gib",
            )
        )
    if profile.hardware.shm_gib:
        free = files.free_bytes(Path("/dev/shm"))  # noqa: S108 - asked for its size
        if free / GIB < profile.hardware.shm_gib:
            problems.append(
                Problem(
                    f"needs {profile.hardware.shm_gib:g} GiB free in /dev/shm,"
                    f" there are {free / GIB:.1f}",
                    key="hardware.shm_gib",
                )
            )
    return problems


def _version(profile: Profile, place: Installation) -> list[Problem]:
    del place
    least = profile.vllm.min_version
    program = Path(profile.vllm.executable)
    if not least or not program.is_file():
        return []
    found = vllm_binary.vllm_version(program)
    if found is None:
        return [
            Problem(
                f"{program} does not tell its version; {least} is needed", key="vllm.min_version"
            )
        ]
    if release(found) < release(least):
        return [Problem(f"vLLM {found} is installed, {least} is needed", key="vllm.min_version")]
    return []


CHECKS: tuple[tuple[str, Check], ...] = (
    ("vLLM", _executable),
    ("vLLM version", _version),
    ("kimisvc", _kimisvc),
    ("model", _model),
    ("port", _port),
    ("user", _user),
    ("secrets", _secrets),
    ("disk", _disk),
    ("GPUs", _gpus),
    ("memory", _memory),
)
"""Every check and what it looks at, in the order `doctor` shows them."""


def release(version: str) -> tuple[int, ...]:
    """Given a version, return its release numbers: 0.32.0+cpu and 0.32.0rc1 give (0, 32, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def verify(units: tuple[UnitFile, ...]) -> tuple[Problem, ...]:
    """Given units, have systemd-analyze read them; return what it says of them.

    Its exit status is 0 for nearly everything that systemd would ignore, so
    what it writes is read instead (systemd#27540).
    """
    with _scratch() as folder:
        paths = []
        for unit in units:
            path = Path(folder) / unit.name
            files.write_atomic(path, unit.text, mode=0o644)
            paths.append(str(path))
        done = processes.run(
            ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *paths], timeout=60.0
        )
    named = {unit.name for unit in units}
    return tuple(
        Problem(f"systemd-analyze: {line.removeprefix(folder).strip('/')}")
        for line in done.stderr.splitlines()
        if any(name in line for name in named)
    )


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    try:
        with tempfile.TemporaryDirectory(prefix="kimisvc-verify-") as folder:
            yield folder
    except OSError as error:
        raise files.translated(error, Path(tempfile.gettempdir())) from error


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
