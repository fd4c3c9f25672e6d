"""doctor: what apply's preflight would say, and what this box is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors
from kimisvc.cli.options import Form, as_json
from kimisvc.cli.output import emit_json, problem_json, table
from kimisvc.cli.profile import usable
from kimisvc.errors import ExitStatus, KimisvcError

if TYPE_CHECKING:
    from kimisvc.deploy.preflight import Finding
    from kimisvc.records import Profile

DEFAULT_PROFILE = "cpu_smollm2"


@click.command()
@click.argument("profile", metavar="[PROFILE]", required=False)
@as_json
def doctor(profile: str | None, form: Form) -> int:
    """Look at this host for PROFILE: every check of apply's preflight, as a table.

    Without PROFILE, for what is applied, or else for the default profile, which
    needs no GPU (cpu_smollm2).
    Changes nothing. Exit status 0: all in order; 7: something stands in the way.
    """
    from kimisvc.deploy.preflight import examine

    wanted = _applied() if profile is None else usable(doors.checked(profile))
    findings = examine(wanted, doors.installation())
    box = _box()
    refused = any(found.problems for found in findings) or not box["systemd"]
    if form is Form.JSON:
        emit_json({"profile": wanted.name, "box": box, "checks": _findings_json(findings)})
    else:
        rows = [("box", name, words or "does not run here") for name, words in box.items()]
        for found in findings:
            state = "in the way" if found.problems else "ok"
            words = "; ".join(problem.message for problem in found.problems)
            rows.append((state, found.check, words))
        click.echo(table(rows))
    return int(ExitStatus.PREFLIGHT_REFUSED if refused else ExitStatus.DONE)


def _applied() -> Profile:
    from kimisvc.deploy.generations import Generations
    from kimisvc.deploy.layout import Layout

    layout = Layout(doors.installation(), doors.instance_or_default(None))
    current = Generations(layout).current()
    return current.settings() if current else usable(doors.checked(DEFAULT_PROFILE))


def _findings_json(findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
    return [
        {"check": found.check, "problems": [problem_json(p) for p in found.problems]}
        for found in findings
    ]


def _box() -> dict[str, str]:
    """What this box is; an empty word where something does not run."""
    from kimisvc.host import gpu
    from kimisvc.host.systemd import Systemd

    try:
        with Systemd() as systemd:
            version = systemd.version()
    except KimisvcError as error:
        click.echo(f"kimisvc: {error.message}", err=True)
        version = ""
    found = gpu.gpus()
    if isinstance(found, gpu.NoGpus):
        words = f"none: {found.reason}"
    else:
        words = ", ".join(f"{one.index}: {one.name}" for one in found) or "none"
    return {"systemd": version, "GPUs": words}
