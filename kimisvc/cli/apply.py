"""apply: the main job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form, as_json, profile_argument
from kimisvc.cli.output import (
    emit_json,
    problem_json,
    problem_lines,
    speed,
    table,
    verdict_json,
)
from kimisvc.cli.profile import usable
from kimisvc.errors import ExitStatus, KimisvcError, LockedError, PreflightRefusedError
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.outcome import Applied
    from kimisvc.deploy.plan import Plan
    from kimisvc.deploy.wish import Checks, Wish


@click.command()
@profile_argument
@click.option("--dry-run", is_flag=True, help="Show what would be done and what is in its way.")
@click.option("--overwrite", is_flag=True, help="Overwrite hand-edited units; a copy is kept.")
@click.option("--no-follow", is_flag=True, help="Do not wait for the verdict; the gate goes on.")
@click.option("--anyway", is_flag=True, help="Go on though the host checks say no; they are told.")
@click.option("--restart", is_flag=True, help="Load the model anew even if nothing changed.")
@click.option(
    "--drain", metavar="TIME", type=options.SPAN,
    help="Wait so long for requests to end before a restart; then restart all the same.",
)  # fmt: skip
@as_json
def apply(  # noqa: PLR0913, PLR0917 - click gives each option as an argument of its own
    profile: str,
    dry_run: bool,
    overwrite: bool,
    no_follow: bool,
    anyway: bool,
    restart: bool,
    drain: float | None,
    form: Form,
) -> int:
    """Make PROFILE the running service of this box, proven, or roll back.

    Checks the profile and the host, installs the units, restarts only what
    changed, waits for the gate: readiness, golden questions, decode
    throughput. A profile that runs already costs nothing. Once a restart has
    begun, Ctrl-C or a lost connection leaves the gate at work: `kimisvc status
    --follow` shows it again. Before, and while --drain waits, nothing is changed.
    --dry-run changes nothing, makes the same checks of the host (all of them
    only as root, and so whether another kimisvc is at work), and ends with 7 or 75
    where apply would be refused.
    """
    from kimisvc.deploy.wish import Following, HandEdits, HostChecks, Reload, Wish
    from kimisvc.host.systemd import Systemd
    from kimisvc.profile.resolved import to_toml
    from kimisvc.render.buckets import Load

    found = doors.checked(profile)
    wanted = usable(found)
    if not dry_run:
        doors.need_root("apply")  # a bad profile is told to others, too
    wish = Wish(
        profile=wanted,
        written=found.text,
        resolved=to_toml(wanted),
        units=doors.units_of(wanted, Load.PAID if restart else Load.SPARED),
        actor=doors.actor(),
        hand_edits=HandEdits.OVERWRITE if overwrite else HandEdits.REFUSE,
        following=Following.LEAVE if no_follow else Following.FOLLOW,
        host_checks=HostChecks.OVERRIDE if anyway else HostChecks.HEED,
        reload=Reload.ALWAYS if restart else Reload.IF_CHANGED,
        file=str(found.files[0].absolute()),
        drain_s=drain,
    )
    with Systemd() as systemd:
        box = doors.box(systemd, wanted.service.instance)
        if dry_run:
            return _show_plan(box, wish, form)
        return _apply(box, wish, form)


def _apply(box: Box, wish: Wish, form: Form) -> int:
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.apply import apply as carry_out

    with reporter() as shown:
        done = carry_out(box, wish, checks(box), shown)
    emit_json(applied_json(done)) if form is Form.JSON else click.echo(applied_text(done))
    return int(done.ending.outcome.exit_status)


def checks(box: Box) -> Checks:
    """Given a box, return the real checks of it."""
    from kimisvc.deploy.host_facts import facts, prepare
    from kimisvc.deploy.preflight import preflight
    from kimisvc.deploy.verify import verify
    from kimisvc.deploy.wish import Checks

    place = box.layout.place
    return Checks(
        preflight=lambda profile: preflight(profile, place),
        verify=verify,
        prepare=lambda: prepare(place),
        facts=lambda profile: facts(profile, box.systemd),
        server=doors.api_of_root,
    )


def _show_plan(box: Box, wish: Wish, form: Form) -> int:
    """Show what would be done, then what is odd or in its way; return the status of that.

    As with apply, who is at work on the instance comes before what the host says.
    """
    from kimisvc.cli.plan import plan_text
    from kimisvc.deploy.obstacles import in_the_way
    from kimisvc.deploy.wish import plan_of

    plan = plan_of(box, wish)
    current = box.generations.sound_current()
    found = in_the_way(box, wish, plan, checks(box))
    refusing = [one for one in found if one.severity is Severity.ERROR]
    refusal: KimisvcError | None = _at_work(box)
    if refusal is None and refusing:
        refusal = PreflightRefusedError(refusing)
    status = int(refusal.exit_status if refusal else ExitStatus.DONE)
    if form is Form.JSON:
        why = refusal.message if refusal else None
        told = {"exit": status, "refused": why, "problems": [problem_json(one) for one in found]}
        emit_json({**planned_json(plan, current, box), **told})
        return status
    try:
        before = current.settings() if current else None
    except KimisvcError:
        before = None  # a generation of another kimisvc: the units still tell
    service = box.systemd.state(box.layout.units.service)
    click.echo(plan_text(plan, before, wish.profile, service))
    listed = refusing if isinstance(refusal, PreflightRefusedError) else []
    for line in problem_lines(one for one in found if one not in listed):
        click.echo(line, err=True)
    if refusal is not None:
        raise refusal
    return status


def _at_work(box: Box) -> LockedError | None:
    """What apply would be turned away with by those who are at work on the instance now; None: by none."""
    from kimisvc.deploy.apply import refuse_beside

    try:
        refuse_beside(box)
    except LockedError as error:
        return error
    return None


def planned_json(plan: Plan, current: Generation | None, box: Box) -> dict[str, Any]:
    """Given what an apply would do, return its JSON object: an apply's keys but exit, and the plan."""
    from kimisvc.cli.plan import plan_json
    from kimisvc.deploy.box import restarts

    return {
        "outcome": "planned",
        **verdict_json(None),
        "notes": [],
        "generation": None,
        "previous_generation": current.number if current else None,
        "restarted": [],
        "would_restart": list(restarts(plan, box.layout.units)),
        **plan_json(plan),
    }


