"""explain: every effective setting of a profile, where it is from, what it does and may cost."""

from __future__ import annotations

import dataclasses
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json, profile_argument
from kimisvc.cli.output import emit_json
from kimisvc.cli.profile import usable

if TYPE_CHECKING:
    from kimisvc.profile.explained import Explained, Rendered
    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

QUIET_WITHOUT_ALL = ("default of kimisvc", "default of vLLM")


@click.command()
@profile_argument
@click.option("--all", "everything", is_flag=True,
              help="Defaults too: those of kimisvc, and what is left to vLLM.")  # fmt: skip
@as_json
def explain(profile: str, everything: bool, form: Form) -> None:
    """Print each setting of PROFILE: value, origin, meaning, risk, and what it becomes.

    What the profile and the files it extends write is shown; with --all also
    every default that takes effect. JSON always holds all of them.
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
    shown = [row for row in rows if everything or row.origin.value not in QUIET_WITHOUT_ALL]
    click.echo(explain_text(shown, sound, vllm, len(rows) - len(shown)))


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


def explain_text(rows: list[Explained], profile: Profile, vllm: VllmKnowledge, hidden: int) -> str:
    """Given settings, return them for people, table by table."""
    judged = f"vLLM {vllm.version} ({vllm.known_from.value})"
    lines = [f"{profile.name}: judged by {judged}, max_risk {profile.max_risk.value}"]
    for table, members in groupby(rows, key=lambda row: row.table):
        lines += ["", f"[{table}]" if table else "top of the file"]
        for row in members:
            lines += _setting_lines(row)
    if hidden:
        lines += ["", f"{hidden} defaults are not shown: kimisvc explain --all"]
    return "\n".join(lines)


def _setting_lines(row: Explained) -> list[str]:
    where = f"{row.file}:{row.line}" if row.file else row.origin.value
    risk = f", {row.judgement.risk.value}" if row.judgement else ""
    lines = [f"  {row.key} = {row.value or 'not set'}    ({where}{risk})"]
    if row.does:
        lines.append(f"      {row.does}")
    if row.becomes:
        lines.append(f"      becomes: {row.becomes}")
    if row.judgement:
        lines.append(f"      risk: {row.judgement.why} ({row.judgement.source})")
    elif row.table == "args" and row.file:
        lines.append("      risk: not judged")
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


def vllm_json(vllm: VllmKnowledge) -> dict[str, str]:
    """Given what judged a profile, return its JSON object."""
    return {"version": vllm.version, "known_from": vllm.known_from.value}
