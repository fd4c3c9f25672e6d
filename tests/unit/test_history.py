"""History keeps what was committed, whoever reads and whatever is cut off."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kimisvc.deploy.canary.record import canary_from_json, canary_to_json
from kimisvc.deploy.gate.record import GateRecord, progress_from_json, record_from_json, to_json
from kimisvc.deploy.history import (
    Accepted,
    ApplyRow,
    CanaryResult,
    CanaryRow,
    History,
    RollbackRow,
    file,
)
from kimisvc.deploy.outcome import Outcome
from kimisvc.errors import KimisvcError
from kimisvc.host.files import read_untrusted
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.proof import GoldenResult, Interval, Proof, Sample, Verdict, VerdictKind

PROOF = Proof(
    Verdict(VerdictKind.PASS, "over the goal"),
    samples=(Sample(16, 32, 81.5, 0.2, 32), Sample(16, 32, 81.3, 0.21, 32, 81.4)),
    decode_tok_s=Interval(81.1, 81.4, 81.7),
    ttft_s=0.205,
    engine_decode_tok_s=81.45,
    golden=(GoldenResult("capital?", "Paris", "It is Paris.", True),),  # noqa: FBT003 - it holds
    notes=("quiet",),
)
RECORD = GateRecord(
    record="r1", generation=3, profile="ll_ring", model="/srv/kimi", invocation="abc",
    service_started_at=100.0, began_at=101.0, ended_at=2300.0, ready_at=2260.0, load_s=2160.0,
    vllm_version="0.33.0", floor=40.0, goal=50.0, proof=PROOF,
)  # fmt: skip


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "kimi" / "history.sqlite")


def test_a_record_comes_back_as_it_went(history: History) -> None:
    history.add_record(RECORD, Accepted.YES)
    (row,) = history.verdicts()
    assert row.verdict == PROOF.verdict
    assert row.decode_tok_s == PROOF.decode_tok_s
    assert (row.generation, row.profile, row.invocation, row.at) == (3, "ll_ring", "abc", 2300.0)
    assert (row.floor, row.goal, row.notes) == (40.0, 50.0, ("quiet",))
    (start,) = history.starts()
    assert (start.load_s, start.vllm_version, start.ready_at) == (2160.0, "0.33.0", 2260.0)


def spoil(history: History, statement: str) -> None:
    """Change rows as a hand does, or a newer kimisvc."""
    with history._writing() as db:  # noqa: SLF001 - nothing else would
        db.execute(statement)


@pytest.mark.parametrize(
    "spoiled",
    [
        "UPDATE verdicts SET notes = '{'",
        "UPDATE verdicts SET notes = 5",
        "UPDATE verdicts SET verdict = 'GREAT'",
        "UPDATE verdicts SET decode_tok_s = 9e999",
    ],
)
def test_a_row_that_cannot_be_read_is_damage_with_a_hint(history: History, spoiled: str) -> None:
    history.add_record(RECORD, Accepted.YES)
    spoil(history, spoiled)
    with pytest.raises(KimisvcError, match="a row cannot be read") as caught:
        history.verdicts()
    assert caught.value.code == "history-unusable"
    assert "move the file away" in caught.value.hint


def test_a_run_that_no_gate_can_have_measured_is_damage(history: History) -> None:
    history.add_record(RECORD, Accepted.YES)
    spoil(history, "UPDATE samples SET decode_tok_s = 9e999")
    with pytest.raises(KimisvcError, match="a row cannot be read"):
        history.start_figures()


def test_the_same_record_twice_is_once(history: History) -> None:
    history.add_record(RECORD, Accepted.YES)
    history.add_record(RECORD, Accepted.YES)
    assert len(history.verdicts()) == len(history.starts()) == 1


def test_a_gate_run_again_keeps_the_load_of_its_start(history: History) -> None:
    history.add_record(RECORD, Accepted.YES)
    history.add_record(replace(RECORD, record="r2", load_s=None, ready_at=2400.0), Accepted.NO)
    (start,) = history.starts()
    assert (start.load_s, start.ready_at) == (2160.0, 2260.0)
    assert len(history.verdicts()) == 2


def test_a_start_that_never_got_a_verdict_is_kept(history: History) -> None:
    history.add_record(replace(RECORD, proof=None, ready_at=0.0, load_s=None), Accepted.NO)
    (start,) = history.starts()
    assert start.ready_at is None
    assert history.verdicts() == ()


def test_expected_load_is_the_median_of_the_last_five(history: History) -> None:
    assert history.expected_load("/srv/kimi") == 0.0
    for number, load in enumerate((9000.0, 2100.0, 2200.0, 2150.0, 2160.0, 2180.0)):
        history.add_record(
            replace(
                RECORD, record=f"r{number}", invocation=f"i{number}", load_s=load,
                service_started_at=float(number),
            ),
            Accepted.NO,
        )  # fmt: skip
    assert history.expected_load("/srv/kimi") == 2160.0
    assert history.expected_load("/srv/other") == 0.0


def test_what_came_after_is_told_by_sequence_whatever_the_clock_says(history: History) -> None:
    assert history.sequence() == 0
    history.add_record(replace(RECORD, record="r0", ended_at=100.0), Accepted.NO)
    mark = history.sequence()
    history.add_rollback(RollbackRow(90.0, 2, 1, "x"))
    history.add_record(replace(RECORD, record="r1", ended_at=5.0), Accepted.NO)
    assert [v.record for v in history.verdicts(after=mark)] == ["r1"]
    assert [v.record for v in history.verdicts()] == ["r1", "r0"]
    (rollback,) = history.rollbacks(after=mark)
    assert mark < rollback.sequence < history.verdicts(after=mark)[0].sequence


def test_applies_and_rollbacks(history: History) -> None:
    number = history.begin_apply(
        ApplyRow(5.0, None, 2, 1, "ll_ring", "ann", ("a.service", "b.service"), None, None)
    )
    assert history.applies()[0].outcome is None
    history.end_apply(number, 9.0, "rolled-back", 4)
    history.add_rollback(RollbackRow(7.0, 2, 1, "too slow"))
    (row,) = history.applies()
    assert (row.ended_at, row.outcome, row.exit, row.restarted) == (
        9.0, "rolled-back", 4, ("a.service", "b.service"),
    )  # fmt: skip
    assert history.rollbacks() == (RollbackRow(7.0, 2, 1, "too slow", 2),)


def test_no_history_yet_is_an_empty_one(history: History) -> None:
    assert not any((history.verdicts(), history.starts(), history.applies(), history.rollbacks()))


def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from kimisvc.deploy.history import History, RollbackRow\n"
        "history = History(Path(sys.argv[1]))\n"
        "history.add_rollback(RollbackRow(1.0, 2, 1, 'kept'))\n"
        "with history._writing() as db:\n"
        "    db.execute(\"INSERT INTO rollbacks VALUES (9, 2.0, 3, 2, 'half')\")\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -9
    assert [row.reason for row in History(path).rollbacks()] == ["kept"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_one_who_may_not_write_the_folder_can_read(tmp_path: Path) -> None:
    folder = Path("/var/lib") / f"kimisvc-test-{os.getpid()}"
    history = History(folder / "history.sqlite")
    try:
        history.add_record(RECORD, Accepted.YES)
        (folder / "history.sqlite").chmod(0o644)
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            try:
                os._exit(0 if len(history.verdicts()) == 1 else 1)
            except KimisvcError:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()
    assert tmp_path.is_dir()


def no_room(monkeypatch: pytest.MonkeyPatch, path: Path, code: int) -> None:
    """As on a full disk: beside the file there is no room for the index of its write-ahead log."""
    whole = sqlite3.connect

    def connect(database: Any, **more: Any) -> sqlite3.Connection:
        if str(database).startswith((str(path), path.as_uri())):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error
        opened: sqlite3.Connection = whole(database, **more)
        return opened

    monkeypatch.setattr(sqlite3, "connect", connect)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
@pytest.mark.parametrize("where", ["in memory", "where all are"])
def test_on_a_full_disk_history_can_be_read(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, where: str
) -> None:
    path = tmp_path / "kimi" / "history.sqlite"
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(file, "MEMORY", room if where == "in memory" else tmp_path / "none")
    history.add_record(RECORD, Accepted.YES)
    with closing(sqlite3.connect(path)) as other:  # who holds it open keeps the write-ahead log
        other.execute("SELECT * FROM verdicts").fetchall()
        history.add_rollback(RollbackRow(9.0, 3, 1, "newest"))
        assert path.with_name("history.sqlite-wal").stat().st_size
        no_room(monkeypatch, path, code)
        assert [row.reason for row in history.rollbacks()] == ["newest"]
        assert len(history.verdicts()) == 1
        assert list(room.iterdir()) == []
        with pytest.raises(KimisvcError, match="disk I/O error"):
            history.add_rollback(RollbackRow(9.0, 3, 1, "x"))


def test_a_file_that_cannot_be_read_now_is_not_set_aside(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that is made beside a writer may be no whole one."""
    path = tmp_path / "kimi" / "history.sqlite"
    path.parent.mkdir()
    path.write_text("as a copy may look " * 999)
    no_room(monkeypatch, path, sqlite3.SQLITE_IOERR)
    with pytest.raises(KimisvcError, match="disk I/O error"):
        history.mend(1.0)
    assert path.exists()


