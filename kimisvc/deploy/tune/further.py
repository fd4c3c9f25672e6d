"""Goes on measuring where a gate stopped before it was decided whether the target of the search is met.

A gate stops as soon as its profile's own target is decided, which may be another.
The server that it accepted runs still: some more runs cost seconds, and to start it
again costs a load. They are added to those of the gate and judged by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.gate.readiness import unit_verdict
from kimisvc.deploy.redacting import of_profile, redacted_proof
from kimisvc.errors import LeftAtWorkError
from kimisvc.measure.comparison import start_figure
from kimisvc.measure.gate import measure
from kimisvc.measure.gate_rule import decide
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.proof import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.history import StartFigures, VerdictRow
    from kimisvc.measure.stream import Api
    from kimisvc.records.profile import GateSettings, Profile, SpeedTarget
    from kimisvc.records.proof import Interval, Verdict


@dataclass(frozen=True, slots=True)
class Further:
    """What the runs of a gate and those after it came to. `runs`: how many there were after it.

    `decode_tok_s` is of all of them, `error` the standard error of its mean (tok/s);
    None where there was no run after the gate.
    """

    verdict: Verdict
    runs: int
    decode_tok_s: Interval | None = None
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Undecided:
    """What a gate accepted, and its runs, which do not tell yet what `gate` asks."""

    decided: VerdictRow
    samples: tuple[Sample, ...]
    gate: GateSettings


def held_against(
    decided: VerdictRow, found: StartFigures | None, profile: Profile, target: SpeedTarget
) -> Verdict | Undecided:
    """Given what a gate accepted and its runs, hold them against another target than its own.

    The limit of the first token, that gate has judged; history has the speeds alone.
    """
    gate = replace(profile.gate, decode_tok_s=target, max_ttft=None)
    speeds = found.runs if found else ()
    samples = tuple(Sample(0, 0, speed, 0.0) for speed in speeds)
    return decide(samples, profile.probe, gate) or Undecided(decided, samples, gate)


def measured_on(
    box: Box,
    reporter: Reporter,
    api_of: Callable[[Profile], Api],
    profile: Profile,
    undecided: Undecided,
) -> Further | None:
    """Given what the runs of a start's gate do not tell, go on measuring it until that is decided.

    None where that start runs no more, or ended under it: what came of it then, systemd and
    its next gate tell. Restarts nothing, waits for an idle server as every probe does, and
    is bounded as a gate is. Raise LeftAtWorkError where we are told to leave.
    """
    decided, samples = undecided.decided, undecided.samples
    aimed = replace(profile, gate=undecided.gate)
    if not _runs(box, decided):
        return None
    reporter.step(
        f"{len(samples)} runs of its gate do not tell yet: measuring {profile.name} on, without a load"
    )
    redact = of_profile(profile)

    def tell(phase: Phase, detail: str, done: int = 0, total: int = 0) -> None:
        reporter.progress(
            Progress(phase, decided.generation, decided.invocation, decided.at, box.now(),
                     redact(detail), done, total)
        )  # fmt: skip

    try:
        proof = measure(
            api_of(profile), aimed, tell, before=samples, clock=box.clock, sleep=box.sleep
        )
    except KeyboardInterrupt:
        raise LeftAtWorkError(box.layout.instance) from None
    if not proof.verdict.kind.accepted and not _runs(box, decided):
        return None
    verdict = redacted_proof(proof, redact).verdict
    more = len(proof.samples) - len(samples)
    if more <= 0:
        why = f"measured on after its gate: {verdict.reason}"
        return Further(replace(verdict, reason=why), 0)
    counted = f"{verdict.reason} ({len(samples)} runs of its gate and {more} after it)"
    error = start_figure([sample.decode_tok_s for sample in proof.samples]).error
    return Further(replace(verdict, reason=counted), more, proof.decode_tok_s, error)


def _runs(box: Box, decided: VerdictRow) -> bool:
    """Whether the very start that was decided upon runs still."""
    state = box.systemd.state(box.layout.units.service)
    return unit_verdict(state, decided.invocation) is None
