"""Every effective setting of a profile, with where it is from and what it does.

The answer to "what will really run, and why": what the profile writes, what
the files it extends write, what kimisvc adds, and what is left to vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.risk.options import option_risk
from kimisvc.profile.knowledge.risk.variables import variable_risk
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.lines import key_lines, line_of
from kimisvc.profile.options import option_name
from kimisvc.profile.settings import TABLES
from kimisvc.profile.values import spelled, toml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kimisvc.profile.knowledge.risk.judgement import Judgement
    from kimisvc.profile.loader import Checked
    from kimisvc.profile.problems import KeyPath
    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge


class Origin(Enum):
    """Who gave a setting its value."""

    PROFILE = "profile"
    EXTENDED = "extends"
    KIMISVC = "default of kimisvc"
    VLLM = "default of vLLM"


@dataclass(frozen=True, slots=True)
class Explained:
    """One setting: its value as TOML, where that is from, what it does, becomes and may cost.

    `file` and `line` are set where a file writes it. `judgement` is None for
    what only kimisvc reads, and for what nobody has judged.
    """

    table: str
    key: str
    value: str
    origin: Origin
    does: str
    becomes: str
    file: str = ""
    line: int = 0
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """What rendering makes of the free tables.

    `options`: the words on the command line of each option; `assignments`: the
    directive of each variable, those of kimisvc's own too, whose values are in
    `environment`. Each with the folders that the unit opens for it.
    """

    options: Mapping[str, str]
    assignments: Mapping[str, str]
    environment: Mapping[str, str]


class _Places:
    """Which file writes a key, and on which line; each file is read for lines once."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._lines: dict[int, dict[KeyPath, int]] = {}

    def of(self, path: KeyPath) -> tuple[Origin, str, int]:
        found = self._checked.written.get(path)
        if found is None:
            return Origin.KIMISVC, "", 0
        number, at = found
        source = self._checked.sources[number]
        if number not in self._lines:
            self._lines[number] = key_lines(source.text)
        origin = Origin.EXTENDED if number else Origin.PROFILE
        return origin, str(source.file), line_of(at, self._lines[number])

    def of_question(self, number: int, key: str) -> tuple[Origin, str, int]:
        """As `of`, for a key of one question: what its table leaves out is our default."""
        path: KeyPath = ("golden", number, key)
        where = self._checked.written.get(path[:1])
        if where is None or not _writes(self._checked.sources[where[0]].data, number, key):
            return Origin.KIMISVC, "", 0
        origin, file, _ = self.of(path[:1])
        return origin, file, line_of(path, self._lines[where[0]])


def _writes(data: Mapping[str, object] | None, number: int, key: str) -> bool:
    """Whether a file writes that key of its question of that number."""
    questions = (data or {}).get("golden")
    table = questions[number] if isinstance(questions, list) else None
    return isinstance(table, dict) and key in table


def explain(
    checked: Checked, profile: Profile, vllm: VllmKnowledge, rendered: Rendered
) -> tuple[Explained, ...]:
    """Given a sound profile, the vLLM that will run it and what is rendered, explain each setting.

    In the order of a profile; what is left to vLLM comes last.
    """
    places = _Places(checked)
    return (
        *_own_settings(places, profile),
        *_options(places, profile, vllm, rendered),
        *_variables(places, profile, vllm, rendered),
        *_left_to_vllm(profile, vllm),
    )


def _own_settings(places: _Places, profile: Profile) -> Iterator[Explained]:
    for table, rows in TABLES.items():
        records: Sequence[object] = (getattr(profile, table) if table else profile,)
        if table == "golden":
            records = profile.golden
        for number, record in enumerate(records):
            shown = f"golden[{number}]" if table == "golden" else table
            for key, row in rows.items():
                value = getattr(record, key, None)
                if value is None:
                    continue
                path: KeyPath = (table, key) if table else (key,)
                origin, file, line = (
                    places.of_question(number, key) if table == "golden" else places.of(path)
                )
                yield Explained(
                    shown, key, spelled(row, value), origin, row.help, row.becomes, file, line
                )


def _options(
    places: _Places, profile: Profile, vllm: VllmKnowledge, rendered: Rendered
) -> Iterator[Explained]:
    for key, value in profile.args.items():
        origin, file, line = places.of(("args", key))
        known = vllm.options.get(option_name(key).partition(".")[0])
        yield Explained(
            "args", key, toml(value), origin, known.help if known else "",
            rendered.options[key], file, line, option_risk(key, value, profile),
        )  # fmt: skip


def _variables(
    places: _Places, profile: Profile, vllm: VllmKnowledge, rendered: Rendered
) -> Iterator[Explained]:
    for key, value in rendered.environment.items():
        origin, file, line = places.of(("env", key))
        yield Explained(
            "env", key, toml(value), origin, _does(key, vllm),
            rendered.assignments[key], file, line, variable_risk(key, value, profile, vllm),
        )  # fmt: skip


def _does(name: str, vllm: VllmKnowledge) -> str:
    """What a variable does; of one that nobody described here, who reads it and what."""
    known = VARIABLES.get(name)
    read = name in vllm.variables
    if known:
        unread = f"vLLM {vllm.version} does not read it."
        ages = known.ages if read or not name.startswith("VLLM_") else unread
        return f"{known.does} {ages}".rstrip()
    if not read and (gone := REMOVED.get(name)):
        return f"Removed in vLLM {gone.removed_in}, which ignores it. {gone.instead}."
    if read:
        reading = vllm.readings.get(name)
        reads = f", which reads {reading.reads.value}" if reading else ""
        return f"A variable of vLLM{reads}; it is not described here."
    return "Not described here; vLLM's processes get it as it is."


def _left_to_vllm(profile: Profile, vllm: VllmKnowledge) -> Iterator[Explained]:
    given = {option_name(key).partition(".")[0].removeprefix("no-") for key in profile.args}
    owned = {"host", "port", "served-model-name", "model"}
    for name, option in sorted(vllm.options.items()):
        if name not in given | owned:
            yield Explained("args", name, option.default, Origin.VLLM, option.help, "")
