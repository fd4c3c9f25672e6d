"""bench: throughput at several concurrencies, by vLLM's own load generator."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from kimisvc.cli import doors, options
from kimisvc.cli.options import Form
from kimisvc.cli.output import emit_json, table
from kimisvc.errors import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.history import BenchRow

MOST = 4096
TOKENS = click.IntRange(1, 1_048_576)


class Concurrencies(click.ParamType[tuple[int, ...]]):
    """Several numbers of streams: `1,8,64`."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Given what was typed, return the numbers; usage error if they are none."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isdecimal() and 1 <= int(word) <= MOST for word in words):
            self.fail(f"{value!r}: write whole numbers from 1 to {MOST}, as 1,8,64", param, ctx)
        return tuple(dict.fromkeys(map(int, words)))


@click.command()
@click.option(
    "--concurrency", type=Concurrencies(), default="1,8,64", show_default=True,
    help="How many streams at once; one run for each.",
)  # fmt: skip
@click.option(
    "--input-tokens", type=TOKENS, default=1024, show_default=True, help="Tokens of a prompt."
)
@click.option(
    "--output-tokens", type=TOKENS, default=256, show_default=True, help="Tokens of an answer."
)
@click.option(
    "--requests",
    type=TOKENS,
    default=None,
    help="Requests in each run; else four a stream, eight at least.",
)
@options.instance
@options.as_json
def bench(
    concurrency: tuple[int, ...], input_tokens: int, output_tokens: int, requests: int | None,
    instance: str | None, form: Form,
) -> int:  # fmt: skip
    """Measure the running instance under load with vLLM's own `vllm bench serve`, and keep it.

    Runs the program of the profile, unprivileged. The server should be idle
    otherwise. Takes minutes, and never more than 65 for each concurrency;
    Ctrl-C ends it, and the load with it. Exit status 1 where requests failed: figures of those that were
    answered are told and kept all the same.
    """
    from kimisvc.cli.reporter import reporter
    from kimisvc.deploy.benching import Wanted, benchmark, failures
    from kimisvc.deploy.measurable import free_target_of
    from kimisvc.host.systemd import Systemd

    doors.need_root("bench")
    wanted = Wanted(concurrency, requests, input_tokens, output_tokens)
    with Systemd() as systemd:
        box = doors.box(systemd, doors.instance_or_default(instance))
        profile = free_target_of(box).profile
        with reporter() as shown:
            rows = benchmark(box, wanted, doors.api(profile), doors.base_url(profile), shown)
    emit_json(bench_json(rows)) if form is Form.JSON else click.echo(bench_text(rows))
    return int(ExitStatus.FAILED if failures(rows) else ExitStatus.DONE)


def bench_json(rows: Sequence[BenchRow]) -> dict[str, Any]:
    """Given rows, return their JSON object."""
    return {"benches": [dataclasses.asdict(row) for row in rows]}


def bench_text(rows: Sequence[BenchRow]) -> str:
    """Given rows, return them as a table."""
    cells = [
        (str(row.concurrency), f"{row.completed} of {row.completed + row.failed}",
         _figure(row.output_throughput, "tok/s"), _figure(row.request_throughput, "/s"),
         _figure(row.mean_ttft_ms, "ms"), _figure(row.p99_ttft_ms, "ms"),
         _figure(row.mean_tpot_ms, "ms"), _figure(row.p99_tpot_ms, "ms"))
        for row in rows
    ]  # fmt: skip
    header = ("at once", "answered", "output", "requests", "TTFT", "p99", "TPOT", "p99")
    return table(cells, header)


def _figure(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.4g} {unit}"