def applied_json(done: Applied) -> dict[str, Any]:
    """Given what an apply did, return its JSON object, as DESIGN fixes it."""
    ending = done.ending
    return {
        "outcome": ending.outcome.value,
        **verdict_json(ending.verdict),
        "reason": ending.reason,
        "notes": list(ending.verdict.notes) if ending.verdict else [],
        "generation": done.generation,
        "previous_generation": done.previous,
        "restarted": list(done.restarted),
        "copies": [str(copy) for copy in done.copies],
        "exit": int(ending.outcome.exit_status),
    }


def applied_text(done: Applied) -> str:
    """Given what an apply did, return the verdict and a short table of before and after."""
    ending = done.ending
    verdict = ending.verdict.verdict.kind.value if ending.verdict else ""
    lines = [f"{' '.join(filter(None, (verdict, ending.outcome.value)))}: {ending.reason}"]
    lines += [f"a unit that was there is kept as {copy}" for copy in done.copies]
    shown = (
        ("before", done.before),
        (f"generation {done.generation}", ending.verdict),
        ("restored", ending.restored),
    )
    rows = [
        (name, str(row.profile), row.verdict.kind.value, speed(row.decode_tok_s),
         f"{row.ttft_s:.3f} s" if row.ttft_s is not None else "")
        for name, row in shown
        if row is not None
    ]  # fmt: skip
    if rows:
        lines.append(table(rows, ("", "profile", "verdict", "decode throughput", "TTFT")))
    found = ((name, row) for name, row in shown[1:] if row is not None)
    lines += [f"note on {name}: {note}" for name, row in found for note in row.notes]
    return "\n".join(lines)
