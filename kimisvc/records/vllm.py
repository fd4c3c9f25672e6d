"""What one version of vLLM knows: its options and variables, and how it reads them.

Read beside `records`: frozen values and closed enums that the door which asks
vLLM fills, and the judges of a profile read. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class OptionKind(Enum):
    """What an option of `vllm serve` takes."""

    FLAG = "nothing, or no- before its name"
    INTEGER = "a whole number"
    SIZE = "a whole number, also as 256k (times 1000) or 256K (times 1024)"
    NUMBER = "a number"
    TEXT = "a string"
    JSON = "a table"
    JSON_OR_TEXT = "a table or a string"


class ChoiceRule(Enum):
    """How an option's choices are meant: to the letter, in any case, or as those known so far."""

    EXACT = "exact"
    ANY_CASE = "any case, - for _"
    OPEN = "a plug-in may bring more"


class FieldKind(Enum):
    """What a field of an option's table takes."""

    ANY = "anything"
    SWITCH = "true or false"
    INTEGER = "a whole number"
    NUMBER = "a number"
    TEXT = "a string"
    WORDS = "one of a few words"
    LIST = "a list"
    TABLE = "a table"


@dataclass(frozen=True, slots=True)
class VllmField:
    """What a field of an option's table takes, or the number of a plain option.

    A number is at least `ge`, above `gt`, at most `le` and below `lt`; `fields`
    are those of a table within, all of them.
    """

    kind: FieldKind = FieldKind.ANY
    choices: tuple[str, ...] = ()
    choice_rule: ChoiceRule = ChoiceRule.EXACT
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    fields: Mapping[str, VllmField] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Any) -> VllmField:
        """Given what a vLLM told, as JSON has it, return it. Raise as VllmKnowledge.of does."""
        if not row:
            return _UNSAID
        bounds = {name: row[name] for name in ("ge", "gt", "le", "lt") if name in row}
        if not all(isinstance(bound, int | float) for bound in bounds.values()):
            raise TypeError("a bound is no number")
        return cls(
            kind=FieldKind[row.get("kind", "ANY")],
            choices=tuple(str(word) for word in row.get("choices", ())),
            choice_rule=ChoiceRule[row.get("choice_rule", "EXACT")],
            fields={str(name): cls.of(inner) for name, inner in row.get("fields", {}).items()},
            **bounds,
        )


_UNSAID = VllmField()


@dataclass(frozen=True, slots=True)
class VllmOption:
    """One option of `vllm serve`, named without its leading dashes.

    `aliases` are its other names, short ones too ("tp"); `short`: those of them
    that take one dash only. `negatives` are the names that turn a flag off.
    `many`: it takes several values; `default` is as its help prints it, "" where
    it says none. Of a SIZE the `choices` are words beside numbers. `fields` are
    the keys of its table, where it has certain ones. `unset`: it takes "None"
    for not set. `value`: what is known of its number, or of its table's fields.
    """

    name: str
    kind: OptionKind
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    many: bool = False
    default: str = ""
    help: str = ""
    short: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    choice_rule: ChoiceRule = ChoiceRule.EXACT
    fields: tuple[str, ...] = ()
    unset: bool = False
    value: VllmField = _UNSAID


class VariableReading(Enum):
    """How vLLM reads an environment variable; each differs in what it makes of "true"."""

    SWITCH = "0 for off, another whole number for on"
    ONE = "1 for on, all else is off"
    TRUE = "1 or true for on, all else is off"
    ONLY_TRUE = "true for on, all else is off"
    NOT_ZERO = "0 for off, all else is on"
    INTEGER = "a whole number"
    NUMBER = "a number"
    CHOICE = "one of a few words"
    WORD = "one of a few words, in any case"
    TEXT = "a string"


@dataclass(frozen=True, slots=True)
class VllmVariable:
    """How one VLLM_* variable is read; `choices` where it is one of a few words."""

    reads: VariableReading = VariableReading.TEXT
    choices: tuple[str, ...] = ()


class KnownFrom(Enum):
    """Where knowledge of a vLLM is from: itself, or the table that ships with kimisvc."""

    ASKED = "asked"
    SHIPPED = "shipped"


@dataclass(frozen=True, slots=True)
class VllmKnowledge:
    """What one version of vLLM knows: its options by name, and its VLLM_* variables.

    `readings` says of a variable how it is read, where that is known. `why_not_asked`: why the
    vLLM of a profile could not be asked, so that a shipped table stands for it; "" where it was.
    """

    version: str
    known_from: KnownFrom
    options: Mapping[str, VllmOption]
    variables: frozenset[str]
    readings: Mapping[str, VllmVariable] = field(default_factory=dict)
    why_not_asked: str = ""

    @classmethod
    def of(cls, told: Any, known_from: KnownFrom) -> VllmKnowledge:
        """Given what a vLLM told of itself, as JSON has it, return it as knowledge.

        Raise ValueError, KeyError, TypeError or AttributeError if it has another form.
        """
        options = {}
        for row in told["options"]:
            words = {
                name: tuple(str(word) for word in row.get(name, ()))
                for name in ("choices", "aliases", "short", "negatives", "fields")
            }
            options[str(row["name"])] = VllmOption(
                name=str(row["name"]),
                kind=OptionKind[row["kind"]],
                many=bool(row.get("many", False)),
                unset=bool(row.get("unset", False)),
                default=str(row.get("default", "")),
                help=str(row.get("help", "")),
                choice_rule=ChoiceRule[row.get("choice_rule", "EXACT")],
                value=VllmField.of(row.get("value")),
                **words,
            )
        readings = {
            str(name): VllmVariable(VariableReading[row[0]], tuple(str(word) for word in row[1:]))
            for name, row in told["variables"].items()
        }
        version = str(told["version"])
        return cls(version, known_from, options, frozenset(readings), readings)
