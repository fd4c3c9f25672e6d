"""One reading of EnvironmentFile= for secrets and for units that are imported: systemd's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.environment_file import Dialect, Oddity, is_name, read, variables
from kimisvc.render.quoting import environment_file_line

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
VALUES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\u2028\u2029")
) | st.text("ab \"'\\$%{}=;#n", max_size=30)


@pytest.mark.parametrize(
    # seen on systemd 252 as PID 1
    ("text", "found", "ignored"),
    [
        ("P=s7@o8\\p=@us$0!", {"P": "s7@o8p=@us$0!"}, []),
        (r'P="a\"b\\c\d"', {"P": r'a"b\c\d'}, []),
        ("P=a\\\r\nQ=1", {"P": "a", "Q": "1"}, []),
        (r"P='a\$b\\c'", {"P": r"a\$b\\c"}, []),
        ("P='a\r\nb'", {"P": "a\r\nb"}, []),
        ("P=trailing  \r\nQ=2", {"P": "trailing", "Q": "2"}, []),
        ("P=a#b ;c", {"P": "a#b ;c"}, []),
        ("export P=x\nQ=1", {"Q": "1"}, ["export P"]),
        ("P=a\\\nb", {"P": "ab"}, []),
        ('P="two\nlines"\nQ=1', {"P": "two\nlines", "Q": "1"}, []),
        ("P=%h $Q", {"P": "%h $Q"}, []),
        ("P=1\nP=2", {"P": "2"}, []),
        ("P='a\\\nb'", {"P": "a\\\nb"}, []),
        ('P="a\\\nb"', {"P": "ab"}, []),
        ("# P=0\n; P=0\n\n  P = 1", {"P": "1"}, []),
        ("# ends \\ within \nP=0", {"P": "0"}, []),
        ("P\u00a0=1\n\u3000Q=1\nR\x0b=1\nS\t=1", {"S": "1"}, ["P\u00a0", "\u3000Q", "R\x0b"]),
        (
            "\ufeffP=1\n9=1\nA-B=1\nP\u00b2=1\n\u00c9=1\nA.B=1",
            {},
            ["\ufeffP", "9", "A-B", "P\u00b2", "\u00c9", "A.B"],
        ),
        ("P Q=1\n=1", {}, ["P Q", "=1"]),
        ('P="a\\\rb"\nQ=1', {"P": "a\\\rb", "Q": "1"}, []),
        ("P=\nQ=1", {"P": "", "Q": "1"}, []),
        ("P='a'\"b\"c", {"P": "abc"}, []),
        ('P=x"y"', {"P": 'x"y"'}, []),
        ("no assignment\nQ=1", {"Q": "1"}, ["no assignment"]),
    ],
)
def test_it_is_read_as_systemd_reads_it(
    text: str, found: dict[str, str], ignored: list[str]
) -> None:
    lines = read(text)
    assert variables(lines) == found
    assert [one.name for one in lines if one.is_dropped] == ignored


@pytest.mark.parametrize("mark", ["#", ";"])
def test_the_line_behind_a_comment_that_goes_on_is_told_of_and_read(mark: str) -> None:
    """As systemd 254 does; 252 takes it for a part of the comment, and a key in it is one still."""
    lines = read(f"{mark} goes on \\\nKEY=abc\nQ=1\n{mark} goes on \\\n{mark} P=0")
    assert variables(lines) == {"KEY": "abc", "Q": "1"}
    odd = [one.line for one in lines if Oddity.COMMENT_GOES_ON in one.oddities]
    assert odd == [1, 4]
    older = read("# goes on \\\nKEY=abc\nQ=1", Dialect.BEFORE_254)
    assert variables(older) == {"Q": "1"}


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_file_of_variables_that_kimisvc_writes_comes_back(values: dict[str, str]) -> None:
    text = "\n".join(environment_file_line(name, value) for name, value in values.items())
    lines = read(text)
    assert variables(lines) == values
    assert not any(one.is_dropped for one in lines)


@given(st.text("aP=\"'\\ \n\r#;\u00a0") | st.text())
def test_any_file_of_variables_is_read(text: str) -> None:
    lines = read(text)
    assert set(variables(lines)) <= {one.name for one in lines}
    assert all(is_name(name) for name in variables(lines))
