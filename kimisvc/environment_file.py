r"""Reads the file of an EnvironmentFile= as systemd does, and notes where it surprises. Pure.

systemd.exec(5), "EnvironmentFile=", names a file that looks like shell and is
none: nothing is expanded, `export X=1` sets nothing, outside of quotes a
backslash is lost, a quote that is not closed swallows all that follows. The
states are those systemd 252 was seen to go through; a system test holds this
reading against the real one. One differs: 252 drops the line behind a comment
that ends in a backslash, 254 and newer read it (systemd/systemd#27975). It is
read here unless asked for otherwise: a key in it is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

BLANKS = " \t\n\r"
LINE_ENDS = "\n\r"
COMMENTS = "#;"
KEEPS_ESCAPED = '"\\`$'
"""What a backslash within double quotes stands before; before all else it is kept."""


class Oddity(Enum):
    """A writing that means something else than it seems to."""

    LOST_BACKSLASH = auto()
    JOINED_LINES = auto()
    OPEN_QUOTE = auto()
    BEHIND_QUOTE = auto()
    LINE_IN_QUOTES = auto()
    KEPT_BACKSLASH = auto()
    UNQUOTED_HASH = auto()
    EXPANSION = auto()
    NO_SIGN = auto()
    COMMENT_GOES_ON = auto()


class Dialect(Enum):
    """Whose reading: they differ in the line behind a comment that ends in a backslash."""

    BEFORE_254 = "before 254"
    SINCE_254 = "254 and newer"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One variable as systemd reads it. `name` may be none; its `repr` shows no value."""

    name: str
    line: int
    value: str = field(repr=False)
    oddities: frozenset[Oddity] = frozenset()

    @property
    def is_dropped(self) -> bool:
        """Whether systemd sets nothing by it."""
        return Oddity.NO_SIGN in self.oddities or not is_name(self.name)


class _State(Enum):
    BEFORE_NAME = auto()
    NAME = auto()
    BEFORE_VALUE = auto()
    VALUE = auto()
    ESCAPE = auto()
    SINGLE = auto()
    DOUBLE = auto()
    DOUBLE_ESCAPE = auto()
    COMMENT = auto()
    COMMENT_ESCAPE = auto()


