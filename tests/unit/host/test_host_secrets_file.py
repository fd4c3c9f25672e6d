"""The secrets file is read as systemd reads it, and whoever else could touch it is named."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.environment_file import Assignment, Oddity, read
from kimisvc.host.secrets_file import LARGEST, contents, everything, parse, variables, why_open
from kimisvc.render.quoting import environment_file_line

if TYPE_CHECKING:
    from pathlib import Path

ME = os.geteuid()


def values(text: str) -> dict[str, str]:
    return dict(variables(parse(text.encode())))


# ---------------------------------------------------------------------- the reading


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB=2", {"A": "1", "B": "2"}),
        ("  A  =  1 \t \n", {"A": "1"}),
        ("# A=1\n;B=2\nC=#3;x\n", {"C": "#3;x"}),
        ("A='a b'\nB=\"c d\"\n", {"A": "a b", "B": "c d"}),
        (r'A="\"\\\`\$\n"', {"A": '"\\`$\\n'}),
        (r"A='\"\\\$\n'", {"A": r"\"\\\$\n"}),
        (r"A=s7@o8\p=@us$0!", {"A": "s7@o8p=@us$0!"}),
        ('A=a"b"c', {"A": 'a"b"c'}),
        ("A='a'\"b\" c", {"A": "abc"}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("A=1\r\nB='2'\r\n", {"A": "1", "B": "2"}),
        ("A=a\\\nB=2\n", {"A": "aB=2"}),
        ("A='a\nb'\n", {"A": "a\nb"}),
        ('A="a\nB=2\nC=3', {"A": "a\nB=2\nC=3"}),
        ("export A=1\nB\n9=1\nA-B=1\n\ufeffC=1\nÉ=1\n", {}),
        ("A=%h $HOME ${B}", {"A": "%h $HOME ${B}"}),
        ("# a comment \\\nA=1\nB=2", {"A": "1", "B": "2"}),
        ("A=\nB=''\n", {"A": "", "B": ""}),
        ("", {}),
    ],
)
def test_it_reads_what_systemd_reads(text: str, found: dict[str, str]) -> None:
    assert values(text) == found


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("A=1", set()), ("A='$X'", set()), (r'A="\$\\"', set()), ("A=a#b", set()),
        ("A=\\a", {Oddity.LOST_BACKSLASH}), ("A=a\\\n", {Oddity.JOINED_LINES}),
        ("A='a", {Oddity.OPEN_QUOTE}), ('A="a\nb"', {Oddity.LINE_IN_QUOTES}),
        ('A="a\\\nb"', {Oddity.JOINED_LINES}), ('A="a" # c', {Oddity.BEHIND_QUOTE}),
        ('A="\\d"', {Oddity.KEPT_BACKSLASH}), ("A=a # b", {Oddity.UNQUOTED_HASH}),
        ("A=$X", {Oddity.EXPANSION}), ('A="`id`"', {Oddity.EXPANSION}), ("A", {Oddity.NO_SIGN}),
    ],
)  # fmt: skip
def test_what_means_something_else_than_it_seems_is_noted(text: str, odd: set[Oddity]) -> None:
    (one,) = read(text)
    assert one.oddities - {Oddity.UNQUOTED_HASH if Oddity.BEHIND_QUOTE in odd else None} == odd


def test_lines_are_counted_where_an_assignment_begins() -> None:
    found = read("# 1\nA=1\n\nB='x\ny'\nC=3\n")
    assert [(one.name, one.line) for one in found] == [("A", 2), ("B", 4), ("C", 6)]


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp"])),
    )
)
def test_what_our_writer_writes_comes_back(variables: dict[str, str]) -> None:
    text = "\n".join(environment_file_line(name, value) for name, value in variables.items())
    assert values(text) == variables
    assert all(one.oddities == frozenset() for one in read(text))


@given(st.text(st.sampled_from("AB=\\\"'#;$ \t\r\n`é\ufeff")) | st.text())
def test_whatever_it_holds_is_read(text: str) -> None:
    for one in read(text):
        assert 1 <= one.line <= text.count("\n") + 1


def test_no_value_is_part_of_what_a_debugger_shows() -> None:
    found = parse(b"A_TOKEN=planted\n")
    assert "planted" not in repr(found)
    assert "planted" not in repr(Assignment("A", 1, "planted"))


def test_what_systemd_drops_counts_as_a_secret_all_the_same() -> None:
    found = everything(parse(b"export A=one\n9B=two\nhf_three\nC=four\nC=five\n"))
    assert found == {
        "A": "one",
        "line 2": "two",
        "line 3": "hf_three",
        "C": "four",
        "C, line 5": "five",
    }


def test_what_either_systemd_reads_behind_a_comment_that_goes_on_is_a_secret() -> None:
    """252 takes line 2 for a comment, and B in line 3 for a variable; 254 reads one value."""
    found = everything(parse(b"# here: \\\nA='one\nB=two\n'"))
    assert found["A"] == "one\nB=two\n"
    assert found["B"] == "two"


def test_what_is_no_text_is_named_with_its_line() -> None:
    found = parse(b"A=1\nB=\xff\n")
    assert (found.line, found.assignments) == (2, ())
    assert "UTF-8" in found.trouble
    assert parse("A=1\n\nB=\uffff\n".encode()).line == 3


# ---------------------------------------------------------------------- who may touch it


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file in a way of its own, below folders that only its owner may write."""
    folder = tmp_path / "etc" / "kimisvc"
    folder.mkdir(parents=True)
    for step in (folder, folder.parent, tmp_path):
        step.chmod(0o755)
    path = folder / "secrets"
    path.write_text("A=1\n")
    path.chmod(0o600)
    return path


