"""bench: throughput of the running instance under many streams at once, kept in history.

A figure of another kind than the gate's: all streams together. Where another
uses the server meanwhile, it is a figure of both, so an idle one is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.history import BenchRow
from kimisvc.deploy.measurable import target_of
from kimisvc.deploy.redacting import of_box
from kimisvc.deploy.start_facts import FACTS, UNKNOWN, clocks_now, host_now
from kimisvc.deploy.traffic import Traffic, traffic
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host import files, locks
from kimisvc.host.vllm_bench import TEMPERATURE, BenchResult, Load, Server, bench
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.profile.options import option_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.history.rows import Facts
    from kimisvc.deploy.measurable import Target
    from kimisvc.deploy.traffic import Counting
    from kimisvc.records.profile import Profile

IMPORTS = 300.0
"""What vLLM's own imports and tokenizer may take on a cold disk, beside the requests (s)."""
MINUTE = 60.0
LEAST_REQUESTS = 8
PER_STREAM = 4
"""Requests a stream plays unless said: enough for the beginning and the end to weigh little."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured: each concurrency, with requests of such lengths (tokens).

    `requests` None: some for each stream. `timeout`: for one concurrency (s).
    """

    concurrencies: tuple[int, ...]
    requests: int | None
    input_tokens: int
    output_tokens: int
    timeout: float = 3600.0

    def load(self, concurrency: int, seed: int) -> Load:
        """Given a concurrency, return what is asked of the server at it."""
        count = self.requests or max(LEAST_REQUESTS, PER_STREAM * concurrency)
        return Load(concurrency, count, self.input_tokens, self.output_tokens, seed)


def benchmark(
    box: Box,
    wanted: Wanted,
    api: Counting,
    base_url: str,
    reporter: Reporter,
    measure: Callable[[Server, Load, float], BenchResult] = bench,
) -> tuple[BenchRow, ...]:
    """Given what is wanted, measure it on the running instance, keep it, and return the rows.

    Raise LockedError while another command or the gate is at work, KimisvcError where the
    server does not run or is in use, no request at all was answered, or the benchmark fails.
    What was measured before that is kept.
    """
    files.make_folder(box.layout.runtime)
    with locks.Lock(box.layout.operator_lock):
        target = target_of(box)
        if traffic(api, box.sleep) is Traffic.LIVE:
            raise KimisvcError(
                "live-traffic",
                "the server is in use: the figure would be that of all its users together",
                hint="try again when it is idle",
            )
        server = server_of(target.profile, base_url)
        rows = []
        for concurrency in wanted.concurrencies:
            load = wanted.load(concurrency, seed=int(box.now()) % 1_000_000)
            limit = wanted.timeout + IMPORTS
            reporter.step(
                f"{concurrency} at once: {load.requests} requests;"
                f" {limit / MINUTE:.0f} minutes at most, Ctrl-C ends it"
            )
            rows.append(_one(box, target, server, load, limit, measure))
        return tuple(rows)


def _one(
    box: Box, target: Target, server: Server, load: Load, timeout: float,
    measure: Callable[[Server, Load, float], BenchResult],
) -> BenchRow:  # fmt: skip
    try:
        found = measure(server, load, timeout)
    except HostError as error:
        hushed = of_box(box)(error.message)
        raise HostError(error.code, hushed, hint=error.hint) from error
    if box.systemd.state(box.layout.units.service).invocation_id != target.invocation:
        raise KimisvcError("restarted", "the service was started anew meanwhile; nothing is kept")
    if found.completed == 0:
        raise KimisvcError(
            "none-completed",
            f"none of {load.requests} requests at concurrency {load.concurrency} was answered",
            hint=f"journalctl -u {box.layout.units.service} -n 20 says why",
        )
    row = row_of(box.now(), target, load, found, _environment(box, target))
    return replace(row, sequence=box.history.add_bench(row))


def _environment(box: Box, target: Target) -> Facts:
    """What was measured and on what: a row is read long after the start it belongs to.

    vLLM's version is what the server itself told the gate; where no gate has seen this start
    yet, that of the installation the generation was made with.
    """
    start = box.history.start(target.invocation)
    told = start.vllm_version if start else None
    known = {"vllm": told or target.generation.facts.get("vllm"), **host_now(box)}
    known["clocks"] = clocks_now()
    return {name: known[name] for name in FACTS if known.get(name) not in UNKNOWN}


def row_of(
    at: float, target: Target, load: Load, found: BenchResult, environment: Facts
) -> BenchRow:
    """Given a result and the environment it was measured in, return the row of it."""
    facts: Facts = {
        "input_tokens": load.input_tokens, "output_tokens": load.output_tokens,
        "requests": load.requests, "temperature": TEMPERATURE,
        "model": target.profile.vllm.model, **environment,
    }  # fmt: skip
    told = found.figures.get
    return BenchRow(
        at, target.invocation, target.generation.number, target.generation.profile,
        load.concurrency, found.completed, found.failed,
        told("output_throughput"), told("request_throughput"),
        told("mean_ttft_ms"), told("p99_ttft_ms"), told("mean_tpot_ms"), told("p99_tpot_ms"),
        told("mean_itl_ms"), told("p99_itl_ms"), facts,
    )  # fmt: skip


def server_of(profile: Profile, base_url: str) -> Server:
    """Given a profile and where its server is reached, return what the benchmark needs of it."""
    vllm = profile.vllm
    named = option(profile.args, "tokenizer")
    return Server(
        executable=vllm.executable,
        base_url=base_url,
        model=vllm.served_model_name or vllm.model,
        tokenizer=str(named) if named else vllm.model,
        user=profile.service.user,
        secrets_file=profile.service.secrets_file,
        options=tuple(_tokenizing(profile)),
    )


def _tokenizing(profile: Profile) -> Iterator[str]:
    """The words by which the client makes tokens as the server does."""
    for key, value in profile.args.items():
        name = option_name(key)
        if name == "tokenizer-mode":
            yield from ("--tokenizer-mode", str(value))
        elif name == "trust-remote-code" and value is True:
            yield "--trust-remote-code"


def failures(rows: Sequence[BenchRow]) -> int:
    """Given rows, return how many requests of all failed."""
    return sum(row.failed for row in rows)