class _Reader:
    """The states; one method a state, each given one character."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.found: list[Assignment] = []
        self._state = _State.BEFORE_NAME
        self._line = self._begun = 1
        self._name = self._value = ""
        self._kept = 0
        self._quoted = False
        self._odd: set[Oddity] = set()

    def feed(self, text: str) -> None:
        for char in text:
            _STEPS[self._state](self, char)
            if char == "\n":
                self._line += 1

    def end(self) -> None:
        """Take what the end of the file ends: a last line without a line break, an open quote."""
        if self._state in (_State.SINGLE, _State.DOUBLE, _State.DOUBLE_ESCAPE):
            self._odd.add(Oddity.OPEN_QUOTE)
        if self._state is _State.NAME:
            self._push(Oddity.NO_SIGN)
        elif self._state not in (_State.BEFORE_NAME, _State.COMMENT, _State.COMMENT_ESCAPE):
            self._push()

    def _push(self, *more: Oddity) -> None:
        stripped = self._state in (_State.VALUE, _State.NAME)
        value = self._value[: self._kept] if stripped else self._value
        odd = frozenset(self._odd | set(more))
        self.found.append(Assignment(self._name.rstrip(BLANKS), self._begun, value, odd))
        self._state = _State.BEFORE_NAME

    def _add(self, char: str) -> None:
        self._value += char
        self._kept = len(self._value)

    def before_name(self, char: str) -> None:
        if char in COMMENTS:
            self._state = _State.COMMENT
        elif char not in BLANKS:
            self._state, self._begun = _State.NAME, self._line
            self._name, self._value, self._kept = char, "", 0
            self._quoted, self._odd = False, set()

    def name(self, char: str) -> None:
        if char in LINE_ENDS:
            self._push(Oddity.NO_SIGN)
        elif char == "=":
            self._state = _State.BEFORE_VALUE
        else:
            self._name += char

    def before_value(self, char: str) -> None:
        if char in LINE_ENDS:
            self._push()
        elif char in "'\"":
            self._state = _State.SINGLE if char == "'" else _State.DOUBLE
            if self._quoted:
                self._odd.add(Oddity.BEHIND_QUOTE)
            self._quoted = True
        elif char == "\\":
            self._state = _State.ESCAPE
        elif char not in BLANKS:
            if self._quoted:
                self._odd.add(Oddity.BEHIND_QUOTE)
            self._state = _State.VALUE
            self._plain(char)

    def value(self, char: str) -> None:
        if char in LINE_ENDS:
            self._push()
        elif char == "\\":
            self._state, self._kept = _State.ESCAPE, len(self._value)
        elif char in BLANKS:
            self._value += char
        else:
            self._plain(char)

    def _plain(self, char: str) -> None:
        if char in "$`":
            self._odd.add(Oddity.EXPANSION)
        if char == "#" and (not self._value or self._value[-1] in BLANKS):
            self._odd.add(Oddity.UNQUOTED_HASH)
        self._add(char)

    def escape(self, char: str) -> None:
        self._state = _State.VALUE
        self._odd.add(Oddity.JOINED_LINES if char in LINE_ENDS else Oddity.LOST_BACKSLASH)
        if char not in LINE_ENDS:
            self._add(char)

    def single(self, char: str) -> None:
        if char == "'":
            self._state = _State.BEFORE_VALUE
            return
        self._inside(char)

    def double(self, char: str) -> None:
        if char == '"':
            self._state = _State.BEFORE_VALUE
        elif char == "\\":
            self._state = _State.DOUBLE_ESCAPE
        else:
            if char in "$`":
                self._odd.add(Oddity.EXPANSION)
            self._inside(char)

    def _inside(self, char: str) -> None:
        if char in LINE_ENDS:
            self._odd.add(Oddity.LINE_IN_QUOTES)
        self._add(char)

    def double_escape(self, char: str) -> None:
        self._state = _State.DOUBLE
        if char in KEEPS_ESCAPED:
            self._add(char)
        elif char == "\n":
            self._odd.add(Oddity.JOINED_LINES)
        else:
            self._odd.add(Oddity.KEPT_BACKSLASH)
            self._add("\\" + char)

    def comment(self, char: str) -> None:
        if char == "\\":
            self._state = _State.COMMENT_ESCAPE
        elif char in LINE_ENDS:
            self._state = _State.BEFORE_NAME

    def comment_escape(self, char: str) -> None:
        self._state = _State.COMMENT
        if char in LINE_ENDS:
            odd = frozenset({Oddity.COMMENT_GOES_ON})
            self.found.append(Assignment("", self._line, "", odd))
            if self._dialect is Dialect.SINCE_254:
                self._state = _State.BEFORE_NAME


_STEPS = {
    _State.BEFORE_NAME: _Reader.before_name,
    _State.NAME: _Reader.name,
    _State.BEFORE_VALUE: _Reader.before_value,
    _State.VALUE: _Reader.value,
    _State.ESCAPE: _Reader.escape,
    _State.SINGLE: _Reader.single,
    _State.DOUBLE: _Reader.double,
    _State.DOUBLE_ESCAPE: _Reader.double_escape,
    _State.COMMENT: _Reader.comment,
    _State.COMMENT_ESCAPE: _Reader.comment_escape,
}


def read(text: str, dialect: Dialect = Dialect.SINCE_254) -> tuple[Assignment, ...]:
    """Given the text of an EnvironmentFile=, return what a systemd reads in it, line by line.

    Also what it drops: an assignment whose `name` is no name of a variable, or
    that has Oddity.NO_SIGN; and, without a name, a comment that swallows the next
    line where systemd is older than 254.
    """
    reader = _Reader(dialect)
    reader.feed(text)
    reader.end()
    return tuple(reader.found)


def is_name(name: str) -> bool:
    """Given what stands before a `=`, return whether systemd takes it for a variable."""
    return name.isascii() and name.isidentifier()


def variables(found: Iterable[Assignment]) -> dict[str, str]:
    """Given what was read, return what a service gets: of one that comes twice, the last."""
    return {one.name: one.value for one in found if not one.is_dropped}
