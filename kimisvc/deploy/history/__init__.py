"""The history of one instance: starts, verdicts, samples, applies, rollbacks, canaries, benches.

Only root writes (apply, settle, rollback, canary, bench); anyone may read, so
that `status` needs no sudo: nothing is written here that was not redacted
before. What came after what is told by `sequence`, one count over all tables:
clocks jump. How it is read is in `reading`, the file itself in `file`, its tables in
`schema`, what is asked of them in `queries`, its rows in `rows`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kimisvc.deploy.history.queries import (
    BENCH_COLUMNS,
    CANARY_COLUMNS,
    RESTS_ON,
)
from kimisvc.deploy.history.reading import Reading
from kimisvc.deploy.history.rows import (
    Accepted,
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    Facts,
    Pruned,
    RollbackRow,
    StartFigures,
    StartRow,
    VerdictRow,
    Which,
    after_no_runs,
    after_runs,
    facts_of,
)
from kimisvc.deploy.history.schema import NEXT
from kimisvc.deploy.outcome import Outcome

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from sqlite3 import Connection

    from kimisvc.deploy.gate.record import GateRecord

__all__ = [
    "Accepted",
    "ApplyRow",
    "BenchRow",
    "CanaryResult",
    "CanaryRow",
    "History",
    "Pruned",
    "RollbackRow",
    "StartFigures",
    "StartRow",
    "VerdictRow",
    "Which",
]

MOST_CANARIES = 100_000
"""Canaries that are kept: a year of one every five minutes, in about 12 MB. Counted and not
dated, so that a clock that jumps takes none away."""


class History(Reading):
    """The door to one history file, for those who write; who only reads needs no more than to read."""

    # ------------------------------------------------------------- writing

    def add_record(
        self, record: GateRecord, accepted: Accepted, facts: Facts | None = None
    ) -> None:
        """Given a gate's record, what it led to and the start's environment, keep them.

        Start, verdict and samples are kept together; the same record twice is once.
        """
        with self._writing() as db:
            known = _facts_after(db, record, facts or {})
            db.execute(
                f"INSERT INTO starts VALUES (?,?,?,?,?,?,?,?,?,{NEXT})"  # noqa: S608 - a constant
                " ON CONFLICT (invocation) DO UPDATE SET"
                " ready_at = coalesce(ready_at, excluded.ready_at),"
                " load_s = coalesce(load_s, excluded.load_s),"
                " vllm_version = coalesce(excluded.vllm_version, vllm_version),"
                " facts = excluded.facts",
                (
                    record.invocation, record.generation, record.profile, record.model,
                    record.service_started_at, record.ready_at or None, record.load_s,
                    record.vllm_version or None, json.dumps(dict(known)),
                ),
            )  # fmt: skip
            if record.proof is not None:
                _add_verdict(db, record, accepted)

    def begin_apply(self, row: ApplyRow) -> int:
        """Given an apply that begins, keep it and return its sequence.

        One that is still open and rests on another generation was cut off, or left
        by its operator; nothing will decide it any more.
        """
        with self._writing() as db:
            _close(db, f"{RESTS_ON} <> ?", (row.generation,), row.at, Outcome.SUPERSEDED)
            cursor = db.execute(
                f"INSERT INTO applies VALUES ({NEXT},?,NULL,?,?,?,?,?,NULL,NULL)",  # noqa: S608 - a constant
                (
                    row.at, row.generation, row.previous, row.profile, row.actor,
                    " ".join(row.restarted),
                ),
            )  # fmt: skip
            return int(cursor.lastrowid or 0)

    def end_apply(self, sequence: int, at: float, outcome: str, status: int) -> None:
        """Given an apply's sequence and how it ended, keep that."""
        with self._writing() as db:
            db.execute(
                "UPDATE applies SET ended_at = ?, outcome = ?, exit = ? WHERE sequence = ?",
                (at, outcome, status, sequence),
            )

    def close_applies(self, generation: int, at: float, outcome: str, status: int) -> None:
        """Given what became of a generation, keep it with the applies whose operators left."""
        with self._writing() as db:
            db.execute(
                "UPDATE applies SET ended_at = ?, outcome = ?, exit = ?"
                " WHERE generation = ? AND ended_at IS NULL",
                (at, outcome, status, generation),
            )

    def judge_applies(self, generation: int, at: float, outcome: Outcome) -> None:
        """Given what its gate made of a generation, end the applies left at work that rest on it.

        `outcome`, ACCEPTED or INCONCLUSIVE, is that of its own. One that was rolled
        back to it ends rolled back where that is proven now, and not restored where
        nobody can tell.
        """
        proven = outcome is Outcome.ACCEPTED
        others = Outcome.ROLLED_BACK if proven else Outcome.NOT_RESTORED
        both = (generation, generation)
        with self._writing() as db:
            _close(db, f"{RESTS_ON} = ? AND generation = ?", both, at, outcome)
            _close(db, f"{RESTS_ON} = ? AND generation <> ?", both, at, others)

    def add_rollback(self, row: RollbackRow) -> None:
        """Given a rollback, keep it, and end the applies left at work that it decides.

        Those are the ones that were rolled back to what has failed now, and its own
        where nothing was restored; what is restored has proven nothing yet, and how its
        own end is for the gate of that to say. The sequence is given here.
        """
        failed = row.from_generation
        kept_open = failed if row.to_generation is not None else None
        with self._writing() as db:
            which = f"{RESTS_ON} = ? AND generation IS NOT ?"
            _close(db, which, (failed, kept_open), row.at, Outcome.NOT_RESTORED)
            db.execute(
                f"INSERT INTO rollbacks VALUES ({NEXT},?,?,?,?)",  # noqa: S608 - a constant
                (row.at, row.from_generation, row.to_generation, row.reason),
            )

    def add_canary(self, row: CanaryRow) -> int:
        """Given a canary, keep it and return its sequence; of very many the oldest go."""
        with self._writing() as db:
            cursor = db.execute(
                f"INSERT INTO canaries ({CANARY_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,{NEXT})",  # noqa: S608 - constants
                (
                    row.at, row.invocation, row.generation, row.profile, row.result.value,
                    row.decode_tok_s, row.low, row.high, row.ttft_s, row.reason,
                ),
            )  # fmt: skip
            sequence = int(cursor.lastrowid or 0)
            _take_out_canaries(
                db,
                "sequence <= (SELECT sequence FROM canaries ORDER BY sequence DESC LIMIT 1 OFFSET ?)",
                MOST_CANARIES,
            )
            return sequence

    def add_bench(self, row: BenchRow) -> int:
        """Given one result of `vllm bench serve`, keep it and return its sequence."""
        with self._writing() as db:
            cursor = db.execute(
                f"INSERT INTO benches ({BENCH_COLUMNS})"  # noqa: S608 - constants
                f" VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,{NEXT})",
                (
                    row.at, row.invocation, row.generation, row.profile, row.concurrency,
                    row.completed, row.failed, row.output_throughput, row.request_throughput,
                    row.mean_ttft_ms, row.p99_ttft_ms, row.mean_tpot_ms, row.p99_tpot_ms,
                    row.mean_itl_ms, row.p99_itl_ms, json.dumps(dict(row.facts)),
                ),
            )  # fmt: skip
            return int(cursor.lastrowid or 0)

    def prune(self, before: float) -> Pruned:
        """Given a moment, take out older canaries, and older samples no figure rests on.

        Samples of generations that were ever accepted stay, and so does every
        start, verdict, apply, rollback and bench: they are few, and what is asked for.
        """
        with self._writing() as db:
            canaries = _take_out_canaries(
                db,
                "at < ? AND sequence < (SELECT max(sequence) FROM canaries)",  # no sequence comes twice
                before,
            )
            samples = db.execute(
                "DELETE FROM samples WHERE record IN (SELECT record FROM verdicts WHERE at < ?"
                " AND generation NOT IN (SELECT generation FROM verdicts WHERE accepted))",
                (before,),
            ).rowcount
        self._file.shrink()
        return Pruned(canaries, samples)

    # ------------------------------------------------------------- the file

    def mend(self, now: float) -> Path | None:
        """Set a file aside that is no database any more; return where it is kept, None if sound."""
        return self._file.mend(now)

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._file.writing()


