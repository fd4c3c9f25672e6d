"""report on the command line: short, as a page, for programs, and where it cannot be written."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import long_history
import pytest

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.records.units import Installation

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    long_history.write(folder / "kimi" / "history.sqlite", 5 * long_history.DAY)
    return folder


@pytest.fixture
def call(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    place = Installation(Path("/k"), state=state, runtime=state / "run")
    monkeypatch.setattr(doors, "installation", lambda: place)

    def calling(*arguments: str) -> tuple[int, str, str]:
        status = main(["report", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return calling


def test_in_short(call: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = call()
    lines = out.splitlines()
    assert status == 0
    assert lines[0].split()[:3] == ["profile", "starts", "newest"]
    assert [line.split()[0] for line in lines[1:5]] == [
        "ll_ring", "long_context", "baseline", "eagle3",
    ]  # fmt: skip
    assert any(line.startswith("ll_ring against baseline: +") for line in lines)
    assert "from the least (▁) to the greatest (█) of its row; ▅ where all are equal" in lines[5]


def test_as_a_page(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert call("-o", str(file)) == (0, f"{file}: written\n", "")
    assert file.read_text().startswith("<!doctype html>")
    assert file.stat().st_mode & 0o777 == 0o644


def test_the_page_begins_with_its_type_and_nothing_before(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    call("-o", str(file), "--since", "2026-01-01")
    assert file.read_bytes().startswith(b"<!doctype html>\n<html")


def test_for_programs(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    told = json.loads(call("--json", "-o", str(file))[1])
    assert told["output"] == str(file)
    assert {p["profile"]: p["starts"] for p in told["profiles"]} == {
        "ll_ring": 7, "long_context": 1, "baseline": 4, "eagle3": 1,
    }  # fmt: skip
    assert told["rollbacks"] == 2


def test_where_it_cannot_be_written(call: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = call("-o", "/no/such/folder/r.html")
    assert (status, out) == (1, "")
    assert "/no/such/folder" in err


def test_a_device_is_never_replaced_and_a_link_is_followed(
    call: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link.html", tmp_path / "file.html"
    os.mkfifo(pipe)
    for odd in (pipe, tmp_path):
        status, out, err = call("-o", str(odd))
        assert (status, out) == (1, ""), odd
        assert "is there, and is no plain file" in err
    assert pipe.is_fifo()
    link.symlink_to(file)
    assert call("-o", str(link))[0] == 0
    assert link.is_symlink()
    assert file.read_text().startswith("<!doctype html>")
    link.unlink()
    link.symlink_to(link)
    status, _, err = call("-o", str(link))
    assert status == 1
    assert "cannot be written" in err


def test_no_history_yet(call: Callable[..., tuple[int, str, str]]) -> None:
    assert call("--instance", "other")[:2] == (0, "other: no history yet\n")


def test_a_terminal_without_blocks_gets_plain_letters(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    del call
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["report"]) == 0
    assert written.getvalue().isascii()
    assert b"against baseline" in written.getvalue()
