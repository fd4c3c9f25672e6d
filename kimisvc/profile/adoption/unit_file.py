"""A service unit and its drop-ins as systemd merges them. Pure.

systemd.syntax(7) and systemd.unit(5): lines that go on, comments, sections,
later files over earlier ones, and an empty assignment that begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BLANKS = " \t\r"
_BACKSLASH = "\\"


@dataclass(frozen=True, slots=True)
class UnitText:
    """A unit file or drop-in: where it lies, and what it says."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Unit:
    """A merged unit: its name, its files, and each setting's values by section and key.

    `values` keeps the order in which the keys first stood; `ignored` are lines
    that systemd does not take.
    """

    name: str
    files: tuple[str, ...]
    values: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def all(self, key: str, section: str = "Service") -> Sequence[str]:
        """Given a key, return each of its values, in order."""
        return self.values.get((section, key), ())

    def last(self, key: str, section: str = "Service") -> str:
        """Given a key that holds one value, return the one that counts; "" if there is none."""
        found = self.all(key, section)
        return found[-1] if found else ""


def read_unit(name: str, texts: Sequence[UnitText]) -> Unit:
    """Given a unit's name and its files, the drop-ins after it in order, return the merged unit."""
    values: dict[tuple[str, str], list[str]] = {}
    ignored: list[str] = []
    for one in texts:
        for section, line in _lines(one.text):
            key, equals, value = line.partition("=")
            if not equals or not section:
                ignored.append(line)
            elif not value.strip(_BLANKS):
                values[section, key.strip(_BLANKS)] = []
            else:
                values.setdefault((section, key.strip(_BLANKS)), []).append(value.strip(_BLANKS))
    kept = {place: tuple(found) for place, found in values.items() if found}
    return Unit(name, tuple(one.path for one in texts), kept, tuple(ignored))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line with its section, joined with those it goes on in."""
    section, begun = "", ""
    for raw in text.split("\n"):
        line = raw.rstrip("\r")
        if line.strip(_BLANKS)[:1] in ("#", ";") or not (line.strip(_BLANKS) or begun):
            continue
        joined = begun + line
        if (len(joined) - len(joined.rstrip(_BACKSLASH))) % 2:
            begun = f"{joined[:-1]} "
            continue
        begun = ""
        whole = joined.strip(_BLANKS)
        if whole.startswith("[") and whole.endswith("]"):
            section = whole[1:-1]
        elif whole:
            yield section, whole
    if begun.strip(_BLANKS):
        yield section, begun.strip(_BLANKS)


def specifier_values(name: str) -> dict[str, str]:
    """Given a unit's name, return what the specifiers of the system's systemd stand for.

    Those that depend on the host or the boot (%H, %m, %b, %v, ...) are not
    among them. %h is the home of who runs systemd, not of User=.
    """
    stem = name.removesuffix(".service")
    prefix, _, instance = stem.partition("@")
    return {
        "n": name, "N": stem, "p": prefix, "i": instance, "I": unescaped(instance),
        "P": unescaped(prefix), "j": prefix.rpartition("-")[2], "J": unescaped(
            prefix.rpartition("-")[2]),
        "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc",
        "T": "/tmp", "V": "/var/tmp",  # noqa: S108 - what systemd puts there, not a file of ours
        "h": "/root", "u": "root", "U": "0", "g": "root", "G": "0", "s": "/bin/sh",
    }  # fmt: skip


def unescaped(text: str) -> str:
    r"""Given an escaped part of a unit's name, return it plain: `srv-models` is srv/models.

    systemd.unit(5), "String Escaping for Inclusion in Unit Names".
    """
    parts = text.replace("-", "/").split("\\x")
    plain = parts[0].encode()
    for part in parts[1:]:
        try:
            plain += bytes([int(part[:2], 16)]) + part[2:].encode()
        except ValueError:
            plain += b"\\x" + part.encode()
    return plain.decode(errors="replace")
