"""gate, settle: the two commands that the gate unit calls."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Instance
from kimisvc.errors import ExitStatus

if TYPE_CHECKING:
    from types import FrameType

instance_argument = click.option("--instance", required=True, metavar="NAME", type=Instance())


@click.command(hidden=True)
@instance_argument
def gate(instance: str) -> int:
    """Prove the start that runs: wait until ready, ask, measure, decide, leave the record.

    Exit status 0: accepted, or the start was ended by systemd; 6: inconclusive;
    5: failed, and systemd calls the rollback.
    """
    signal.signal(signal.SIGTERM, _stopped)
    from kimisvc.deploy.gate_run import run_gate
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        box = doors.box(systemd, instance)
        return int(run_gate(box, doors.api))


def _stopped(number: int, frame: FrameType | None) -> NoReturn:
    """The service is being stopped or started anew: no failure, and no verdict either."""
    del number, frame
    raise SystemExit(int(ExitStatus.DONE))


@click.command(hidden=True)
@instance_argument
def settle(instance: str) -> int:
    """Keep what the gate found: into history, and `accepted` moved where it passed."""
    doors.need_root("settle")
    from kimisvc.deploy.settle import settle as keep
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        done = keep(doors.box(systemd, instance))
    words = f"{done.verdict.kind.value}: {done.verdict.reason}" if done.verdict else ""
    click.echo("; ".join(filter(None, (words, done.note))), err=True)
    return 0
