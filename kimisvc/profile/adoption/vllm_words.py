"""The words after `vllm serve` as options and values, typed as TOML has them. Pure.

argparse's rules as vLLM uses them: dashes and underscores are one, the beginning
of one option's name alone stands for it, the last of an option given twice
holds, a negative number is a value. Which options take
nothing or several values is known from `VllmOption`; without one, from the
words that follow.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.profile.adoption import json_words
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.records.vllm import OptionKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kimisvc.records.profile import ArgValue
    from kimisvc.records.vllm import VllmOption

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?")
_LEVEL = re.compile(r"-O(\d)")
SHORT: Mapping[str, str] = MappingProxyType(
    {
        "tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
        "dpn": "data-parallel-rank", "dpr": "data-parallel-start-rank",
        "dpl": "data-parallel-size-local", "dpa": "data-parallel-address",
        "dpp": "data-parallel-rpc-port", "dpb": "data-parallel-backend",
        "dph": "data-parallel-hybrid-lb", "dcp": "decode-context-parallel-size",
        "pcp": "prefill-context-parallel-size", "ep": "enable-expert-parallel",
        "n": "nnodes", "r": "node-rank", "asc": "api-server-count", "q": "quantization",
        "cc": "compilation-config", "sc": "speculative-config", "ac": "attention-config",
        "O": "optimization-level",
    }
)  # fmt: skip
"""Short names of vLLM's options (arg_utils and cli_args of 0.15 to 0.33), where it is not asked."""
REPEATED = ("middleware",)
"""Options that vLLM collects one at a time."""
JSON_LISTS = ("allowed-origins", "allowed-methods", "allowed-headers")
"""Options whose list vLLM reads as one JSON word."""


@dataclass(frozen=True, slots=True)
class Written:
    """One option as the command line has it: its full name, how it was written, its words.

    `joined`: the value was written with an equals sign.
    """

    name: str
    spelled: str
    values: tuple[str, ...]
    joined: str = ""


class Options:
    """What is known of vLLM's options, by every name and spelling of each."""

    def __init__(self, known: Mapping[str, VllmOption]) -> None:
        self._rows = {_dashed(name): row for name, row in known.items()}
        self._aliases = {
            _dashed(alias): _dashed(name) for name, row in known.items() for alias in row.aliases
        }
        self._negatives = {
            _dashed(word): _dashed(name) for name, row in known.items() for word in row.negatives
        }

        # argparse completes what follows two dashes only from names that have them, too.
        self._long = {_dashed(name): _dashed(name) for name in known}
        for name, row in known.items():
            words = (alias for alias in row.aliases if alias not in row.short)
            self._long |= {_dashed(word): _dashed(name) for word in words}
            self._long |= {_dashed(word): _dashed(word) for word in row.negatives}

    def row(self, name: str) -> VllmOption | None:
        """Given an option's full name, return what is known of it."""
        return self._rows.get(name)

    def positive(self, name: str) -> str:
        """Given a full name, return the option it turns off; "" if it turns none off."""
        known = self._negatives.get(name, "")
        return known or (name[3:] if name.startswith("no-") and name not in self._rows else "")

    def full_name(self, bare: str) -> str:
        """Given an option without its dashes, return its one name: tp is tensor-parallel-size.

        Keys after a dot are kept; the `no-` before a name stays with it.
        """
        head, dot, tail = bare.partition(".")
        name = _dashed(head)
        if name not in self._rows:
            name = self._aliases.get(name, SHORT.get(head, name))
        return name + dot + tail

    def unabbreviated(self, bare: str) -> str:
        """Given what follows two dashes, return it with the full name if it begins one option's.

        What begins several, or was an option of its own once, stays as it is.
        """
        head, dot, tail = bare.partition(".")
        name = _dashed(head)
        if not name or name in self._long or name in OWNED_OPTIONS or name in REMOVED:
            return bare
        meant = {full for word, full in self._long.items() if word.startswith(name)}
        return meant.pop() + dot + tail if len(meant) == 1 else bare


