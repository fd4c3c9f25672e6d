"""The history of one instance, in SQLite: starts, verdicts, samples, applies, rollbacks.

Only root writes (apply, settle, rollback); anyone may read, so that `status`
needs no sudo: nothing is written here that was not redacted before. The write-ahead
log keeps what was committed through kill -9 and a full disk. What came after
what is told by `sequence`, one count over all tables: clocks jump. A reader who may
not write the folder cannot open a write-ahead log that no writer holds open;
then no writer is at work, and the file is read as it lies.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.outcome import Outcome
from kimisvc.errors import KimisvcError
from kimisvc.records import Interval, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kimisvc.deploy.record import GateRecord

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE starts (
    invocation TEXT PRIMARY KEY, generation INTEGER NOT NULL, profile TEXT NOT NULL,
    model TEXT NOT NULL, started_at REAL NOT NULL, ready_at REAL, load_s REAL, vllm_version TEXT
) STRICT;
CREATE TABLE verdicts (
    record TEXT PRIMARY KEY, sequence INTEGER NOT NULL UNIQUE,
    invocation TEXT NOT NULL REFERENCES starts,
    generation INTEGER NOT NULL, profile TEXT NOT NULL, at REAL NOT NULL,
    verdict TEXT NOT NULL, reason TEXT NOT NULL, decode_tok_s REAL, decode_low REAL,
    decode_high REAL, ttft_s REAL, engine_decode_tok_s REAL, floor REAL, goal REAL,
    notes TEXT NOT NULL, golden TEXT NOT NULL, accepted INTEGER NOT NULL
) STRICT;
CREATE TABLE samples (
    record TEXT NOT NULL REFERENCES verdicts, run INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, decode_tok_s REAL NOT NULL, ttft_s REAL NOT NULL,
    chunks INTEGER NOT NULL, engine_decode_tok_s REAL, PRIMARY KEY (record, run)
) STRICT;
CREATE TABLE applies (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, ended_at REAL, generation INTEGER NOT NULL,
    previous INTEGER, profile TEXT NOT NULL, actor TEXT NOT NULL, restarted TEXT NOT NULL,
    outcome TEXT, exit INTEGER
) STRICT;
CREATE TABLE rollbacks (
    sequence INTEGER PRIMARY KEY, at REAL NOT NULL, from_generation INTEGER NOT NULL,
    to_generation INTEGER, reason TEXT NOT NULL
) STRICT;
CREATE INDEX starts_at ON starts (started_at);
"""
_NEXT = (
    "(SELECT 1 + max(coalesce((SELECT max(sequence) FROM verdicts), 0),"
    " coalesce((SELECT max(sequence) FROM applies), 0),"
    " coalesce((SELECT max(sequence) FROM rollbacks), 0)))"
)
BUSY_SECONDS = 10.0


class Accepted(Enum):
    """Whether a verdict made its generation the accepted one."""

    YES = "yes"
    NO = "no"


