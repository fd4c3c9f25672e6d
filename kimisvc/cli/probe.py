"""probe: measure the server that runs, outside any gate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, speed
from kimisvc.cli.profile import usable
from kimisvc.errors import ExitStatus, KimisvcError
from kimisvc.records.progress import Progress
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
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
    is given it by the environment variable VLLM_API_KEY. Exit status 0: PASS
    or DEGRADED; 1: FAIL; 6: INCONCLUSIVE.
    """
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.redacting import of_profile, redacted_proof
    from kimisvc.measure.gate import measure

    settings = usable(doors.checked(profile)) if profile else _applied(instance)
    redact = of_profile(settings)
    with reporter() as shown:

        def tell(phase: Any, detail: str, done: int = 0, total: int = 0) -> None:
            shown.progress(Progress(phase, 0, "", 0.0, 0.0, redact(detail), done, total))

        proof = redacted_proof(measure(doors.api(settings), settings, tell), redact)
    emit_json(probe_json(proof)) if form is Form.JSON else click.echo(probe_text(proof))
    return int(
        {
            VerdictKind.FAIL: ExitStatus.FAILED,
            VerdictKind.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
        }.get(proof.verdict.kind, ExitStatus.DONE)
    )


def _applied(instance: str | None) -> Profile:
    from kimisvc.deploy.generations import Generations
    from kimisvc.deploy.layout import Layout

    name = doors.instance_or_default(instance)
    current = Generations(Layout(doors.installation(), name)).current()
    if current is None:
        raise KimisvcError(
            "nothing-applied", f"{name}: nothing was ever applied here",
            hint="say which profile's server to measure: kimisvc probe PROFILE",
        )  # fmt: skip
    return current.settings()


def probe_json(proof: Proof) -> dict[str, Any]:
    """Given what a probe found, return its JSON object, as DESIGN fixes it."""
    figure = proof.decode_tok_s
    return {
        "decode_tok_s": figure.mean if figure else None,
        "decode_tok_s_low": figure.low if figure else None,
        "decode_tok_s_high": figure.high if figure else None,
        "ttft_s": proof.ttft_s,
        "engine_decode_tok_s": proof.engine_decode_tok_s,
        "verdict": proof.verdict.kind.value,
        "reason": proof.verdict.reason,
        "notes": list(proof.notes),
        "runs": [dataclasses.asdict(sample) for sample in proof.samples],
    }


def probe_text(proof: Proof) -> str:
    """Given what a probe found, return it for people."""
    lines = [
        f"{proof.verdict.kind.value}: {proof.verdict.reason}",
        f"decode throughput  {speed(proof.decode_tok_s)}, {len(proof.samples)} runs",
    ]
    if proof.engine_decode_tok_s is not None:
        lines.append(f"the engine's own    {proof.engine_decode_tok_s:.4g} tok/s")
    if proof.ttft_s is not None:
        lines.append(f"TTFT                {proof.ttft_s:.3f} s")
    lines += [f"note: {note}" for note in proof.notes]
    return "\n".join(lines)