def read(words: Sequence[str], options: Options) -> tuple[list[Written], list[str]]:
    """Given the words after `serve`, return the options in order and the words that are none."""
    written: list[Written] = []
    loose: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return written, loose + rest
        if not is_option(word):
            loose.append(word)
            continue
        bare, equals, value = _without_dashes(word)
        name = options.full_name(options.unabbreviated(bare) if word[:2] == "--" else bare)
        values = (value,) if equals else tuple(_values(rest, name, options))
        written.append(Written(name, word.partition("=")[0], values, equals))
    return written, loose


def is_option(word: str) -> bool:
    """Given a word, return whether argparse takes it for an option."""
    if not word.startswith("-") or len(word) == 1 or _NEGATIVE.fullmatch(word):
        return False
    return " " not in word.partition("=")[0]


def _without_dashes(word: str) -> tuple[str, str, str]:
    """Given an option's word, return its name without dashes, an equals sign if any, its value."""
    level = _LEVEL.fullmatch(word)
    if level:
        return "O", "=", level[1]
    if word.startswith("-O."):  # fields of what -O stood for before it became a level
        word = f"-cc{word[2:]}"
    name, equals, value = word.partition("=")
    return name.lstrip("-"), equals, value


def _values(rest: list[str], name: str, options: Options) -> Iterator[str]:
    """Take the words of an option off the front: none, one, or all up to the next option."""
    if "." in name:  # whatever it looks like: vLLM takes it away before argparse sees it
        yield from (rest.pop(0) for _ in rest[:1])
        return
    row = options.row(name)
    most = math.inf if row is None or row.many else 1
    if (row is not None and row.kind is OptionKind.FLAG) or options.positive(name):
        most = 0
    elif name in REPEATED:
        most = 1
    while most and rest and not is_option(rest[0]):
        yield rest.pop(0)
        most -= 1


def value_of(written: Written, options: Options) -> tuple[str, ArgValue]:
    """Given an option, return its key of [args] and its value as TOML has it."""
    name, values = written.name, written.values
    row = options.row(name)
    if not values:
        positive = options.positive(name)
        return (options.full_name(positive), False) if positive else (name, True)
    if "." in name:
        found = json_words.field(name, values[0])
        return name.removesuffix(json_words.APPENDS), values[0] if found is None else found
    if len(values) == 1 and not (row is not None and row.many) and name not in REPEATED:
        return name, typed(values[0], row, name)
    if len(values) == 1 and name in JSON_LISTS:
        return name, typed(values[0], row, name)
    return name, tuple(_scalar(value, row) for value in values)


def uncarried(written: Written) -> str:
    """Given an option, say why no profile can carry its value; "" if one can."""
    field = "." in written.name and written.values
    lost = field and json_words.field(written.name, written.values[0]) is None
    return json_words.UNCARRIED if lost else ""


def joined(key: str, before: object, value: ArgValue) -> ArgValue:
    """Given an option's key, what it has and what it is given again, return what holds then."""
    if key in REPEATED and isinstance(before, tuple) and isinstance(value, tuple):
        return (*before, *value)
    return json_words.joined(before, value) if "." in key else value


def typed(word: str, row: VllmOption | None, name: str) -> ArgValue:
    """Given the one word of an option, return it as TOML has it.

    JSON becomes a table, or a list where the same word comes out of it again.
    """
    if word[:1] in ("{", "["):
        value = json_words.whole(word)
        nested = isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
        listed = isinstance(value, list) and name in JSON_LISTS
        return (
            value if value is not None and (isinstance(value, dict) or nested or listed) else word
        )
    return _scalar(word, row)


def _scalar(word: str, row: VllmOption | None) -> ArgValue:
    """A number, if the very same word, or for an option that takes numbers the same number, results."""
    if row is not None and row.kind in (OptionKind.TEXT, OptionKind.JSON_OR_TEXT):
        return word
    if _INTEGER.fullmatch(word) and str(int(word)) == word:
        return int(word)
    if _NUMBER.fullmatch(word):
        number = float(word)
        takes_numbers = row is not None and row.kind is OptionKind.NUMBER
        decimal = re.fullmatch(r"-?\d+\.\d+", word) is not None
        if math.isfinite(number) and (repr(number) == word or takes_numbers or decimal):
            return number if takes_numbers or decimal else word
    return word


def _dashed(name: str) -> str:
    return name.replace("_", "-")
