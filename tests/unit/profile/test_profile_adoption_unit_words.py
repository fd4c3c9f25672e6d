"""Values of a unit are read as systemd reads them: what kimisvc writes comes back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.adoption.unit_file import specifier_values
from kimisvc.profile.adoption.unit_words import (
    Assignments,
    assignments,
    command_words,
    expand,
    specifiers,
    words,
)
from kimisvc.render.quoting import (
    environment_assignment,
    exec_argument,
    exec_program,
)

KNOWN = specifier_values("vllm@big.service")
PLAIN = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\u2028\u2029")
    | st.just("\t"),
    max_size=30,
)
AWKWARD = st.text("ab \"'\\$%{}=;#n", max_size=30)
VALUES = st.one_of(PLAIN.filter(lambda text: "\t" not in text), AWKWARD)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)


@given(NAMES, VALUES)
def test_a_variable_that_kimisvc_writes_comes_back(name: str, value: str) -> None:
    assert assignments(environment_assignment(name, value), KNOWN) == Assignments({name: value}, [])


@given(st.lists(VALUES, max_size=5))
def test_a_command_that_kimisvc_writes_comes_back(arguments: list[str]) -> None:
    line = " ".join([exec_program("/opt/v/vllm"), *map(exec_argument, arguments)])
    prefixes, found = command_words(line, KNOWN)
    assert prefixes == ""
    assert expand(found[1:], {"a": "x y"}, lambda _: None) == arguments


@pytest.mark.parametrize(
    # seen on systemd 252 as PID 1
    ("value", "found", "ignored"),
    [
        ("A=p@ss$word", {"A": "p@ss$word"}, []),
        ('"B=p@ss$$word"', {"B": "p@ss$$word"}, []),
        ('"C=100%% done"', {"C": "100% done"}, []),
        ('"C=100% done"', {"C": "100% done"}, []),
        ("E=two words", {"E": "two"}, ["words"]),
        ('"D=has space"', {"D": "has space"}, []),
        (r'"D=a\\b\"c\n\td"', {"D": 'a\\b"c\n\td'}, []),
        ('F=a"b"c', {"F": "abc"}, []),
        (r'"H={\"model\":\"x y\"}"', {"H": '{"model":"x y"}'}, []),
        ("G=1 # 16 MiB", {"G": "1"}, ["#", "16", "MiB"]),
        ("NCCL-ALGO=Ring X=1", {"X": "1"}, ["NCCL-ALGO=Ring"]),
        ("I=%i-%h", {"I": "big-/root"}, []),
        (r"J=\x41\101\u00e4\s", {"J": "AAä "}, []),
    ],
)
def test_environment(value: str, found: dict[str, str], ignored: list[str]) -> None:
    assert assignments(value, KNOWN) == Assignments(found, ignored)


@pytest.mark.parametrize(
    # seen on systemd 252 as PID 1
    ("value", "found", "words"),
    [
        ('A=1 "B=C%D" C=2', {"A": "1", "C": "2"}, "%D"),
        ("B=%H", {}, "%H"),
        ('A=1 "B=open', {"A": "1"}, "not closed"),
        ("A=1 B=2\\", {"A": "1"}, "a backslash ends it"),
        (r"A=1 B=\d C=2", {"A": "1"}, r"\d is no escape"),
    ],
)
def test_what_systemd_ignores_of_an_environment_or_fills_in_is_told(
    value: str, found: dict[str, str], words: str
) -> None:
    read = assignments(value, KNOWN)
    assert read.found == found
    assert words in read.problem


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("$D", ["a", "b c"]),
        ("${D}", ["a 'b c'"]),
        ("$X x${X}y ${X}", ["xy", ""]),
        ("$$D a$D $$", ["$D", "a$D", "$"]),
        ("${D$$ $$", ["${D$$", "$"]),
        ("${D:-x}$$", ["${D:-x}$"]),
        ("${no name}x", ["${no", "name}x"]),
        ("$L", ["x", "y z"]),
        ("a $D$ $ $-x b", ["a", "b"]),
        ("'{\"a\": 1}'", ['{"a": 1}']),
        (r"a\ b \d", [r"a\ b", r"\d"]),
    ],
)
def test_variables_in_a_command(line: str, found: list[str]) -> None:
    asked: list[str] = []
    _, (_, *rest) = command_words(f"/bin/x {line}", KNOWN)
    assert expand(rest, {"D": "a 'b c'", "L": "\\x 'y z"}, asked.append) == found
    assert {"D", "X"} & set(asked) == set(re.findall(r"(?<![$a])\$\{?([DX])(?![$:])", line))


def test_prefixes_and_a_name_to_be_shown_under() -> None:
    assert command_words("-@/opt/vllm vllm-main serve", KNOWN) == ("-@", ["/opt/vllm", "serve"])
    with pytest.raises(ValueError, match="names no program"):
        command_words("-", KNOWN)


def test_specifiers_that_depend_on_the_host_are_not_guessed() -> None:
    assert specifiers("%n %N %p %i %S%%", KNOWN) == "vllm@big.service vllm@big vllm big /var/lib%"
    for letter in "HmbvD":
        with pytest.raises(ValueError, match=f"%{letter}"):
            specifiers(f"%{letter}", KNOWN)


@given(st.text("ab\"'\\ \tx0n%$", max_size=30))
def test_any_value_is_read_or_refused(value: str) -> None:
    try:
        list(words(value))
    except ValueError as error:
        assert "not closed" in str(error)  # noqa: PT017 - any other is a defect
