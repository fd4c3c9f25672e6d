"""What lies where the history should, and is none: it is named, and nobody waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kimisvc.deploy.history import History, RollbackRow
from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = RollbackRow(9.0, 3, 1, "x")
CALLS: dict[str, Callable[[History], object]] = {
    "read": lambda history: history.verdicts(),
    "written": lambda history: history.add_rollback(ROW),
    "mended": lambda history: history.mend(1.0),
}


def raised(call: Callable[[], object]) -> KimisvcError:
    """What a call raises; one that waits for ever fails the test and keeps no other waiting."""
    found: list[KimisvcError] = []

    def run() -> None:
        try:
            call()
        except KimisvcError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits"
    assert found, "nothing was raised"
    return found[0]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def null(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("make", "kind"),
    [(pipe, "a named pipe"), (device, "a character device"), (null, "a character device"),
     (Path.mkdir, "a folder")],
)  # fmt: skip
def test_what_is_no_file_is_named_and_stays(
    tmp_path: Path, make: Callable[[Path], None], kind: str, call: str
) -> None:
    path = tmp_path / "history.sqlite"
    make(path)
    error = raised(lambda: CALLS[call](History(path)))
    assert error.code == "history-unusable"
    assert error.message == f"{path}: is no regular file but {kind}"
    assert "move it away" in error.hint
    assert [one.name for one in tmp_path.iterdir()] == ["history.sqlite"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_so_is_what_lies_beside_it(tmp_path: Path, suffix: str, call: str) -> None:
    path = tmp_path / "history.sqlite"
    History(path).add_rollback(ROW)
    pipe(tmp_path / f"history.sqlite{suffix}")
    error = raised(lambda: CALLS[call](History(path)))
    assert error.message == f"{path}{suffix}: is no regular file but a named pipe"


def test_a_link_at_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "history.sqlite").symlink_to("elsewhere/kept.sqlite")
    history = History(tmp_path / "history.sqlite")
    history.add_rollback(ROW)
    assert len(history.rollbacks()) == 1
    assert (tmp_path / "elsewhere" / "kept.sqlite").is_file()
