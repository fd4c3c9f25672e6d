"""status: what runs, how fast it was, whether it is what was applied; a running gate, followed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import (
    canary_words,
    emit_json,
    moment,
    span,
    speed,
    table,
    verdict_json,
)
from kimisvc.errors import ExitStatus

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation
    from kimisvc.deploy.status import Status
    from kimisvc.records.units import UnitState


CHANGED = "changed since the start: if its text was, that takes effect at a restart"
"""What is known of such a drop-in: a backup or a chmod changes it as well, and asks for nothing."""


@click.command()
@click.option("--follow", is_flag=True, help="Watch the gate that is at work until it has decided.")
@options.instance
@options.as_json
def status(follow: bool, instance: str | None, form: Form) -> int:
    """Say what runs now: profile, generation, unit, readiness, verdict, speed, drift.

    With --follow, shows the progress of a load or probe and ends as `apply`
    would have, with the same exit status.
    """
    from kimisvc.deploy.status import read_status
    from kimisvc.host.systemd import Systemd

    with Systemd() as systemd:
        box = doors.box(systemd, doors.instance_or_default(instance))
        if follow:
            return _follow(box, form)
        found = read_status(box)
        emit_json(status_json(found)) if form is Form.JSON else click.echo(status_text(found, box))
    return 0


def _follow(box: Box, form: Form) -> int:
    from kimisvc.cli.apply import applied_json, applied_text
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.follow import resume

    with reporter() as shown:
        done = resume(box, shown)
    if done is None:
        found = _read(box)
        emit_json(status_json(found)) if form is Form.JSON else click.echo(status_text(found, box))
        return int(ExitStatus.DONE)
    emit_json(applied_json(done)) if form is Form.JSON else click.echo(applied_text(done))
    return int(done.ending.outcome.exit_status)


def _read(box: Box) -> Status:
    from kimisvc.deploy.status import read_status

    return read_status(box)


def status_json(found: Status) -> dict[str, Any]:
    """Given a status, return its JSON object, as DESIGN fixes it."""
    current, accepted, start = found.current, found.accepted, found.start
    return {
        "instance": found.instance,
        "profile": current.profile if current else None,
        "profile_file": str(current.source) if current else None,
        "generation": current.number if current else None,
        "accepted_generation": accepted.number if accepted else None,
        "unit_state": found.service.active_state,
        "unit_sub_state": found.service.sub_state,
        "unit_result": found.service.result,
        "main_pid": found.service.main_pid,
        "invocation_id": found.service.invocation_id,
        "restarts": found.service.restarts,
        "enabled": found.service.enabled,
        "ready": found.ready,
        **verdict_json(found.verdict),
        "notes": list(found.verdict.notes) if found.verdict else [],
        "verdict_waits": found.verdict_waits,
        "history": found.memory.value,
        "load_s": start.load_s if start else None,
        "vllm_version": start.vllm_version if start else None,
        "gate_state": found.gate.active_state,
        "progress": _progress_json(found),
        "at_work": found.at_work.words if found.at_work else None,
        "canary": _canary_json(found),
        "drift": list(found.drift),
        "drop_ins": list(found.service.drop_ins),
        "drop_ins_changed_since_start": list(found.changed_drop_ins),
    }


def _canary_json(found: Status) -> dict[str, Any] | None:
    row = found.canary
    return {**dataclasses.asdict(row), "result": row.result.value} if row is not None else None


def _progress_json(found: Status) -> dict[str, Any] | None:
    progress = found.progress
    if progress is None:
        return None
    return {
        "phase": progress.phase.value,
        "detail": progress.detail,
        "done": progress.done,
        "total": progress.total,
        "expected_s": progress.expected_s,
        "started_at": progress.started_at,
    }


def status_text(found: Status, box: Box) -> str:
    """Given a status, return it for people: the state first, then the proof, then what is odd."""
    from kimisvc.deploy.tune.meanwhile import stopped
    from kimisvc.deploy.tune.state import unfinished

    if found.current is None and not found.drift:
        others = ", ".join(doors.instances())
        there = f"; this box has the instances {others}" if others else ""
        return f"{found.instance}: nothing was ever applied here (kimisvc apply PROFILE){there}"
    rows = [("instance", found.instance)]
    if found.current is not None:
        rows.append(("profile", f"{found.current.profile} ({_source(found.current)})"))
        rows.append(("generation", f"{found.current.number}, {_standing(found)}"))
    elif found.accepted is not None:
        rows.append(("accepted", f"{found.accepted.label}, {_source(found.accepted)}"))
    rows.append(("unit", _unit_words(found, box)))
    rows.append(("ready", _ready_words(found)))
    rows += _proof_rows(found)
    if found.at_work is not None:
        rows.append(("at work", found.at_work.words))
    if unfinished(box.layout):
        halted = stopped(box)
        under_way = f"under way: kimisvc tune --status --instance {found.instance} shows it"
        stands = f"not at its end, and {halted.words}: {halted.hint}" if halted else under_way
        rows.append(("search", stands))
    rows += [("drift", line) for line in found.drift]
    rows += [("drop-in", _drop_in_words(found, path)) for path in found.service.drop_ins]
    return table(rows)


def _source(current: Generation) -> str:
    """The file to apply for what runs; where that is not the one that was applied, what became of that."""
    source = str(current.source)
    other = current.file and source != current.file
    return f"{source}; {current.file} {current.file_now.value}" if other else source


def _standing(found: Status) -> str:
    if found.accepted is None:
        return found.none_accepted
    if found.current is not None and found.accepted.number == found.current.number:
        return "accepted"
    return f"not accepted; the last accepted one is {found.accepted.label}"


def _unit_words(found: Status, box: Box) -> str:
    service = found.service
    words = f"{service.active_state} ({service.sub_state})"
    if service.active_state == "active" and service.started_at:
        words += f", up {span(max(0.0, box.now() - service.started_at))}, PID {service.main_pid}"
    if service.active_state == "failed":
        words += f"; {service.result}, exit status {service.exec_main_status}"
    if service.active_state in ("inactive", "failed"):
        words += f"; {_rest_words(service)}"
    if service.restarts:
        made = service.automatic_restarts
        words += f", {made} automatic restart{'' if made == 1 else 's'}"
        words += ", and the start limit refused one more" if made < service.restarts else ""
    return words


def _rest_words(service: UnitState) -> str:
    """What to do about a service that does not run; nothing where somebody retired it on purpose."""
    if service.enabled in ("masked", "masked-runtime"):
        runtime = "--runtime " if service.enabled == "masked-runtime" else ""
        undo = f"systemctl unmask {runtime}{service.name}"
        return f"masked: it is not to run; {undo}, and kimisvc apply would start it"
    if service.retired:
        return f"{service.enabled}: it is not to run; kimisvc apply would start it"
    return "it should run: kimisvc apply starts it"


def _drop_in_words(found: Status, path: str) -> str:
    return f"{path} ({CHANGED})" if path in found.changed_drop_ins else path


def _ready_words(found: Status) -> str:
    if found.ready is None:
        return f"not known: {_why_not_known(found)}"
    return "yes" if found.ready else "no"


def _why_not_known(found: Status) -> str:
    from kimisvc.deploy.gaps import Memory

    if found.memory is Memory.READ:
        return "no gate has seen it ready"
    missing = found.memory is Memory.MISSING
    return "what history held is lost" if missing else "the history cannot be read"


def _why_no_verdict(found: Status) -> str:
    from kimisvc.deploy.gaps import Memory

    if not found.service.goes_on:
        return "none: it does not run"
    if found.number is None:
        return "not known: which generation is in force is not known"
    gate = found.gate
    if gate.job or gate.active_state in ("activating", "active", "deactivating"):
        return "none yet on the start that runs"
    if found.memory is Memory.MISSING:
        return f"not known: {_why_not_known(found)}; kimisvc apply runs the gate again"
    if found.memory is Memory.UNREADABLE:
        return f"not known: {_why_not_known(found)}"
    how = f" ({gate.result})" if gate.result not in ("", "success") else ""
    return (
        f"none on the start that runs; its gate ended without one{how}: kimisvc apply runs it again"
    )


def _proof_rows(found: Status) -> list[tuple[str, str]]:
    from kimisvc.cli.reporter import describe
    from kimisvc.deploy.outcome import LOAD_ANEW

    rows = []
    if found.progress is not None:
        rows.append(("gate", describe(found.progress)))
    verdict = found.verdict
    if verdict is not None:
        waits = "; not kept in history yet" if found.verdict_waits else ""
        rows.append(("verdict", f"{verdict.verdict.kind.value}, {moment(verdict.at)}{waits}"))
        rows.append(("", verdict.verdict.reason))
        if found.failed_and_goes_on:
            rows.append(("", LOAD_ANEW))
        rows.append(("decode", speed(verdict.decode_tok_s)))
        if verdict.ttft_s is not None:
            rows.append(("TTFT", f"{verdict.ttft_s:.3f} s"))
        rows += [("note", note) for note in verdict.notes]
    elif found.progress is None:
        rows.append(("verdict", _why_no_verdict(found)))
    if found.start is not None and found.start.load_s is not None:
        rows.append(("load", span(found.start.load_s)))
    if found.canary is not None:
        rows.append(("canary", f"{canary_words(found.canary)}, {moment(found.canary.at)}"))
    last = found.last_rollback
    if last is not None:
        to = f"to {last.to_generation}" if last.to_generation else "nothing restored"
        rows.append(("last rollback", f"{moment(last.at)}, from {last.from_generation}, {to}"))
        rows.append(("", last.reason))
    return rows
