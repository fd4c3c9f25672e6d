"""history: what was applied, started, decided and rolled back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, moment, span, speed, table, verdict_json

if TYPE_CHECKING:
    from kimisvc.deploy.history import ApplyRow, History, RollbackRow, StartRow, VerdictRow


@click.command()
@click.option("-n", "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True,
              help="How many of the newest events.")  # fmt: skip
@options.instance
@options.as_json
def history(limit: int, instance: str | None, form: Form) -> None:
    """Print applies, starts, verdicts and rollbacks of the instance, newest last."""
    from kimisvc.deploy.history import History
    from kimisvc.deploy.layout import Layout

    name = doors.instance_or_default(instance)
    kept = History(Layout(doors.installation(), name).history)
    if form is Form.JSON:
        emit_json(history_json(kept, name, limit))
        return
    events = sorted(
        [*map(_apply_event, kept.applies(limit)), *map(_start_event, kept.starts(limit)),
         *map(_verdict_event, kept.verdicts(limit=limit)),
         *map(_rollback_event, kept.rollbacks(limit=limit))]
    )[-limit:]  # fmt: skip
    if not events:
        click.echo(f"{name}: no history yet")
        return
    rows = [(moment(at), what, generation, text) for at, _, what, generation, text in events]
    click.echo(table(rows, ("when", "what", "generation", "")))


Event = tuple[float, int, str, str, str]
"""Moment, order among equals, what, generation, text."""


def _apply_event(row: ApplyRow) -> Event:
    before = f", before: {row.previous}" if row.previous else ""
    ended = f"{row.outcome} (exit {row.exit})" if row.outcome else "left at work"
    return (
        row.at,
        0,
        "apply",
        str(row.generation),
        f"{row.profile} by {row.actor}{before}: {ended}",
    )


def _start_event(row: StartRow) -> Event:
    ready = "no readiness seen" if row.ready_at is None else "ready"
    load = f", loaded in {span(row.load_s)}" if row.load_s is not None else ""
    version = f", vLLM {row.vllm_version}" if row.vllm_version else ""
    return (
        row.started_at,
        1,
        "start",
        str(row.generation),
        f"{row.profile}: {ready}{load}{version}",
    )


def _verdict_event(row: VerdictRow) -> Event:
    figure = f"{speed(row.decode_tok_s)}; " if row.decode_tok_s else ""
    kind = row.verdict.kind.value
    return (row.at, 2, kind, str(row.generation), f"{row.profile}: {figure}{row.verdict.reason}")


def _rollback_event(row: RollbackRow) -> Event:
    to = f"to {row.to_generation}" if row.to_generation else "nothing restored"
    return (row.at, 3, "rollback", str(row.from_generation), f"{to}: {row.reason}")


def history_json(kept: History, instance: str, limit: int) -> dict[str, Any]:
    """Given a history, return its JSON object: newest first, four lists."""
    return {
        "instance": instance,
        "applies": [dataclasses.asdict(row) for row in kept.applies(limit)],
        "starts": [dataclasses.asdict(row) for row in kept.starts(limit)],
        "verdicts": [
            {
                **verdict_json(row), "at": row.at, "generation": row.generation,
                "profile": row.profile, "invocation": row.invocation, "floor": row.floor,
                "goal": row.goal, "notes": list(row.notes),
            }
            for row in kept.verdicts(limit=limit)
        ],
        "rollbacks": [dataclasses.asdict(row) for row in kept.rollbacks(limit=limit)],
    }  # fmt: skip
