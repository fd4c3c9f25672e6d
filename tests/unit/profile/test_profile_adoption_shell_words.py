"""A command line is split as a shell splits it, or refused."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption.shell_words import Reader

if TYPE_CHECKING:
    from pathlib import Path

SET = {"A": "one", "B": "two words", "E": "", "P": "  padded  "}

AS_A_SHELL = [
    "a b  c\t d",
    "'a b' \"c d\" e'f'\"g\"",
    r"a\ b \'c\" \\ d\e",
    r'"a\"b\\c\$d\e" ' + r"'a\nb'",
    "a \\\n  b\\\nc",
    '"a \\\n b"',
    "$A ${A}x x$A'y' \"$B\" $B x${B}y",
    '$E x "$E" \'\' "" x$E',
    '$P x${P}y "$P"',
    "${N:-other} ${A:-other} ${E:-other} ${E-other} ${N-two words} ${N-'q'}",
    '\'{"model": "x y", "n": 3}\'',
    '"{\\"a\\": [1, 2]}"',
    "a # a comment\nb#c",
    "--flag=$A --x='$A'",
    "$ a$ '$'",
    "\"$@\" x $1 '$1'",
    'x"$@"y',
    "a > log 2>&1 b >>more <in c",
    "2 2>x 3",
    "a~/b '~/c'",
    "é 漢 “quotes”",
]


def split(text: str, arguments: tuple[str, ...] = ("first", "second one")) -> list[str]:
    commands = list(Reader(text, SET, arguments).commands())
    return [word for command in commands for word in command.words]


@pytest.mark.parametrize("text", AS_A_SHELL)
def test_words_are_those_a_shell_makes(text: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("")
    # every command of the text is given to `say`, which tells its words apart
    lines = "\n".join(f"say {line}" for line in text.replace("\\\n", "\0").split("\n"))
    script = 'say() { printf "%s\\0" "$@"; }\nexec 3>&1\n' + lines.replace("\0", "\\\n")
    script = script.replace("say a > log", "say a 3> log").replace("say 2 2>x", "say 2 4>x")
    script = script.replace("2>&1", "4>&1").replace(">>more", "5>>more")
    done = subprocess.run(
        ["bash", "-c", script, "bash", "first", "second one"],
        cwd=tmp_path, env=SET | {"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert split(text) == done.stdout.split("\0")[:-1]


@given(st.lists(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]))))
def test_what_python_quotes_for_a_shell_comes_back(words: list[str]) -> None:
    assert split(shlex.join(words)) == words


def test_commands_and_what_ends_them() -> None:
    found = list(Reader("cd /x && source y;  \n# no\n\nvllm serve \\\n m &\na | b", {}).commands())
    assert [(c.words[0], c.end, c.line) for c in found] == [
        ("cd", "&&", 1),
        ("source", ";", 1),
        ("vllm", "&", 4),
        ("a", "|", 6),
        ("b", "", 6),
    ]


def test_a_variable_set_in_between_is_seen() -> None:
    variables: dict[str, str] = {}
    reader = Reader("X=1; echo $X $Y", variables)
    commands = reader.commands()
    assert next(commands).words == ("X=1",)
    variables["X"] = "now"
    assert next(commands).words == ("echo", "now")
    assert reader.unset == {"Y"}
    assert reader.used == {"X", "Y"}


def test_home_is_put_in_for_a_tilde() -> None:
    (command,) = Reader("~/bin/vllm ~", {"HOME": "/home/k"}).commands()
    assert command.words == ("/home/k/bin/vllm", "~")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb $(date)", r"line 2: a command inside of a command"),
        ("a `date`", "a command inside of a command"),
        ('a "`date`"', "a command inside of a command"),
        ("a\n'b", r"line 2: a quote \('\)"),
        ('a "b', r'line 1: a quote \("\)'),
        ("a ${B%x}", "only \\$\\{NAME\\}"),
        ("a ${N:-$B}", "a variable or quoted"),
        ("a ${N:-'b c'}", "a variable or quoted"),
        ("a <<EOF\nx\nEOF", "here-document"),
        ("(a)", "more than a list of commands"),
        ("a $?", "known only to a shell"),
    ],
)
def test_what_only_a_shell_could_tell_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(KimisvcError, match=words) as caught:
        split(text)
    assert caught.value.code == "not-simple"
    assert caught.value.hint


@given(st.text("ab$\"'\\ \n{}()<>&|;#~`=-:@1", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        split(text)
    except KimisvcError as error:
        assert error.message.startswith("line ")  # noqa: PT017 - any other is a defect
