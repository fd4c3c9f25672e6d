"""explain: every effective setting of a profile, where it is from, what it does and may cost."""

from __future__ import annotations

import dataclasses
from enum import Enum
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json, profile_argument
from kimisvc.cli.output import emit_json
from kimisvc.cli.profile import usable
from kimisvc.profile.explained import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimisvc.profile.explained import Explained, Rendered
    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

WIDTH = 100
"""Columns of what is told in a paragraph."""
_GLUE = "\N{NO-BREAK SPACE}"


class Depth(Enum):
    """How much is told of a default."""

    NAMED = "its value, and what it becomes"
    WHOLE = "what it does and may cost, too"


@click.command()
@profile_argument
@click.option("--all", "everything", is_flag=True,
              help="Say of defaults, too, what they do.")  # fmt: skip
@as_json
def explain(profile: str, everything: bool, form: Form) -> None:
    """Print each setting of PROFILE: value, origin, meaning, risk, and what it becomes.

    What the profile and the files it extends write comes with all of that,
    a default with its value and what it becomes, unless --all is given. JSON
    always holds everything.
    """
    from kimisvc.profile.explained import explain as explained

    found = doors.checked(profile)
    sound = usable(found)
    vllm = doors.knowledge(Path(sound.vllm.executable))
    effective = doors.as_wanted(sound).profile
    rows = explained(found, effective, vllm, rendered(effective))
    if form is Form.JSON:
        emit_json({"vllm": vllm_json(vllm), "settings": [row_json(row) for row in rows]})
        return
    depth = Depth.WHOLE if everything else Depth.NAMED
    click.echo(explain_text(rows, sound, vllm, depth))


def rendered(profile: Profile) -> Rendered:
    """Given a profile, return what its options and variables become."""
    from kimisvc.profile.explained import Rendered
    from kimisvc.render.arguments import option
    from kimisvc.render.quoting import environment_assignment, exec_argument
    from kimisvc.render.units import environment
    from kimisvc.render.writable import opened_by

    variables, opened = environment(profile), opened_by(profile)

    def with_opened(line: str, key: str) -> str:
        words = opened.get(key)
        return f"{line}, ReadWritePaths={' '.join(words)}" if words else line

    return Rendered(
        options={
            key: with_opened(
                " ".join(exec_argument(word) for word in option(key, value)), f"args.{key}"
            )
            for key, value in profile.args.items()
        },
        assignments={
            key: with_opened(f"Environment={environment_assignment(key, value)}", f"env.{key}")
            for key, value in variables.items()
        },
        environment=variables,
    )


def explain_text(
    rows: Sequence[Explained], profile: Profile, vllm: VllmKnowledge, depth: Depth
) -> str:
    """Given settings, return them for people, table by table, and what is left to vLLM behind them."""
    judged = f"vLLM {vllm.version} ({vllm.known_from.value})"
    lines = [f"{profile.name}: judged by {judged}, max_risk {profile.max_risk.value}"]
    if vllm.why_not_asked:
        lines.append(f"{profile.vllm.executable} could not be asked: {vllm.why_not_asked}")
    ours = [row for row in rows if depth is Depth.WHOLE or row.origin is not Origin.VLLM]
    for table, members in groupby(ours, key=lambda row: row.table):
        lines += ["", f"[{table}]" if table else "top of the file"]
        for row in members:
            lines += _setting_lines(row, depth)
    if depth is Depth.NAMED:
        left = [row for row in rows if row.origin is Origin.VLLM]
        lines += [
            "",
            f"left to vLLM ({Origin.VLLM.value}; kimisvc explain --all says what each does)",
        ]
        lines += _paragraph(f"{row.key} = {row.value}" for row in left if row.value)
        lines += ["", "left to vLLM, and not set"]
        lines += _paragraph(row.key for row in left if not row.value)
    return "\n".join(lines)


def _paragraph(items: Iterable[str]) -> list[str]:
    """Items one after the other, none of them broken."""
    text = ", ".join(item.replace(" ", _GLUE) for item in items)
    lines = wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ",
                 break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [line.replace(_GLUE, " ") for line in lines]


def _setting_lines(row: Explained, depth: Depth) -> list[str]:
    if row.origin is Origin.KIMISVC and depth is Depth.NAMED:
        becomes = f"; becomes: {row.becomes}" if row.becomes else ""
        return [f"  {row.key} = {row.value or 'not set'}    ({row.origin.value}{becomes})"]
    where = f"{row.file}:{row.line}" if row.file else row.origin.value
    risk = f", {row.judgement.risk.value}" if row.judgement else ""
    lines = [f"  {row.key} = {row.value or 'not set'}    ({where}{risk})"]
    if row.does:
        lines.append(f"      {row.does}")
    if row.becomes:
        lines.append(f"      becomes: {row.becomes}")
    if row.judgement:
        lines.append(f"      risk: {row.judgement.why} ({row.judgement.source})")
    return lines


def row_json(row: Explained) -> dict[str, Any]:
    """Given a setting, return its JSON object."""
    values = dataclasses.asdict(row)
    judged = row.judgement
    values["origin"] = row.origin.value
    values["judgement"] = (
        {"risk": judged.risk.value, "why": judged.why, "source": judged.source} if judged else None
    )
    return values


def vllm_json(vllm: VllmKnowledge) -> dict[str, str | None]:
    """Given what judged a profile, return its JSON object; `why_not_asked` is null where it was."""
    return {
        "version": vllm.version,
        "known_from": vllm.known_from.value,
        "why_not_asked": vllm.why_not_asked or None,
    }
