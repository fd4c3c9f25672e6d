"""doctor: what this box is, and what apply's preflight would say of a profile on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json
from kimisvc.cli.output import emit_json, problem_json, table
from kimisvc.cli.profile import usable
from kimisvc.errors import ExitStatus, KimisvcError
from kimisvc.records.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimisvc.deploy.checks.inspection import Finding
    from kimisvc.host.gpu import NoGpus, Survey
    from kimisvc.records.profile import Profile


@click.command()
@click.argument("profile", metavar="[PROFILE]", required=False)
@as_json
def doctor(profile: str | None, form: Form) -> int:
    """Look at this host: systemd, GPUs and what connects them, and whether PROFILE would run.

    With PROFILE, or for what is applied, every check of the host that apply
    makes before it changes anything, and what systemd says of the units.
    "not looked at": a check could not see what it is for, as a rule because
    only root can. "not asked for": PROFILE asks for nothing of the kind.
    Neither is in the way. Changes nothing. Exit status 0: all in order, or
    only warnings; 7: something stands in the way.
    """
    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.deploy.preflight import examine
    from kimisvc.host import gpu

    wanted = _applied() if profile is None else usable(doors.checked(profile))
    survey = gpu.survey()
    box, checks = _box(survey), [_systemd()]
    if wanted is not None:
        checks += examine(Inspection(wanted, doors.installation(), survey))
        checks.append(_units(wanted, checks))
    if form is Form.JSON:
        emit_json(_answer(wanted, survey, box, checks))
    else:
        click.echo(_shown(box, checks))
    refused = any(found.refuses for found in checks)
    return int(ExitStatus.PREFLIGHT_REFUSED if refused else ExitStatus.DONE)


def _applied() -> Profile | None:
    """What is applied now; None, and why, where that is not clear or damaged."""
    from kimisvc.deploy.generations import Generations
    from kimisvc.deploy.layout import Layout

    try:
        layout = Layout(doors.installation(), doors.instance_or_default(None))
        current = Generations(layout).current()
        return current.settings() if current else None
    except KimisvcError as error:
        click.echo(f"kimisvc: {error.message}; looking at the box alone", err=True)
        return None


def _units(wanted: Profile, found: Iterable[Finding]) -> Finding:
    """What systemd makes of the units that apply would write, beside what was found already."""
    from kimisvc.deploy.checks.inspection import Finding
    from kimisvc.deploy.verify import news, verify

    known = [problem for one in found for problem in one.problems]
    try:
        return Finding("unit files", news(verify(doors.units_of(wanted)), known))
    except KimisvcError as error:
        return Finding("unit files", (Problem(error.message),))


def _systemd() -> Finding:
    from kimisvc.deploy.checks.inspection import Finding
    from kimisvc.host.systemd import Systemd

    try:
        with Systemd() as systemd:
            return Finding("systemd", (), systemd.version())
    except KimisvcError as error:
        return Finding("systemd", (Problem(error.message),))


def _box(survey: Survey | NoGpus) -> list[Finding]:
    """What this box has of GPUs, and in what condition they and their connections are."""
    from kimisvc.deploy.checks.condition import conditions
    from kimisvc.deploy.checks.inspection import Finding
    from kimisvc.host import gpu

    if isinstance(survey, gpu.NoGpus):
        return [Finding("GPUs", (), f"none: {survey.reason}")]
    words = f"{len(survey.gpus)}, driver {survey.driver or 'unknown'}"
    return [Finding("GPUs", (), words), *conditions(survey, Path("/"))]


def _shown(box: Iterable[Finding], checks: Iterable[Finding]) -> str:
    """A row a finding; a line for each of its problems."""
    from kimisvc.deploy.checks.inspection import Looked

    rows = []
    for plain, findings in (("box", box), ("ok", checks)):
        for found in findings:
            bad = "in the way" if found.refuses else "warning"
            if found.said or not found.problems:
                good = plain if found.looked is Looked.YES else found.looked.value
                rows.append((bad if found.problems else good, found.check, found.said))
            rows += [
                ("warning" if problem.severity.value == "warning" else bad, found.check, words)
                for problem in found.problems
                for words in (_words(problem),)
            ]
    return table(rows)


def _words(problem: Problem) -> str:
    where = f"{problem.file}:{problem.line}: " if problem.line else ""
    where = where or (f"{problem.file}: " if problem.file else "")
    return f"{where}{problem.message}"


def _answer(
    wanted: Profile | None, survey: Survey | NoGpus, box: list[Finding], checks: list[Finding]
) -> dict[str, Any]:
    from kimisvc.host import gpu

    gpus = {} if isinstance(survey, gpu.NoGpus) else asdict(survey)
    return {
        "profile": wanted.name if wanted else None,
        "box": {"systemd": checks[0].said, "GPUs": box[0].said},
        "nvml": gpus or None,
        "conditions": [_finding_json(found) for found in box],
        "checks": [_finding_json(found) for found in checks],
    }


def _finding_json(found: Finding) -> dict[str, Any]:
    problems = [problem_json(problem) for problem in found.problems]
    return {
        "check": found.check,
        "said": found.said,
        "looked": found.looked.value,
        "problems": problems,
    }
