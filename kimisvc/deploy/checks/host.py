"""Checks of the rest of the host: port, user, start folder, disk, limits, masked units."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import Unseen, not_asked, warning
from kimisvc.deploy.generations import Generations
from kimisvc.deploy.instances import installed
from kimisvc.deploy.layout import Layout
from kimisvc.errors import KimisvcError
from kimisvc.host import files, hidden, limits, processes, reach
from kimisvc.records.problems import Problem
from kimisvc.records.sizes import GIB, MIB
from kimisvc.records.units import UnitNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection

LEAST_FREE = 64 * MIB
"""What state and history may need of the disk while a service runs (bytes)."""
LEAST_CACHE = 2 * GIB
"""What compiled kernels and graphs of a large model were seen to take (bytes)."""
CACHE = Path("var/cache/kimisvc")
NOWHERE = Path("/dev/null")
PRIVATE = "PrivateTmp="


def port(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield who has the port now: our own service will be stopped, anybody else will not.

    Whose a socket is the kernel tells root alone; that it is a stranger's is
    sure to others only while our service has no process at all.
    """
    vllm, blind = about.profile.vllm, not hidden.sees_all() and about.may_run
    for owner in processes.port_owners(vllm.port, vllm.host):
        if blind and not owner.pid:
            yield Unseen(f"who has port {vllm.port} only root can see")
        elif owner.unit != about.service:
            yield Problem(f"port {vllm.port} is taken by {owner}", key="vllm.port")
    for name in _others_at(about, vllm.port):
        yield warning(
            f"port {vllm.port} is that of {name}, too, which starts at boot: one of the"
            f" two will fail then. Take another port, or systemctl disable --now {name}",
            "vllm.port",
        )


def _others_at(about: Inspection, port: int) -> Iterator[str]:
    """The services of other instances that start at boot and listen at the same port."""
    for instance in installed(about.place):
        layout = Layout(about.place, instance)
        name = layout.units.service
        at_boot = any(about.place.units.glob(f"*.wants/{name}"))
        if instance == about.profile.service.instance or not at_boot:
            continue
        current = Generations(layout).sound_current()
        with contextlib.suppress(KimisvcError):  # damaged: its own status says so
            if current is not None and current.settings().vllm.port == port:
                yield name


def user(about: Inspection) -> Iterator[Problem]:
    """Yield a user that is not there."""
    name = about.profile.service.user
    if name and processes.user_ids(name) is None:
        yield Problem(f"there is no user {name} on this box", key="service.user")


def start_folder(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield why the service could not start in the folder that the profile names for that.

    systemd enters it as the user of the service, within what the unit is
    shown, and ends a start that cannot with 200/CHDIR (systemd.exec(5)).
    """
    named = about.profile.service.working_directory
    if not named:
        yield not_asked("the profile names no folder to start in")
        return
    folder = Path(named)
    why = _no_start_in(about, folder)
    if why:
        yield Problem(
            f"the service could not start in {named}: {why}; it would fail with 200/CHDIR."
            " Name another folder, or none: it then starts in /",
            key="service.working_directory",
        )
    elif not _is_made_at_start(about, folder) and (unseen := reach.why_unseen(folder)):
        yield Unseen(unseen)


def _no_start_in(about: Inspection, folder: Path) -> str:
    if _is_made_at_start(about, folder):
        return ""
    own = about.root / CACHE / about.profile.service.instance
    is_own = folder.is_relative_to(own)  # shown to the service alone: others may not enter it
    why = "" if is_own else reach.why_unreachable(folder, about.viewer, reach.Need.ENTER)
    if why or reach.why_unseen(folder) or folder.is_dir():
        return why
    return "it is not a folder, and nothing makes one there" if is_own else "it is not a folder"


def _is_made_at_start(about: Inspection, folder: Path) -> bool:
    """Whether systemd makes it: the cache of the instance, or a folder of temporary files."""
    own = about.root / CACHE / about.profile.service.instance
    return folder == own or reach.HIDDEN.get(str(folder), "").startswith(PRIVATE)


def disk(about: Inspection) -> Iterator[Problem]:
    """Yield too little room for state and history, and little for what vLLM compiles."""
    free = files.free_bytes(about.place.state)
    if free < LEAST_FREE:
        where = about.place.state
        yield Problem(f"only {free // MIB} MiB are free where {where} lies; 64 MiB are needed")
    cache = about.root / CACHE / about.profile.service.instance
    room = files.free_bytes(cache)
    if room < LEAST_CACHE and about.profile.hardware.gpus:
        yield warning(
            f"only {room // MIB} MiB are free where {cache} lies; vLLM keeps compiled kernels"
            " there, and 2 GiB are advisable"
        )


def kernel_limits(about: Inspection) -> Iterator[Problem]:
    """Yield limits of the kernel that the unit would run into."""
    wanted, most = about.profile.service.limit_nofile, limits.most_open_files(about.proc)
    if most and wanted > most:
        yield Problem(
            f"{wanted} open files are more than this kernel allows (fs.nr_open = {most}): the"
            f" service would fail with 205/LIMITS; lower it, or sysctl fs.nr_open={wanted}",
            key="service.limit_nofile",
        )
    if limits.promises_strictly(about.proc) and about.profile.hardware.gpus:
        yield warning(
            "vm.overcommit_memory is 2: CUDA reserves far more address space than it uses, and"
            " may be refused; 0 or 1 is usual"
        )


def masked(about: Inspection) -> Iterator[Problem]:
    """Yield units of ours that are masked: systemd starts none of those.

    One that is masked until the next boot (`mask --runtime`) is not: ours lie in /etc, which
    goes before /run (systemd.unit(5), unit file load path).
    """
    units = UnitNames.of(about.profile.service.instance)
    canary = (units.canary, units.canary_timer) if about.profile.canary is not None else ()
    names = (units.service, units.gate, units.rollback, units.target, *canary)
    for name in names:
        path = about.place.units / name
        if path.is_symlink() and path.readlink() == NOWHERE:
            yield Problem(f"{name} is masked; systemctl unmask {name}", file=str(path))
