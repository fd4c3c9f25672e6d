"""What was likely meant by a line that is no TOML: one row for each slip that operators make.

The parser says where it stopped and in its own words why; the rows say what to
write instead. What no row knows keeps the parser's words, and the line. A line
that looks like a secret is never shown (`syntax_places`). Pure.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.lines import key_lines, line_of
from kimisvc.profile.nearest import header
from kimisvc.profile.problems import UNWRITABLE, Fault, key_name
from kimisvc.profile.secret_signs import WHERE_TO
from kimisvc.profile.settings import FREE_TABLES, TABLES, Kind
from kimisvc.profile.syntax_places import Statement, statement_at
from kimisvc.profile.values import rule_of, toml
from kimisvc.redaction import without_shapes

if TYPE_CHECKING:
    from collections.abc import Callable

_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_LONGEST_SHOWN = 60
_UNQUOTED_KINDS = {Kind.INTEGER, Kind.NUMBER, Kind.FLAG}
_TYPOGRAPHIC = "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"
_TABLES = {name for name in (*TABLES, *FREE_TABLES) if name}
_ANOTHER = r"[\s;,][\w.-]+\s*="
_ONE_A_LINE = "Each KEY = VALUE stands on a line of its own"
_FORM = "those are KEY = VALUE, [table], or # and a comment"


@dataclass(frozen=True, slots=True)
class Slip:
    """One slip: the parser's words for it, the sign and the value it shows in, what to say.

    `value` is None where the value does not matter, and may be a secret: such a
    row is not given it to show. `says` returns "" if it is another slip after all.
    """

    parser: str
    sign: str
    value: str | None
    says: Callable[[Statement], str]


def syntax_fault(message: str, text: str) -> Fault:
    """Given tomllib's message and the text, return line, key and likely intention; never raise."""
    match = _PLACE.fullmatch(message)
    if match is None:
        return Fault(0, without_shapes(f"TOML syntax: {message}"))
    what, line, column = match.groups()
    number = int(line or 0) or text.count("\n") + 1
    begins = [int(line)] if line else _openings(what, text)
    statement = next(filter(None, (statement_at(text, one) for one in begins)), None)
    key = without_shapes(key_name(statement.path)) if statement and statement.key else ""
    said = _slip(what, statement) if statement else ""
    if statement and said:
        return Fault(statement.line, without_shapes(said), key)
    where = f"column {column}" if column else "at the end of the file"
    message = without_shapes(f"TOML syntax: {UNWRITABLE.sub('?', what)} ({where})")
    return Fault(number, message + (_line(statement, number) if statement else ""), key)


def _openings(what: str, text: str) -> list[int]:
    """The lines in which may begin what is open at the end of the text, the likeliest first.

    The last line with anything on it; and far above it, that with the last mark of such a string.
    """
    marks = {'Expected "\'"': "'", "Expected \"'''\"": "'''", "Unterminated string": '"""'}
    ends = [len(text.rstrip()), text.rfind(marks[what]) if what in marks else -1]
    return [text.count("\n", 0, end) + 1 for end in ends if end >= 0]


def _slip(what: str, statement: Statement) -> str:
    for row in SLIPS:
        if not re.search(row.parser, what) or not re.fullmatch(row.sign, statement.sign):
            continue
        value = statement.value  # None: a secret
        if row.value is None or (value is not None and re.fullmatch(row.value, value, re.DOTALL)):
            said = row.says(statement)
            if said:
                return said
    return ""


def _line(statement: Statement, number: int) -> str:
    """The line the parser stopped in, for the end of its words."""
    if statement.at is None:
        return f". The line looks like a secret (not shown). {WHERE_TO}"
    begun = f", in what begins on line {statement.line}" if statement.line < number else ""
    return f"{begun}: {_bare(statement.at)}" if statement.at else begun


def _bare(text: str) -> str:
    text = UNWRITABLE.sub("?", text)
    return f"{text[:_LONGEST_SHOWN]}..." if len(text) > _LONGEST_SHOWN else text


def _as(statement: Statement, value: str) -> str:
    """The line as it should be, given its value as TOML."""
    return f"{statement.key} = {_bare(value)}"


def _quoted(statement: Statement, text: str) -> str:
    """The line as it should be, given its value as text; "" if its key takes none."""
    row = statement.setting
    if row and row.kind in _UNQUOTED_KINDS:
        return ""
    quoted = toml(text) if len(text) <= _LONGEST_SHOWN else '"..."'
    return _as(statement, f"[{quoted}]" if row and row.kind is Kind.NAMES else quoted)


# ------------------------------------------------------------- one function for each row


def _twice(statement: Statement) -> str:
    lines, path = key_lines(statement.above), statement.path
    parts = [number for key, number in lines.items() if key[: len(path)] == path != key]
    if path not in lines and parts and statement.sign == "=":
        return f"is set as a whole, and line {min(parts)} has set a part of it. Write it in one way"
    first = line_of(path, lines)
    if not first:
        return ""
    if statement.sign == "[" and statement.above.split("\n")[first - 1].lstrip().startswith("["):
        if path == ("golden",):
            return (
                f"is a second table of questions; the first is on line {first}. Each is [[golden]]"
            )
        name = header(key_name(path))
        return f"{name} is declared a second time; the first is on line {first}. Join the two"
    if statement.sign == "[" or (path not in lines and (*path, 0) not in lines):
        return f"is set within what line {first} has set to something else"
    return f"is set a second time; the first is on line {first}. Keep one of the two"


