"""compare: whether two profiles differ in speed, from the starts in history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, moment, table
from kimisvc.cli.profile import usable
from kimisvc.measure.comparison import MARGIN

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.comparing import Compared, Side


@click.command()
@click.argument("base", metavar="A")
@click.argument("other", metavar="B")
@click.option("--anyway", is_flag=True, help="Compare although more than the profile differed.")
@click.option(
    "--margin", metavar="PERCENT", default=100 * MARGIN, show_default=True,
    type=click.FloatRange(0.0, 50.0, min_open=True), help="A difference nobody would pay for.",
)  # fmt: skip
@options.instance
@options.as_json
def compare(
    base: str, other: str, anyway: bool, margin: float, instance: str | None, form: Form
) -> None:
    """Say how the decode throughput of B compares to that of A, by the starts in history.

    A and B are each a profile's name, a generation's number, or a profile file.
    Every accepted start counts as one figure; with fewer than two on a side
    nothing can be claimed, and it says how many more would likely settle it.
    """
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.comparing import held_together, held_together_anyway
    from kimisvc.deploy.layout import Layout
    from kimisvc.host.systemd import Systemd

    # Nothing of it asks systemd: the door is never opened.
    box = Box(Layout(doors.installation(), doors.instance_or_default(instance)), Systemd())
    sides = _side(box, base), _side(box, other)
    found = (held_together_anyway if anyway else held_together)(*sides, margin / 100)
    emit_json(compared_json(found)) if form is Form.JSON else click.echo(compared_text(found))


def _side(box: Box, word: str) -> Side:
    from kimisvc.deploy.comparing import of_generation, of_name, of_profile

    if word.isdecimal():
        return of_generation(box, options.GENERATION.convert(int(word[:20]), None, None))
    if "/" not in word and not word.endswith(".toml"):
        named = of_name(box, word)
        if named is not None:
            return named
    return of_profile(box, usable(doors.checked(word)), word)


def compared_json(found: Compared) -> dict[str, Any]:
    """Given a comparison, return its JSON object, as DESIGN fixes it."""
    from kimisvc.measure.comparison import as_json, say

    return {
        **as_json(found.comparison),
        "text": say(found.comparison),
        "base": _side_json(found.base),
        "other": _side_json(found.other),
        "differences": [
            {"key": key, "base": base, "other": other} for key, base, other in found.differences
        ],
        "unlike": [
            {"name": name, "base": base, "other": other} for name, base, other in found.unlike
        ],
        "notes": list(found.notes),
    }


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "asked": side.asked,
        "profile": side.label,
        "generations": list(side.generations),
        "starts": [
            {
                "started_at": start.started_at,
                "generation": start.generation,
                "decode_tok_s": figure.decode_tok_s,
                "runs": list(start.runs),
            }
            for start, figure in zip(side.starts, side.figures, strict=True)
        ],
    }


def compared_text(found: Compared) -> str:
    """Given a comparison, return it for people: the answer, the figures, what differs."""
    from kimisvc.measure.comparison import say

    base, other = found.base, found.other
    lines = [f"{other.label} against {base.label}: {say(found.comparison)}", ""]
    rows = [
        (side.label, str(start.generation), moment(start.started_at),
         f"{figure.decode_tok_s:.2f} tok/s", str(len(start.runs)))
        for side in (base, other)
        for start, figure in zip(side.starts, side.figures, strict=True)
    ]  # fmt: skip
    lines.append(table(rows, ("profile", "generation", "started", "decode", "runs")))
    if found.differences:
        lines += ["", table(found.differences, ("setting", base.label, other.label))]
    elif base.profile is not None and other.profile is not None:
        lines += ["", "the two profiles do not differ"]
    if found.unlike:
        lines += ["", table(found.unlike, ("also differs", base.label, other.label))]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)
