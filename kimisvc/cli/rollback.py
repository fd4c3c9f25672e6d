"""rollback: by an operator, and in its unit form by systemd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json

if TYPE_CHECKING:
    from kimisvc.deploy.history import RollbackRow


def _told(row: RollbackRow | None) -> str:
    if row is None:
        return "nothing has failed on the current generation; left as it is"
    if row.to_generation == row.from_generation:
        return f"generation {row.to_generation}: {row.reason}"
    to = f"restored generation {row.to_generation}" if row.to_generation else "kept"
    return f"generation {row.from_generation} failed, {to}: {row.reason}"


@click.command()
@click.option("--to", "number", type=options.GENERATION, metavar="N", help="Restore generation N.")
@click.option("--no-follow", is_flag=True, help="Do not wait for the verdict; the gate goes on.")
@click.option("--unit", "by_unit", is_flag=True, hidden=True)
@options.instance
@options.as_json
def rollback(
    number: int | None, no_follow: bool, by_unit: bool, instance: str | None, form: Form
) -> int:
    """Restore the last accepted generation (or generation N), and prove it again.

    Where the one that runs is itself the last accepted, goes to the accepted
    one before it. Restarts only what differs. Exit statuses as `apply`, and as
    that refused (75) until a search has ended: `kimisvc tune --cancel` ends it.
    """
    doors.need_root("rollback")
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        # A unit knows its own name: nothing else on the box stands between it and its work.
        own = instance if by_unit else None
        box = doors.box(systemd, own or doors.instance_or_default(instance))
        if by_unit:
            from kimisvc.deploy.rollback import for_unit, take_unkept

            click.echo(_told(for_unit(box)), err=True)
            take_unkept(box)
            return 0
        from kimisvc.cli.apply import applied_json, applied_text
        from kimisvc.cli.reporter import reporter
        from kimisvc.deploy.preflight import preflight
        from kimisvc.deploy.rollback import Restoring, to_generation
        from kimisvc.deploy.wish import Following

        following = Following.LEAVE if no_follow else Following.FOLLOW
        with reporter() as shown:
            done = to_generation(
                box,
                Restoring(number, f"{doors.actor()} (rollback)", following),
                lambda profile: preflight(profile, box.layout.place),
                shown,
            )
        emit_json(applied_json(done)) if form is Form.JSON else click.echo(applied_text(done))
        return int(done.ending.outcome.exit_status)
