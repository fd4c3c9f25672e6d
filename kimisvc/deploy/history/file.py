"""The file the history lies in: opened, brought forward, read beside a writer, set aside.

The write-ahead log keeps what was committed through kill -9 and a full disk.
A reader who may not write the folder cannot open a write-ahead log that no
writer holds open; then no writer is at work, and the file is read as it lies.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.history.schema import (
    OF_EVERY_VERSION,
    SCHEMA_VERSION,
    STEPS,
    statements,
)
from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_SECONDS = 10.0


class HistoryFile:
    """The door to one SQLite file of the history."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a connection in one transaction: all of it is kept, or nothing.

        Raise KimisvcError if the file cannot be written or is of a newer kimisvc.
        """
        with self._translated(), contextlib.closing(self._open_to_write()) as db, db:
            yield db

    def select(self, query: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        """Given a query, return its rows; none where there is no file yet.

        A file of an older kimisvc is read as if it had been brought forward.
        Raise KimisvcError if it cannot be read or is of a newer kimisvc.
        """
        with self._translated():
            if not self.path.exists():
                return []
            try:
                return self._read(query, arguments, "mode=ro")
            except sqlite3.OperationalError:
                if self.path.with_name(f"{self.path.name}-wal").exists():
                    raise
                return self._read(query, arguments, "mode=ro&immutable=1")

    def shrink(self) -> None:
        """Give the room of rows that were taken out back to the disk."""
        with self._translated(), contextlib.closing(self._open_to_write()) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def mend(self, now: float) -> Path | None:
        """Set a file aside that is no database any more; return where it is kept, None if sound.

        A record of the past must not stop what has to be done now.
        """
        if not self._is_damaged():
            return None
        kept = self.path.with_name(f"{self.path.name}.damaged-{int(now)}")
        with self._translated():
            # With its newest rows, which are the easiest to save; SQLite finds them by their name.
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + suffix).rename(f"{kept}{suffix}")
        return kept

    def _is_damaged(self) -> bool:
        """Whether it is no database, or one with broken pages. Raise KimisvcError if unknown."""
        try:
            said = self.select("PRAGMA quick_check(1)")
            for table in OF_EVERY_VERSION:
                self.select(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a constant
        except KimisvcError as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.OperationalError) and "no such" not in str(cause):
                raise  # busy, or not to be read: that says nothing of what it holds
            if isinstance(cause, sqlite3.DatabaseError):
                return True
            raise
        return any(row[0] != "ok" for row in said)

    def _open_to_write(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            with db:
                db.execute("BEGIN IMMEDIATE")
                self._migrate(db)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        for version, step in enumerate(STEPS[self._version(db) :], self._version(db) + 1):
            for statement in statements(step):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {version}")

    def _version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise KimisvcError(
                "history-too-new",
                f"{self.path} was written by a newer kimisvc (schema {version})",
                hint="use that version, or move the file away to begin a new history",
            )
        return version

    def _read(self, query: str, arguments: tuple[Any, ...], how: str) -> list[Any]:
        uri = f"{self.path.as_uri()}?{how}"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
            version = self._version(db)
            if version == 0:
                return []  # made, and cut off before its tables: empty still
            if version == SCHEMA_VERSION:
                return db.execute(query, arguments).fetchall()
            with contextlib.closing(sqlite3.connect(":memory:")) as copy:
                db.backup(copy)  # 12 MB at most, and only until somebody writes
                self._migrate(copy)
                return copy.execute(query, arguments).fetchall()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise KimisvcError(
                "history-unusable",
                f"{self.path}: {error}",
                hint="is the disk full, or the file damaged? A damaged file can be moved away:"
                " generations and the service do not depend on it",
            ) from error
        except OSError as error:
            raise KimisvcError("history-unusable", f"{self.path}: {error.strerror}") from error