def _close(
    db: Connection, which: str, values: tuple[int | None, ...], at: float, outcome: Outcome
) -> None:
    """Given which of the applies that are open and how they ended, keep that with them."""
    db.execute(
        f"UPDATE applies SET ended_at = ?, outcome = ?, exit = ? WHERE ended_at IS NULL AND {which}",  # noqa: S608 - constants
        (at, outcome.value, outcome.exit_status, *values),
    )


def _take_out_canaries(db: Connection, which: str, value: float) -> int:
    """Given a condition and its value, take those canaries out, but not out of the counts."""
    counted = f"SELECT result, count(*) FROM canaries WHERE {which} GROUP BY result"  # noqa: S608 - constants
    db.execute(
        f"INSERT INTO canaries_gone {counted}"
        " ON CONFLICT (result) DO UPDATE SET count = count + excluded.count",
        (value,),
    )
    return db.execute(f"DELETE FROM canaries WHERE {which}", (value,)).rowcount  # noqa: S608 - a constant


def _facts_after(db: Connection, record: GateRecord, told: Facts) -> Facts:
    """The facts of the start that a record is of, those of this record among them."""
    row = db.execute(
        "SELECT facts FROM starts WHERE invocation = ?", (record.invocation,)
    ).fetchone()
    known = facts_of(row[0]) if row else {}
    measured = record.proof is not None and record.proof.samples
    return after_runs(known, told) if measured else after_no_runs(known, told)


def _add_verdict(db: Connection, record: GateRecord, accepted: Accepted) -> None:
    proof = record.proof
    if proof is None:
        return
    speed = proof.decode_tok_s
    added = db.execute(
        f"INSERT OR IGNORE INTO verdicts VALUES (?,{NEXT},?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - a constant
        (
            record.record, record.invocation, record.generation, record.profile,
            record.ended_at, proof.verdict.kind.value, proof.verdict.reason,
            speed and speed.mean, speed and speed.low, speed and speed.high,
            proof.ttft_s, proof.engine_decode_tok_s, record.floor, record.goal,
            json.dumps(proof.notes),
            json.dumps([[g.prompt, g.expect, g.answer, g.holds] for g in proof.golden]),
            accepted is Accepted.YES,
        ),
    )  # fmt: skip
    if added.rowcount:
        db.executemany(
            "INSERT INTO samples VALUES (?,?,?,?,?,?,?,?)",
            [
                (record.record, run, s.prompt_tokens, s.completion_tokens, s.decode_tok_s,
                 s.ttft_s, s.chunks, s.engine_decode_tok_s)
                for run, s in enumerate(proof.samples, 1)
            ],
        )  # fmt: skip
