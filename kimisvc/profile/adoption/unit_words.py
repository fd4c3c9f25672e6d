r"""How systemd splits and expands the values of a unit. Pure.

Sources: systemd.syntax(7), "Quoting"; systemd.unit(5), "Specifiers";
systemd.service(5), "Command lines"; systemd.exec(5), Environment=. What systemd
ignores with a warning is ignored here, and told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_BLANKS = " \t\n\r"
_SIMPLE = dict(zip("abfnrtv\\\"'s", "\a\b\f\n\r\t\v\\\"' ", strict=True))
_CODED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_SPECIFIER = re.compile("%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\{([^}:]*)(?:[}:]|\Z)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACKSLASH = "\\"


class Escapes(Enum):
    """What a backslash before a character that needs none does: stay, spoil the rest, or go.

    LOOSE is how the value of a variable is split: no escape means anything
    there, and a quote need not be closed.
    """

    RELAXED = "relaxed"
    STRICT = "strict"
    LOOSE = "loose"


def words(value: str, escapes: Escapes = Escapes.RELAXED) -> Iterator[str]:
    """Given a value that is a list of words, yield them with quotes and escapes resolved.

    Raise ValueError for an open quote, and for an escape that is none where
    those are strict; the words before it were good, as they are to systemd.
    """
    parts: list[str] = []
    quote, at, begun = "", 0, False
    while at < len(value):
        char = value[at]
        at += 1
        if not quote and char in _BLANKS:
            if begun:
                yield "".join(parts)
            parts, begun = [], False
            continue
        begun = True
        if char == _BACKSLASH:
            text, at = _escape(value, at, escapes)
            parts.append(text)
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        else:
            parts.append(char)
    if quote and escapes is not Escapes.LOOSE:
        raise ValueError(f"a quote ({quote}) is opened and not closed")
    if begun:
        yield "".join(parts)


def _escape(value: str, at: int, escapes: Escapes) -> tuple[str, int]:
    """Given what follows a backslash, return the text it stands for and where to read on."""
    following = value[at : at + 1]
    if escapes is Escapes.LOOSE:
        return following, at + 1
    if not following and escapes is Escapes.STRICT:
        raise ValueError("a backslash ends it")
    if not following:
        return _BACKSLASH, at
    simple = _SIMPLE.get(following)
    if simple is not None:
        return simple, at + 1
    coded = _CODED.match(value, at)
    if coded is None and escapes is Escapes.STRICT:
        raise ValueError(f"\\{following} is no escape: a backslash is written \\\\")
    if coded is None:
        return _BACKSLASH + following, at + 1
    if coded[1]:
        return chr(int(coded[1], 16)), coded.end()
    code = int(coded[4], 8) if coded[4] else int(coded[2] or coded[3], 16)
    return chr(code), coded.end()


def specifiers(text: str, known: Mapping[str, str]) -> str:
    """Given a text and what each letter stands for, return it expanded.

    Raise ValueError for a letter that stands for nothing, or for something of
    the host that is not known here: systemd drops the whole setting, or fills
    in what we cannot.
    """

    def expanded(match: re.Match[str]) -> str:
        letter = match[1]
        if letter == "%":
            return "%"
        if letter in known and letter:
            return known[letter]
        if letter.isascii() and letter.isalpha():
            raise ValueError(f"what %{letter} stands for is not known here")
        return match[0]

    return _SPECIFIER.sub(expanded, text)


@dataclass(frozen=True, slots=True)
class Assignments:
    """What an Environment= sets, the words of it that systemd ignores, and why ("": no NAME=value)."""

    found: dict[str, str]
    ignored: list[str]
    problem: str = ""


def assignments(value: str, known: Mapping[str, str]) -> Assignments:
    """Given the value of an Environment=, return what it sets, word by word, as far as it is read."""
    found: dict[str, str] = {}
    ignored: list[str] = []
    problem = ""
    try:
        for word in words(value, Escapes.STRICT):
            name, equals, text = word.partition("=")
            try:
                name, text = specifiers(name, known), specifiers(text, known)
            except ValueError as error:
                ignored.append(word)
                problem = str(error)
                continue
            if equals and _NAME.fullmatch(name):
                found[name] = text
            else:
                ignored.append(word)
    except ValueError as error:
        return Assignments(found, ignored, f"from there on systemd ignores it: {error}")
    return Assignments(found, ignored, problem)


def command_words(value: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Given the value of an ExecStart=, return its prefixes (`-@:+!`) and its words.

    The variables are not expanded yet. Raise ValueError where systemd would
    refuse it.
    """
    prefixes = value[: len(value) - len(value.lstrip("-@:+!|"))]
    found = [specifiers(word, known) for word in words(value[len(prefixes) :])]
    if "@" in prefixes:
        del found[1:2]  # the name it is shown under
    if not found:
        raise ValueError("it names no program")
    return prefixes, found


def expand(
    found: list[str], variables: Mapping[str, str], asked: Callable[[str], None]
) -> list[str]:
    """Given the words of a command after its program, return them with variables in place.

    $NAME as a word of its own is split at blanks, whatever NAME is; ${NAME}
    stays one; $$ is $; any other $ is itself. `asked` is told of each name.
    """
    result: list[str] = []
    for word in found:
        name = word[1:]
        if word.startswith("$") and name[:1] not in ("$", "{"):
            asked(name)
            result += words(variables.get(name, ""), Escapes.LOOSE)
        else:
            result.append(_VARIABLE.sub(lambda match: _braced(match, variables, asked), word))
    return result


def _braced(
    match: re.Match[str], variables: Mapping[str, str], asked: Callable[[str], None]
) -> str:
    if match[0] == "$$":
        return "$"
    if not match[0].endswith("}"):
        return match[0]  # never closed, or a shell's ${NAME:-other}: systemd leaves it as it is
    asked(match[1])
    return variables.get(match[1], "")
