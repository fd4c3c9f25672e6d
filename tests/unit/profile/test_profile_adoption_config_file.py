"""A --config file is read as vLLM reads it, or refused with its line."""

from __future__ import annotations

import pytest

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption.config_file import config_words


def taken(text: str) -> tuple[list[str], list[str]]:
    dropped: list[str] = []
    return config_words(text, "c.yaml", lambda what, _: dropped.append(what)), dropped


@pytest.mark.parametrize(
    # run through vLLM's own reader, 0.15.1 and 0.33.0
    ("text", "words"),
    [
        ("model: org/m", ["--model", "org/m"]),
        ("trust-remote-code: true\nx: Yes", ["--trust-remote-code", "--x"]),
        ("port: 0123", ["--port", "83"]),
        ("a: 0.9\nb: '0123'\nc: \"x y\"", ["--a", "0.9", "--b", "0123", "--c", "x y"]),
        ("a:\n  - x\n  - 1\nb: 2", ["--a", "x", "1", "--b", "2"]),
        ("a: [x, 'y']", ["--a", "x", "y"]),
        ("a: 'it''s'", ["--a", "it's"]),
        ("# c\n---\na: b # c\n\nd: 'e # f' # g", ["--a", "b", "--d", "e # f"]),
        ("a: http://x:1/y", ["--a", "http://x:1/y"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert taken(text) == (words, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("enable-prefix-caching: false", ["--no-enable-prefix-caching"]),
        ("enable_prefix_caching: false", []),
        ("revision: null", []),
        ("revision: ~", []),
        ("revision:", []),
    ],
)
def test_what_vllm_takes_otherwise_than_it_looks_is_told(text: str, words: list[str]) -> None:
    found, dropped = taken(text)
    assert found == words
    assert dropped == [f"c.yaml:1: {text.partition(':')[0]}"]


@pytest.mark.parametrize(
    "line",
    ["  nested: 1", "a: {b: c}", "a: &x 1", "a: |", "a: 0x1F", "a: 1:30", "a: 1_000", 'a: "\\n"',
     "just words", "- item", "a: b: c", "a: [[1]]"],
)  # fmt: skip
def test_more_than_keys_and_values_is_refused(line: str) -> None:
    with pytest.raises(KimisvcError, match=r"c\.yaml:2 ") as caught:
        taken(f"ok: 1\n{line}")
    assert caught.value.code == "config-file"
