"""How systemd reads a unit, written down apart from how kimisvc writes one.

A model of what the man pages say (systemd.syntax(7), systemd.unit(5) on
specifiers, systemd.service(5) on command lines, systemd.exec(5) on
environments) and of what systemd 252 was seen to do. The round trip through
the real one is a system test.
"""

from __future__ import annotations

import string

BLANKS = " \t\n\r"
ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)) | {c: c for c in "\\\"'"} | {"s": " "}
SPECIFIERS = set(string.ascii_letters)
NAME = set(string.ascii_letters + string.digits + "_")


class UnreadableError(Exception):
    """systemd would refuse or misread this."""


def assignments(text: str) -> list[tuple[str, str, str]]:
    """Given a unit's text, return its (section, key, value), continued lines joined."""
    found: list[tuple[str, str, str]] = []
    section, open_line = "", ""
    for line in text.split("\n"):
        stripped = line.strip(BLANKS)
        if stripped[:1] in ("#", ";") or not (stripped or open_line):
            continue
        joined = open_line + line
        if joined.endswith("\\"):
            open_line = joined[:-1] + " "
            continue
        open_line = ""
        joined = joined.strip(BLANKS)
        if joined.startswith("["):
            section = joined.strip("[]")
            continue
        key, equals, value = joined.partition("=")
        if not equals:
            raise UnreadableError(joined)
        found.append((section, key.strip(BLANKS), value.strip(BLANKS)))
    return found


def words(value: str) -> list[str]:
    """Given a value that is a list of words, return them with quotes and escapes resolved."""
    found: list[str] = []
    word: str | None = None
    quote = ""
    rest = iter(value)
    for char in rest:
        if char == "\\":
            word = (word or "") + _escape(next(rest, ""))
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif char in BLANKS:
            if word is not None:
                found.append(word)
            word = None
        else:
            word = (word or "") + char
    if quote:
        raise UnreadableError(f"open quote: {value}")
    return [*found, word] if word is not None else found


def _escape(char: str) -> str:
    if char not in ESCAPES:
        raise UnreadableError(f"unknown escape: {char!r}")
    return ESCAPES[char]


def specifiers(word: str) -> str:
    """Given a word, return it with %% resolved. Raise where a specifier would be expanded."""
    result = ""
    rest = iter(word)
    for char in rest:
        if char != "%":
            result += char
            continue
        following = next(rest, "")
        if following in SPECIFIERS and following:
            raise UnreadableError(f"%{following} would be expanded")
        result += "%" if following == "%" else "%" + following
    return result


def environment(value: str) -> dict[str, str]:
    """Given the value of an Environment=, return what it sets."""
    found = {}
    for word in words(value):
        name, equals, text = specifiers(word).partition("=")
        if not equals or not name or not set(name) <= NAME or name[0].isdigit():
            raise UnreadableError(f"invalid environment assignment: {word}")
        found[name] = text
    return found


def command(value: str) -> list[str]:
    """Given the value of an ExecStart=, return program and arguments, no variable being set."""
    if ";" in value.split():
        raise UnreadableError("a lone ; begins another command")
    program, *arguments = words(value)
    if program[:1] != "/":
        raise UnreadableError(f"prefix or relative path: {program}")
    if set(program) & set("\"'\\"):
        raise UnreadableError("executable name contains special characters")
    expanded = [specifiers(program)]
    for word in map(specifiers, arguments):
        if word.startswith("$") and word[1:2] not in ("", "$", "{"):
            continue  # an unset variable of its own: no argument at all
        expanded.append(_braced(word))
    return expanded


def _braced(word: str) -> str:
    result, i = "", 0
    while i < len(word):
        if word.startswith("$$", i):
            result, i = result + "$", i + 2
        elif word.startswith("${", i) and "}" in word[i:]:
            i = word.index("}", i) + 1
        else:
            result, i = result + word[i], i + 1
    return result


def environment_file(line: str) -> tuple[str, str]:
    """Given one line NAME="value" of an environment file, return what it sets."""
    name, _, rest = line.partition("=")
    if not (rest.startswith('"') and rest.endswith('"') and len(rest) > 1):
        raise UnreadableError("only double quoted values are modelled")
    result = ""
    inner = iter(rest[1:-1])
    for char in inner:
        if char == '"':
            raise UnreadableError("the quote ends early")
        if char == "\\":
            following = next(inner, "")
            result += following if following in '"\\`$' else "\\" + following
        else:
            result += char
    return name, result
