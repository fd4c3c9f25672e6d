"""gate, canary, settle: the commands that units call."""

from __future__ import annotations

import signal
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Instance
from kimisvc.errors import ExitStatus

if TYPE_CHECKING:
    from types import FrameType

    from kimisvc.deploy.box import Box

instance_argument = click.option("--instance", required=True, metavar="NAME", type=Instance())


@click.command(hidden=True)
@instance_argument
def gate(instance: str) -> int:
    """Prove the start that runs: wait until ready, ask, measure, decide, leave the record.

    Exit status 0: accepted, or the start was ended by systemd; 6: inconclusive;
    5: failed, and systemd calls the rollback.
    """
    signal.signal(signal.SIGTERM, _stopped)
    from kimisvc.deploy.gate.run import run_gate
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
def canary(instance: str) -> int:
    """Probe the service shortly, if it is ready and idle, and leave the record.

    Exit status 0: measured, skipped, or ended by systemd; 1: the server failed it.
    """
    signal.signal(signal.SIGTERM, _stopped)
    from kimisvc.deploy.canary.run import run_canary
    from kimisvc.deploy.history.rows import CanaryResult
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        row = run_canary(doors.box(systemd, instance), doors.api)
    return int(ExitStatus.FAILED if row.result is CanaryResult.FAILED else ExitStatus.DONE)


class Left(Enum):
    """Whose record is to be kept."""

    GATE = "gate"
    CANARY = "canary"


@click.command(hidden=True)
@instance_argument
@click.option("--of", "left", type=click.Choice([one.value for one in Left]), default="gate",
              callback=lambda _context, _option, value: Left(value))  # fmt: skip
def settle(instance: str, left: Left) -> int:
    """Keep what gate or canary found: into history, and `accepted` moved where a gate passed."""
    doors.need_root("settle")
    from kimisvc.host.systemd import Systemd

    keep = {Left.GATE: _keep_gate, Left.CANARY: _keep_canary}[left]
    with Systemd() as systemd:
        click.echo(keep(doors.box(systemd, instance)), err=True)
    return 0


def _keep_gate(box: Box) -> str:
    from kimisvc.deploy.gate.settle import settle as keep

    done = keep(box)
    words = f"{done.verdict.kind.value}: {done.verdict.reason}" if done.verdict else ""
    return "; ".join(filter(None, (words, done.note)))


def _keep_canary(box: Box) -> str:
    from kimisvc.cli.output import canary_words
    from kimisvc.deploy.canary.run import keep_canaries

    return "; ".join(map(canary_words, keep_canaries(box))) or "the canary left no record"
