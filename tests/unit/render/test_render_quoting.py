"""Every value that a profile may hold reaches vLLM as it was written."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from systemd_reading import (
    UnreadableError,
    assignments,
    command,
    environment,
    environment_file,
    specifiers,
    words,
)

from kimisvc.errors import KimisvcError
from kimisvc.render.quoting import (
    environment_assignment,
    environment_file_line,
    exec_argument,
    exec_program,
    list_word,
    path_value,
    unit_text,
)

PRINTABLE = st.text(
    st.one_of(
        st.characters(exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="\u2028\u2029"),
        st.sampled_from("\t%$\\\"'` ;#{}=@-:+!|hHn"),
    )
)
UNPRINTABLE = [
    *map(chr, [*range(9), *range(10, 0x20), *range(0x7F, 0xA0)]),
    "\u2028",
    "\u2029",
    "\ud800",
    "\ufdd0",
    "\uffff",
    "\U0010fffe",
]
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


# ------------------------------------------------------------------ round trips


@given(NAMES, PRINTABLE)
def test_a_variable_survives_environment(name: str, value: str) -> None:
    text = f"[Service]\nEnvironment={environment_assignment(name, value)}\nRestart=always\n"
    (_, _, written), (_, key, _) = assignments(text)
    assert environment(written) == {name: value}
    assert key == "Restart"


@given(st.lists(PRINTABLE))
def test_arguments_survive_exec_start(tokens: list[str]) -> None:
    written = " ".join(["/bin/vllm", *map(exec_argument, tokens)])
    text = f"[Service]\nExecStart={written}\nRestart=always\n"
    (_, _, value), (_, key, _) = assignments(text)
    assert command(value) == ["/bin/vllm", *tokens]
    assert key == "Restart"


@given(st.lists(PRINTABLE))
def test_arguments_survive_exec_start_over_several_lines(tokens: list[str]) -> None:
    written = " \\\n    ".join(["/bin/vllm", *map(exec_argument, tokens)])
    (_, _, value), (_, key, _) = assignments(f"[Service]\nExecStart={written}\nRestart=always\n")
    assert command(value) == ["/bin/vllm", *tokens]
    assert key == "Restart"


@given(st.lists(PRINTABLE))
def test_items_survive_a_list_of_paths(items: list[str]) -> None:
    assert [specifiers(word) for word in words(" ".join(map(list_word, items)))] == items


@given(NAMES, PRINTABLE)
def test_a_variable_survives_an_environment_file(name: str, value: str) -> None:
    assert environment_file(environment_file_line(name, value)) == (name, value)


@given(PRINTABLE.map(lambda s: "/" + s.replace("/", "")))
def test_a_program_survives_or_is_refused(path: str) -> None:
    if path == "/" or set(path) & set("\"'\\$"):
        with pytest.raises(KimisvcError):
            exec_program(path)
    else:
        assert command(exec_program(path)) == [path]


@given(PRINTABLE.map(lambda s: "/" + s))
def test_a_path_survives_or_is_refused(path: str) -> None:
    if path.endswith("\\") or path != path.strip():
        with pytest.raises(KimisvcError):
            path_value(path)
    else:
        (_, _, value), _ = assignments(f"[S]\nWorkingDirectory={path_value(path)}\nRestart=no\n")
        assert specifiers(value) == path


@pytest.mark.parametrize(
    "value", ["s7@o8\\p=@us$0!", "`id`", "$HOME", 'say "hi" \\', "it's", "é\u3042"]
)
def test_a_line_of_an_environment_file_means_the_same_to_a_shell(value: str) -> None:
    script = f'{environment_file_line("KEY", value)}\nprintf %s "$KEY"'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == value


# ------------------------------------------------------- cases from public reports


def test_case_12_percent_is_not_a_specifier() -> None:
    written = environment_assignment("MSG", "job 50% done on host %H")
    assert written == '"MSG=job 50%% done on host %%H"'


def test_case_13_percent_is_doubled_in_commands_but_not_in_environment_files() -> None:
    assert exec_argument("(uid=%s)") == '"(uid=%%s)"'
    assert exec_argument("EPS%3AHello") == "EPS%%3AHello"
    assert environment_assignment("F", "(uid=%s)") == '"F=(uid=%%s)"'
    assert environment_file_line("F", "(uid=%s)") == 'F="(uid=%s)"'


def test_case_14_dollar_is_literal_in_environment_and_doubled_in_commands() -> None:
    assert environment_assignment("B", "p@ss$word") == '"B=p@ss$word"'
    assert exec_argument("p@ss$word") == "p@ss$$word"
    assert environment_file_line("B", "p@ss$word") == 'B="p@ss\\$word"'


def test_case_17_a_value_with_blanks_keeps_its_words() -> None:
    assert environment_assignment("E", "two words") == '"E=two words"'
    assert exec_argument("two words") == '"two words"'


def test_case_18_a_line_break_cannot_begin_a_directive() -> None:
    with pytest.raises(KimisvcError, match=r"U\+000A"):
        environment_assignment("X", "a\nExecStartPre=/bin/touch /tmp/pwned")


# -------------------------------------------------------------------- literal texts


@pytest.mark.parametrize(
    ("token", "written"),
    [
        ("--max-model-len", "--max-model-len"),
        ("127.0.0.1", "127.0.0.1"),
        ("moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.5"),
        ("", '""'),
        (";", '";"'),
        ("#4", '"#4"'),
        ("$", "$$"),
        ("${HOME}", '"$${HOME}"'),
        ("a\\b", '"a\\\\b"'),
        ("it's", '"it\'s"'),
        ('{"method":"eagle3","n":3}', '\'{"method":"eagle3","n":3}\''),
        ('{"re":"\\\\d"}', '\'{"re":"\\\\\\\\d"}\''),
        ('{"a":"it\'s"}', '"{\\"a\\":\\"it\'s\\"}"'),
        ("Modell für あ", '"Modell für あ"'),
    ],
)
def test_an_argument_is_quoted_only_where_it_has_to_be(token: str, written: str) -> None:
    assert exec_argument(token) == written


@pytest.mark.parametrize(
    "path",
    ["vllm", "-/bin/vllm", "@/bin/vllm", "+/bin/vllm", "!/bin/vllm", ":/bin/vllm", "", "/bin/"],
)
def test_a_program_with_a_prefix_or_without_a_full_path_is_refused(path: str) -> None:
    with pytest.raises(KimisvcError, match="absolute path"):
        exec_program(path)


@pytest.mark.parametrize(
    "path", ["-/etc/secrets", "~", "/etc/secrets ", " /etc", "/x\\", "", "etc"]
)
def test_a_path_that_systemd_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(KimisvcError, match="cannot stand in a unit"):
        path_value(path)


@pytest.mark.parametrize("character", UNPRINTABLE, ids=lambda c: f"U+{ord(c):04X}")
def test_no_quoting_lets_a_control_character_through(character: str) -> None:
    text = f"/a{character}b"
    for write in (unit_text, exec_argument, exec_program, list_word, path_value):
        with pytest.raises(KimisvcError, match="control character"):
            write(text)
    for pair in (environment_assignment, environment_file_line):
        with pytest.raises(KimisvcError, match="control character"):
            pair("NAME", text)


@pytest.mark.parametrize("name", ["", "NCCL-ALGO", "1ST", "A B", "A\nB", "A=B", "É"])
def test_no_quoting_lets_a_bad_name_through(name: str) -> None:
    for write in (environment_assignment, environment_file_line):
        with pytest.raises(KimisvcError, match="not the name"):
            write(name, "value")


# ------------------------------------------------------------- the model can say no


@pytest.mark.parametrize("value", ["B=C%D", "E=two words", "NCCL-ALGO=Ring", '"open=1', "A=\\q"])
def test_the_reading_refuses_what_systemd_was_seen_to_drop(value: str) -> None:
    with pytest.raises(UnreadableError):
        environment(value)


def test_the_reading_expands_and_splits_as_systemd_does() -> None:
    assert command("/bin/x $UNSET a${UNSET}b $$HOME $") == ["/bin/x", "ab", "$HOME", "$"]
    assert environment('A="b c"d') == {"A": "b cd"}


def test_shell_quoting_would_not_do() -> None:
    """RamaLama writes ExecStart= with shlex.join: a percent sign or a dollar does not survive."""
    with pytest.raises(UnreadableError):
        command(shlex.join(["/bin/x", "EPS%Hello"]))
    assert command(shlex.join(["/bin/x", "${HOME}"])) == ["/bin/x", ""]
