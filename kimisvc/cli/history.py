"""history: what was applied, started, decided, rolled back and measured; and taking old rows out."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.history_events import What
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, moment, table

if TYPE_CHECKING:
    from kimisvc.deploy.gaps import Gaps
    from kimisvc.deploy.history import History
    from kimisvc.deploy.layout import Layout

SHOWN = 50
"""So many events are read by people; who takes them into a table of his own wants them all."""
MOST = (1 << 63) - 1
"""No bound: the largest number of rows that SQLite counts (lang_select, "The LIMIT clause")."""


class Moment(click.ParamType[float]):
    """A moment of the past: how long ago (`2d`), or when (`2026-07-25`, `2026-07-25T18:00`)."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Given what was typed, return it as Unix time; a date alone is its midnight here."""
        from kimisvc.profile.quantities import parse_duration

        if isinstance(value, float):
            return value
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except (ValueError, OverflowError):
            pass
        try:
            return time.time() - parse_duration(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a span (2d, 36h) nor a date (2026-07-25)", param, ctx)


@click.group(invoke_without_command=True)
@click.option("-n", "--limit", type=click.IntRange(1, 1_000_000), default=None,
              help=f"How many of the newest events: {SHOWN} unless said, with --csv all.")  # fmt: skip
@click.option("--profile", metavar="NAME", help="Only what is of this profile.")
@click.option("--generation", type=options.GENERATION, metavar="N", help="Only of this generation.")
@click.option("--since", type=Moment(), metavar="WHEN", help="Only since: 2d ago, or a date.")
@click.option("--what", type=click.Choice([what.value for what in What]), multiple=True,
              help="Only events of this kind; may be given several times.")  # fmt: skip
@click.option("--csv", "form", flag_value=Form.CSV, type=Form, help="Answer with one table in CSV.")
@options.instance
@options.answering_json(
    "Answer with JSON on stdout, for programs: a list for each kind, and of each kind so many of"
    " the newest as --limit says."
)
@click.pass_context
def history(
    ctx: click.Context, /, limit: int | None, what: tuple[str, ...], form: Form, instance: str | None,
    **narrowed: Any,
) -> None:  # fmt: skip
    """Print applies, starts, verdicts, rollbacks, canaries and benches, newest last.

    In the order in which they came about, also where the clock was set meanwhile: a
    start shows when it began, and stands where it was ready or failed. CSV has all of them.
    """
    from kimisvc.cli.history_events import as_csv, as_json, events, found
    from kimisvc.deploy.gaps import gaps
    from kimisvc.deploy.history import Which

    if ctx.invoked_subcommand:
        return
    name = doors.instance_or_default(instance)
    most = limit or (MOST if form is Form.CSV else SHOWN)
    which = Which(limit=most, **narrowed)
    lacking = gaps(_layout(name), _kept(name))  # first: nothing is taken meanwhile unseen
    rows = found(_kept(name), which, {What(word) for word in what} or set(What))
    tell_gaps(lacking, name)
    if form is Form.JSON:
        emit_json(as_json(rows, name, lacking))
        return
    happened = events(rows)[-most:]
    if form is Form.CSV:
        click.echo(as_csv(happened), nl=False)
    elif happened:
        lines = [(moment(e.at), e.what, str(e.generation), e.text) for e in happened]
        click.echo(table(lines, ("when", "what", "generation", "")))
    else:
        asked = any(value is not None for value in (*what, *narrowed.values()))
        click.echo(f"{name}: {'nothing like that in its history' if asked else none_yet(lacking)}")


@history.command()
@click.option("--keep", type=Moment(), metavar="WHEN", required=True,
              help="What is to stay: of the last 90d, or since a date.")  # fmt: skip
@options.instance
@options.as_json
def prune(keep: float, instance: str | None, form: Form) -> None:
    """Take out old canaries, and old samples of generations that were never accepted.

    Starts, verdicts, applies, rollbacks, benches and the samples of accepted
    generations always stay. The newest canary stays, too.
    """
    doors.need_root("pruning the history")
    name = doors.instance_or_default(instance)
    pruned = _kept(name).prune(before=keep)
    if form is Form.JSON:
        emit_json({"instance": name, "canaries": pruned.canaries, "samples": pruned.samples})
        return
    click.echo(f"{name}: {pruned.canaries} canaries and {pruned.samples} samples taken out")


def tell_gaps(lacking: Gaps, instance: str) -> None:
    """Given what a history does not tell, say so on stderr, where anything is missing."""
    if lacking.words:
        click.echo(f"kimisvc: warning: {instance}: {lacking.words}", err=True)


def none_yet(lacking: Gaps) -> str:
    """Given what a history without rows does not tell, say that it has none."""
    return "nothing is in its history" if lacking.words else "no history yet"


def _layout(instance: str) -> Layout:
    from kimisvc.deploy.layout import Layout

    return Layout(doors.installation(), instance)


def _kept(instance: str) -> History:
    from kimisvc.deploy.history import History

    return History(_layout(instance).history)
