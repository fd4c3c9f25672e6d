"""profiles: those that ship, those of this box, and what is known of each here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json
from kimisvc.cli.output import (
    emit_json,
    problem_json,
    problem_lines,
    speed,
    table,
    verdict_json,
)
from kimisvc.errors import KimisvcError
from kimisvc.foreign_text import printable
from kimisvc.records.problems import Problem
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kimisvc.deploy.catalogue import Listed
    from kimisvc.profile.loader import Checked


@click.command()
@click.argument("paths", metavar="[FILE|DIR]...", nargs=-1, type=click.Path(path_type=Path))
@as_json
def profiles(paths: tuple[Path, ...], form: Form) -> None:
    """List profiles: does each fit this host, is it current or accepted, how fast was it here.

    Those that ship with kimisvc, those in /etc/kimisvc/profiles, and those
    named. Changes nothing.
    """
    from kimisvc.deploy.catalogue import catalogue
    from kimisvc.deploy.preflight import preflight
    from kimisvc.host import gpu

    place, survey = doors.installation(), gpu.survey()
    found = catalogue(
        dict.fromkeys(_files(paths)),
        _checked,
        lambda profile: preflight(profile, place, survey),
        place,
    )
    if form is Form.JSON:
        emit_json({"profiles": [listed_json(one) for one in found]})
        return
    rows = [
        (
            _name(one),
            _where(one),
            "yes" if not _why_not(one) else "no",
            _standing(one),
            _figure(one),
        )
        for one in found
    ]
    click.echo(table(rows, ("profile", "from", "fits", "here", "last decode throughput")))
    for why, names in _reasons(found).items():
        click.echo(f"{', '.join(names)}: {why}")


def _checked(file: Path) -> Checked:
    """Check one file; whatever becomes of that, the others are listed."""
    from kimisvc.profile.loader import Checked

    try:
        return doors.checked(str(file))
    except KimisvcError as error:
        why = error.message
    except Exception as error:  # noqa: BLE001 - a defect at one file must not hide the others
        why = f"kimisvc cannot judge it ({type(error).__name__}); ask for this file alone: check"
    return Checked(None, (Problem(why, file=str(file)),), (), {})


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    from kimisvc.host import files

    yield from sorted(shipped("profiles").glob("*.toml"))
    yield from (p for p in files.entries(doors.LOCAL_PROFILES) if p.suffix == ".toml")
    for path in paths:
        if path.is_dir():
            yield from (p for p in files.entries(path) if p.suffix == ".toml")
        elif files.exists(path):
            yield path
        else:
            raise KimisvcError("no-such-file", f"{printable(str(path))}: no such file or folder")


def _name(one: Listed) -> str:
    return one.profile.name if one.profile else printable(one.file.stem)


def _where(one: Listed) -> str:
    return "shipped" if one.file.parent == shipped("profiles") else str(one.file)


def _why_not(one: Listed) -> list[str]:
    """What keeps it from this host: problems of its own, or of the host."""
    return problem_lines(one.problems if one.profile is None else one.in_the_way)


def _reasons(found: Iterable[Listed]) -> dict[str, list[str]]:
    """Given all profiles, return each reason once, with the names of those it keeps away."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        for why in dict.fromkeys(_why_not(one)):
            reasons.setdefault(why, []).append(_name(one))
    return reasons


def _standing(one: Listed) -> str:
    words = []
    if one.current is not None:
        words.append(f"current ({one.current}{', its file changed since' if one.changed else ''})")
    if one.accepted is not None:
        words.append(f"accepted ({one.accepted})")
    return ", ".join(words)


def _figure(one: Listed) -> str:
    return speed(one.last.decode_tok_s) if one.last else ""


def listed_json(one: Listed) -> dict[str, Any]:
    """Given a listed profile, return its JSON object."""
    return {
        "name": _name(one),
        "file": str(one.file),
        "shipped": _where(one) == "shipped",
        "description": one.profile.description if one.profile else None,
        "fits": not _why_not(one),
        "problems": [problem_json(problem) for problem in (*one.problems, *one.in_the_way)],
        "instance": one.profile.service.instance if one.profile else None,
        "current_generation": one.current,
        "accepted_generation": one.accepted,
        "changed": one.changed,
        **verdict_json(one.last),
    }
