"""vLLM's --config file, as the words that vLLM makes of it. Pure.

Read are plain lists of `key: value`, which these files are; anything of YAML
beyond that is refused with its line. What vLLM itself makes of a value, wrong
as it may be, is what runs today: a `false` under a key with underscores is
dropped (vllm#51401), `0123` is octal, `null` becomes the word None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)\s*:(?:\s+(.*))?")
_ITEM = re.compile(r"\s*-\s+(.*)")
_TRUE = re.compile("yes|Yes|YES|true|True|TRUE|on|On|ON")
_FALSE = re.compile("no|No|NO|false|False|FALSE|off|Off|OFF")
_NULL = re.compile("null|Null|NULL|~|")
_OCTAL = re.compile("0[0-7]+")
_ELSE = re.compile(r"0x[0-9a-fA-F_]+|0b[01_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+|[-+]?[0-9]+_[0-9_]*")
_BEYOND = ("{", "&", "*", "!", "|", ">", "%", "@", "`", "?")
_HINT = "write its settings as options of the command line, and import that"


def config_words(text: str, path: str, drop: Callable[[str, str], None]) -> list[str]:
    """Given the text of a config file, return the words vLLM puts before those of the command line.

    `drop` is told what of it has no effect. Raise KimisvcError for what is
    more than `key: value`.
    """
    words: list[str] = []
    for key, value, number in _pairs(text, path):
        place = f"{path}:{number}: {key}"
        if isinstance(value, list):
            words += [f"--{key}", *(_plain(item, path, number) for item in value)] if value else []
        elif _TRUE.fullmatch(value):
            words.append(f"--{key}")
        elif _FALSE.fullmatch(value):
            words += _negative(key, place, drop)
        elif _NULL.fullmatch(value):
            drop(place, "null becomes the word None, which no option means: left out")
        else:
            words += [f"--{key}", _plain(value, path, number)]
    return words


def _negative(key: str, place: str, drop: Callable[[str, str], None]) -> list[str]:
    if "_" in key:
        drop(place, "vLLM drops a false under a key with underscores (vllm#51401), so it never "
             "held; write it into [args] if it was meant")  # fmt: skip
        return []
    drop(place, "a false that vLLM up to 0.15 dropped; taken as meant")
    return [f"--no-{key}"]


def _pairs(text: str, path: str) -> Iterator[tuple[str, str | list[str], int]]:
    """Yield each key with its value or list of values, and its line."""
    open_key, items, opened = "", list[str](), 0
    for number, raw in enumerate(text.split("\n"), 1):
        line = _without_comment(raw).rstrip()
        if not line or line in ("---", "..."):
            continue
        item, key = _ITEM.fullmatch(line), _KEY.fullmatch(line)
        if item and open_key:
            items.append(item[1])
            continue
        if open_key:
            yield (open_key, items or "", opened)
            open_key, items = "", []
        if key is None:
            raise _beyond(path, number, "is more than `key: value`")
        value = (key[2] or "").strip()
        if value.startswith("[") and value.endswith("]"):
            inner = [part.strip() for part in value[1:-1].split(",")]
            yield key[1], [part for part in inner if part], number
        elif value:
            yield key[1], value, number
        else:
            open_key, opened = key[1], number
    if open_key:
        yield (open_key, items or "", opened)


def _without_comment(line: str) -> str:
    if line.lstrip().startswith("#"):
        return ""
    quoted = re.fullmatch(r"""([^"'#]*(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'))\s+#.*""", line)
    return (
        quoted[1]
        if quoted
        else re.sub(r"\s#.*", "", line)
        if not re.search("[\"']", line)
        else line
    )


def _plain(value: str, path: str, number: int) -> str:
    """Given a scalar, return the word that vLLM's str() makes of it."""
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"' and "\\" not in value:
        return value[1:-1]
    if value.startswith((*_BEYOND, '"', "'", "[")) or ": " in value or value.endswith(":"):
        raise _beyond(path, number, "has a value that is more than a word, a number or a list")
    if _OCTAL.fullmatch(value):
        return str(int(value, 8))
    if _ELSE.fullmatch(value):
        raise _beyond(path, number, "has a number that YAML reads in a way of its own")
    return value


def _beyond(path: str, number: int, what: str) -> KimisvcError:
    return KimisvcError("config-file", f"{path}:{number} {what}", hint=_HINT)
