"""The tables beside the charts: the same figures for who cannot or will not look at a drawing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from time import localtime, strftime
from typing import TYPE_CHECKING

from kimisvc.deploy.history import CanaryResult
from kimisvc.deploy.history.rows import SKIPPED
from kimisvc.deploy.start_facts import FACTS, MOMENTARY
from kimisvc.observe.report.words import moment, number, plain, span, speed, target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.history import CanaryRow, StartRow
    from kimisvc.deploy.history.rows import Fact
    from kimisvc.observe.report.story import Story

MOST_ROWS = 50
"""Rows of a table: the newest; `kimisvc history --csv` has them all."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and a class that says what it is (a number, a verdict, changed)."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table, newest row first; `total` is how many rows there would be without a bound."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int


def verdict_table(story: Story, profile: str) -> Table:
    """Given a story and a profile, return what its gates said."""
    rows = [row for row in story.verdicts if row.profile == profile]
    head = ("When", "Generation", "Verdict", "tok/s (interval)", "TTFT", "Target", "Reason")
    cells = [
        (
            Cell(moment(row.at), "when"), Cell(str(row.generation), "figure"),
            Cell(row.verdict.kind.value, row.verdict.kind.value.lower()),
            Cell(speed(row.decode_tok_s), "figure"),
            Cell("-" if row.ttft_s is None else span(row.ttft_s), "figure"),
            Cell(target(row.floor, row.goal)), Cell(row.verdict.reason, "reason"),
        )
        for row in rows
    ]  # fmt: skip
    return _newest(f"Verdicts of {profile}", head, cells)


def canary_table(story: Story, profile: str) -> Table:
    """Given a story and a profile, return its canaries, summed up by day."""
    days: dict[str, list[CanaryRow]] = {}
    for row in story.canaries:
        if row.profile == profile:
            at = story.clock.place(row.sequence, row.at)
            days.setdefault(strftime("%Y-%m-%d", localtime(at)), []).append(row)
    cells = []
    for day, rows in days.items():
        seen = [row.decode_tok_s for row in rows if row.decode_tok_s is not None]
        count = Counter(row.result for row in rows)
        skipped = sum(count[result] for result in SKIPPED)
        least, middle = (min(seen), median(seen)) if seen else (None, None)
        texts = (count[CanaryResult.MEASURED], skipped, count[CanaryResult.FAILED])
        figures = (*map(str, texts), number(middle), number(least))
        cells.append((Cell(day), *(Cell(text, "figure") for text in figures)))
    head = ("Day", "Measured", "Skipped", "Failed", "Median tok/s", "Least tok/s")
    return _newest(f"Canaries of {profile} by day", head, cells)


def load_table(story: Story, model: str) -> Table:
    """Given a story and a model, return how long its starts took."""
    cells = [
        (
            Cell(moment(row.started_at), "when"), Cell(str(row.generation), "figure"), Cell(row.profile),
            Cell("-" if row.load_s is None else span(row.load_s), "figure"),
            Cell("never seen" if row.ready_at is None else moment(row.ready_at)),
        )
        for row in story.starts
        if row.model == model
    ]  # fmt: skip
    return _newest(
        "Starts and their loads", ("Started", "Generation", "Profile", "Load", "Ready"), cells
    )


def event_table(story: Story) -> Table:
    """Given a story, return its applies, verdicts and rollbacks in the order they happened."""
    events = [
        (row.sequence, row.at, "apply", row.generation,
         plain(f"{row.profile} by {row.actor}: {row.outcome or 'left at work'}"))
        for row in story.applies
    ]  # fmt: skip
    events += [
        (row.sequence, row.at, row.verdict.kind.value, row.generation,
         f"{row.profile}: {row.verdict.reason}")
        for row in story.verdicts
    ]  # fmt: skip
    events += [
        (row.sequence, row.at, "rollback", row.from_generation,
         f"to {row.to_generation or 'nothing'}: {row.reason}")
        for row in story.rollbacks
    ]  # fmt: skip
    cells = [
        (Cell(moment(at), "when"), Cell(what, what.lower()), Cell(str(generation), "figure"),
         Cell(text, "reason"))
        for _, at, what, generation, text in sorted(events)
    ]  # fmt: skip
    return _newest("Applies, verdicts and rollbacks", ("When", "What", "Generation", ""), cells)


def bench_table(story: Story) -> Table:
    """Given a story, return what `vllm bench serve` said, in its own terms."""
    head = ("When", "Profile", "vLLM", "Concurrency", "Output tok/s", "Requests/s", "Mean TTFT ms",
            "Mean TPOT ms", "Mean ITL ms", "Completed", "Failed")  # fmt: skip
    cells = [
        (
            Cell(moment(row.at), "when"), Cell(plain(row.profile)),
            Cell(plain(str(row.facts.get("vllm") or "-"))),
            *(
                Cell(number(value), "figure")
                for value in (
                    row.concurrency, row.output_throughput, row.request_throughput,
                    row.mean_ttft_ms, row.mean_tpot_ms, row.mean_itl_ms, row.completed, row.failed,
                )
            ),
        )
        for row in story.benches
    ]  # fmt: skip
    return _newest("Benches (vllm bench serve)", head, cells)


def environment_table(story: Story) -> Table:
    """Given a story, return the environment of each start; what changed since the last is marked."""
    cells = []
    before: StartRow | None = None
    for row in story.starts:
        changed = [
            Cell(_fact(row, name), "changed" if _differs(row, before, name) else "fact")
            for name in FACTS
        ]
        cells.append((Cell(moment(row.started_at), "when"), Cell(str(row.generation), "figure"),
                      Cell(row.profile), *changed))  # fmt: skip
        before = row
    names = {"vllm": "vLLM", "gpus": "GPUs", "prompt_tokens": "Prompt tokens",
             "max_tokens": "Max tokens", "temperature": "Sampling temperature"}  # fmt: skip
    head = ("Started", "Generation", "Profile", *(names.get(n, n.capitalize()) for n in FACTS))
    return _newest("Environment of each start", head, cells)


def _differs(row: StartRow, before: StartRow | None, name: str) -> bool:
    """Whether a fact is another than that of the start before; unknown is no difference."""
    if before is None or name in MOMENTARY or not (row.facts.get(name) and before.facts.get(name)):
        return False
    return row.facts[name] != before.facts[name]


def _fact(row: StartRow, name: str) -> str:
    value: Fact = row.facts.get(name)
    if name == "vllm" and not value:
        value = row.vllm_version
    if isinstance(value, list):
        return plain(", ".join(f"{count} x {gpu}" for gpu, count in Counter(value).items()))
    return "-" if value in (None, "") else plain(str(value))


def _newest(caption: str, head: tuple[str, ...], oldest_first: Sequence[tuple[Cell, ...]]) -> Table:
    newest = tuple(reversed(oldest_first))
    return Table(caption, head, newest[:MOST_ROWS], len(newest))