@dataclass(frozen=True, slots=True)
class StartRow:
    """One start of the service that a gate watched."""

    invocation: str
    generation: int
    profile: str
    model: str
    started_at: float
    ready_at: float | None
    load_s: float | None
    vllm_version: str | None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One decision of the gate."""

    record: str
    sequence: int
    invocation: str
    generation: int
    profile: str
    at: float
    verdict: Verdict
    decode_tok_s: Interval | None
    ttft_s: float | None
    engine_decode_tok_s: float | None
    floor: float | None
    goal: float | None
    notes: tuple[str, ...]
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class ApplyRow:
    """One apply: who, what, and how it ended (None: it was left at work)."""

    at: float
    ended_at: float | None
    generation: int
    previous: int | None
    profile: str
    actor: str
    restarted: tuple[str, ...]
    outcome: str | None
    exit: int | None
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class RollbackRow:
    """One rollback; `to_generation` None: there was nothing to restore."""

    at: float
    from_generation: int
    to_generation: int | None
    reason: str
    sequence: int = 0


class History:
    """The door to one history file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    # ------------------------------------------------------------- writing

    def add_record(self, record: GateRecord, accepted: Accepted) -> None:
        """Given a gate's record and what it led to, keep start, verdict, samples; twice is once."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO starts VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (invocation) DO UPDATE SET"
                " ready_at = coalesce(ready_at, excluded.ready_at),"
                " load_s = coalesce(load_s, excluded.load_s),"
                " vllm_version = coalesce(excluded.vllm_version, vllm_version)",
                (
                    record.invocation, record.generation, record.profile, record.model,
                    record.service_started_at, record.ready_at or None, record.load_s,
                    record.vllm_version or None,
                ),
            )  # fmt: skip
            proof = record.proof
            if proof is None:
                return
            speed = proof.decode_tok_s
            added = db.execute(
                f"INSERT OR IGNORE INTO verdicts VALUES (?,{_NEXT},?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - a constant
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

    def begin_apply(self, row: ApplyRow) -> int:
        """Given an apply that begins, keep it and return its sequence.

        One of another generation that is still open was cut off, or left by its
        operator; nothing will decide it any more.
        """
        over = Outcome.SUPERSEDED
        with self._writing() as db:
            db.execute(
                "UPDATE applies SET ended_at = ?, outcome = ?, exit = ?"
                " WHERE ended_at IS NULL AND generation <> ?",
                (row.at, over.value, over.exit_status, row.generation),
            )
            cursor = db.execute(
                f"INSERT INTO applies VALUES ({_NEXT},?,NULL,?,?,?,?,?,NULL,NULL)",  # noqa: S608 - a constant
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

    def add_rollback(self, row: RollbackRow) -> None:
        """Given a rollback, keep it; its sequence is given here."""
        with self._writing() as db:
            db.execute(
                f"INSERT INTO rollbacks VALUES ({_NEXT},?,?,?,?)",  # noqa: S608 - a constant
                (row.at, row.from_generation, row.to_generation, row.reason),
            )

    # ------------------------------------------------------------- reading

    def sequence(self) -> int:
        """Return the sequence of the newest event, 0 before the first; what comes is greater."""
        rows = self._select(f"SELECT {_NEXT} - 1", ())
        return int(rows[0][0]) if rows else 0

    def verdicts(self, after: int = 0, limit: int = 1000) -> tuple[VerdictRow, ...]:
        """Given a sequence, return the verdicts that came after it, newest first."""
        rows = self._select(
            "SELECT record, sequence, invocation, generation, profile, at, verdict, reason, decode_tok_s,"
            " decode_low, decode_high, ttft_s, engine_decode_tok_s, floor, goal, notes,"
            " accepted FROM verdicts WHERE sequence > ? ORDER BY sequence DESC LIMIT ?",
            (after, limit),
        )
        return tuple(_verdict_row(row) for row in rows)

    def starts(self, limit: int = 1000) -> tuple[StartRow, ...]:
        """Return the newest starts, newest first."""
        return tuple(
            StartRow(*row)
            for row in self._select("SELECT * FROM starts ORDER BY rowid DESC LIMIT ?", (limit,))
        )

    def start(self, invocation: str) -> StartRow | None:
        """Given an invocation, return its start; None if no gate has told of it."""
        rows = self._select("SELECT * FROM starts WHERE invocation = ?", (invocation,))
        return StartRow(*rows[0]) if rows else None

    def applies(self, limit: int = 1000) -> tuple[ApplyRow, ...]:
        """Return the newest applies, newest first."""
        rows = self._select(
            "SELECT at, ended_at, generation, previous, profile, actor, restarted, outcome, exit,"
            " sequence FROM applies ORDER BY sequence DESC LIMIT ?",
            (limit,),
        )
        return tuple(_apply_row(*row) for row in rows)

    def rollbacks(self, after: int = 0, limit: int = 1000) -> tuple[RollbackRow, ...]:
        """Given a sequence, return the rollbacks that came after it, newest first."""
        rows = self._select(
            "SELECT at, from_generation, to_generation, reason, sequence FROM rollbacks"
            " WHERE sequence > ? ORDER BY sequence DESC LIMIT ?",
            (after, limit),
        )
        return tuple(RollbackRow(*row) for row in rows)

    def loads(self, model: str) -> tuple[float, ...]:
        """Given a model, return how long its last five loads took (s), newest first."""
        rows = self._select(
            "SELECT load_s FROM starts WHERE model = ? AND load_s IS NOT NULL"
            " ORDER BY rowid DESC LIMIT 5",
            (model,),
        )
        return tuple(row[0] for row in rows)

    def expected_load(self, model: str) -> float:
        """Given a model, return the median of its last five loads (s); 0 if it was never seen."""
        loads = self.loads(model)
        return statistics.median(loads) if loads else 0.0

    # ------------------------------------------------------------- the file

    def mend(self, now: float) -> Path | None:
        """Set a file aside that is no database any more; return where it is kept, None if sound.

        A record of the past must not stop what has to be done now.
        """
        if not self._is_damaged():
            return None
        kept = self._path.with_name(f"{self._path.name}.damaged-{int(now)}")
        with self._translated():
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._path.rename(kept)
        return kept

    def _is_damaged(self) -> bool:
        """Whether it is no database, or one with broken pages. Raise KimisvcError if unknown."""
        try:
            said = self._select("PRAGMA quick_check(1)", ())
            self.sequence()
        except KimisvcError as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.OperationalError) and "no such" not in str(cause):
                raise  # busy, or not to be read: that says nothing of what it holds
            if isinstance(cause, sqlite3.DatabaseError):
                return True
            raise
        return any(row[0] != "ok" for row in said)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._translated(), contextlib.closing(self._open_to_write()) as db, db:
            yield db

    def _open_to_write(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        with db:
            db.execute("BEGIN IMMEDIATE")
            self._migrate(db)
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise KimisvcError(
                "history-too-new",
                f"{self._path} was written by a newer kimisvc (schema {version})",
                hint="use that version, or move the file away to begin a new history",
            )
        if version < 1:
            for statement in _SCHEMA.split(";"):
                if statement.strip():
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _select(self, query: str, arguments: tuple[Any, ...]) -> list[Any]:
        with self._translated():
            if not self._path.exists():
                return []
            try:
                return self._read(query, arguments, "mode=ro")
            except sqlite3.OperationalError:
                if self._path.with_name(f"{self._path.name}-wal").exists():
                    raise
                return self._read(query, arguments, "mode=ro&immutable=1")

    def _read(self, query: str, arguments: tuple[Any, ...], how: str) -> list[Any]:
        uri = f"{self._path.as_uri()}?{how}"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                return []  # made, and cut off before its tables: empty still
            return db.execute(query, arguments).fetchall()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise KimisvcError(
                "history-unusable",
                f"{self._path}: {error}",
                hint="is the disk full, or the file damaged? A damaged file can be moved away:"
                " generations and the service do not depend on it",
            ) from error
        except OSError as error:
            raise KimisvcError("history-unusable", f"{self._path}: {error.strerror}") from error


def _apply_row(*row: Any) -> ApplyRow:
    at, ended_at, generation, previous, profile, actor, restarted, outcome, status, place = row
    return ApplyRow(
        at, ended_at, generation, previous, profile, actor,
        tuple(restarted.split()), outcome, status, place,
    )  # fmt: skip


def _verdict_row(row: tuple[Any, ...]) -> VerdictRow:
    record, sequence, invocation, generation, profile, at, kind, reason, mean, low, high, *rest = (
        row
    )
    ttft, engine, floor, goal, notes, accepted = rest
    return VerdictRow(
        record, sequence, invocation, generation, profile, at,
        Verdict(VerdictKind(kind), reason),
        None if mean is None else Interval(low, mean, high),
        ttft, engine, floor, goal, tuple(json.loads(notes)), bool(accepted),
    )  # fmt: skip