def why(path: Path) -> str:
    """What is said of the way below tmp_path: the folders above it are pytest's."""
    return "\n".join(
        line for line in why_open(path, ME) if not line.startswith(("/tmp ", "/var/tmp "))
    )


def test_a_file_for_its_owner_alone_is_fine(file: Path) -> None:
    assert why(file) == ""
    file.chmod(0o400)
    assert why(file) == ""


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777])
def test_a_file_for_others_is_not(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert f"{file} may be read or written by others (mode {mode:04o}); chmod 600 it" in why(file)


@pytest.mark.parametrize("mode", [0o757, 0o1777])
def test_a_folder_above_that_others_may_write_is_named(file: Path, mode: int) -> None:
    file.parent.parent.chmod(mode)
    told = why(file)
    assert f"{file.parent.parent} may be written by others (mode {mode:04o})" in told
    assert f"{file} may" not in told


def test_a_link_is_followed_and_its_way_is_looked_at(file: Path, tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(file)
    assert why(link) == ""
    (open_folder / "on").symlink_to(file)
    link.unlink()
    link.symlink_to("open/on")
    assert f"{open_folder} may be written by others" in why(link)


def test_what_is_missing_a_circle_or_no_file_is_named(file: Path, tmp_path: Path) -> None:
    assert "No such file" in why(tmp_path / "none")
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    assert "symbolic links" in why(circle)
    assert "a folder" in why(file.parent)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert "a pipe" in why(pipe)
    assert contents(pipe).trouble  # and did not wait for a writer
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "socket"))
    assert "a socket" in why(tmp_path / "socket")
    assert contents(tmp_path / "none").trouble == "No such file or directory"


def test_a_large_file_is_none_of_keys(file: Path) -> None:
    file.write_text("#" * (LARGEST + 1))
    assert str(LARGEST + 1) in why(file)
    assert contents(file).trouble


@pytest.mark.skipif(ME != 0, reason="only root gives files away")
def test_another_owner_of_the_file_or_a_folder_is_named(file: Path) -> None:
    os.chown(file, 12345, 0)
    os.chown(file.parent, 12345, 0)
    told = why(file)
    assert f"{file} belongs to user 12345" in told
    assert f"{file.parent} belongs to user 12345, who could put another file there" in told
