"""history on the command line: filters, order, CSV that a spreadsheet may open, pruning."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click import UsageError
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.cli import doors
from kimisvc.cli.history import Moment
from kimisvc.cli.history_events import COLUMNS, What, as_csv, events, found
from kimisvc.cli.main import main
from kimisvc.deploy.gate.record import GateRecord, to_json
from kimisvc.deploy.history import (
    Accepted,
    ApplyRow,
    BenchRow,
    CanaryResult,
    CanaryRow,
    History,
    RollbackRow,
    Which,
)
from kimisvc.deploy.layout import Layout
from kimisvc.records.proof import Interval, Proof, Verdict, VerdictKind
from kimisvc.records.units import Installation

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = time.time()
DAY = 86400.0
HOSTILE = '=HYPERLINK("http://x","y")\r\n"and", \x1b[2Jmore'
FAIL = GateRecord(
    record="r", generation=2, profile="ll_ring", model="/m", invocation="i", began_at=1.0,
    service_started_at=NOW - 2 * DAY, ended_at=NOW - 2 * DAY + 60, floor=40.0, goal=50.0,
    proof=Proof(Verdict(VerdictKind.FAIL, HOSTILE), decode_tok_s=Interval(30.0, 31.0, 32.0)),
)  # fmt: skip
CANARY = CanaryRow(NOW - 60, "i", 1, "baseline", CanaryResult.MEASURED, 81.4, None, None, 0.2)
BENCH = BenchRow(NOW - 30, "i", 1, "baseline", 64, 640, 2, 1800.5)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    place = Installation(Path("/k"), state=tmp_path / "state", runtime=tmp_path / "run")
    monkeypatch.setattr(doors, "installation", lambda: place)
    history = History(tmp_path / "state" / "kimi" / "history.sqlite")
    history.begin_apply(ApplyRow(NOW - 2 * DAY - 9, None, 2, 1, "ll_ring", "ann", (), None, None))
    history.add_record(FAIL, Accepted.NO)
    history.add_rollback(RollbackRow(5.0, 2, 1, "too slow"))  # the clock was set back
    history.add_canary(CANARY)
    history.add_bench(BENCH)
    return history


@pytest.fixture
def call(kept: History, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    assert kept.sequence()

    def calling(*arguments: str, status: int = 0) -> str:
        assert main(["history", *arguments]) == status
        return capsys.readouterr().out

    return calling


def whats(text: str) -> list[str]:
    return [line.split()[2] for line in text.splitlines()[1:]]


def test_events_stand_in_the_order_they_happened_whatever_the_clock_said(
    call: Callable[..., str],
) -> None:
    assert whats(call()) == ["apply", "start", "FAIL", "rollback", "canary", "bench"]
    assert whats(call("-n", "2")) == ["canary", "bench"]


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (("--profile", "baseline"), ["canary", "bench"]),
        (("--profile", "ll_ring"), ["apply", "start", "FAIL", "rollback"]),
        (("--generation", "1"), ["rollback", "canary", "bench"]),
        (("--since", "1d"), ["canary", "bench"]),
        (("--since", "3d", "--what", "verdict", "--what", "bench"), ["FAIL", "bench"]),
        (("--what", "rollback", "--profile", "ll_ring", "--generation", "2"), ["rollback"]),
    ],
)
def test_filters(call: Callable[..., str], arguments: tuple[str, ...], left: list[str]) -> None:
    assert whats(call(*arguments)) == left


def test_nothing_found_is_said(call: Callable[..., str]) -> None:
    assert call("--profile", "none") == "kimi: nothing like that in its history\n"
    assert call("--instance", "other") == "other: no history yet\n"


def test_json_has_a_list_for_each_kind(call: Callable[..., str]) -> None:
    told = json.loads(call("--json"))
    lists = ("applies", "starts", "verdicts", "rollbacks", "canaries", "benches")
    assert [len(told[name]) for name in lists] == [1] * 6
    assert told["canaries"][0]["result"] == "measured"
    assert told["verdicts"][0]["accepted"] is False
    told = json.loads(call("--json", "--what", "bench"))
    assert [len(told[name]) for name in lists] == [0, 0, 0, 0, 0, 1]


def test_csv_is_one_table_that_runs_nothing(call: Callable[..., str], kept: History) -> None:
    del call
    text = as_csv(events(found(kept, Which(), set(What))))
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    assert tuple(head) == COLUMNS
    assert [row[2] for row in rows] == ["apply", "start", "FAIL", "rollback", "canary", "bench"]
    assert all(len(row) == len(COLUMNS) for row in rows)
    fail = dict(zip(head, rows[2], strict=True))
    assert fail["reason"] == '\'=HYPERLINK("http://x","y")  "and",  [2Jmore'
    assert (fail["decode_tok_s"], fail["decode_tok_s_low"]) == ("31.0", "30.0")
    assert text.count("\r\n") == 7
    assert "\n" not in text.replace("\r\n", "")


def test_csv_on_the_command_line(call: Callable[..., str]) -> None:
    lines = call("--csv", "--what", "canary").splitlines()
    assert len(lines) == 2
    assert ",canary,1,baseline,i,measured,81.4," in lines[1]


def test_csv_has_all_and_what_is_read_has_the_newest(
    call: Callable[..., str], kept: History
) -> None:
    for second in range(60):
        kept.add_canary(replace(CANARY, at=NOW + second))
    assert len(call("--csv").splitlines()) == 1 + 66
    assert len(call("--csv", "-n", "7").splitlines()) == 1 + 7
    assert len(call().splitlines()) == 1 + 50
    told = json.loads(call("--json"))
    assert (len(told["canaries"]), len(told["benches"])) == (50, 1)
    assert len(json.loads(call("--json", "-n", "60"))["canaries"]) == 60
    said = " ".join(call("--help").split())
    assert "50 unless said, with --csv all" in said
    assert "of each kind so many of the newest as --limit says" in said


@given(st.text(min_size=1))
def test_no_text_of_the_csv_begins_a_formula_and_every_text_stays_in_its_cell(reason: str) -> None:
    (event,) = events(
        replace(found(History(Path("/none")), Which(), ()),
                rollbacks=(RollbackRow(1.0, 2, 1, reason, 1),))
    )  # fmt: skip
    rows = list(csv.reader(io.StringIO(as_csv([event]), newline="")))
    assert len(rows) == 2
    assert not rows[1][-1].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert all(c.isprintable() for c in rows[1][-1])


@pytest.mark.parametrize("word", ["yesterday", "2 fortnights", "2026-13-01", ""])
def test_what_is_no_moment_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="neither a span"):
        Moment().convert(word, None, None)


def test_moments() -> None:
    assert Moment().convert("2d", None, None) == pytest.approx(time.time() - 2 * DAY, abs=5)
    assert Moment().convert("2026-07-25T18:00+00:00", None, None) == 1785002400.0


def test_prune_says_what_it_took(call: Callable[..., str], kept: History) -> None:
    if os.geteuid() != 0:
        assert call("prune", "--keep", "90d", status=1) == ""
        return
    kept.add_canary(replace(CANARY, at=NOW - 100 * DAY))
    kept.add_canary(CANARY)
    assert call("prune", "--keep", "90d") == "kimi: 1 canaries and 0 samples taken out\n"
    assert json.loads(call("prune", "--keep", "90d", "--json"))["canaries"] == 0


@pytest.mark.parametrize("form", [(), ("--csv",), ("--json",)])
def test_a_moment_that_no_calendar_has_breaks_nothing(
    call: Callable[..., str], kept: History, form: tuple[str, ...]
) -> None:
    for at in (9e15, -9e15):
        kept.add_rollback(RollbackRow(at, 2, 1, "dated by a broken record"))
    assert "dated by a broken record" in call(*form)


def test_help_of_both() -> None:
    assert main(["history", "--help"]) == main(["history", "prune", "--help"]) == 0


def test_a_hundred_thousand_canaries_are_quick_to_ask(kept: History) -> None:
    with kept._writing() as db:  # noqa: SLF001 - one transaction for all of them
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
            " INSERT INTO canaries SELECT 1000 + i, i, 'inv', 1, 'baseline', 'measured', 80.0,"
            " NULL, NULL, 0.2, '' FROM n"
        )
        # Each is answered from the index of the sequence, and sorts nothing.
        for query, values in (
            ("SELECT * FROM canaries WHERE sequence > ? ORDER BY sequence DESC LIMIT 50", (0,)),
            ("SELECT max(sequence) FROM canaries", ()),
        ):
            plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", values))
            assert "SEARCH" in plan
            assert "TEMP B-TREE" not in plan
    assert len(kept.canaries(limit=50)) == 50


@pytest.mark.parametrize("number", ["0", "99999999999999999999", "9" * 5000])
def test_a_number_that_no_generation_has_is_a_usage_error(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["history", "--generation", number], ["compare", number, "1"]):
        assert main(words) == 2, words
        assert "Error: Invalid value" in capsys.readouterr().err


# ---------------------------------------------------------------- what it does not tell

WAITS = "kimisvc: warning: kimi: the history has not taken {} yet\n"


def layout() -> Layout:
    return Layout(doors.installation(), "kimi")


def lose(kept: History) -> None:
    """An instance runs, and the file of its history is gone."""
    del kept
    layout().current.symlink_to("generations/0002")
    for path in layout().history.parent.glob("history.sqlite*"):
        path.unlink()


def wait_for_room(rollbacks: int, *records: str) -> None:
    """A disk was full when a gate and a rollback unit did their work."""
    layout().gate.mkdir(parents=True)
    rows = [asdict(RollbackRow(9.0 + n, 2, 1, "slow")) for n in range(rollbacks)]
    (layout().runtime / "rollbacks.json").write_text(json.dumps(rows))
    for name in records:
        layout().record(name).write_text(to_json(replace(FAIL, record=name)))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main([*arguments]) == 0
    told = capsys.readouterr()
    return told.out, told.err


def test_a_history_that_is_whole_warns_of_nothing(
    kept: History, capsys: pytest.CaptureFixture[str]
) -> None:
    layout().current.symlink_to("generations/0002")
    assert kept.verdicts()
    out, err = said(capsys, "history", "--json")
    told = json.loads(out)
    assert (told["memory"], told["waiting"], err) == ("read", 0, "")


def test_a_history_that_is_lost_is_no_history_that_never_was(
    kept: History, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(kept)
    gone = f"{layout().history} is not there: what the history held is lost"
    warned = f"kimisvc: warning: kimi: {gone}\n"
    assert said(capsys, "history") == ("kimi: nothing is in its history\n", warned)
    assert said(capsys, "report") == ("kimi: nothing is in its history\n", warned)
    for command in ("history", "report"):
        out, err = said(capsys, command, "--json")
        told = json.loads(out)
        assert (told["memory"], told["waiting"], err) == ("missing", 0, warned)
    out, err = said(capsys, "history", "--csv")
    assert (len(out.splitlines()), err) == (1, warned)


def test_a_history_that_was_begun_anew_has_lost_what_was_before(
    kept: History, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(kept)
    History(layout().history).add_canary(CANARY)
    out, err = said(capsys, "history")
    assert whats(out) == ["canary"]
    assert err.endswith("begun anew, and no gate has judged since: what the history held is lost\n")


@pytest.mark.parametrize(
    ("rollbacks", "records", "words"),
    [
        (1, (), "1 rollback"),
        (0, ("r8",), "1 verdict"),
        (2, ("r8", "r9"), "2 verdicts and 2 rollbacks"),
    ],
)
def test_what_waits_for_room_is_told_beside_what_is_kept(
    kept: History,
    capsys: pytest.CaptureFixture[str],
    rollbacks: int,
    records: tuple[str, ...],
    words: str,
) -> None:
    assert kept.sequence()
    wait_for_room(rollbacks, *records)
    out, err = said(capsys, "history")
    assert (len(whats(out)), err) == (6, WAITS.format(words))
    for command in ("history", "report"):
        out, err = said(capsys, command, "--json")
        told = json.loads(out)
        assert (told["memory"], told["waiting"]) == ("read", rollbacks + len(records))
        assert err == WAITS.format(words)


def test_the_page_says_so_too(
    kept: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    said(capsys, "report", "-o", str(page))
    assert "Not all is in this history" not in page.read_text()
    wait_for_room(1)
    said(capsys, "report", "-o", str(page))
    assert "the history has not taken 1 rollback yet" in page.read_text()
    lose(kept)
    said(capsys, "report", "-o", str(page))
    text = page.read_text()
    assert "what the history held is lost; the history has not taken 1 rollback yet" in text
    assert "No history yet" not in text
