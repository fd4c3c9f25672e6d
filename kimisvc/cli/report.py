"""report: the history as one page that needs nothing else, or as a few lines."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kimisvc.cli import doors, options
from kimisvc.cli.history import Moment, none_yet, tell_gaps
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, place_for, table

if TYPE_CHECKING:
    from kimisvc.observe.report import terminal


@click.command()
@click.option("-o", "--output", metavar="FILE", help="Write a page of HTML there.")
@click.option("--since", type=Moment(), metavar="WHEN", help="Only since: 90d ago, or a date.")
@options.instance
@options.as_json
def report(output: str | None, since: float | None, instance: str | None, form: Form) -> None:
    """Show how speed, loads and gates of the instance went: in short, or as a page (-o).

    The page is one file without scripts that loads nothing; it can be mailed.
    """
    from kimisvc.deploy.gaps import gaps
    from kimisvc.deploy.history import Which
    from kimisvc.host import files
    from kimisvc.host.systemd import Systemd
    from kimisvc.observe.report import terminal
    from kimisvc.observe.report.story import read_story

    name = doors.instance_or_default(instance)
    place = place_for(output) if output is not None else None
    # Nothing of it asks systemd: the door is never opened.
    box = doors.box(Systemd(), name)
    lacking = gaps(box.layout, box.history)
    story = replace(read_story(box, Which(since=since)), gaps=lacking)
    tell_gaps(lacking, name)
    if place is not None:
        from kimisvc.observe.report.page import page

        files.write_atomic(place, page(story))
    if form is Form.JSON:
        emit_json({**terminal.as_json(story), "output": output})
    elif output is not None:
        click.echo(f"{output}: written")
    elif story.profiles:
        ramp = _ramp()
        lines = [table(terminal.rows(story, ramp), terminal.HEAD), terminal.legend(ramp)]
        click.echo("\n".join([*lines, *terminal.remarks(story)]))
    else:
        click.echo(f"{name}: {none_yet(lacking)}")


def _ramp() -> terminal.Ramp:
    from kimisvc.observe.report.terminal import Ramp

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        Ramp.BLOCKS.value.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return Ramp.ASCII
    return Ramp.BLOCKS
