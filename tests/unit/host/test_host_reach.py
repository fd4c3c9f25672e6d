"""Paths as a hardened unit sees them: real folders, links and modes.

The tests' own folder lies in /tmp, which PrivateTmp= hides; so the table of what
is hidden is emptied but for what a test puts there.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kimisvc.host import reach
from kimisvc.host.reach import (
    Need,
    Presence,
    Viewer,
    presence,
    shebang,
    why_not_roots,
    why_unreachable,
    why_unread,
    why_unrunnable,
    why_unseen,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that anybody may enter, in which `home` is hidden."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(reach, "HIDDEN", {str(tmp_path / "home"): "ProtectHome= hides it"})
    return tmp_path


def program(path: Path, first: str = "#!/bin/sh", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first}\n")
    path.chmod(mode)
    return path


def test_a_plain_file_is_reached(root: Path) -> None:
    assert why_unreachable(program(root / "opt" / "x")) == ""


def test_what_is_not_there(root: Path) -> None:
    assert why_unreachable(root / "opt" / "x") == f"{root}/opt: No such file or directory"


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/home/me/venv", "/home"),
        ("/root/x", "/root"),
        ("/tmp/x", "/tmp"),
        ("/var/tmp/a/b", "/var/tmp"),
    ],
)
def test_what_systemd_hides_is_not_reached(path: str, folder: str) -> None:
    why = why_unreachable(Path(path))
    assert why.startswith(f"{path} lies in {folder}: ")
    assert why.endswith("hides it from the service")


def test_a_name_that_only_begins_like_a_hidden_one_is_not_hidden(root: Path) -> None:
    assert why_unreachable(program(root / "homes" / "x")) == ""


def test_a_link_into_a_hidden_folder_at_the_end(root: Path) -> None:
    program(root / "home" / "python3")
    (root / "link").symlink_to("home/python3")
    why = why_unreachable(root / "link")
    assert why == (
        f"{root}/link (through a symlink) lies in {root}/home: "
        "ProtectHome= hides it from the service"
    )


def test_a_link_in_the_middle_is_followed_with_what_comes_after_it(root: Path) -> None:
    program(root / "real" / "bin" / "python3").chmod(0o700)
    (root / "venv").symlink_to(root / "real")
    why = why_unreachable(root / "venv" / "bin" / "python3")
    assert why == (
        f"{root}/real/bin/python3 (through {root}/venv/bin/python3) "
        "may not be read by others (mode 700)"
    )


def test_links_upwards_are_followed_as_the_kernel_does(root: Path) -> None:
    program(root / "b" / "x")
    (root / "a").mkdir()
    (root / "a" / "up").symlink_to("../b/../b")
    assert why_unreachable(root / "a" / "up" / "x") == ""


def test_links_in_a_circle(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert why_unreachable(root / "a") == f"{root}/a: too many symlinks"


def test_a_folder_that_others_may_not_enter(root: Path) -> None:
    program(root / "shut" / "x")
    (root / "shut").chmod(0o750)
    assert why_unreachable(root / "shut" / "x") == (
        f"{root}/shut may not be entered by others (mode 750)"
    )


def test_a_folder_of_a_model_has_to_be_listable(root: Path) -> None:
    (root / "model").mkdir()
    assert why_unreachable(root / "model") == ""
    (root / "model").chmod(0o711)
    assert "may not be listed by others" in why_unreachable(root / "model")


@pytest.mark.parametrize(
    ("mode", "viewer", "reached"),
    [
        (0o640, Viewer(), False),
        (0o640, Viewer(uid=os.getuid() + 1, gids=frozenset({os.getgid()})), True),
        (0o604, Viewer(uid=os.getuid() + 1, gids=frozenset({os.getgid()})), False),
        (0o640, Viewer(uid=os.getuid() + 1), False),
        (0o604, Viewer(uid=os.getuid() + 1), True),
        (0o000, Viewer(uid=os.getuid()), False),
        (0o400, Viewer(uid=os.getuid()), True),
    ],
)
def test_modes_count_as_for_the_user_of_the_service(
    root: Path,
    mode: int,
    viewer: Viewer,
    reached: bool,  # noqa: FBT001 - a case
) -> None:
    path = program(root / "x", mode=mode)
    assert (why_unreachable(path, viewer) == "") is reached


def test_to_run_is_more_than_to_read(root: Path) -> None:
    path = program(root / "x", mode=0o644)
    assert why_unreachable(path) == ""
    assert why_unreachable(path, need=Need.RUN) == f"{path} may not be run by others (mode 644)"


def test_to_start_in_a_folder_it_need_not_be_listed(root: Path) -> None:
    folder = root / "closed"
    folder.mkdir(mode=0o711)
    assert why_unreachable(folder) == f"{folder} may not be listed by others (mode 711)"
    assert why_unreachable(folder, need=Need.ENTER) == ""
    folder.chmod(0o766)
    said = f"{folder} may not be entered by others (mode 766)"
    assert why_unreachable(folder, need=Need.ENTER) == said
    file = program(root / "file", mode=0o644)
    assert why_unreachable(file / "x", need=Need.ENTER) == f"{file}/x: Not a directory"


def test_to_drive_a_device_is_to_read_and_write_it(root: Path) -> None:
    path = program(root / "nvidia0", mode=0o666)
    assert why_unreachable(path, need=Need.DRIVE) == ""
    path.chmod(0o644)
    assert (
        why_unreachable(path, need=Need.DRIVE) == f"{path} may not be written by others (mode 644)"
    )
    path.chmod(0o660)
    assert why_unreachable(path, need=Need.DRIVE) == f"{path} may not be read by others (mode 660)"


# ------------------------------------------------------------------ programs


def test_a_script_is_run_by_its_interpreter_and_that_may_be_hidden(root: Path) -> None:
    program(root / "home" / "python3.11")
    (root / "venv" / "bin").mkdir(parents=True)
    python = root / "venv" / "bin" / "python3"
    python.symlink_to(root / "home" / "python3.11")
    vllm = program(root / "venv" / "bin" / "vllm", f"#!{python}")
    assert why_unreachable(vllm, need=Need.RUN) == ""
    assert why_unrunnable(vllm) == (
        f"{vllm} is run by {python}, and {python} (through a symlink) lies in {root}/home: "
        "ProtectHome= hides it from the service"
    )


def test_a_program_that_runs(root: Path) -> None:
    assert why_unrunnable(program(root / "x")) == ""
    assert why_unrunnable(program(root / "y", "\x7fELF")) == ""
    assert (
        why_unrunnable(root / "home" / "..")
        == f"{root}/home/.. lies in {root}/home: ProtectHome= hides it from the service"
    )
    assert "is not a file" in why_unrunnable(root)


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        ("#!/usr/bin/python3", "/usr/bin/python3"),
        ("#! /usr/bin/env python3", "/usr/bin/env"),
        ("#!", None),
        ("#!python3", None),
        ("import os", None),
        ("", None),
    ],
)
def test_the_interpreter_of_a_first_line(root: Path, first: str, interpreter: str | None) -> None:
    found = shebang(program(root / "x", first))
    assert found == (Path(interpreter) if interpreter else None)


def test_the_interpreter_of_what_cannot_be_read(root: Path) -> None:
    assert shebang(root) is None
    assert shebang(root / "nope") is None


def test_an_access_control_list_says_what_the_mode_does_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(root / "opt" / "x", mode=0o640)
    assert "may not be" in why_unreachable(path)
    lists = {path: b"\2\0\0\0"}

    def getxattr(step: Path, name: str) -> bytes:
        assert name == "system.posix_acl_access"
        if step not in lists:
            raise OSError(61, "No data available")
        return lists[step]

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert why_unreachable(path) == ""


# ---------------------------------------------------------------- who but root may change it


@pytest.fixture
def owned(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with the user of the tests in the place of root."""
    monkeypatch.setattr(reach, "ROOTS", {0, os.geteuid()})
    return root


