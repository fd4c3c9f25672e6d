"""The file the history lies in: opened, brought forward, read beside a writer, set aside.

The write-ahead log keeps what was committed through kill -9 and a full disk.
A reader who may not write the folder cannot open a write-ahead log that no
writer holds open; then no writer is at work, and the file is read as it lies.
On a full disk nobody can: the index of a write-ahead log needs room beside it
(sqlite.org/wal.html, "Read-Only Databases"). Then a copy in memory is read.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.history.schema import (
    OF_EVERY_VERSION,
    SCHEMA_VERSION,
    STEPS,
    statements,
)
from kimisvc.errors import KimisvcError
from kimisvc.host import files

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_SECONDS = 10.0
NO_ROOM = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
"""With which of its primary result codes SQLite says that the disk is full, or does not obey."""
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder with a random name is made in it, for us alone
"""Where a copy has room when the disk has none (shm_overview(7))."""


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
                return self._directly(query, arguments)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in NO_ROOM:
                    raise
                return self._from_copy(query, arguments)

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
                    self._beside(suffix).rename(f"{kept}{suffix}")
        return kept

    def _is_damaged(self) -> bool:
        """Whether it is no database, or one with broken pages. Raise KimisvcError if unknown."""
        try:
            if not self.path.exists():
                return False
            # Not of a copy: one that is made beside a writer may be no whole one.
            with self._translated():
                said = self._directly("PRAGMA quick_check(1)")
                for table in OF_EVERY_VERSION:
                    self._directly(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - a constant
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
        self._refuse_irregular()
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

    def _directly(self, query: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        self._refuse_irregular()
        try:
            return self._read(self.path, query, arguments, "mode=ro")
        except sqlite3.OperationalError:
            if self._beside("-wal").exists():
                raise
            return self._read(self.path, query, arguments, "mode=ro&immutable=1")

    def _from_copy(self, query: str, arguments: tuple[Any, ...]) -> list[Any]:
        where = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="kimisvc-", dir=where) as folder:
            copy = Path(folder) / self.path.name
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(self._beside(suffix), f"{copy}{suffix}")
            return self._read(copy, query, arguments, "mode=ro")

    def _refuse_irregular(self) -> None:
        """SQLite opens what lies there, and waits for ever at a pipe. Raise OSError.

        It is not opened here: closing it would free the locks that this process holds on it
        (sqlite.org/howtocorrupt.html, 2.2).
        """
        for suffix in ("", "-wal", "-shm", "-journal"):
            files.refuse_irregular(self._beside(suffix))

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f"{self.path.name}{suffix}")

    def _read(self, path: Path, query: str, arguments: tuple[Any, ...], how: str) -> list[Any]:
        uri = f"{path.as_uri()}?{how}"
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
        except files.UnfitFileError as error:
            raise KimisvcError(
                "history-unusable",
                f"{error.filename}: {error.strerror}",
                hint="move it away, whoever made it: generations and the service do not depend on it",
            ) from error
        except OSError as error:
            raise KimisvcError("history-unusable", f"{self.path}: {error.strerror}") from error
