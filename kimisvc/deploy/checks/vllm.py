"""Checks of the programs: vLLM, its version, what it compiles with, and kimisvc itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.inspection import NO_GPUS_WANTED, Unseen, not_asked, warning
from kimisvc.host import reach, vllm_binary
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.records.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection

SYSTEM_PATH = (
    "usr/local/cuda/bin",
    "usr/local/bin",
    "usr/local/sbin",
    "usr/bin",
    "usr/sbin",
    "bin",
)
"""What the unit gives vLLM as PATH, behind the folder of the program itself."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What vLLM, or what it compiles with, runs while it loads; any of `names` will do."""

    names: tuple[str, ...]
    why: str


TOOLS = (
    Tool(("gcc", "cc", "clang"), "Triton compiles its launchers with a C compiler"),
    Tool(("nvcc",), "FlashInfer compiles kernels it has no ready ones for with nvcc"),
    Tool(("ninja",), "FlashInfer and PyTorch build extensions with ninja"),
)
"""Asked for where GPUs are; vLLM finds out at the end of a load."""


def executable(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield why vLLM could not be run by the service."""
    program = about.profile.vllm.executable
    why = reach.why_unrunnable(Path(program), about.viewer)
    if why:
        named = why if program in why else f"{program} cannot be run: {why}"
        yield Problem(f"{named}; install vLLM there", key="vllm.executable")
    elif unseen := reach.why_program_unseen(Path(program)):
        yield Unseen(unseen)


def version(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield a version of vLLM below the one that the profile needs."""
    least = about.profile.vllm.min_version
    program = Path(about.profile.vllm.executable)
    if not least:
        yield not_asked("the profile asks for no version")
        return
    unseen = reach.why_program_unseen(program)
    if unseen or not program.is_file():
        yield Unseen(unseen or f"there is no {program}")
        return
    found = vllm_binary.vllm_version(program)
    if found is None:
        words = f"{program} does not tell its version; {least} is needed"
        yield Problem(words, key="vllm.min_version")
    elif not release(found):
        yield warning(
            f"vLLM {found} is a build from a checkout without tags, which tells no release;"
            f" {least} is needed",
            "vllm.min_version",
        )
    elif release(found) < release(least):
        yield Problem(f"vLLM {found} is installed, {least} is needed", key="vllm.min_version")


def tools(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield what is not on vLLM's PATH and may be run while it loads."""
    if not about.profile.hardware.gpus:
        yield NO_GPUS_WANTED
        return
    folders = search_path(about)
    for tool in TOOLS:
        if not any((folder / name).is_file() for folder in folders for name in tool.names):
            where = "the PATH of the service"
            yield warning(f"no {' or '.join(tool.names)} on {where}; {tool.why}", "vllm.executable")


def search_path(about: Inspection) -> tuple[Path, ...]:
    """Return the folders in which vLLM will look for programs."""
    own = about.profile.env.get("PATH")
    if own is not None:
        return tuple(Path(folder) for folder in own.split(":") if folder)
    program = Path(about.profile.vllm.executable)
    return (program.parent, *(about.root / folder for folder in SYSTEM_PATH))


def kimisvc(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield why the gate, which runs this kimisvc as a user of its own, could not.

    And who else could make root run what he likes: units have root run it, too.
    """
    program = about.place.kimisvc
    why = reach.why_unrunnable(program)
    if why:
        yield Problem(f"{why}; install kimisvc under /opt or /usr, where its units can run it")
        return
    if unseen := reach.why_program_unseen(program):
        yield Unseen(unseen)
        return
    packages = program.parent.parent.glob("lib/python*/*-packages/kimisvc")
    of_root = (program, reach.shebang(program), *packages)
    changed = next(filter(None, (reach.why_not_roots(path) for path in of_root if path)), "")
    if changed:
        yield warning(
            f"units have root run {program}, and {changed}: whoever may change it becomes root."
            " Install kimisvc as root, in a folder that root alone may write"
        )
