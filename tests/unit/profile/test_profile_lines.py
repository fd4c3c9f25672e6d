"""The line of every key of a document whose tables are one deep."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.lines import deep_tables, key_lines, line_of

SHIPPED = sorted((Path(__file__).parents[3] / "profiles").glob("*.toml"))

VALUES = st.sampled_from(
    [
        "1",
        '"text"',
        '"""\nmany\n\nlines = 1\n[x]\n"""',
        "'''\n'''",
        "[1, 2]",
        "[\n  1, # one\n\n  2,\n]",
        "{ a = 1, b = [\n1] }",
        "true # said why",
        "1979-05-27",
    ]
)
KEYS = st.sampled_from(["k", "a-b", '"quoted.key"', "'single'", "dotted.key", "two . dots"])
FILLERS = st.lists(st.sampled_from(["", "# a comment", "   ", "\t# k = 1"]), max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[str, int]]]:
    """A document one table deep, and the key and line of each key line in it."""
    lines: list[str] = []
    keys: list[tuple[str, int]] = []

    def fill() -> None:
        lines.extend(draw(FILLERS))

    def pairs(prefix: str) -> None:
        for number in range(draw(st.integers(0, 4))):
            fill()
            key = draw(KEYS).replace("k", f"k{number}_").replace("single", f"s{number}")
            key = key.replace("a-b", f"a{number}-b").replace("two", f"two{number}")
            keys.append((f"{prefix}{key}", len(lines) + 1))
            indent = draw(st.sampled_from(["", "  "]))
            lines.extend(f"{indent}{key} = {draw(VALUES)}".split("\n"))
        fill()

    pairs("")
    for number in range(draw(st.integers(0, 3))):
        lines.append(f"[t{number}]" + draw(st.sampled_from(["", " # why"])))
        pairs(f"t{number}.")
        for item in range(draw(st.integers(0, 2))):
            lines.append(f"[[many{number}]]")
            pairs(f"many{number}[{item}].")
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return newline.join(lines) + newline, keys


def flat(path: tuple[str | int, ...]) -> str:
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


@given(documents())
def test_every_key_is_found_on_the_line_it_was_written_on(
    document: tuple[str, list[tuple[str, int]]],
) -> None:
    text, keys = document
    found = {flat(path): line for path, line in key_lines(text).items()}
    for key, line in keys:
        plain = key.replace('"', "").replace("'", "").replace(" ", "")
        assert found[plain] == line, text


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_in_a_shipped_profile_the_named_line_holds_the_key(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    found = key_lines(text)
    assert len(found) > 5
    for key_path, line in found.items():
        name = next(str(part) for part in reversed(key_path) if isinstance(part, str))
        assert name in lines[line - 1]


def test_a_key_of_an_inline_table_stands_on_the_line_of_its_parent() -> None:
    lines = key_lines("[args]\n\nspec = { n = 3 }\n")
    assert line_of(("args", "spec", "n"), lines) == 3
    assert line_of(("elsewhere", "n"), lines) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[args]\n[args.spec]\na = 1\n", [(("args", "spec"), 2)]),
        ("\n[ args . spec ]\na = 1\n", [(("args", "spec"), 2)]),
        ("[[args.spec]]\na = 1\n", [(("args", "spec", 0), 1)]),
        ('["args.spec"]\na = 1\n', []),
        ("[args]\nspec.a = 1\n", []),
        ('a = """\n[args.spec]\n"""\n', []),
    ],
)
def test_a_deeper_table_is_found_by_its_header(text: str, expected: object) -> None:
    assert deep_tables(text) == expected


def test_a_document_that_cannot_be_read_has_no_lines() -> None:
    assert key_lines("[[[") == {}
