"""import, schema: what runs already becomes a profile; what a profile may hold, for editors."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json, instance
from kimisvc.cli.output import emit_json, place_for, problem_json, problem_lines
from kimisvc.errors import ExitStatus, KimisvcError, NoSystemdError

if TYPE_CHECKING:
    from kimisvc.host.unit_files import FoundUnit
    from kimisvc.profile.adoption.adopt import Adopted
    from kimisvc.profile.adoption.draft import Lookup
    from kimisvc.records.problems import Problem


class NothingToImportError(KimisvcError):
    """Neither a command nor a unit was given, or both."""

    exit_status = ExitStatus.USAGE


NOT_SAVED = "(profile)"
"""The name of a file that is only printed, in its problems."""


@click.command("import")
@click.argument("command", nargs=-1, metavar="[COMMAND]...")
@click.option(
    "--unit",
    metavar="UNIT",
    default=None,
    help="A service of this box, or the path of a unit file, with its drop-ins.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the profile into FILE instead of printing it.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@instance
@as_json
def import_(
    command: tuple[str, ...], unit: str | None, output: Path | None, overwrite: bool,
    instance: str | None, form: Form,
) -> int:  # fmt: skip
    """Turn a running `vllm serve` COMMAND, or a unit of your own, into a profile.

    COMMAND is one quoted text, as typed in a shell or as a script has it, or
    its words after `--`. Comments in the profile say what went where, and what
    was left out and why; the values of keys and tokens are never printed. Exit
    status 0: the profile is sound; 3: it is printed, and its problems are those
    of the original.

    \b
      kimisvc import 'vllm serve org/model -tp 8' -o mine.toml
      kimisvc import --unit vllm.service
    """  # noqa: D301 - \b is click's mark for a paragraph that is not to be wrapped
    from kimisvc.host import files

    if bool(command) == (unit is not None):
        raise NothingToImportError("nothing-to-import", "say what: a COMMAND, or --unit UNIT")
    place = place_for(output) if output is not None else None
    if place is not None and files.exists(place) and not overwrite:
        raise KimisvcError("file-exists", f"{output} is there already", hint="add --overwrite")
    adopted = _adopt(command, unit, instance or "")
    problems = _problems(adopted, str(output or NOT_SAVED))
    if place is not None:
        files.write_atomic(place, adopted.text)
    if form is Form.JSON:
        emit_json(_json(adopted, problems, output))
    elif output is None:
        click.echo(adopted.text, nl=False)
    if form is Form.TEXT:
        _tell(adopted, problems)
    refused = any(problem.severity.value == "error" for problem in problems)
    return int(ExitStatus.PROFILE_REFUSED if refused else ExitStatus.DONE)


@click.command()
@as_json
def schema(form: Form) -> None:
    """Print the JSON Schema of a profile, for editors; it is JSON with and without --json.

    Save it, and begin a profile with the line `#:schema ./profile.schema.json`:
    Taplo and Even Better TOML then complete and check it while you write. Options
    and variables are those of the newest vLLM that kimisvc knows.
    """
    del form
    from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
    from kimisvc.profile.schema import text

    click.echo(text(shipped_knowledge()), nl=False)


def _adopt(command: tuple[str, ...], unit: str | None, instance: str) -> Adopted:
    from kimisvc.profile.adoption.adopt import adopt_command, adopt_unit
    from kimisvc.profile.adoption.unit_file import UnitText, read_unit
    from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge

    known = shipped_knowledge()
    if unit is None:
        return adopt_command(command, _lookup(), known, instance)
    found = _find(unit)
    texts = [UnitText(str(path), text) for path, text in found.texts]
    return adopt_unit(read_unit(found.name, texts), _lookup(), known, instance)


def _find(unit: str) -> FoundUnit:
    """Ask systemd where a unit lies; a path, or a box without systemd, is looked at directly."""
    from kimisvc.host.systemd import Systemd
    from kimisvc.host.unit_files import find_unit, read_found

    if "/" not in unit:
        name = unit if unit.endswith(".service") else f"{unit}.service"
        try:
            with Systemd() as systemd:
                state = systemd.state(name)
        except NoSystemdError:
            return find_unit(unit)
        if state.fragment:
            return read_found(name, state.fragment, state.drop_ins)
    return find_unit(unit)


def _lookup() -> Lookup:
    import shutil

    from kimisvc.host import files
    from kimisvc.profile.adoption.draft import Lookup

    return Lookup(
        read=lambda path: files.read_text(Path(path)),
        program=lambda name, path: shutil.which(name, path=path or None) or "",
    )


def _problems(adopted: Adopted, shown_as: str) -> tuple[Problem, ...]:
    """What `kimisvc check` would say of the profile once it is saved."""
    from kimisvc.host import files

    with tempfile.TemporaryDirectory(prefix="kimisvc-") as folder:
        path = Path(folder) / f"{adopted.name}.toml"
        files.write_atomic(path, adopted.text, mode=0o600)
        found = doors.checked(str(path)).problems
    return tuple(replace(problem, file=shown_as) for problem in found)


def _tell(adopted: Adopted, problems: tuple[Problem, ...]) -> None:
    sys.stdout.flush()
    for note in adopted.unclear:
        click.echo(f"not understood: {note.what}: {note.why}", err=True)
    if adopted.secrets:
        names = ", ".join(f"{name} (from {where})" for name, where in adopted.secrets.items())
        click.echo(f"secrets left out, for the secrets file: {names}", err=True)
    for line in problem_lines(problems):
        click.echo(line, err=True)


def _json(
    adopted: Adopted, problems: tuple[Problem, ...], output: Path | None
) -> dict[str, object]:
    return {
        "name": adopted.name,
        "file": str(output) if output else None,
        "profile": adopted.text,
        "not_understood": [{"what": note.what, "why": note.why} for note in adopted.unclear],
        "secrets": sorted(adopted.secrets),
        "problems": [problem_json(problem) for problem in problems],
    }
