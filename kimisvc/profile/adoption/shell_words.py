"""How a shell splits a text into commands: quotes, backslashes, variables, comments. Pure.

The part of the POSIX shell language (chapter 2, "Quoting", "Parameter
Expansion", "Field Splitting") that start scripts of a service are made of.
What would have to be run to be known is refused with its line, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_OPERATOR = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECTION = re.compile(r"[0-9]*(?:<<<|<<-?|&>>|&>|>>|>&|<&|>\||<>|[<>])")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(
    r"\{(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9@*])(?:(?P<how>:?[-=])(?P<other>[^{}]*))?\}"
)
_BLANK = " \t"


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words after expansion, its line, and the operator that ends it."""

    words: tuple[str, ...]
    line: int
    end: str


@dataclass(slots=True)
class _Word:
    """A word that grows; blanks of an unquoted variable end it and begin the next."""

    parts: list[str] = field(default_factory=list)
    begun: bool = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.begun = True


@dataclass(slots=True)
class Reader:
    """Reads `text` one command at a time.

    `variables` is looked at when a command is read, so that who runs the
    commands can set them in between; `arguments` are $1 and its like. Names
    that are used are gathered, those of them that are not set, and redirections.
    """

    text: str
    variables: Mapping[str, str]
    arguments: Sequence[str] = ()
    used: set[str] = field(default_factory=set)
    unset: set[str] = field(default_factory=set)
    redirections: list[str] = field(default_factory=list)
    _at: int = 0
    _words: list[str] = field(default_factory=list)
    _word: _Word = field(default_factory=_Word)
    _skip: int = 0

    def commands(self) -> Iterator[Command]:
        """Yield the commands in order. Raise KimisvcError for what only a shell could tell."""
        self.text = self.text.replace("\r\n", "\n")
        start = 0
        while self._at < len(self.text):
            operator = _OPERATOR.match(self.text, self._at)
            if operator and not _REDIRECTION.match(self.text, self._at):
                command = self._ended(start, operator[0])
                self._at = start = operator.end()
                if command:
                    yield command
            else:
                self._step()
        command = self._ended(start, "")
        if command:
            yield command

    def _ended(self, start: int, operator: str) -> Command | None:
        self._end_word()
        words, self._words = tuple(self._words), []
        if operator in ("(", ")", ";;"):
            raise self._beyond(f"{operator} is more than a list of commands")
        self._skip = 0
        leading = len(self.text[start : self._at]) - len(self.text[start : self._at].lstrip())
        line = self.text.count("\n", 0, start + leading) + 1
        return Command(words, line, operator.strip()) if words else None

    def _end_word(self) -> None:
        if self._word.begun:
            if self._skip:
                self._skip -= 1  # the file of a redirection
            else:
                self._words.append("".join(self._word.parts))
        self._word = _Word()

    def _step(self) -> None:
        """Read on by one character, quoted part, variable or redirection."""
        char = self.text[self._at]
        redirection = _REDIRECTION.match(self.text, self._at)
        if redirection and (not self._word.begun or not redirection[0][0].isdigit()):
            self._redirect(redirection)
        elif char in _BLANK:
            self._end_word()
            self._at += 1
        elif char == "#" and not self._word.begun:
            end = self.text.find("\n", self._at)
            self._at = len(self.text) if end < 0 else end
        elif char == "\\":
            following = self.text[self._at + 1 : self._at + 2]
            if following != "\n":
                self._word.add(following or "\\")
            self._at += 2
        elif char == "'":
            end = self._closing("'")
            self._word.add(self.text[self._at + 1 : end])
            self._at = end + 1
        elif char == '"':
            self._double_quoted()
        elif char in "$`":
            self._unquoted(self._variable())
        elif char == "~" and not self._word.begun and self.text[self._at + 1 : self._at + 2] == "/":
            self._word.add(self.variables.get("HOME", "~"))
            self._at += 1
        else:
            self._word.add(char)
            self._at += 1

    def _redirect(self, redirection: re.Match[str]) -> None:
        self._end_word()
        if redirection[0].lstrip("0123456789").startswith("<<"):
            raise self._beyond("a here-document is not read")
        self._skip = 1
        self.redirections.append(redirection[0])
        self._at = redirection.end()

    def _closing(self, quote: str) -> int:
        end = self.text.find(quote, self._at + 1)
        if end < 0:
            raise self._beyond(f"a quote ({quote}) is opened and not closed")
        return end

    def _double_quoted(self) -> None:
        opened = self._at
        self._at += 1
        self._word.add("")
        while self.text[self._at : self._at + 1] != '"':
            char = self.text[self._at : self._at + 1]
            following = self.text[self._at + 1 : self._at + 2]
            if not char:
                self._at = opened
                raise self._beyond('a quote (") is opened and not closed')
            if char == "\\" and following in ("$", "`", '"', "\\", "\n"):
                self._word.add(following if following != "\n" else "")
                self._at += 2
            elif char in "$`":
                words = self._variable()
                for word in words[:-1]:  # only "$@" has several
                    self._word.add(word)
                    self._end_word()
                self._word.add(words[-1] if words else "")
            else:
                self._word.add(char)
                self._at += 1
        self._at += 1

    def _unquoted(self, values: Sequence[str]) -> None:
        """Field splitting: blanks in the value of an unquoted variable part words."""
        for number, value in enumerate(values):
            if number or value[:1].isspace():
                self._end_word()
            for index, part in enumerate(value.split()):
                if index:
                    self._end_word()
                self._word.add(part)
            if value[-1:].isspace():
                self._end_word()

    def _variable(self) -> list[str]:
        """Read what begins with $ and return its value, or the words of $@."""
        rest = self.text[self._at + 1 :]
        if self.text[self._at] == "`" or rest[:1] == "(":
            raise self._beyond("a command inside of a command ($(...), `...`) is not run")
        braced, plain = _BRACED.match(rest), _NAME.match(rest)
        if braced:
            self._at += 1 + braced.end()
            return self._value(braced["name"], braced["how"] or "", braced["other"] or "")
        if rest[:1] == "{":
            raise self._beyond("of ${...} only ${NAME} and ${NAME:-other} are read")
        if plain:
            self._at += 1 + plain.end()
            return self._value(plain[0])
        if rest[:1] and rest[0] in "@*123456789":
            self._at += 2
            return self._value(rest[0])
        if rest[:1] and rest[0] in "#?$!-0":
            raise self._beyond(f"${rest[0]} is known only to a shell that runs")
        self._at += 1
        return ["$"]

    def _value(self, name: str, how: str = "", other: str = "") -> list[str]:
        if name in "@*":
            return list(self.arguments)
        if name.isdigit():
            number = int(name) - 1
            return [self.arguments[number] if 0 <= number < len(self.arguments) else other]
        self.used.add(name)
        value = self.variables.get(name)
        if value is None or (not value and how.startswith(":")):
            plain = other.strip("\"'")
            if "$" in other or "`" in other or (plain != other and " " in plain):
                raise self._beyond("a variable or quoted blanks inside of ${...} are not read")
            if value is None and not how:
                self.unset.add(name)
            return [plain]
        return [value]

    def _beyond(self, why: str) -> KimisvcError:
        line = self.text.count("\n", 0, self._at) + 1
        return KimisvcError("not-simple", f"line {line}: {why}", hint=HINT)


HINT = "write the command out as it is run, and import that: kimisvc import 'vllm serve ...'"
