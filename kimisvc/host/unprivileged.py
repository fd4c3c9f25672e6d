"""Runs somebody else's program as nobody, with nothing of ours in its environment.

The Python of a virtual environment runs whatever its packages hold, and a
wrapper whatever its owner wrote into it. So root never runs one: it is run as
`nobody`, or, where that user may not read it, as the unprivileged owner of
what it belongs to; with no privilege to be gained, an environment of a few
variables, and a home that is thrown away. Whoever is not root runs it as
himself. What root alone may read is not run at all; a service could not run it
either.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.errors import HostError
from kimisvc.host.processes import run, user_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kimisvc.host.processes import Finished

_NOBODY = (65534, 65534)
"""Where no user is called so: the kernel's own number of it (overflowuid, proc_sys_kernel(5))."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """That a program left nothing, for it was not begun or did not end; `why` goes behind its name."""

    why: str


def outcomes(
    argv: Sequence[str], belongs_to: Path, timeout: float, environment: Mapping[str, str]
) -> Iterator[Finished | NotRun]:
    """Given a program with its arguments, yield what became of it when run as each user who may.

    `belongs_to` is what its user has to be able to read. Nothing comes after a
    run that took longer than `timeout` (s): it would take as long for the next.
    """
    for user in _users(belongs_to):
        try:
            with tempfile.TemporaryDirectory(
                prefix="kimisvc-ask-", ignore_cleanup_errors=True
            ) as home:
                if user is not None:
                    os.chown(home, *user)
                yield run(_command(argv, home, user, environment), timeout)
        except HostError as error:
            if error.code == "program-timeout":
                yield NotRun(f"did not end within {timeout:g} s")
                return
            yield NotRun(error.message)
        except OSError as error:
            yield NotRun(error.strerror or str(error))


def _users(belongs_to: Path) -> Iterator[tuple[int, int] | None]:
    """Yield who may run it, in turn, as numbers of user and group; None is who we are."""
    if os.geteuid() != 0:
        yield None
        return
    nobody = user_ids("nobody") or _NOBODY
    yield nobody
    try:
        owner = belongs_to.stat()
    except OSError:
        return
    if owner.st_uid not in (0, nobody[0]):
        yield owner.st_uid, owner.st_gid


def _command(
    argv: Sequence[str], home: str, user: tuple[int, int] | None, environment: Mapping[str, str]
) -> tuple[str, ...]:
    drop: tuple[str, ...] = ()
    if user is not None:
        ids = (f"--reuid={user[0]}", f"--regid={user[1]}")
        drop = ("setpriv", *ids, "--clear-groups", "--no-new-privs", "--inh-caps=-all")
    variables = {"LC_ALL": "C.UTF-8", "HOME": home, "TMPDIR": home, **environment}
    assignments = (f"{name}={value}" for name, value in variables.items())
    return (*drop, "env", "-i", "-C", home, *assignments, *argv)
