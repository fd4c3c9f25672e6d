"""Proves one start: warm-up, golden questions, runs until the verdict is certain.

The order of things of the gate and of `kimisvc probe`. What happens on the wire
is in `probe` and `golden`, what follows from it in `outcome` and `gate_rule`.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeVar

from kimisvc.measure import golden as golden_rules
from kimisvc.measure.gate_rule import decide, speed_interval
from kimisvc.measure.others import World
from kimisvc.measure.outcome import RESPONSES, Broken, Trouble, verdict_of
from kimisvc.measure.probe import PATH, Request, ask_among_others, play
from kimisvc.measure.prompts import fresh_prompt
from kimisvc.measure.throughput import AtOnce, rounds
from kimisvc.measure.throughput import judge as judge_at_once
from kimisvc.records.progress import Phase
from kimisvc.records.proof import (
    ROUNDS_AT_ONCE,
    SPARE_TRIES,
    GoldenResult,
    Proof,
    Sample,
    Verdict,
    VerdictKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kimisvc.measure.stream import Answered, Api
    from kimisvc.records.profile import GoldenQuestion, ProbeSettings, Profile

Made = TypeVar("Made")

DISAGREEMENT = 0.02
"""Relative difference between client's and engine's figure that is worth a note."""


class Report(Protocol):
    """Who is told where the gate stands."""

    def __call__(self, phase: Phase, detail: str, done: int = 0, total: int = 0) -> None:
        """Given where the gate stands, tell it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What one proof works with. `runs` numbers its requests, so that no two prompts are alike."""

    world: World
    profile: Profile
    report: Report
    seed: str
    deadline: float
    runs: Iterator[int]

    @property
    def model(self) -> str:
        """The name the server serves the model under."""
        return self.profile.vllm.served_model_name or self.profile.vllm.model

    @property
    def timeout(self) -> float:
        """What one request may take (s). Never cut short: that would look like a silent server."""
        return self.profile.probe.timeout

    @property
    def spent(self) -> bool:
        """Whether too little time is left for one more request."""
        return self.deadline - self.world.clock() < self.timeout


def budget(profile: Profile) -> float:
    """Given a profile, return how long proving a start may take at most, once it is ready (s)."""
    asked = len(golden_rules.questions(profile.golden, profile.gate))
    requests = profile.probe.warmup + asked + profile.probe.max_runs + SPARE_TRIES
    if profile.gate.throughput_tok_s is not None:
        requests += ROUNDS_AT_ONCE + 1
    return requests * profile.probe.timeout


def prove(
    api: Api,
    profile: Profile,
    report: Report,
    *,
    seed: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Proof:
    """Given a ready server and its profile, find out whether this start serves rightly and fast.

    Wrong golden answers fail it before any speed is measured. `report` is told
    of every step; `seed` makes the prompts (a fresh one unless given); `clock`
    must be the one that `api` stamps its chunks with. Bounded by `budget`.
    """
    bench = _bench(World(api, clock, sleep), profile, report, seed)
    thrown: list[Broken] = []
    broken = _warm_up(bench, thrown)
    if broken is not None:
        return Proof(verdict_of(broken, profile.gate), notes=_repeats(thrown))
    results: list[GoldenResult] = []
    verdict = _ask_questions(bench, results, thrown)
    if verdict is not None:
        return Proof(verdict, golden=tuple(results), notes=_repeats(thrown))
    proof = _probe(bench, thrown)
    if proof.verdict.kind.accepted:
        proof = _at_once(bench, proof)
    return replace(proof, golden=tuple(results))


def measure(
    api: Api,
    profile: Profile,
    report: Report,
    *,
    before: Sequence[Sample] = (),
    seed: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Proof:
    """Given a ready server and a profile, measure and judge the speed alone: no golden questions.

    `before`: runs of this very start that were made already, of which the speeds are
    known. They count as the first ones, so that what is found has the error of one gate.
    """
    bench = _bench(World(api, clock, sleep), profile, report, seed)
    thrown: list[Broken] = []
    broken = _warm_up(bench, thrown)
    if broken is not None:
        return Proof(verdict_of(broken, profile.gate), notes=_repeats(thrown))
    return _probe(bench, thrown, before)


def _bench(world: World, profile: Profile, report: Report, seed: str) -> Bench:
    deadline = world.clock() + budget(profile)
    return Bench(world, profile, report, seed or secrets.token_hex(8), deadline, count())


def _warm_up(bench: Bench, thrown: list[Broken]) -> Broken | None:
    """Play the warm-up requests; return what broke them, if anything did.

    They go through whoever else uses the server, and are no samples: kernels get
    as warm by an answer that ends early.
    """
    total = bench.profile.probe.warmup
    for done in range(total):
        bench.report(Phase.WARMING_UP, f"request {done + 1} of {total}", done, total)
        outcome = _persist(bench, partial(_heat, bench), thrown)
        if isinstance(outcome, Broken):
            return outcome
    return None


def _ask_questions(
    bench: Bench, results: list[GoldenResult], thrown: list[Broken]
) -> Verdict | None:
    """Ask the golden questions, add what came to `results`; return the verdict if it ends here."""
    gate = bench.profile.gate
    asked = golden_rules.questions(bench.profile.golden, gate)
    for done, question in enumerate(asked):
        bench.report(Phase.GOLDEN, question.prompt, done, len(asked))
        outcome = _persist(bench, partial(_ask, bench, question), thrown)
        if isinstance(outcome, Broken):
            broken = verdict_of(outcome, gate)
            return Verdict(broken.kind, f"golden question {question.prompt!r}: {broken.reason}")
        result, why = golden_rules.judge(question, outcome, gate)
        results.append(result)
        if why:
            return Verdict(VerdictKind.FAIL, why)
    return None


def _probe(bench: Bench, thrown: list[Broken], before: Sequence[Sample] = ()) -> Proof:
    """Measure until the rule decides or a request breaks for good; return the proof so far."""
    probe, gate = bench.profile.probe, bench.profile.gate
    samples = list(before)
    bench.report(Phase.PROBING, "", len(samples), probe.max_runs)
    while (verdict := decide(samples, probe, gate)) is None:
        outcome = _persist(bench, partial(_play, bench), thrown)
        if isinstance(outcome, Broken):
            verdict = verdict_of(outcome, gate)
            break
        samples.append(outcome)
        bench.report(Phase.PROBING, _running_figure(samples, probe), len(samples), probe.max_runs)
    fresh = samples[len(before) :]
    engine = engine_figure(fresh)
    return Proof(
        verdict,
        samples=tuple(samples),
        decode_tok_s=speed_interval(samples, probe),
        ttft_s=median(sample.ttft_s for sample in fresh) if fresh else None,
        engine_decode_tok_s=engine,
        notes=(*_cross_check(fresh, engine), *_repeats(thrown)),
    )


def _at_once(bench: Bench, proof: Proof) -> Proof:
    """Given what one stream proved, measure many where that is asked for, and judge both."""
    floor, streams = bench.profile.gate.throughput_tok_s, bench.profile.gate.throughput_concurrency
    if floor is None or streams is None:
        return proof

    def told(done: int) -> None:
        bench.report(Phase.PROBING, f"{streams} streams at once", done, ROUNDS_AT_ONCE)

    speeds = rounds(bench.world, partial(_request, bench), streams, told)
    if isinstance(speeds, Broken):
        why = verdict_of(speeds, bench.profile.gate)
        return replace(proof, verdict=replace(why, reason=f"{streams} at once: {why.reason}"))
    found = judge_at_once(speeds, AtOnce(floor, streams))
    if found.kind is VerdictKind.PASS:
        return replace(proof, notes=(*proof.notes, found.reason))
    return replace(proof, verdict=found)


def _ask(bench: Bench, question: GoldenQuestion) -> Answered | Broken:
    body = golden_rules.body(bench.model, question)
    return ask_among_others(bench.world, golden_rules.PATH, body, bench.timeout)


def _heat(bench: Bench) -> Answered | Broken:
    request = _request(bench)
    return ask_among_others(bench.world, PATH, request.body(), request.timeout)


def _play(bench: Bench) -> Sample | Broken:
    return play(bench.world, _request(bench))


def _request(bench: Bench) -> Request:
    probe = bench.profile.probe
    prompt = fresh_prompt(bench.seed, next(bench.runs), probe.prompt_tokens)
    return Request(bench.model, prompt, probe.max_tokens, bench.timeout)


def _persist(
    bench: Bench, attempt: Callable[[], Made | Broken], thrown: list[Broken]
) -> Made | Broken:
    """Try a request as often as the table of responses allows; note the tries that came to nothing."""
    tries: dict[Trouble, int] = {}
    while True:
        if bench.spent:
            allowed = budget(bench.profile)
            return Broken(
                Trouble.OUT_OF_TIME,
                f"{allowed:.0f} s; last trouble: {thrown[-1] if thrown else 'none'}",
            )
        outcome = attempt()
        if not isinstance(outcome, Broken):
            return outcome
        response = RESPONSES[outcome.trouble]
        tries[outcome.trouble] = tries.get(outcome.trouble, 0) + 1
        if tries[outcome.trouble] >= response.tries:
            return outcome
        thrown.append(outcome)
        bench.world.sleep(response.pause)


def engine_figure(samples: Sequence[Sample]) -> float | None:
    """Given runs, return the engine's own decode speed over those it confirmed; None without any.

    Tokens over seconds of all these runs together, as the engine's counters
    would give it for the whole window.
    """
    return _pooled(
        (sample.completion_tokens - 1, sample.engine_decode_tok_s)
        for sample in samples
        if sample.engine_decode_tok_s
    )


def _pooled(runs: Iterable[tuple[int, float]]) -> float | None:
    """Given (tokens, speed) of each run, return the speed of all together."""
    tokens, seconds = 0, 0.0
    for made, speed in runs:
        tokens += made
        seconds += made / speed
    return tokens / seconds if seconds else None


def _cross_check(samples: Sequence[Sample], engine: float | None) -> Iterator[str]:
    confirmed = [sample for sample in samples if sample.engine_decode_tok_s]
    unconfirmed = len(samples) - len(confirmed)
    if unconfirmed:
        yield (
            f"{unconfirmed} of {len(samples)} runs could not be checked against the server's "
            "counters: whether they were alone is not known"
        )
    # Pooled like the engine's: a mean of unequal speeds would differ from it by itself.
    client = _pooled((sample.completion_tokens - 1, sample.decode_tok_s) for sample in confirmed)
    if client and engine and abs(client / engine - 1) > DISAGREEMENT:
        yield (
            f"client and engine disagree: {client:.2f} tok/s seen here, "
            f"{engine:.2f} tok/s by the engine's own counters"
        )


def _repeats(thrown: Sequence[Broken]) -> tuple[str, ...]:
    return tuple(f"repeated: {broken}" for broken in thrown)


def _running_figure(samples: Sequence[Sample], probe: ProbeSettings) -> str:
    interval = speed_interval(samples, probe)
    if interval is None:
        return f"{samples[-1].decode_tok_s:.1f} tok/s"
    return f"{interval.mean:.1f} tok/s ({max(0.0, interval.low):.1f} to {interval.high:.1f})"