def test_what_is_busy_is_not_copied(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kimi" / "history.sqlite"
    history.add_record(RECORD, Accepted.YES)
    path.with_name("history.sqlite-wal").touch()
    no_room(monkeypatch, path, sqlite3.SQLITE_BUSY)
    with pytest.raises(KimisvcError):
        history.verdicts()


def test_a_history_that_was_cut_off_before_its_tables_is_an_empty_one(history: History) -> None:
    history.begin_apply(ApplyRow(5.0, None, 2, 1, "p", "ann", (), None, None))
    path = history._file.path  # noqa: SLF001 - the file is the point
    path.unlink()
    path.touch()
    assert history.applies() == ()
    assert history.sequence() == 0
    history.add_rollback(RollbackRow(1.0, 2, 1, "x"))
    assert len(history.rollbacks()) == 1


def test_what_a_verdict_led_to_is_kept(history: History) -> None:
    history.add_record(RECORD, Accepted.NO)
    assert [v.accepted for v in history.verdicts()] == [False]


def test_an_apply_whose_operator_left_is_closed_by_what_decides_it(history: History) -> None:
    history.begin_apply(ApplyRow(5.0, None, 2, 1, "p", "ann", (), None, None))
    ended = history.begin_apply(ApplyRow(6.0, None, 2, 1, "p", "ann", (), None, None))
    history.end_apply(ended, 7.0, "stopped", 1)
    history.close_applies(3, 8.0, "accepted", 0)
    history.close_applies(2, 9.0, "rolled-back", 4)
    assert [(a.outcome, a.ended_at) for a in history.applies()] == [
        ("stopped", 7.0), ("rolled-back", 9.0),
    ]  # fmt: skip


def outcomes(history: History) -> list[str | None]:
    return [row.outcome for row in reversed(history.applies())]


def test_an_open_apply_rests_on_what_it_was_rolled_back_to_since(history: History) -> None:
    history.add_rollback(RollbackRow(1.0, 3, 1, "of an apply before"))
    history.begin_apply(ApplyRow(5.0, None, 3, 2, "p", "ann", (), None, None))
    history.add_rollback(RollbackRow(6.0, 3, 3, "finished, as an earlier kimisvc kept it"))
    history.judge_applies(1, 7.0, Outcome.ACCEPTED)
    assert outcomes(history) == [None]
    history.add_rollback(RollbackRow(8.0, 3, 2, "slow"))
    history.judge_applies(3, 9.0, Outcome.ACCEPTED)
    assert outcomes(history) == [None]
    history.judge_applies(2, 10.0, Outcome.ACCEPTED)
    assert (outcomes(history), history.applies()[0].ended_at) == (["rolled-back"], 10.0)


def test_what_was_restored_and_rolled_back_further_was_not_restored(history: History) -> None:
    history.begin_apply(ApplyRow(5.0, None, 3, 2, "p", "ann", (), None, None))
    history.add_rollback(RollbackRow(6.0, 3, 2, "slow"))
    history.begin_apply(ApplyRow(7.0, None, 2, 2, "q", "ann", (), None, None))
    history.add_rollback(RollbackRow(8.0, 2, 1, "damaged"))
    assert outcomes(history) == ["not-restored", None]
    history.judge_applies(1, 9.0, Outcome.INCONCLUSIVE)
    assert outcomes(history) == ["not-restored", "not-restored"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"this is no database, and long enough to be read as one" * 20)
    with pytest.raises(KimisvcError, match=r"history\.sqlite") as caught:
        History(path).verdicts()
    assert caught.value.code == "history-unusable"


def test_a_history_of_a_newer_kimisvc_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(KimisvcError, match="newer kimisvc"):
        History(path).add_rollback(RollbackRow(1.0, 2, 1, "x"))


def test_a_record_survives_json() -> None:
    assert record_from_json(to_json(RECORD)) == RECORD
    unfinished = replace(RECORD, proof=None)
    assert record_from_json(to_json(unfinished)) == unfinished


@pytest.mark.parametrize(("said", "kept"), [("a \ud800 b", "a \ufffd b"), ("\ud83d\ude00", "😀")])
def test_what_a_server_says_in_halves_of_characters_costs_no_verdict(said: str, kept: str) -> None:
    """JSON brings them, UTF-8 holds none, and a pair is the character it stands for."""
    wrong = GoldenResult("capital?", "Paris", said, False)  # noqa: FBT003 - it does not hold
    told = replace(RECORD, proof=replace(PROOF, golden=(wrong,), notes=(said,)), vllm_version=said)
    text = to_json(told)
    assert text.encode()
    read = record_from_json(text)
    assert read.proof is not None
    assert (read.proof.golden[0].answer, read.vllm_version) == (kept, kept)
    row = CanaryRow(1.0, "a", 1, "mine", CanaryResult.FAILED, reason=said)
    assert canary_from_json(canary_to_json(row)).reason == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"proof": 1}',
        "null",
        to_json(RECORD).replace('"PASS"', '"GOOD"'),
        to_json(RECORD).replace('"generation": 3', '"generation": "3"'),
        to_json(RECORD).replace('"generation": 3', f'"generation": {2**70}'),
        to_json(RECORD).replace('"generation": 3', '"generation": true'),
        to_json(RECORD).replace('"abc"', '["abc"]'),
        to_json(RECORD).replace('"abc"', r'"\ud800"'),
        to_json(RECORD).replace("81.5", "1e999"),
        "[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(KimisvcError, match="record"):
        record_from_json(text)


