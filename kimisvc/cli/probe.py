"""probe: measure the server that runs, outside any gate."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, speed
from kimisvc.cli.profile import usable
from kimisvc.errors import ExitStatus, HostError, KimisvcError
from kimisvc.records.progress import Progress
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from kimisvc.host.vllm_api import VllmApi
    from kimisvc.records.profile import Profile
    from kimisvc.records.proof import Proof


@click.command()
@click.argument("profile", metavar="[PROFILE]", required=False)
@options.instance
@options.as_json
def probe(profile: str | None, instance: str | None, form: Form) -> int:
    """Measure the running server: single-stream decode throughput and TTFT, with an interval.

    Takes the settings of what is applied, or of PROFILE. Records nothing and
    changes nothing; the server should be idle. A server that needs an API key
    is given that of the environment variable VLLM_API_KEY, else that of the
    profile's secrets file, which root may read: run it with sudo. Exit status
    0: PASS or DEGRADED; 1: FAIL, or the service does not run; 6: INCONCLUSIVE;
    75: the service loads, or another kimisvc is at work on it.
    """
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.redacting import of_profile, redacted_proof
    from kimisvc.measure.gate import measure

    settings = usable(doors.checked(profile)) if profile else _applied(instance)
    api, redact = doors.api_of_operator(settings), of_profile(settings)
    with reporter() as shown:

        def tell(phase: Any, detail: str, done: int = 0, total: int = 0) -> None:
            shown.progress(Progress(phase, 0, "", 0.0, 0.0, redact(detail), done, total))

        proof = redacted_proof(measure(api, settings, tell), redact)
    hint = "" if proof.verdict.kind.accepted else _hint(api, settings)
    emit_json(probe_json(proof, hint)) if form is Form.JSON else click.echo(probe_text(proof, hint))
    return int(
        {
            VerdictKind.FAIL: ExitStatus.FAILED,
            VerdictKind.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
        }.get(proof.verdict.kind, ExitStatus.DONE)
    )


def _applied(instance: str | None) -> Profile:
    """The settings of what is applied. Raise KimisvcError where its server is not to be measured now."""
    from kimisvc.deploy.generations import Generations
    from kimisvc.deploy.layout import Layout

    name = doors.instance_or_default(instance)
    current = Generations(Layout(doors.installation(), name)).current()
    if current is None:
        raise KimisvcError(
            "nothing-applied", f"{name}: nothing was ever applied here",
            hint="say which profile's server to measure: kimisvc probe PROFILE",
        )  # fmt: skip
    settings = current.settings()
    _refuse_unfit(name)
    return settings


def _refuse_unfit(instance: str) -> None:
    """Given an instance, say what bench says where its service loads, is worked on or does not run.

    Where systemd cannot be asked, nothing: the server itself tells what it can.
    """
    from kimisvc.deploy.measurable import free_target_of
    from kimisvc.host.systemd import Systemd

    with contextlib.suppress(HostError), Systemd() as systemd:
        free_target_of(doors.box(systemd, instance))


def _hint(api: VllmApi, settings: Profile) -> str:
    """Given a server that was not accepted, return what an operator may do for the probe; "" for nothing.

    It is asked once more, what costs its engine nothing: a verdict does not keep what was answered.
    """
    from kimisvc.host.vllm_api import FORBIDDEN, UNAUTHORIZED, ApiError

    try:
        api.models()
    except ApiError as error:
        return _key_hint(settings) if error.status in (UNAUTHORIZED, FORBIDDEN) else ""
    except HostError as error:
        return (
            f"normal while vLLM loads: kimisvc status --instance {settings.service.instance}"
            " says whether it does"
            if error.code == "connection-refused"
            else ""
        )
    return ""


def _key_hint(settings: Profile) -> str:
    """Given the profile of a server that wants another API key than it got, return where it may be."""
    by_hand = f"put the key into {doors.API_KEY}"
    file = settings.service.secrets_file
    if not file:
        return f"the server wants its API key: {by_hand}"
    if os.environ.get(doors.API_KEY):
        return f"the key in {doors.API_KEY} is not the server's: without it, root reads {file}"
    if not os.access(file, os.R_OK):
        return (
            f"the server wants its API key, which {file} may hold: run it with sudo, or {by_hand}"
        )
    return (
        f"the key in {file} is not the server's, or there is none: was the file changed since the"
        f" server was started? Else {by_hand}"
    )


def probe_json(proof: Proof, hint: str = "") -> dict[str, Any]:
    """Given what a probe found and what may be done, return its JSON object, as DESIGN fixes it."""
    figure = proof.decode_tok_s
    return {
        "decode_tok_s": figure.mean if figure else None,
        "decode_tok_s_low": figure.low if figure else None,
        "decode_tok_s_high": figure.high if figure else None,
        "ttft_s": proof.ttft_s,
        "engine_decode_tok_s": proof.engine_decode_tok_s,
        "verdict": proof.verdict.kind.value,
        "reason": proof.verdict.reason,
        "hint": hint,
        "notes": list(proof.notes),
        "runs": [dataclasses.asdict(sample) for sample in proof.samples],
    }


def probe_text(proof: Proof, hint: str = "") -> str:
    """Given what a probe found and what may be done, return it for people; each note once."""
    lines = [
        f"{proof.verdict.kind.value}: {proof.verdict.reason}",
        f"decode throughput  {speed(proof.decode_tok_s)}, {len(proof.samples)} runs",
    ]
    if proof.engine_decode_tok_s is not None:
        lines.append(f"the engine's own    {proof.engine_decode_tok_s:.4g} tok/s")
    if proof.ttft_s is not None:
        lines.append(f"TTFT                {proof.ttft_s:.3f} s")
    lines += [
        f"note: {note}" if times == 1 else f"note: {note} ({times} times)"
        for note, times in Counter(proof.notes).items()
    ]
    lines += [f"hint: {hint}"] if hint else []
    return "\n".join(lines)
