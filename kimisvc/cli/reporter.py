"""Shows progress on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Protocol, Self

import click

from kimisvc.cli.output import span
from kimisvc.records.progress import Phase, Progress

if TYPE_CHECKING:
    from types import TracebackType

    from kimisvc.deploy.follow import Reporter

PLAIN_EVERY = 30.0
"""How often a plain reporter repeats a load that moves (s): a log is read later, not watched."""


class Display(Protocol):
    """A reporter that has to be opened and closed."""

    def __enter__(self) -> Reporter: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def reporter() -> Display:
    """Return what suits stderr: a live display on a terminal, plain lines elsewhere."""
    return Live() if sys.stderr is not None and sys.stderr.isatty() else Plain()


class Plain:
    """One line a step, and a load that moves at most every half minute."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def step(self, text: str) -> None:
        """Given what begins, write a line."""
        # Nobody may be reading any more, and an apply does not stop for that.
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"kimisvc: {text}", err=True)

    def progress(self, progress: Progress) -> None:
        """Given where the gate stands, write a line if it is news."""
        now = time.monotonic()
        new_phase = progress.phase is not self._phase
        if progress.phase is Phase.LOADING and not new_phase and now - self._told < PLAIN_EVERY:
            return
        self._phase, self._told = progress.phase, now
        self.step(describe(progress))


class Live:
    """A bar a phase, redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.fields[phase]}", style="bold", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),  # a prompt may hold brackets
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=False,
        )
        self._tasks: dict[Phase, object] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def step(self, text: str) -> None:
        """Given what begins, write a line above the bars and forget the bars of before."""
        for task in self._tasks.values():
            self._bars.stop_task(task)  # type: ignore[arg-type]  # an int rich gave us
        self._tasks.clear()
        self._bars.console.print(f"kimisvc: {text}", markup=False, highlight=False)

    def progress(self, progress: Progress) -> None:
        """Given where the gate stands, draw it."""
        total, done = _extent(progress)
        for phase, task in list(self._tasks.items()):
            if phase is not progress.phase:
                self._bars.stop_task(task)  # type: ignore[arg-type]  # an int rich gave us
        if progress.phase is Phase.DECIDED:
            return
        if progress.phase not in self._tasks:
            self._tasks[progress.phase] = self._bars.add_task(
                "", total=total, phase=progress.phase.value
            )
        self._bars.update(
            self._tasks[progress.phase],  # type: ignore[arg-type]  # an int rich gave us
            description=_without_phase(progress),
            total=total,
            completed=done,
        )


def describe(progress: Progress) -> str:
    """Given where the gate stands, say it in one line."""
    return f"{progress.phase.value}: {_without_phase(progress)}".removesuffix(": ")


def _without_phase(progress: Progress) -> str:
    parts = []
    if progress.total and progress.phase is Phase.LOADING:
        percent = 100 * progress.done / progress.total
        parts.append(f"shard {progress.done} of {progress.total} ({percent:.0f} %)")
    if progress.detail:
        parts.append(progress.detail)
    if progress.phase is Phase.LOADING and progress.expected_s:
        left = progress.started_at + progress.expected_s - progress.updated_at
        parts.append(f"about {span(left)} to go" if left > 0 else "longer than the loads before")
    return ", ".join(parts)


def _extent(progress: Progress) -> tuple[float | None, float]:
    """How full the bar is: by shards or runs, else by the load time seen before."""
    if progress.total:
        return float(progress.total), float(progress.done)
    if progress.phase is Phase.LOADING and progress.expected_s:
        return progress.expected_s, min(
            progress.expected_s, progress.updated_at - progress.started_at
        )
    return None, 0.0
