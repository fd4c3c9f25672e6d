"""Commands and units of people, and the profiles they become: a case is a folder.

`command.txt` or NAME.service (with `drop-ins/*.conf`) is adopted; what it reads
lies in the folder at its path; the profile is in `expected.toml`. Written anew
with KIMISVC_REGENERATE_CASES=yes, to be read line by line before it is kept.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loading import load

from kimisvc.errors import HostError, KimisvcError
from kimisvc.profile.adoption.adopt import Adopted, adopt_command, adopt_unit
from kimisvc.profile.adoption.draft import Lookup
from kimisvc.profile.adoption.unit_file import UnitText, read_unit
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.units import Installation
from kimisvc.render.units import render
from kimisvc.shipped import shipped

CASES = sorted(path for path in (Path(__file__).parent / "adoption").iterdir() if path.is_dir())
FILES = {"/etc/default/vllm": "etc/vllm"}
NOTHING = Lookup(read=lambda _: "", program=lambda _, __: "")
NOT_READABLE = "/etc/kimi.secrets"


def lookup(case: Path) -> Lookup:
    def read(path: str) -> str:
        file = case / FILES.get(path, path.lstrip("/"))
        if path == NOT_READABLE or not file.is_file():
            raise HostError("file-error", f"{path}: not there, or not for us")
        return file.read_text()

    return Lookup(read=read, program=lambda _, __: "")


def adopted(case: Path) -> Adopted:
    command = case / "command.txt"
    if command.exists():
        return adopt_command([command.read_text()], lookup(case), shipped_knowledge())
    (file,) = case.glob("*.service")
    name = file.name.replace("@.", "@main.")
    texts = [UnitText(f"/etc/systemd/system/{file.name}", file.read_text())]
    for drop_in in sorted(case.glob("drop-ins/*.conf")):
        path = f"/etc/systemd/system/{name}.d/{drop_in.name}"
        texts.append(UnitText(path, drop_in.read_text()))
    return adopt_unit(read_unit(name, texts), lookup(case), shipped_knowledge())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_becomes_the_profile_beside_it(case: Path) -> None:
    found = adopted(case)
    expected = case / "expected.toml"
    if os.environ.get("KIMISVC_REGENERATE_CASES") == "yes" and "CI" not in os.environ:
        expected.write_text(found.text)
        pytest.fail("written anew; run again without the variable")
    assert found.text == expected.read_text()
    assert tomllib.loads(found.text)["name"] == found.name
    assert all(len(line) <= 130 for line in found.text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_secret_of_it_is_told(case: Path) -> None:
    given = "".join(path.read_text() for path in case.rglob("*") if path.name != "expected.toml"
                    and path.is_file())  # fmt: skip
    assert "topsecret" in given or case.name in ("fast_timeout", "config_file", "shell_in_unit")
    told = repr(adopted(case)).casefold()
    assert "topsecret" not in told


@pytest.mark.parametrize("name", sorted(p.stem for p in shipped("profiles").glob("*.toml")))
def test_a_unit_that_kimisvc_rendered_becomes_its_profile_again(name: str, tmp_path: Path) -> None:
    profile = load(shipped("profiles") / f"{name}.toml", shipped("profiles"))
    templates = {path.name: path.read_text() for path in shipped("units").iterdir()}
    unit = render(profile, templates, Installation(kimisvc=Path("/usr/bin/kimisvc")))[0]
    text = UnitText(f"/etc/systemd/system/{unit.name}", unit.text)
    found = adopt_unit(read_unit(unit.name, [text]), NOTHING, shipped_knowledge())
    path = tmp_path / "again.toml"
    path.write_text(found.text)
    again = load(path, shipped("profiles"))
    assert replace(again.vllm, min_version=profile.vllm.min_version) == profile.vllm
    assert again.args == profile.args
    assert profile.env.items() <= again.env.items()
    assert again.service.stop_timeout >= profile.service.stop_timeout


@pytest.mark.parametrize(
    ("options", "gpus", "comment"),
    [
        ("-tp 4 -dp 2", 8, "# from tensor-parallel-size x data-parallel-size"),
        ("--tensor-parallel-size 16 --nnodes 2", 8, "# from tensor-parallel-size on 2 boxes"),
        ("-tp 2 -pcp 2", 4, "x prefill-context-parallel-size"),
        ("-dp 16 --data-parallel-size-local 8", 8, ""),
        ("-tp 16 --distributed-executor-backend ray", None, ""),
        ("-tp 1", None, ""),
    ],
)
def test_the_gpus_of_this_box_are_counted(options: str, gpus: int | None, comment: str) -> None:
    found = adopt_command([f"vllm serve a/b {options}"], NOTHING, shipped_knowledge())
    assert tomllib.loads(found.text).get("hardware", {}).get("gpus") == gpus
    assert comment in found.text


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("llama-server -m x", "no-vllm", "starts vLLM"),
        ("", "no-vllm", "starts vLLM"),
        ("vllm", "not-serving", "without a command"),
        ("vllm bench serve", "not-serving", "vllm bench does not serve"),
        ("python -m vllm.entrypoints.api_server", "not-serving", "not the server"),
        ("if true; then vllm serve m; fi", "not-simple", "line 1: `if`"),
        ("set -e\n\nfor i in 1 2", "not-simple", "line 3: `for`"),
        ("[ -d /x ] && vllm serve m", "not-simple", "`\\["),
        ("vllm serve a/b; vllm serve c/d", "several", "a second vLLM"),
        ("vllm serve $(cat m)", "not-simple", "command inside of a command"),
        ("su -c 'vllm serve m' vllm", "not-simple", "text of its own"),
        ("env " * 9 + "vllm serve m", "not-simple", "8 deep"),
        ("docker run -it --rm", "not-serving", "names no image"),
        ("docker run img python x.py", "not-serving", "a program of its own"),
        ("docker ps", "no-vllm", "starts vLLM"),
        ("/no/such/start.sh", "not-read", "/no/such/start.sh"),
        ("vllm serve m --config c.yaml", "file-error", "c.yaml"),
        ("vllm serve \udc80", "not-text", "UTF-8"),
    ],
)
def test_what_cannot_be_adopted_is_refused_in_words(command: str, code: str, words: str) -> None:
    with pytest.raises(KimisvcError, match=words) as caught:
        adopt_command([command], lookup(Path("/nowhere")), shipped_knowledge())
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("exec_start", "code", "words"),
    [
        ("", "no-vllm", "no ExecStart="),
        ("ExecStart=/a\nExecStart=/b", "no-vllm", "several ExecStart="),
        ("ExecStart=/usr/bin/node topsecret", "no-vllm", "starts /usr/bin/node, which is not vLLM"),
        ("ExecStart=/v/vllm serve 'topsecret", "bad-command", "not closed"),
        ("ExecStart=/v/vllm serve %H", "bad-command", "%H"),
        ("ExecStart=/v/vllm serve m ; /b", "several", "several commands"),
    ],
)
def test_a_unit_that_cannot_be_adopted_is_refused(exec_start: str, code: str, words: str) -> None:
    unit = read_unit("v.service", [UnitText("/v.service", f"[Service]\n{exec_start}\n")])
    with pytest.raises(KimisvcError, match=words) as caught:
        adopt_unit(unit, NOTHING, shipped_knowledge())
    assert caught.value.code == code
    assert "topsecret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("words", "executable", "user"),
    [
        (["vllm", "serve", "o/m"], "/usr/bin/vllm", None),
        (["A=1", "env", "-u", "A", "B=2", "vllm", "serve", "o/m"], "/usr/bin/vllm", None),
        (["sudo", "-u", "v", "/v/bin/vllm", "serve", "o/m"], "/v/bin/vllm", "v"),
        (["runuser", "-u", "v", "--", "/v/bin/vllm", "serve", "o/m"], "/v/bin/vllm", "v"),
        (["gosu", "v", "/v/bin/vllm", "serve", "o/m"], "/v/bin/vllm", "v"),
        (["timeout", "-k", "5", "10", "nice", "-n", "5", "/v/bin/vllm", "serve", "o/m"],
         "/v/bin/vllm", None),
        (["uv", "run", "--project", "/p", "vllm", "serve", "o/m"], "/usr/bin/vllm", None),
        (["conda", "run", "-n", "x", "vllm", "serve", "o/m"], "/usr/bin/vllm", None),
        (["python", "-m", "vllm.entrypoints.cli.main", "serve", "o/m"], "/usr/bin/vllm", None),
        (["/v/bin/python3.12", "/v/bin/vllm", "serve", "o/m"], "/v/bin/vllm", None),
        (["/v/bin/python", "/x/vllm/entrypoints/openai/api_server.py", "--model=o/m"],
         "/v/bin/vllm", None),
        (["bash", "-euc", 'cd /v/bin; ./vllm serve "$@"', "x", "o/m"], "/v/bin/vllm", None),
    ],
)  # fmt: skip
def test_wrappers(words: list[str], executable: str, user: str | None) -> None:
    look = Lookup(lambda _: "", lambda name, _: f"/usr/bin/{name}")
    found = tomllib.loads(adopt_command(words, look, None).text)
    assert found["vllm"]["executable"] == executable
    assert found["vllm"]["model"] == "o/m"
    assert found.get("service", {}).get("user") == user
    assert "A" not in found.get("env", {})


@pytest.mark.parametrize(("value", "timeout"), [("5400", "1h 30min"), ("forever", None)])
def test_how_long_vllm_waits_for_its_engine_is_the_load_timeout(
    value: str, timeout: str | None
) -> None:
    command = f"VLLM_ENGINE_READY_TIMEOUT_S={value} vllm serve o/m"
    found = tomllib.loads(adopt_command([command], lookup(Path("/x")), None).text)
    assert found.get("service", {}).get("load_timeout") == timeout
    assert "env" not in found


SECRET = "topsecret0Aa1Bb2Cc3Dd4"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [f"--api-key {SECRET}", f"--api-key={SECRET}", f"--api_key {SECRET} {SECRET}",
             f"--apikey {SECRET}", f"--api-k {SECRET}", f"--hf-token {SECRET}",
             f"--ssl-keyfile-password {SECRET}", f"--hf-overrides.api_key {SECRET}",
             f"--x '{{\"api_key\": \"{SECRET}\"}}'", f"--x hf_{SECRET}", f"--x --y=sk-{SECRET}",
             f"hf_{SECRET}", "--seed 1", "--enforce-eager", "-tp 2", f"-e API_KEY={SECRET}"]
        ),
        max_size=4,
    ),
    st.sampled_from(
        ["", f"HF_TOKEN={SECRET} ", f"export MY_PASSWORD={SECRET}; ", f"echo hf_{SECRET}; ",
         f"env VLLM_API_KEY={SECRET} ", f"K={SECRET}; API_KEY=$K ", f"sk-{SECRET}; ",
         f"export U=http://a:{SECRET}@b/; ", f"docker run -e TOKEN={SECRET} img ", f"A_KEY={SECRET} "]
    ),
)  # fmt: skip
@example([f"hf_{SECRET}"], f"docker run -e TOKEN={SECRET} img ")
def test_a_planted_secret_is_never_told(options: list[str], before: str) -> None:
    start = "--model o/m" if "docker" in before else "vllm serve o/m"
    command = f"{before}{start} {' '.join(options)}"
    for knowledge in (shipped_knowledge(), None):
        try:
            told = repr(adopt_command([command], NOTHING, knowledge))
        except KimisvcError as error:
            told = f"{error.message} {error.hint}"
        assert SECRET not in told


PIECES = st.sampled_from(
    ["--seed", "--tensor-parallel-size", "-tp", "-O3", "--config", "--config=x", "--", "-", "--=",
     "--api-key", "--served-model-name", "--port", "--x.y", "--no-x", "8", "-1", "1e400", '{"a":1}',
     "[{}]", "{'a'", "'", '"', "\\", "$A", "${A}", "$@", "%", "\u2028", "\x7f", "#", ";", "&&", "|", ">",
     "(", "~/x", "A=1", "=", "vllm", "serve", "env", "sudo", "-u", "bash", "-c", "docker", "run",
     "-e", "-p", "1:2", "exec", "export", "cd", "ulimit", "set", "timeout", "/a.sh", "./x", "\n", ""]
)  # fmt: skip
LINES = st.lists(PIECES, max_size=8).map(" ".join)
KEYS = st.sampled_from(
    ["ExecStart", "Environment", "EnvironmentFile", "User", "WorkingDirectory", "TimeoutSec",
     "RestartSec", "LimitNOFILE", "MemoryMax", "CPUQuota", "UnsetEnvironment", "PassEnvironment",
     "ExecStart=/v/vllm serve o/m", "Foo", ""]
)  # fmt: skip


@settings(deadline=None)
@given(
    LINES,
    st.sampled_from(["", "vllm serve o/m "]),
    st.lists(st.tuples(KEYS, LINES), max_size=5),
    LINES,
)
def test_anything_is_adopted_as_toml_or_refused_in_words(
    line: str, start: str, unit: list[tuple[str, str]], file: str
) -> None:
    look = Lookup(read=lambda _: f"#!/bin/sh\n{file}", program=lambda name, _: f"/v/{name}")
    text = "[Service]\n" + "\n".join(f"{key}={value}" for key, value in unit)
    for adopt in (
        partial(adopt_command, [start + line], look, shipped_knowledge()),
        partial(adopt_unit, read_unit("a@b.service", [UnitText("/a", text)]), look, None),
    ):
        try:
            assert tomllib.loads(adopt().text)["schema"] == 1
        except KimisvcError as error:
            assert error.message  # noqa: PT017 - any other exception is a defect


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve /m --api-key=k1 planted2", "vllm serve /m --root-path X-Api-Key: planted-8f3kQ9zX7mW2",
        "vllm serve /m --hf_token=k1 planted", "DSN='Server=db;Password=planted;' vllm serve /m",
        "H='X-Api-Key: planted12' vllm serve /m", "O='-u bob:planted12' vllm serve /m",
        'vllm serve /m --kv-transfer-config {"password":"planted"}',
        "vllm serve /m --root-path '/x --redis-password planted'",
        "env AccountKey=planted vllm serve /m",
        "docker run -e 'C=AccountKey=planted;' vllm/vllm-openai --model /m",
        "vllm serve /m --additional-config '{\"a\": \"Password=planted;\"}'",
    ],
)  # fmt: skip
def test_no_secret_is_told_whatever_it_stands_in(command: str) -> None:
    found = adopt_command([command], NOTHING, shipped_knowledge())
    told = [found.text, *found.secrets, *(part for n in found.unclear for part in (n.what, n.why))]
    assert not [text for text in told if "planted" in text]


def test_a_line_that_systemd_drops_is_told_by_its_number() -> None:
    text = "[Service]\nEnvironmentFile=/etc/x\nExecStart=/opt/v/bin/vllm serve /m\n"
    held = "# goes on \\\nA=1\nplanted-key\nexport B=1\nplanted=\u00e9=\u00a0\n9planted=1\n"
    look = Lookup(read=lambda _: held, program=lambda _, __: "")
    unit = read_unit("v.service", [UnitText("/etc/systemd/system/v.service", text)])
    found = adopt_unit(unit, look, shipped_knowledge())
    told = {note.what: note.why for note in found.unclear}
    assert {what for what in told if what.startswith("/etc/x")} == {
        "/etc/x:1", "/etc/x:3", "/etc/x:4: export B", "/etc/x:6",
    }  # fmt: skip
    assert "ends in a backslash" in told["/etc/x:1"]
    assert 'A = "1"' in found.text
    assert "9planted" not in found.text
    assert "planted-key" not in found.text