def test_what_root_alone_may_change(owned: Path) -> None:
    assert why_not_roots(program(owned / "opt" / "x")) == ""
    assert why_not_roots(Path("/usr/bin/env")) == ""
    assert why_not_roots(owned / "nope") == ""


def test_a_program_of_another_user(owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(owned / "opt" / "x")
    monkeypatch.setattr(reach, "ROOTS", {os.geteuid() + 1, 0} - {os.geteuid()})
    assert f"belongs to user {os.geteuid()}" in why_not_roots(path)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o777, "may be written by anybody"),
        (0o1777, ""),
        (0o755, ""),
    ],
)
def test_a_folder_on_the_way_that_others_may_write(owned: Path, mode: int, why: str) -> None:
    path = program(owned / "opt" / "x")
    path.parent.chmod(mode)
    assert why_not_roots(path).removeprefix(f"{path.parent} ") == why


def test_a_program_that_others_may_write_is_found_through_a_link(owned: Path) -> None:
    path = program(owned / "opt" / "x", mode=0o757)
    link = owned / "link"
    link.symlink_to(path)
    assert "opt/x (through" in why_not_roots(link)


def test_a_mask_that_lets_somebody_write(owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(owned / "opt" / "x", mode=0o775)
    monkeypatch.setattr(reach, "_has_list", lambda step: step == path)
    assert why_not_roots(path) == f"{path} may be written by those in its access control list"
    path.chmod(0o755)
    assert why_not_roots(path) == ""


@pytest.mark.parametrize(("group", "why"), [(0, ""), (7, "may be written by group 7")])
def test_what_a_group_may_write(
    owned: Path, monkeypatch: pytest.MonkeyPatch, group: int, why: str
) -> None:
    path = program(owned / "opt" / "x", mode=0o775)
    whole = Path.lstat

    def lstat(step: Path) -> os.stat_result:
        found = whole(step)
        return os.stat_result((*found[:5], group if step == path else 0, *found[6:10]))

    monkeypatch.setattr(Path, "lstat", lstat)
    assert why_not_roots(path).removeprefix(f"{path} ") == why


# ---------------------------------------------------------------- what is shut to who asks


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_where_this_process_gets_no_further_nothing_is_said_of_the_service(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    vllm = program(root / "srv" / "x")
    lstat = Path.lstat

    def shut(self: Path) -> os.stat_result:
        if self == vllm:
            raise OSError(number, os.strerror(number), str(self))
        return lstat(self)

    assert (why_unseen(vllm), why_unread(vllm)) == ("", "")
    monkeypatch.setattr(Path, "lstat", shut)
    monkeypatch.setattr("kimisvc.host.reach.ROOTS", frozenset({0, os.getuid()}))
    assert (why_unreachable(vllm), why_unrunnable(vllm), why_not_roots(vllm)) == ("", "", "")
    said = f"{vllm}: {os.strerror(number)} (to who asks; root may see more)"
    assert why_unseen(vllm) == why_unread(vllm) == said


def test_what_is_not_there_or_goes_round_is_seen_to_be_so(root: Path) -> None:
    (root / "a").symlink_to(root / "a")
    for path in (root / "none" / "x", program(root / "x") / "y", root / "a"):
        assert (why_unseen(path), why_unread(path)) == ("", "")
        assert why_unreachable(path) != ""


def test_a_file_may_be_seen_and_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(root / "x")
    access = {True: "", False: f"{path}: Permission denied (to who asks; root may see more)"}
    for may, said in access.items():
        monkeypatch.setattr(os, "access", lambda *_, may=may, **__: may)
        assert (why_unseen(path), why_unread(path)) == ("", said)


def test_presence_is_known_of_what_may_be_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(root / "x")
    assert presence(path) is Presence.THERE
    assert presence(path / "y") is presence(root / "y") is Presence.GONE

    def shut(_: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "stat", shut)
    assert presence(path) is Presence.UNKNOWN
