"""The door to locks, on real ones of other processes."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from open_files import descriptors

from kimisvc.errors import ExitStatus, HostError, LockedError
from kimisvc.host import locks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from kimisvc.host.locks import Lock
sys.argv = ["/opt/kimisvc/bin/kimisvc", "apply", "--api-key=planted"]
with Lock(Path({path!r})):
    print("held", flush=True)
    sys.stdin.read()
print("freed", flush=True)
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock; it frees it when its stdin is closed."""
    argv = [sys.executable, "-c", HOLDER.format(path=str(path))]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_is_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "operator.lock"
    with held_elsewhere(path) as other, pytest.raises(LockedError) as caught, locks.Lock(path):
        pass
    error = caught.value
    assert error.exit_status is ExitStatus.LOCKED
    assert f"kimisvc apply, PID {other.pid}, since " in error.message
    assert "planted" not in error.message


def test_what_the_holder_waits_for_is_told_until_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "kimi" / "operator.lock"
    path.parent.mkdir()
    assert locks.holder(path) is None
    with locks.Lock(path):
        locks.tell(path, "waits for better times")
        found = locks.holder(path)
        assert found is not None
        assert found.words == f"{found.who}; waits for better times"
        assert f"PID {os.getpid()}, since " in found.who
        with pytest.raises(LockedError, match="waits for better times") as caught:
            locks.refuse_held(path)
        assert caught.value.hint.endswith("kimisvc status --follow --instance kimi")
        locks.tell(path, "")
        assert locks.holder(path) == replace(found, waits="")
        path.write_text("nonsense")
        assert locks.holder(path) == locks.Holder("it has not said who it is")
        locks.tell(path, "is no harm")
    assert locks.holder(path) is None


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "operator.lock"
    with held_elsewhere(path) as other:
        other.kill()
        other.wait()
        with locks.Lock(path):
            pass


def test_who_waits_gets_it_when_the_first_is_done(tmp_path: Path) -> None:
    path = tmp_path / "switch.lock"
    with held_elsewhere(path) as other:
        assert other.stdin is not None
        other.stdin.close()
        with locks.Lock(path, wait=20):
            pass


def test_a_lock_can_be_taken_again_and_again(tmp_path: Path) -> None:
    before = descriptors()
    for _ in range(3):
        with locks.Lock(tmp_path / "x"):
            pass
    with locks.Lock(tmp_path / "x"), pytest.raises(LockedError), locks.Lock(tmp_path / "x"):
        pass
    assert descriptors() == before


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child shares the open file, as a duplicate of the descriptor does."""
    path = tmp_path / "x"
    with locks.Lock(path):
        shared = os.dup(next(number for number, at in descriptors() if at == str(path)))
    with locks.Lock(path):
        os.close(shared)


def test_others_cannot_lock_it(tmp_path: Path) -> None:
    with locks.Lock(tmp_path / "x"):
        assert (tmp_path / "x").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x", "since": 1e99, "command": 1}'])
def test_a_holder_who_did_not_say_who_it_is(tmp_path: Path, note: str) -> None:
    path = tmp_path / "x"
    with locks.Lock(path):
        path.write_text(note)
        with pytest.raises(LockedError, match="has not said who it is"), locks.Lock(path):
            pass


def test_a_lock_where_no_folder_is(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="No such file"), locks.Lock(tmp_path / "a" / "x"):
        pass


def test_who_only_looks_whether_a_lock_is_held_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    locks.refuse_held(path)
    assert not path.exists()
    with locks.Lock(path):
        held = path.read_text()
        with pytest.raises(LockedError, match=f"PID {os.getpid()}"):
            locks.refuse_held(path)
    locks.refuse_held(path)
    assert path.read_text() == held


def test_two_who_look_do_not_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        locks.refuse_held(path)


def test_one_who_only_looks_turns_nobody_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.touch(mode=0o600)
    looker = os.open(path, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    monkeypatch.setattr("kimisvc.host.locks.time.sleep", lambda _: os.close(looker))
    with locks.Lock(path):
        pass


def test_who_may_not_open_a_lock_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with locks.Lock(path), monkeypatch.context() as others:
        others.setattr(os, "open", denied)
        locks.refuse_held(path)


def test_a_pipe_in_the_place_of_a_lock_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "operator.lock"
    os.mkfifo(path)
    code = (
        "from pathlib import Path\n"
        "from kimisvc.host.locks import Lock, refuse_held\n"
        f"path = Path({str(path)!r})\n"
        "refuse_held(path)\n"
        "with Lock(path): pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
