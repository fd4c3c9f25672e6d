"""Reads the history of one instance: rows by filters, newest first, and figures of starts."""

from __future__ import annotations

import statistics
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from kimisvc.deploy.history.file import HistoryFile
from kimisvc.deploy.history.queries import (
    APPLY,
    BENCH,
    CANARY,
    CANARY_COUNTS,
    FIGURES,
    HAS_A_SAY,
    NEWEST,
    OF_PROFILE,
    OF_START,
    ROLLBACK,
    START,
    VERDICT,
)
from kimisvc.deploy.history.rows import (
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    RollbackRow,
    StartFigures,
    StartRow,
    VerdictRow,
    Which,
    apply_row,
    bench_row,
    canary_row,
    figures_of,
    start_row,
    verdict_row,
)
from kimisvc.deploy.history.schema import NEXT
from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

Row = TypeVar("Row")


class Reading:
    """What can be asked of one history file. Every method raises KimisvcError if it is unusable."""

    def __init__(self, path: Path) -> None:
        self._file = HistoryFile(path)

    def sequence(self) -> int:
        """Return the sequence of the newest event, 0 before the first; what comes is greater."""
        rows = self._file.select(f"SELECT {NEXT} - 1")
        return int(rows[0][0]) if rows else 0

    def verdicts(self, after: int = 0, limit: int = 1000) -> tuple[VerdictRow, ...]:
        """Given a sequence, return the verdicts that came after it, newest first."""
        return self.find_verdicts(Which(after=after, limit=limit))

    def starts(self, limit: int = 1000) -> tuple[StartRow, ...]:
        """Return the newest starts, newest first."""
        return self.find_starts(Which(limit=limit))

    def start(self, invocation: str) -> StartRow | None:
        """Given an invocation, return its start; None if no gate has told of it."""
        rows = self._file.select(f"{START} WHERE invocation = ?", (invocation,))
        return next(iter(self._read(start_row, rows)), None)

    def applies(self, limit: int = 1000) -> tuple[ApplyRow, ...]:
        """Return the newest applies, newest first."""
        return self.find_applies(Which(limit=limit))

    def last_generation(self) -> int:
        """Return the highest number of a generation that was ever applied, 0 before the first."""
        rows = self._file.select("SELECT max(generation) FROM applies")
        return int(rows[0][0] or 0) if rows else 0

    def rollbacks(self, after: int = 0, limit: int = 1000) -> tuple[RollbackRow, ...]:
        """Given a sequence, return the rollbacks that came after it, newest first."""
        return self.find_rollbacks(Which(after=after, limit=limit))

    def canaries(self, after: int = 0, limit: int = 1000) -> tuple[CanaryRow, ...]:
        """Given a sequence, return the canaries that came after it, newest first."""
        return self.find_canaries(Which(after=after, limit=limit))

    def measured_canary(self, after: int = 0) -> CanaryRow | None:
        """Given a sequence, return the newest canary after it that measured; None without one."""
        return self._newest_canary("result = ?", CanaryResult.MEASURED, after)

    def seeing_canary(self, after: int = 0) -> CanaryRow | None:
        """Given a sequence, return the newest canary after it that no missing counters kept from its work.

        It may have been skipped for another reason. None without one.
        """
        return self._newest_canary("result <> ?", CanaryResult.SKIPPED_UNKNOWN, after)

    def _newest_canary(self, which: str, result: CanaryResult, after: int) -> CanaryRow | None:
        rows = self._file.select(
            f"{CANARY} WHERE {which} AND sequence > ? ORDER BY sequence DESC LIMIT 1",
            (result.value, after),
        )
        return next(iter(self._read(canary_row, rows)), None)

    def benches(self, after: int = 0, limit: int = 1000) -> tuple[BenchRow, ...]:
        """Given a sequence, return the benches that came after it, newest first."""
        return self.find_benches(Which(after=after, limit=limit))

    def find_starts(self, which: Which) -> tuple[StartRow, ...]:
        """Return those of the starts, newest first."""
        return self._read(start_row, self._find(START, which, at="started_at"))

    def find_verdicts(self, which: Which) -> tuple[VerdictRow, ...]:
        """Return those of the verdicts, newest first."""
        return self._read(verdict_row, self._find(VERDICT, which))

    def find_applies(self, which: Which) -> tuple[ApplyRow, ...]:
        """Return those of the applies, newest first."""
        return self._read(apply_row, self._find(APPLY, which))

    def canary_counts(self) -> dict[str, int]:
        """Return how many canaries there ever were by result, those that were taken out as well."""
        return {str(result): int(count) for result, count in self._file.select(CANARY_COUNTS)}

    def find_canaries(self, which: Which) -> tuple[CanaryRow, ...]:
        """Return those of the canaries, newest first."""
        return self._read(canary_row, self._find(CANARY, which))

    def find_benches(self, which: Which) -> tuple[BenchRow, ...]:
        """Return those of the benches, newest first."""
        return self._read(bench_row, self._find(BENCH, which))

    def find_rollbacks(self, which: Which) -> tuple[RollbackRow, ...]:
        """Return those of the rollbacks, newest first: from or to the generation, off the profile.

        An earlier kimisvc kept a row where it finished a switch that was cut off, from a
        generation to itself: that was none, and told as one it would say that what was
        restored has failed.
        """
        where, values = ["sequence > ?", "from_generation IS NOT to_generation"], [which.after]
        for text, value, times in (
            ("? IN (from_generation, to_generation)", which.generation, 1),
            (OF_PROFILE, which.profile, 2),
            ("at >= ?", which.since, 1),
        ):
            if value is not None:
                where.append(text)
                values.extend([value] * times)  # type: ignore[list-item]  # bound by SQLite, of any kind
        return tuple(
            RollbackRow(*row) for row in self._ordered(ROLLBACK, where, values, which.limit)
        )

    def start_figures(
        self, profile: str | None = None, generations: Collection[int] | None = None
    ) -> tuple[StartFigures, ...]:
        """Given a profile's name or generations (or neither: all), return their measured starts.

        Oldest first, with the runs of the newest verdict that measured one of these:
        a start can be kept from one generation to the next. One that has failed since
        without a run (a wrong answer) is not among them; whether a verdict that
        measured was good is told, not judged.
        """
        which, values = [OF_START, HAS_A_SAY], list[str | int]()
        if profile is not None:
            which.append("profile = ?")
            values.append(profile)
        if generations is not None:
            which.append(f"generation IN ({', '.join('?' * len(generations))})")
            values.extend(generations)
        return self._figures(f"v.sequence = {NEWEST.format(' AND '.join(which))}", values)

    def verdict_figures(self, record: str) -> StartFigures | None:
        """Given the record of a verdict, return its own runs; None where nothing was measured."""
        return next(iter(self._figures("v.record = ?", (record,))), None)

    def loads(self, model: str) -> tuple[float, ...]:
        """Given a model, return how long its last five loads took (s), newest first."""
        rows = self._file.select(
            "SELECT load_s FROM starts WHERE model = ? AND load_s IS NOT NULL"
            " ORDER BY sequence DESC, rowid DESC LIMIT 5",
            (model,),
        )
        return tuple(row[0] for row in rows)

    def expected_load(self, model: str) -> float:
        """Given a model, return the median of its last five loads (s); 0 if it was never seen."""
        loads = self.loads(model)
        return statistics.median(loads) if loads else 0.0

    def _figures(self, where: str, values: Sequence[str | int]) -> tuple[StartFigures, ...]:
        rows = self._file.select(FIGURES.format(where), tuple(values))
        starts = [list(runs) for _, runs in groupby(rows, key=lambda row: row[:10])]
        return self._read(figures_of, starts)

    def _read(self, read: Callable[[Any], Row], rows: Sequence[Any]) -> tuple[Row, ...]:
        """Given how a row is read, and rows, return them read. Raise KimisvcError where one cannot be.

        So one does that a newer kimisvc wrote, a hand, or a disk.
        """
        try:
            return tuple(map(read, rows))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise KimisvcError(
                "history-unusable",
                f"{self._file.path}: a row cannot be read: {error}",
                hint="was it written by a newer kimisvc? Else move the file away: generations and"
                " the service do not depend on it",
            ) from error

    def _find(self, query: str, which: Which, at: str = "at") -> list[Any]:
        narrowed = {
            "sequence > ?": which.after, "profile = ?": which.profile,
            "generation = ?": which.generation, f"{at} >= ?": which.since,
        }  # fmt: skip
        given = {text: value for text, value in narrowed.items() if value is not None}
        return self._ordered(query, list(given), list(given.values()), which.limit)

    def _ordered(self, query: str, where: list[str], values: list[Any], limit: int) -> list[Any]:
        return self._file.select(
            f"{query} WHERE {' AND '.join(where)} ORDER BY sequence DESC, rowid DESC LIMIT ?",
            (*values, limit),
        )
