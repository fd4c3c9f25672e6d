"""Each thing that is wrong in a secrets file is named with file, line and rule, never with its value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.deploy.checks.secrets import content_problems, secrets_problems
from kimisvc.host import secrets_file
from kimisvc.host.secrets_file import Contents, parse
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings

if TYPE_CHECKING:
    from pathlib import Path

FILE = "/etc/kimisvc/secrets"
PROFILE = Profile(
    "p", VllmSettings("/opt/vllm/bin/vllm", "m"), service=ServiceSettings(secrets_file=FILE),
    env={"HF_HOME": "/srv/hf", "MY_SETTING": "1"},
)  # fmt: skip
PLANTED = "q8Zr-planted-5f2cT1"


def problems(text: str | bytes) -> list[Problem]:
    return content_problems(PROFILE, parse(text.encode() if isinstance(text, str) else text))


def told(text: str | bytes) -> list[tuple[int, str, str]]:
    return [(p.line, p.severity.value, p.message) for p in problems(text)]


@pytest.mark.parametrize(
    "text",
    [
        f"VLLM_API_KEY={PLANTED}\n",
        f"# the keys\nVLLM_API_KEY=\"{PLANTED}\"\nHF_TOKEN='{PLANTED}'\n",
        "HTTPS_PROXY=http://user:pass@proxy:3128\n",
        r'PASSWORD="a \"b\" \\ \$c"' + "\n",
    ],
)
def test_a_sound_file_has_no_problem(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "line", "severity", "words"),
    [
        ("#\nexport HF_TOKEN=X\n", 2, "error", "write HF_TOKEN=... alone"),
        ("HF_TOKEN X\n", 1, "error", "a line without ="),
        ("HF-TOKEN=X\n", 1, "error", "not the name of a variable"),
        ("\ufeffHF_TOKEN=X\n", 1, "error", "byte order mark"),
        ("HF_TOKEN='X\nA=1\n", 1, "error", "HF_TOKEN opens a quote that is never closed"),
        ("HF_TOKEN=X\\Y\n", 1, "error", "HF_TOKEN has a backslash outside of quotes"),
        ("HF_TOKEN=X\\\nA=1\n", 1, "error", "the next line is part of the value"),
        ("HF_TOKEN='X\nY'\n", 1, "error", "a line break within its quotes"),
        ('HF_TOKEN="X" # mine\n', 1, "error", "goes on behind its closing quote"),
        ("HF_TOKEN=X # mine\n", 1, "error", "has a # behind a blank"),
        ("HF_TOKEN=$X\n", 1, "warning", "systemd expands neither"),
        ('HF_TOKEN="X\\n"\n', 1, "warning", "escapes nothing"),
        ("A=1\nHF_TOKEN=X\nHF_TOKEN=Y\n", 3, "error", "set to something else in line 2"),
        ("HF_TOKEN=X\nHF_TOKEN=X\n", 2, "warning", "is set in line 1 already"),
        ("HF_TOKEN=X\x1b[0m\n", 1, "error", "control character in its value (U+001B)"),
        ("HF_TOKEN=X\0\n", 1, "error", "U+0000"),
        ("VLLM_API_KEY=\n", 1, "error", "is empty, vLLM then asks nobody for a key"),
        ("OTHER=\n", 1, "warning", "is empty"),
        ("HF_TOKEN='X '\n", 1, "error", "a blank at an end"),
        ("VLLM_API_KEY=Xé\n", 1, "error", "no HTTP header can carry"),
        ("HF_TOKEN=\u201cX\u201d\n", 1, "warning", "typographic quotes"),
        ("HF_TOKEN=changeme\n", 1, "warning", "placeholder"),
        ("HF_TOKEN=hf_xxxxxxxxxxxx\n", 1, "warning", "placeholder"),
        ("VLLM_API_KEY=secret\n", 1, "warning", "placeholder"),
        ("HF_TOKEN=ab\n", 1, "warning", "fewer than 6 characters"),
        ("VLLM_API_KEY='Bearer X'\n", 1, "error", 'begins with "Bearer "'),
        ("MY_SETTING=X\n", 1, "warning", "is set in [env] of the profile too"),
        ("PATH=/bin\n", 1, "warning", "is set by kimisvc"),
        ("NCCL_ALGO=Ring\n", 1, "warning", "no check looks at it here"),
        ("HF_TOKEN=X\r\n", 0, "warning", "as on Windows"),
        ("A=1\n# here: \\\nHF_TOKEN=X\n", 2, "error", "systemd before 254 takes the next line as"),
        ("# nothing\n", 0, "warning", "sets nothing"),
        (b"A=1\nHF_TOKEN=\xff\n", 2, "error", "is not UTF-8"),
        ("q8Zr4planted5f2cT1xQ=\n", 1, "error", "a value without a name"),
        ("hf_q8Zr4planted5f2cT1xQ=\n", 1, "error", "a value without a name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_where(
    text: str | bytes, line: int, severity: str, words: str
) -> None:
    text = text.replace("X", PLANTED) if isinstance(text, str) else text
    found = told(text)
    assert any(at == line and how == severity and words in said for at, how, said in found), found
    assert "planted" not in repr(found)
    assert all(p.file == FILE and p.key == "service.secrets_file" for p in problems(text))


@given(st.text(st.sampled_from("AB_=\\\"'#;$ \t\r\n`é\ufeff<>")), st.sampled_from(["", "export "]))
def test_no_value_is_ever_shown(noise: str, before: str) -> None:
    value = f"{PLANTED}{noise}"
    assert PLANTED not in repr(problems(f"{before}HF_TOKEN={value}\n{before}OTHER='{value}'"))


def test_one_bad_line_hides_no_other() -> None:
    found = told("export A=1\nB\nVLLM_API_KEY=\n")
    assert [line for line, _, _ in found] == [1, 2, 3]


def test_without_a_file_there_is_nothing_to_say() -> None:
    assert secrets_problems(Profile("p", VllmSettings("/v", "m"))) == []


def at(path: Path) -> Profile:
    return Profile("p", VllmSettings("/v", "m"), service=ServiceSettings(secrets_file=str(path)))


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    found = secrets_problems(at(tmp_path / "none"))
    assert [p.message for p in found] == [f"{tmp_path / 'none'}: No such file or directory"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the file has to be root's")
def test_mode_and_content_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text(f"export VLLM_API_KEY={PLANTED}\n")
    path.chmod(0o644)
    messages = "\n".join(p.message for p in secrets_problems(at(path)))
    assert "chmod 600" in messages
    assert "begins with export" in messages
    assert PLANTED not in messages


def test_who_may_not_read_it_is_told_that_root_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    path.write_text("A=1\n")
    monkeypatch.setattr(secrets_file, "why_open", lambda _: ())
    monkeypatch.setattr(secrets_file, "contents", lambda _: Contents(trouble="Permission denied"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (only,) = secrets_problems(at(path))
    assert only.severity is Severity.WARNING
    assert "sudo" in only.message
