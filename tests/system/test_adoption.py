"""What adoption reads out of a unit is what a real systemd hands to its process."""

from __future__ import annotations

import json
import random
import tomllib
from typing import TYPE_CHECKING

import pytest
from stage import dialect

from kimisvc import environment_file
from kimisvc.profile.adoption.unit_file import UnitText, read_unit, specifier_values
from kimisvc.profile.adoption.unit_words import (
    assignments,
    command_words,
    expand,
)

if TYPE_CHECKING:
    from conftest import Box

    from kimisvc.environment_file import Dialect
    from kimisvc.profile.adoption.unit_file import Unit

pytestmark = pytest.mark.system

UNITS = 150
SEED = 252
FOLDER = "/run/adoption"
DUMP = f"""import json, os, sys
with open("{FOLDER}/" + sys.argv[1] + ".json", "w") as file:
    json.dump([sys.argv[2:], dict(os.environ)], file)
"""
INSTALL = f"""import json, os, pathlib, sys
os.makedirs("{FOLDER}", exist_ok=True)
for path, text in json.load(sys.stdin).items():
    pathlib.Path(path).write_bytes(text.encode())
"""
COLLECT = f"""import json, pathlib
found = dict((path.stem, json.loads(path.read_text())) for path in pathlib.Path("{FOLDER}").glob("*.json"))
print(json.dumps(found))
"""
PIECES = [
    "a", "b c", " ", "  ", '"', "'", "\\", "\\\\", "\\n", "\\s", "\\x41", "\\101", "\\d", '\\"',
    "$A", "${A}", "$$", "${B}", "$B", "$", "${", "%%", "%n", "%i", "%p", "%S", "% ", "=", "#", ":",
    "{", "}", '{"k": [1, 2]}', "é", "\t", "--x", "@",
]  # fmt: skip
NAMES = ["A", "B", "C", "D-E", "F"]


def text(chance: random.Random, most: int, extra: tuple[str, ...] = ()) -> str:
    return "".join(chance.choices([*PIECES, *extra], k=chance.randint(0, most)))


def unit_text(name: str, chance: random.Random) -> str:
    lines = ["[Service]", "Type=oneshot"]
    for _ in range(chance.randint(0, 3)):
        words = [f"{chance.choice(NAMES)}={text(chance, 4)}" for _ in range(chance.randint(1, 2))]
        words = [chance.choice(["{}", '"{}"', "'{}'"]).format(word) for word in words]
        lines.append(f"Environment={' '.join(words)}")
    lines.append(f"EnvironmentFile=-{FOLDER}/{name}.env")
    lines.append(f"ExecStart=/usr/bin/python3 {FOLDER}/dump.py {name} {text(chance, 8)}")
    return "\n".join(lines) + "\n"


def file_text(chance: random.Random) -> str:
    ends = ["\n", "\n", "\n", "\\\n", "\r\n", "\n# ", "\n; "]
    return "".join(
        f"{chance.choice(['', '', ' ', 'export '])}{chance.choice(NAMES)}"
        f"{chance.choice(['=', '=', '= '])}{text(chance, 5)}{chance.choice(ends)}"
        for _ in range(chance.randint(0, 3))
    )


def told(unit: Unit, file: str, as_read: Dialect) -> tuple[list[str] | None, dict[str, str]]:
    """What adoption makes of it: the arguments (None: systemd refuses the command), the variables."""
    known = specifier_values(unit.name)
    variables: dict[str, str] = {}
    for value in unit.all("Environment"):
        variables |= assignments(value, known).found
    if unit.all("EnvironmentFile"):  # the line before may go on over it
        variables |= environment_file.variables(environment_file.read(file, as_read))
    try:
        _, words = command_words(unit.last("ExecStart"), known)
        return expand(words[1:], variables, lambda _: None)[2:], variables
    except ValueError:
        return None, variables


def test_what_is_read_is_what_the_process_gets(sandbox: Box) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same units every time
    files = {f"{FOLDER}/dump.py": DUMP}
    expected = {}
    as_read = dialect(sandbox)
    for number in range(UNITS):
        name = f"adopt-{number}"
        unit, file = unit_text(name, chance), file_text(chance)
        files[f"/run/systemd/system/{name}.service"] = unit
        files[f"{FOLDER}/{name}.env"] = file
        read = read_unit(f"{name}.service", [UnitText(name, unit)])
        expected[name] = (*told(read, file, as_read), unit, file)
    sandbox.run("python3", "-c", INSTALL, text=json.dumps(files))
    sandbox.run("systemctl", "daemon-reload")
    names = [f"{name}.service" for name in expected]
    sandbox.run("systemctl", "start", *names, check=False, timeout=120.0)
    got = json.loads(sandbox.run("python3", "-c", COLLECT).stdout)
    differences = []
    for name, (arguments, variables, unit, file) in expected.items():
        seen, environment = got.get(name, (None, {}))
        named = {key: environment[key] for key in NAMES if key in environment}
        wanted = {key: variables[key] for key in NAMES if key in variables}
        if seen != arguments or (seen is not None and named != wanted):
            differences.append(f"{unit}---\n{file!r}\n{seen} {arguments}\n{named} {wanted}")
    assert not differences, "\n\n".join(differences)
    assert len(got) > UNITS // 4


def test_a_unit_by_its_name_is_asked_of_systemd(sandbox: Box) -> None:
    unit = "[Service]\nUser=daemon\nExecStart=/v/vllm serve %i/m --api-key topsecret --seed 1\n"
    drop_in = "[Service]\nTimeoutStartSec=7min\n"
    folder = "/run/systemd/system"
    files = {f"{folder}/mine@.service": unit, f"{folder}/mine@org.service.d/x.conf": drop_in}
    sandbox.run("mkdir", "-p", f"{folder}/mine@org.service.d")
    sandbox.run("python3", "-c", INSTALL, text=json.dumps(files))
    sandbox.run("ln", "-sf", "/dev/null", f"{folder}/masked.service")
    sandbox.run("systemctl", "daemon-reload")
    done = sandbox.run("kimisvc", "import", "--unit", "mine@org", "--instance", "two")
    found = tomllib.loads(done.stdout)
    assert found["vllm"] | {"host": ""} == {"executable": "/v/vllm", "model": "org/m", "host": ""}
    assert found["args"] == {"seed": 1}
    assert found["service"]["load_timeout"] == "7min"
    assert found["service"]["instance"] == "two"
    assert "VLLM_API_KEY" in done.stderr
    assert "topsecret" not in done.stdout + done.stderr
    for name, words in (("nope", "no unit of that name"), ("masked", "is masked")):
        refused = sandbox.run("kimisvc", "import", "--unit", name, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert words in refused.stderr
