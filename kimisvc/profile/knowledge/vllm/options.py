"""What a vLLM makes of the names in [args]: unknown, removed, abbreviated, or given twice.

vLLM reads its options with argparse: one it does not know ends it (exit 2,
which systemd tries again and again), and the beginning of a name stands for
the whole of it, so that `served-model` would set what kimisvc sets itself.
What becomes of the values is judged in `values`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.vllm.fields import dotted_findings
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.knowledge.vllm.values import field_findings, value_findings
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import KnownFrom, OptionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kimisvc.records.profile import ArgValue, Profile
    from kimisvc.records.vllm import VllmKnowledge, VllmOption

_ALIKE = 0.8
"""So alike names have to be for one to be meant by the other (difflib's ratio, 0 to 1)."""
_DEPRECATED = re.compile(r"^\W*deprecated\b|\bis deprecated\b", re.IGNORECASE)
_SHORT_LEVEL = re.compile("O[0-3]?")
"""-O3, which vLLM turns into --optimization-level 3 before argparse sees it (since 0.12;
utils/argparse_utils.py, parse_args): no list of options tells of it."""
_LEVEL = "optimization-level"
_TABLES = (OptionKind.JSON, OptionKind.JSON_OR_TEXT)


@dataclass(frozen=True, slots=True)
class _Names:
    """Every name of every option: after two dashes, and after one. Negatives are among the first."""

    vllm: VllmKnowledge
    long: dict[str, VllmOption]
    short: dict[str, VllmOption]

    @classmethod
    def of(cls, vllm: VllmKnowledge) -> _Names:
        """Given what a vLLM knows, return its names."""
        long: dict[str, VllmOption] = {}
        short: dict[str, VllmOption] = {}
        for option in vllm.options.values():
            for name in (option.name, *option.aliases, *option.negatives):
                (short if name in option.short else long)[name] = option
        return cls(vllm, long, short)


def option_findings(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    """Given a profile and what its vLLM knows, yield what is wrong in [args].

    Where that knowledge is from the shipped table, a name, a choice or a field
    that is not in it is a warning, whatever it resembles: the vLLM that will run
    may be newer. So is one that went after the profile's min_version: it may be older.
    """
    names = _Names.of(vllm)
    first: dict[str, str] = {}
    for key, value in draft.args.items():
        path = ("args", key)
        head, _, field = key.partition(".")
        if head in OWNED_OPTIONS:
            continue  # refused by kimisvc itself
        option = names.long.get(head)
        if option is None:
            yield _unknown(key, head, names, draft.vllm.min_version)
            continue
        if option.name in OWNED_OPTIONS:
            yield Finding(path, f"is --{option.name}, which {OWNED_OPTIONS[option.name]}")
            continue
        twice = _twice(key, f"{option.name}.{field}" if field else option.name, first)
        if twice:
            yield Finding(path, twice)
            continue
        if field:
            yield from _field(path, option, value, doubted(vllm))
        elif isinstance(value, bool):
            yield from _switch(path, head, option, value, names)
        else:
            yield from value_findings(path, option, value, doubted(vllm))
        if _DEPRECATED.search(option.help):
            yield Finding(
                path, f"is deprecated. vLLM {vllm.version} says: {option.help}", Severity.WARNING
            )


def _unknown(key: str, head: str, names: _Names, oldest: str) -> Finding:
    """Given a key whose option is not known and the oldest vLLM that may run, say what of it."""
    path, vllm = ("args", key), names.vllm
    short = _short_of(head, names)
    if short:
        return Finding(path, short)
    gone = REMOVED.get(head)
    if gone:
        known_to_oldest = release(oldest) and release(oldest) < release(gone.removed_in)
        return Finding(
            path,
            f"was removed in vLLM {gone.removed_in}. {gone.instead}",
            doubted(vllm) if known_to_oldest else Severity.ERROR,
            reads=(("vllm", "min_version"),),
        )
    doubt = doubted(vllm)
    begun = {names.long[name].name: name for name in names.long if name.startswith(head)}
    if begun:
        owned = set(begun) & set(OWNED_OPTIONS)
        return Finding(path, _abbreviated(head, begun), Severity.ERROR if owned else doubt)
    near = near_option(head, names.long)
    if near:
        message = f"is no option of vLLM {vllm.version}. Did you mean {near}?"
        return Finding(path, message, doubt)
    if vllm.known_from is KnownFrom.SHIPPED:
        return Finding(
            path,
            f"is no option of vLLM {vllm.version}, the newest kimisvc knows, and no installed "
            "vLLM could be asked",
            Severity.WARNING,
        )
    newer = shipped_knowledge()
    known = head in _Names.of(newer).long
    hint = f"vLLM {newer.version} has it: upgrade, or leave it out" if known else "Leave it out"
    return Finding(path, f"is no option of the installed vLLM {vllm.version}. {hint}")


def _short_of(head: str, names: _Names) -> str:
    """Given a name that is not known, return of what it is the short form, or ""."""
    if head in names.short:
        option = names.short[head].name
        return f"is the short form -{head} of {option}. Write {option}"
    if _LEVEL in names.long and _SHORT_LEVEL.fullmatch(head):
        given = f" = {head[1]}" if head[1:] else ""
        return f"is the short form -{head} of {_LEVEL}. Write {_LEVEL}{given}"
    return ""


def _abbreviated(head: str, begun: dict[str, str]) -> str:
    """Given the beginning of names and what it may stand for, by option, return the message."""
    owned = sorted(set(begun) & set(OWNED_OPTIONS))
    if owned:
        return f"would be read as --{owned[0]}, which {OWNED_OPTIONS[owned[0]]}"
    meant = sorted(begun.values())
    if len(meant) == 1:
        return f"is an abbreviation of {meant[0]}. Write {meant[0]}"
    return (
        f'"{head}" is the beginning of several options: {", ".join(meant[:6])}. Write one in full'
    )


def doubted(vllm: VllmKnowledge) -> Severity:
    """Given a vLLM, return how bad it is not to know a name: an error if it said so itself."""
    return Severity.ERROR if vllm.known_from is KnownFrom.ASKED else Severity.WARNING


def near_option(name: str, known: Iterable[str]) -> str:
    """Given an option that is not among those known, return the nearest that is, or ""."""
    from difflib import get_close_matches  # only a profile with a problem pays

    found = get_close_matches(name.lower(), known, 1, _ALIKE)
    return found[0] if found else ""


def _twice(key: str, spelled: str, first: dict[str, str]) -> str:
    """Given a key and the one name of what it sets, say which key before it sets the same.

    A field and the whole of its table count as well: of the two vLLM takes the
    fields alone, as a new table. x and no-x have been refused before.
    """
    whole = spelled.partition(".")[0]
    for name, other in first.items():
        if name == spelled and key != f"no-{other}" and other != f"no-{key}":
            return f"is the same option as {other}. Keep one of the two"
        if name.partition(".")[0] == whole and "." in name + spelled and whole in (name, spelled):
            return (
                f"and {other} set the same table, and vLLM would take the fields alone. "
                "Write all of them in one table"
            )
    first.setdefault(spelled, key)
    return ""


def _field(
    path: tuple[str, str], option: VllmOption, value: ArgValue, doubt: Severity
) -> Iterator[Finding]:
    """Given a key with a dot, yield what is wrong unless its option takes a table with that field."""
    field = path[1].split(".")[1]
    if option.kind not in _TABLES:
        yield Finding(path, f"has a dot, but {option.name} takes {option.kind.value}: no fields")
    else:
        yield from field_findings(path, option, [field.rstrip("+")], doubt)
        yield from dotted_findings(path, option.value.fields, value, doubt)


def _switch(
    path: tuple[str, str],
    head: str,
    option: VllmOption,
    value: ArgValue,
    names: _Names,
) -> Iterator[Finding]:
    """Given true or false, yield what is wrong: true becomes --x, false becomes --no-x."""
    if option.kind is not OptionKind.FLAG:
        yield Finding(path, f"takes {option.kind.value}, not {str(value).lower()}")
    elif value or f"no-{head}" in names.long:
        return
    elif head in option.negatives:
        yield Finding(path, f"would be written --no-{head}. Write {option.name} = true")
    else:
        yield Finding(path, f"cannot be false: vLLM has no --no-{head}. Leave it out")
