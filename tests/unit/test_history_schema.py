"""A history of an older kimisvc is brought forward whole; one of a newer kimisvc is left alone."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kimisvc.deploy.history import CanaryResult, CanaryRow, History, RollbackRow
from kimisvc.deploy.history.schema import SCHEMA_VERSION, TABLES
from kimisvc.errors import KimisvcError
from kimisvc.records.proof import VerdictKind

V1 = Path(__file__).parent / "data" / "history_v1.sqlite"
"""Written by kimisvc before version 2: three starts, three verdicts, one of them by a clock set back."""
COUNTS = {"starts": 3, "verdicts": 3, "samples": 6, "applies": 3, "rollbacks": 1}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(V1, tmp_path / "history.sqlite"))


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def test_the_old_file_is_of_version_1() -> None:
    assert rows(V1, "PRAGMA user_version") == [(1,)]
    assert {t: rows(V1, f"SELECT count(*) FROM {t}")[0][0] for t in COUNTS} == COUNTS  # noqa: S608


def test_the_first_write_brings_a_file_forward_and_loses_no_row(old: Path) -> None:
    columns = "invocation, generation, profile, model, started_at, ready_at, load_s, vllm_version"
    queries = [f"SELECT {columns} FROM starts"]  # noqa: S608 - a constant
    queries += [f"SELECT * FROM {table}" for table in COUNTS if table != "starts"]  # noqa: S608
    before = [rows(old, query) for query in queries]
    History(old).close_applies(99, 1.0, "accepted", 0)
    assert rows(old, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert [rows(old, query) for query in queries] == before


def test_a_reader_sees_an_old_file_as_if_it_were_new_and_does_not_touch_it(old: Path) -> None:
    content = old.read_bytes()
    history = History(old)
    assert [s.invocation for s in history.starts()] == ["def", "cut", "abc"]
    assert (history.canaries(), history.benches()) == ((), ())
    assert [(f.invocation, f.verdict, len(f.runs)) for f in history.start_figures()] == [
        ("abc", VerdictKind.PASS, 2), ("def", VerdictKind.FAIL, 2),
    ]  # fmt: skip
    assert old.read_bytes() == content


def test_a_start_gets_its_place_before_its_verdict_and_behind_those_before_it(old: Path) -> None:
    history = History(old)
    place = {s.invocation: s.sequence for s in history.starts()}
    verdicts = {v.record: v.sequence for v in history.verdicts()}
    assert place["abc"] <= verdicts["r1"] < verdicts["r2"] < place["cut"] < verdicts["r3"]
    assert history.applies()[1].sequence <= place["cut"] < place["def"] <= verdicts["r3"]


def test_what_comes_after_the_migration_comes_after_all_that_was(old: Path) -> None:
    history = History(old)
    newest = history.sequence()
    history.add_rollback(RollbackRow(1.0, 5, 3, "x"))
    assert history.sequence() == newest + 1


def test_canaries_of_a_file_of_version_2_are_counted_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    history = History(path)
    canary = CanaryRow(1.0, "abc", 3, "ll_ring", CanaryResult.FAILED)
    for _ in range(3):
        history.add_canary(canary)
    db = sqlite3.connect(path)
    with db:
        db.execute("DROP TABLE canaries_gone")
        db.execute("PRAGMA user_version = 2")
    db.close()
    assert history.canary_counts() == {"failed": 3}
    assert rows(path, "PRAGMA user_version") == [(2,)]
    history.add_canary(canary)
    assert rows(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    history.prune(5000.0)
    assert history.canary_counts() == {"failed": 4}


def test_a_migration_that_is_killed_leaves_the_old_file(old: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from kimisvc.deploy.history import file as history_file\n"
        "history_file.STEPS = (history_file.STEPS[0], history_file.STEPS[1] + ';SELECT die()')\n"
        "connect = history_file.sqlite3.connect\n"
        "def opened(*a, **k):\n"
        "    db = connect(*a, **k)\n"
        "    db.create_function('die', 0, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "    return db\n"
        "history_file.sqlite3.connect = opened\n"
        "with history_file.HistoryFile(Path(sys.argv[1])).writing():\n"
        "    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(old)], check=False)
    assert done.returncode == -9
    assert rows(old, "PRAGMA user_version") == [(1,)]
    History(old).add_rollback(RollbackRow(1.0, 5, 3, "x"))
    assert rows(old, "SELECT count(*) FROM starts") == [(3,)]


def test_a_new_file_and_one_brought_forward_have_the_same_tables(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    for path in (old, new):
        History(path).add_rollback(RollbackRow(1.0, 2, 1, "x"))
    tables = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    schemas = [[(*row[:2], str(row[2]).strip()) for row in rows(p, tables)] for p in (old, new)]
    assert schemas[0] == schemas[1]
    for table in TABLES:
        assert any(row[1] == "sequence" for row in rows(new, f"PRAGMA table_info({table})"))


def test_a_history_of_a_newer_kimisvc_is_neither_written_nor_misread(old: Path) -> None:
    db = sqlite3.connect(old)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    content = old.read_bytes()
    history = History(old)
    for use in (history.starts, history.sequence, lambda: history.mend(1.0),
                lambda: history.add_rollback(RollbackRow(1.0, 2, 1, "x"))):  # fmt: skip
        with pytest.raises(KimisvcError, match="newer kimisvc") as caught:
            use()
        assert caught.value.code == "history-too-new"
    assert old.read_bytes() == content
