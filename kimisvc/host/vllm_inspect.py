"""Runs the questions in the Python of a vLLM, as nobody, and reads the answer.

The Python of a virtual environment runs whatever its packages hold, and vLLM's
imports write caches and settings wherever they may. So root never asks: the
questions are asked as `nobody`, or, where that user may not read the
environment, as the unprivileged owner of the program; with no privilege to be
gained, an environment of a few variables, and a home that is thrown away.
Whoever is not root asks as himself. An environment that root alone may read is
not asked at all; a service could not run it either.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError
from kimisvc.host.processes import run, user_ids
from kimisvc.host.vllm_questions import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTIONS = Path(__file__).with_name("vllm_questions.py")
_NOBODY = (65534, 65534)
"""Where no user is called so: the kernel's own number of it (overflowuid, proc_sys_kernel(5))."""
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "LC_ALL": "C.UTF-8",
}


def ask(python: Path, packages: Path, timeout: float) -> Any:
    """Given a Python, the folder vLLM lies in, and a time limit (s), return what vLLM tells.

    As JSON has it; None if there is no answer: it is missing, ends badly, takes
    longer, or says something else. Importing vLLM takes ten seconds and more.
    """
    for user in _askers(packages):
        try:
            with tempfile.TemporaryDirectory(
                prefix="kimisvc-ask-", ignore_cleanup_errors=True
            ) as home:
                if user is not None:
                    os.chown(home, *user)
                done = run(_command(python, packages, home, user), timeout)
        except HostError as error:
            if error.code == "program-timeout":
                return None  # it would take as long for the next
            continue
        except OSError:
            continue
        answer = _answer(done.stdout)
        if done.status == 0 and answer is not None:
            return answer
    return None


def _askers(packages: Path) -> Iterator[tuple[int, int] | None]:
    """Yield who may ask, in turn, as numbers of user and group; None is who we are."""
    if os.geteuid() != 0:
        yield None
        return
    nobody = user_ids("nobody") or _NOBODY
    yield nobody
    try:
        owner = packages.stat()
    except OSError:
        return
    if owner.st_uid not in (0, nobody[0]):
        yield owner.st_uid, owner.st_gid


def _command(
    python: Path, packages: Path, home: str, user: tuple[int, int] | None
) -> tuple[str, ...]:
    """The command that asks: isolated (-I), so that no folder of ours is looked into, and -B."""
    drop: tuple[str, ...] = ()
    if user is not None:
        ids = (f"--reuid={user[0]}", f"--regid={user[1]}")
        drop = ("setpriv", *ids, "--clear-groups", "--no-new-privs", "--inh-caps=-all")
    variables = {
        **_QUIET,
        "HOME": home,
        "TMPDIR": home,
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
    }
    return (
        *drop, "env", "-i", "-C", home, *(f"{name}={value}" for name, value in variables.items()),
        str(python), "-I", "-B", "-c", QUESTIONS.read_text(encoding="utf-8"), str(packages),
    )  # fmt: skip


def _answer(output: str) -> Any:
    for line in output.splitlines():
        if line.startswith(MARK):
            try:
                return _printable(json.loads(line.removeprefix(MARK)))
            except (ValueError, RecursionError):
                return None
    return None


def _printable(told: Any) -> Any:
    """Given what somebody else's code told, return it fit for a terminal."""
    if isinstance(told, str):
        return "".join(letter if letter.isprintable() else "?" for letter in told)
    if isinstance(told, list):
        return [_printable(item) for item in told]
    if isinstance(told, dict):
        return {_printable(name): _printable(item) for name, item in told.items()}
    return told
