"""What vLLM receives is byte for byte what the profile says, through a real systemd.

Thousands of strings, many in one unit: from TOML through the loader and the real
templates into Environment=, ExecStart= and the EnvironmentFile=, and back from
the process itself.
"""

from __future__ import annotations

import base64
import io
import json
import random
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from loading import load
from stage import dialect

from kimisvc import environment_file
from kimisvc.errors import KimisvcError
from kimisvc.host import secrets_file
from kimisvc.profile.loader import check
from kimisvc.profile.resolved import to_toml
from kimisvc.profile.secret_signs import secret_in
from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings
from kimisvc.records.units import Installation, UnitNames
from kimisvc.render.quoting import environment_file_line, exec_argument
from kimisvc.render.units import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from stage import Sandbox

pytestmark = pytest.mark.system

PROGRAM = "/opt/quoting/bin/vllm"
MODEL = "/opt/quoting/model"
DUMP = """#!/bin/sh
cat "/proc/$$/cmdline" > "$CACHE_DIRECTORY/argv"
exec cat "/proc/$$/environ" > "$CACHE_DIRECTORY/environ"
"""
ONCE = "[Service]\nType=oneshot\nRestart=no\n"
UNITS, PER_UNIT = 36, 100
HARD = (
    "", " ", "\t", " a", "a ", "\ta\t", "%", "%%", "%n", "%h/%i", "$", "$$", "${HOME}", "$HOME",
    "$(id)", "`id`", "\\", "\\\\", "\\n", "\\x41", "a\\", '"', "'", '""', "''", "'\"'", '\\"', "#",
    "#a", ";", "a;b", "; rm", "~", "~/x", "-", "--", "-x", "--port", "@", "+", "!", ":", "|", "&&",
    ">", "*", "[a]", "{}", "=", "a=b", "A=B C=D", """{"a": "it's", "b": [1, "\\\\d+"]}""",
    'for i in $(ls); do echo "$i"; done', "\u00e9\u4e2d\U0001f600", "\u00a0", "\u3000x\u3000",
    "\u200b", "\ufeff", "\u200d", "e\u0301", "\U0010fffd", "a,b", "1_000", "0x10", "true",
)  # fmt: skip
"""What has a meaning somewhere on the way."""
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
PIECES = (
    *HARD, *"abcXYZ012 \t\"'\\%$#;=-{}[]()<>|&*?!~`^,.:/@+_", "\u00fc", "\u3042", "\U0001f680",
    "\\u0041", "$${x}",
)  # fmt: skip


def is_plain(value: str) -> bool:
    """Whether the profile would take it for what it is: secrets are refused, whatever their quoting."""
    return not secret_in("", value)


