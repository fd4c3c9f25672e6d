"""check, render, diff: what can be said of a profile before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json, profile_argument
from kimisvc.cli.output import emit_json, place_for, problem_json, problem_lines
from kimisvc.errors import ExitStatus, KimisvcError, ProfileRefusedError

if TYPE_CHECKING:
    from kimisvc.cli.doors import Judge
    from kimisvc.profile.loader import Checked
    from kimisvc.records.profile import Profile


def usable(found: Checked) -> Profile:
    """Given what a check found, return the profile and print its warnings; raise if refused."""
    if found.profile is None:
        raise ProfileRefusedError(found.problems)
    for line in problem_lines(found.problems):
        click.echo(line, err=True)
    return found.profile


@click.command()
@profile_argument
@as_json
def check(profile: str, form: Form) -> int:
    """Check PROFILE: every problem at once, with file, line and key. Touches nothing.

    Judged by the vLLM it names, which is asked once per version what it knows;
    where it cannot be asked, by a table that ships with kimisvc, and says so
    and why. That alone refuses nothing: a profile may be checked where no vLLM is.
    PROFILE is a file, or a name that `kimisvc profiles` lists. Exit status 0:
    sound; 3: refused.
    """
    found, judge = doors.checked_by(profile)
    refused = found.profile is None
    _tell_of(judge)
    if form is Form.JSON:
        problems = [problem_json(problem) for problem in found.problems]
        emit_json({"problems": problems, "judged_by": judge_json(judge)})
    elif refused:
        raise ProfileRefusedError(found.problems)
    else:
        for line in problem_lines(found.problems):
            click.echo(line, err=True)
        click.echo(f"{profile}: sound")
    return int(ExitStatus.PROFILE_REFUSED if refused else ExitStatus.DONE)


def _tell_of(judge: Judge | None) -> None:
    """Say so where it was not the vLLM of the profile that judged it."""
    from kimisvc.records.vllm import KnownFrom

    if judge is not None and judge.known_from is KnownFrom.SHIPPED:
        named = judge.executable
        why = "no [vllm] executable to ask"
        if named:
            why = f"{named} could not be asked: {judge.why_not_asked}"
        words = f"judged by the shipped table of vLLM {judge.version}"
        click.echo(f"kimisvc: {why}; {words}", err=True)


def judge_json(judge: Judge | None) -> dict[str, str | None] | None:
    """Given by what a profile was judged, return its JSON object; None where by nothing.

    Its executable is null where the profile names none, `why_not_asked` where it was asked, too.
    """
    if judge is None:
        return None
    return {
        "executable": str(judge.executable) if judge.executable else None,
        "version": judge.version,
        "known_from": judge.known_from.value,
        "why_not_asked": judge.why_not_asked or None,
    }


@click.command()
@profile_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write the units into DIR instead of printing them.",
)  # fmt: skip
@as_json
def render(profile: str, output: Path | None, form: Form) -> None:
    """Print the systemd units that PROFILE becomes. Touches nothing on the host."""
    found, judge = doors.checked_by(profile)
    _tell_of(judge)
    units = doors.units_of(usable(found))
    if output is None and form is Form.JSON:
        emit_json({"units": [{"name": unit.name, "text": unit.text} for unit in units]})
        return
    if output is None:
        click.echo("\n".join(f"# ===== {unit.name}\n{unit.text}" for unit in units), nl=False)
        return
    from kimisvc.host import files

    files.make_folder(output)
    for unit in units:
        files.write_atomic(place_for(output / unit.name), unit.text, mode=0o644)
        if form is Form.TEXT:
            click.echo(str(output / unit.name))
    if form is Form.JSON:
        emit_json({"files": [str(output / unit.name) for unit in units]})


@click.command()
@profile_argument
@as_json
def diff(profile: str, form: Form) -> None:
    """Show what `apply PROFILE` would change here: settings, units, and what would restart."""
    from kimisvc.cli.plan import plan_json, plan_text
    from kimisvc.deploy.box import plan_for
    from kimisvc.host.systemd import Systemd
    from kimisvc.profile.resolved import to_toml

    wanted = usable(doors.checked(profile))
    with Systemd() as systemd:
        box = doors.box(systemd, wanted.service.instance)
        plan = plan_for(box, to_toml(wanted), doors.units_of(wanted))
        current = box.generations.sound_current()
        try:
            before = current.settings() if current else None
        except KimisvcError:
            before = None  # a generation of another kimisvc: the units still tell
        if form is Form.JSON:
            emit_json(plan_json(plan))
        else:
            service = systemd.state(box.layout.units.service)
            click.echo(plan_text(plan, before, wanted, service))