def _open_string(statement: Statement) -> str:
    value = statement.value or ""
    if value.startswith(('"""', "'''")):
        return (
            f"the text that begins with {value[:3]} here is never closed. A value is a single "
            f'line: write it between " and "'
        )
    text = value[1:].rstrip(f"\"'{_TYPOGRAPHIC}")
    mend = _quoted(statement, text) if not re.search(r"[\"'\\#]", text) else ""
    how = f": {mend}" if mend else f" by a {value[0]}"
    return f"the string {_bare(value)} is never closed{how}"


def _misfit(statement: Statement) -> str:
    """Where a file of a shell or YAML differs: `export A=b`, `a: b`, `a == b`."""
    value, (*shell, sign) = statement.value, statement.sign.split()
    named = statement.path[-1] in _TABLES and not statement.setting
    if value == "" and named and statement.table not in FREE_TABLES:
        return f"begins a table: write {header(str(statement.path[-1]))}"
    why = (
        f"{shell[0]} belongs to a shell"
        if shell
        else f"TOML joins key and value by =, not by '{sign}'"
    )
    if value is None:
        return f"{why}: KEY = VALUE. But this line looks like a secret (not shown). {WHERE_TO}"
    if value[:1] not in ('"', "'", "[", "{") and re.search(_ANOTHER, value):
        return f"{why}. {_ONE_A_LINE}"
    try:
        tomllib.loads(f"x = {value}")
        mend = _as(statement, value)
    except (ValueError, RecursionError):
        mend = _quoted(statement, value) or f"{statement.key} = VALUE"
    return f"{why}: {mend}"


def _no_sign(statement: Statement) -> str:
    return f"{_bare(statement.at)} is no line of a profile; {_FORM}" if statement.at else ""


def _typographic(statement: Statement) -> str:
    value = statement.value or ""
    mend = _quoted(statement, value.strip(f"\"'{_TYPOGRAPHIC}"))
    said = f"{_bare(value)} stands in typographic quotes; TOML takes straight ones: {mend}"
    return said if mend else ""


def _no_value(statement: Statement) -> str:
    row = statement.setting
    hint = f"{statement.key} = {row.example}, for example" if row else "one in quotes"
    return f"has no value behind its =. Write {hint}, or leave the line out"


def _boolean(statement: Statement) -> str:
    value, row = statement.value or "", statement.setting
    word = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value.lower(), "")
    if (row and row.kind is not Kind.FLAG) or (word and not row):
        return ""  # `yes` to an option of vLLM is a word like others
    if statement.table == "env":
        number = _as(statement, f'"{int(value.lower() == "true")}"')
        return f"{value} is no value of a variable: write 0 or 1 as a string: {number}"
    rule = "true or false" if word else "written in lower case"
    return f"{value} is refused, a flag is {rule}: {_as(statement, word or value.lower())}"


def _json(statement: Statement) -> str:
    value = statement.value or ""
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return ""
    if "'" in value:
        return ""
    mend = _as(statement, f"'{value}'" if len(value) <= _LONGEST_SHOWN else "'...'")
    return f"{_bare(value)} is JSON, and stands in single quotes: {mend}"


def _several(statement: Statement) -> str:
    return f"{_bare(statement.value or '')} holds more than one setting. {_ONE_A_LINE}"


def _no_text(statement: Statement) -> str:
    """What no quotes make right, where nobody knows what the option takes; the words of Python and YAML."""
    value, table = statement.value or "", statement.table
    if value in ("None", "null"):
        return f"{value} is no value. Leave the line out"
    if table != "args":
        return ""
    if value.lower() in ("yes", "no", "on", "off"):
        return f"{value} is no TOML: write true or false for a flag, and quotes around a word"
    return (
        f"{_bare(value)} is no number of TOML: digits only, no 0 before them, and digits on both"
        " sides of a point, as in 0.9"
    )


def _unquoted(statement: Statement) -> str:
    value, row = (statement.value or "").rstrip("\"'"), statement.setting
    mend = _quoted(statement, value)
    if mend:
        return f"{_bare(value)} is text and needs quotes: {mend}"
    return f"{_bare(value)} is no TOML: {statement.key} takes {rule_of(row)}" if row else ""


_VALUE = r"Invalid value|Expected newline"
SLIPS: tuple[Slip, ...] = (
    Slip("Cannot (overwrite|declare)", r"\[|=", None, _twice),
    Slip(r"Unterminated|Illegal character '\\n'|invalid character '\\n'|Expected \"'", "=",
         r"[\"'].*", _open_string),
    Slip("Expected '='|Invalid value", r"==|:=?|\w+ ={1,2}|\w+ :=?", None, _misfit),
    Slip("Expected '='|Invalid statement", "", None, _no_sign),
    Slip("Expected '='|Unclosed inline table", "=", r"\{.*\}", _json),
    Slip(_VALUE, "=", rf"[{_TYPOGRAPHIC}].+", _typographic),
    Slip(_VALUE, "=", "", _no_value),
    Slip(_VALUE, "=", "(?i)true|false|yes|no|on|off", _boolean),
    Slip(_VALUE, "=", rf"[^\"'\[{{].*{_ANOTHER}.*", _several),
    Slip(_VALUE, "=", r"None|null|(?i:yes|no|on|off)|[-+]?(?:\d[\d,_]*\.?|\.\d)[\d,_]*\s*[%,;]?", _no_text),
    Slip(_VALUE, "=", r"[^\"'\[{].*", _unquoted),
)  # fmt: skip
"""Every slip; the first that has something to say says it."""