def strings(chance: random.Random, count: int) -> list[str]:
    """Given a seeded chance, return so many strings, a long one among them."""
    found = [chance.choice(HARD) for _ in range(count // 10)]
    rest = count - len(found) - 1
    found += ["".join(chance.choices(PIECES, k=chance.randint(1, 24))) for _ in range(rest)]
    found.append("".join(chance.choices(PIECES, k=12_000)))
    return [value if is_plain(value) else "plain" for value in found]


def names(chance: random.Random, count: int) -> list[str]:
    """Given a seeded chance, return so many names of variables, no two alike and none in use."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    found: set[str] = set()
    while len(found) < count:
        rest = "".join(chance.choices(letters + "0123456789", k=chance.randint(6, 40)))
        found.add(f"{chance.choice(letters)}{rest}x")
    return sorted(found)


@dataclass(frozen=True)
class Case:
    """One unit: a profile, what its secrets file sets, and the text of that file."""

    instance: str
    env: Mapping[str, str]
    args: Mapping[str, Any]
    secrets: Mapping[str, str]
    file: str

    @property
    def profile(self) -> Profile:
        return Profile(
            self.instance, VllmSettings(PROGRAM, MODEL), env=self.env, args=self.args,
            service=ServiceSettings(
                instance=self.instance, secrets_file=f"/etc/kimisvc/{self.instance}.secrets"
            ),
        )  # fmt: skip

    @property
    def words(self) -> list[str]:
        """The words of [args] as vLLM reads them: an option, its value, one word where it has to be."""
        found = []
        for key, value in self.args.items():
            word = value if isinstance(value, str) else _json(value)
            found += [f"--{key}={word}"] if word.startswith("-") else [f"--{key}", word]
        return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_a_person_writes(name: str, value: str, chance: random.Random) -> str:
    """Given a secret, return its line in one of the writings that the documentation allows."""
    styles = [environment_file_line(name, value)]
    if "'" not in value:
        styles.append(f"{name}='{value}'")
    if value and value.isalnum() and value.isascii():
        styles.append(f"  {name} = {value}  ")
    return chance.choice(styles)


def case(number: int, chance: random.Random, values: Sequence[str]) -> Case:
    """Given strings, put a third of them into each of the three places."""
    third = len(values) // 3
    env, args, secrets = values[:third], values[third : 2 * third], values[2 * third :]
    known = names(chance, len(env) + len(secrets))
    chance.shuffle(known)
    held = dict(zip(known[len(env) :], secrets, strict=True))
    options: dict[str, Any] = {f"a{n}": value for n, value in enumerate(args)}
    options["tables"] = {value: [value, {"b": value}] for value in args[:3]}
    lines = ["# what no unit shows", *(as_a_person_writes(*pair, chance) for pair in held.items())]
    return Case(
        f"q{number}", dict(zip(known, env, strict=False)), options, held, "\n".join(lines) + "\n"
    )


Received = tuple[list[str], dict[str, str]]


def run_all(sandbox: Sandbox, cases: Sequence[Case], folder: Path) -> dict[str, Received]:
    """Given cases, run their units and return what each process got: its words and variables."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        _add(tar, PROGRAM, DUMP, 0o755)
        _add(tar, f"{MODEL}/config.json", "{}")
        for one in cases:
            unit = UnitNames.of(one.instance).service
            _add(tar, f"/etc/systemd/system/{unit}", _through_toml(one, folder))
            _add(tar, f"/etc/systemd/system/{unit}.d/once.conf", ONCE)
            _add(tar, f"/etc/kimisvc/{one.instance}.secrets", one.file, 0o600)
    services = [UnitNames.of(one.instance).service for one in cases]
    script = 'base64 -d | tar -xzf - -C / && systemctl daemon-reload && systemctl start "$@"'
    text = base64.b64encode(archive.getvalue()).decode()
    done = sandbox.run("bash", "-c", script, "-", *services, text=text)  # type: ignore[call-arg]
    assert done.stderr == ""
    fetch = 'cd /var/cache/kimisvc && tar -chzf - "$@" | base64 -w0'
    raw = sandbox.run("bash", "-c", fetch, "-", *(one.instance for one in cases)).stdout
    return _received(base64.b64decode(raw), cases)


def _through_toml(one: Case, folder: Path) -> str:
    """The whole path: TOML as a person may write it, the loader, the real templates."""
    path = folder / f"{one.instance}.toml"
    path.write_text(to_toml(one.profile))
    checked = check(path, folder)
    assert checked.profile is not None, checked.problems[:3]
    assert (checked.profile.env, checked.profile.args) == (one.profile.env, _frozen(one.args))
    here = Installation(kimisvc=folder / "kimisvc")
    units = {unit.name: unit.text for unit in render(checked.profile, _templates(), here)}
    return units[UnitNames.of(one.instance).service]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(value[key]) for key in sorted(value)} if value else value
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _templates() -> dict[str, str]:
    from kimisvc.cli.doors import templates

    return templates()


def _add(tar: tarfile.TarFile, path: str, text: str, mode: int = 0o644) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _received(raw: bytes, cases: Sequence[Case]) -> dict[str, Received]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for one in cases:
            argv, environ = (
                _file(tar, f"{one.instance}/{name}").split(b"\0")[:-1]
                for name in ("argv", "environ")
            )
            pairs = [entry.decode().partition("=") for entry in environ]
            words = [word.decode() for word in argv]
            found[one.instance] = (words, {name: value for name, _, value in pairs})
    return found


def _file(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def assert_received(one: Case, got: Received) -> None:
    words, variables = got
    head = ["/bin/sh", PROGRAM, "serve", MODEL, "--host", "127.0.0.1", "--port", "8000"]
    assert words[: len(head)] == head
    expected = [*head, *replace(one, args=_frozen(one.args)).words]
    for index, (word, wanted) in enumerate(zip(words, expected, strict=True)):
        assert word == wanted, f"{one.instance}: word {index}"
    for name, value in (*one.env.items(), *one.secrets.items()):
        assert variables.get(name) == value, f"{one.instance}: {name}"
    read = secrets_file.variables(secrets_file.parse(one.file.encode()))
    assert read == one.secrets


def test_ten_thousand_strings_reach_the_process_as_they_are(
    staged: Sandbox, tmp_path: Path
) -> None:
    chance = random.Random(20261130)  # noqa: S311 - repeatable, no secret
    cases = [case(n, chance, strings(chance, 3 * PER_UNIT)) for n in range(UNITS)]
    assert sum(len(c.env) + len(c.secrets) + len(c.args) - 1 for c in cases) >= 10_000
    got = run_all(staged, cases, tmp_path)
    for one in cases:
        assert_received(one, got[one.instance])


TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn"), exclude_characters=BIDI)
    | st.sampled_from("\t\"'\\%$#;=")
).filter(is_plain)


@given(
    st.lists(st.lists(TEXT, min_size=30, max_size=60), min_size=4, max_size=8),
    st.integers(0, 2**32),
)
@settings(
    max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_what_hypothesis_thinks_of_reaches_the_process_too(
    staged: Sandbox, tmp_path_factory: pytest.TempPathFactory, drawn: list[list[str]], seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    cases = [case(100 + n, chance, values) for n, values in enumerate(drawn)]
    got = run_all(staged, cases, tmp_path_factory.mktemp("drawn"))
    for one in cases:
        assert_received(one, got[one.instance])


WILD = [
    *"abAB01 \t\\\"'`$#;=%é\U0001f600",
    "\n",
    "\r",
    "\\\n",
    '\\"',
    "\\$",
    "export ",
    "${X}",
    " #",
]


def wild(number: int, chance: random.Random) -> str:
    """Given a seeded chance, return a file such as nobody should write, its names its own."""
    lines = [
        f"{chance.choice(['', '', '', ' ', 'export ', '#', chr(9)])}K{number}_{n}"
        f"{chance.choice(['=', '=', '=', ' = ', ''])}{''.join(chance.choices(WILD, k=chance.randint(0, 10)))}"
        f"{chance.choice([chr(10), chr(10), chr(13) + chr(10), ''])}"
        for n in range(chance.randint(1, 4))
    ]
    return "".join(lines)


def test_a_secrets_file_is_read_as_systemd_reads_it(staged: Sandbox) -> None:
    """Whatever stands in it: our reading is what the redactor and the checks rely on."""
    chance = random.Random(252)  # noqa: S311 - repeatable, no secret
    files = {f"/opt/wild/{n}": wild(n, chance) for n in range(1000)}
    archive = io.BytesIO()
    unit = "[Service]\nType=oneshot\nExecStart=/bin/cp /proc/self/environ /opt/wild/out\n"
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path, text in files.items():
            _add(tar, path, text)
            unit += f"EnvironmentFile={path}\n"
        _add(tar, "/etc/systemd/system/wild.service", unit)
    script = (
        "base64 -d | tar -xzf - -C / && systemctl daemon-reload && systemctl start wild"
        " && base64 -w0 /opt/wild/out"
    )
    text = base64.b64encode(archive.getvalue()).decode()
    raw = base64.b64decode(staged.run("bash", "-c", script, text=text).stdout)  # type: ignore[call-arg]
    pairs = [entry.decode().partition("=") for entry in raw.split(b"\0")[:-1]]
    got = {name: value for name, _, value in pairs}
    ours: dict[str, str] = {}
    for text in files.values():
        if not secrets_file.parse(text.encode()).trouble:
            ours |= environment_file.variables(environment_file.read(text, dialect(staged)))
    assert len(ours) > 800
    for name, value in ours.items():
        assert got.get(name) == value, name
    assert {name for name in got if name.startswith("K")} <= ours.keys()


REFUSED = [
    "\n",
    "\r",
    "\0",
    "\x01",
    "\x1b",
    "\x7f",
    "\x85",
    "\u2028",
    "\u2029",
    "\ufdd0",
    "\uffff",
]


@pytest.mark.parametrize("char", REFUSED, ids=lambda char: f"U+{ord(char):04X}")
def test_what_no_unit_can_hold_is_refused_before_it_gets_there(char: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    text = f'schema = 1\n[vllm]\nexecutable = "{PROGRAM}"\nmodel = "{MODEL}"\n'
    path.write_text(
        f'{text}[env]\nA = "a\\u{ord(char):04x}b"\n[args]\nx = ["\\u{ord(char):04x}"]\n'
    )
    checked = check(path, tmp_path)
    assert [problem.key for problem in checked.problems] == ["args.x", "env.A"] or [
        problem.key for problem in checked.problems
    ] == ["env.A", "args.x"]
    with pytest.raises(KimisvcError):
        load(path, tmp_path)
    with pytest.raises(KimisvcError):
        exec_argument(char)