def test_progress_survives_json_and_half_of_it_is_none() -> None:
    progress = Progress(Phase.LOADING, 2, "abc", 1.0, 2.0, "starting", 3, 64, 2160.0)
    text = to_json(progress)
    assert progress_from_json(text) == progress
    assert progress_from_json(text[: len(text) // 2]) is None


def test_what_would_steer_a_terminal_is_taken_out_of_what_a_server_said() -> None:
    sly = replace(RECORD, proof=replace(PROOF, verdict=Verdict(VerdictKind.FAIL, "a\x1b[2Jb")))
    proof = record_from_json(to_json(sly)).proof
    assert proof is not None
    assert proof.verdict.reason == "a [2Jb"


def test_a_file_of_another_user_is_read_only_if_it_is_plain(tmp_path: Path) -> None:
    plain, link, pipe, big = (tmp_path / name for name in ("plain", "link", "pipe", "big"))
    plain.write_text("{}")
    link.symlink_to(plain)
    os.mkfifo(pipe)
    big.write_bytes(b"x" * 2_000_000)
    assert read_untrusted(plain) == "{}"
    for path in (link, pipe, big, tmp_path):
        with pytest.raises(KimisvcError):
            read_untrusted(path)


def test_a_broken_page_is_found_though_the_newest_rows_can_be_read(tmp_path: Path) -> None:
    """A disk that lost a page in the middle: every settle would fail on it, for ever."""
    path = tmp_path / "history.sqlite"
    history = History(path)
    history.add_rollback(RollbackRow(1.0, 1, None, "because"))
    with closing(sqlite3.connect(path)) as db:
        rows = [(number, 1.0, 1, None, "because " * 10) for number in range(2, 2001)]
        db.executemany("INSERT INTO rollbacks VALUES (?,?,?,?,?)", rows)
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = db.execute("PRAGMA page_size").fetchone()[0]
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    with path.open("r+b") as file:
        file.seek(size * (pages // 2))
        file.write(b"\xa5" * size)
    assert history.sequence() == 2000
    kept = history.mend(5.0)
    assert kept == tmp_path / "history.sqlite.damaged-5"
    assert history.mend(6.0) is None
    assert history.rollbacks() == ()


def test_a_history_without_one_of_its_tables_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    history = History(path)
    history.add_rollback(RollbackRow(1.0, 1, None, "because"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE applies")
        db.commit()
    assert history.mend(5.0) is not None
