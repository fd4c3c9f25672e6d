"""No secret appears anywhere: several are planted, the server shouts them, and all is searched.

A vLLM that prints its keys in every writing when it starts and when it dies, and
puts them into the bodies of errors and into answers. Only its own lines of the
journal may hold them, which root may read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stage import Stage

pytestmark = pytest.mark.system

SECRETS = {
    "VLLM_API_KEY": "q8Zr-planted-key-5f2cT1",
    "HF_TOKEN": "hf_pLantedTokenAbCdEfGh12345678",
    "DB_PASSWORD": "pl@nted $w'ord\"%20\\n&<\u00e9=",
    "HTTPS_PROXY": "http://bob:pl%40nted-pr0xy@proxy.example:3128",
}
FILE = "\n".join(
    [
        "# planted",
        f"VLLM_API_KEY={SECRETS['VLLM_API_KEY']}",
        f'HF_TOKEN="{SECRETS["HF_TOKEN"]}"',
        'DB_PASSWORD="pl@nted \\$w\'ord\\"%20\\\\n&<\u00e9="',
        f"HTTPS_PROXY='{SECRETS['HTTPS_PROXY']}'\n",
    ]
)
LEAKY = "/opt/leaky/bin/vllm"
LEAKY_SOURCE = r'''#!/usr/bin/python3
"""The stand-in, made to tell its secrets: LEAK says where (die, error, body, answer, version)."""
import base64, importlib.machinery, importlib.util, json, os, sys, urllib.parse

NAMES = ("VLLM_API_KEY", "HF_TOKEN", "DB_PASSWORD", "HTTPS_PROXY")
held = {n: os.environ[n] for n in NAMES if n in os.environ}
said = []
for name, value in held.items():
    raw = value.encode()
    said += [
        f"{name}={value}", repr(value), json.dumps(value), urllib.parse.quote(value, safe=""),
        base64.b64encode(raw).decode(), base64.b64encode(b"user:" + raw).decode(), raw.hex(),
        f"Authorization: Bearer {value}", f"--api-key {value}", repr({"key": [value]}),
    ]
said = " ".join([*said, "pl@nted-pr0xy"])
leak = os.environ.get("LEAK", "")
if "serve" in sys.argv:
    print(f"(APIServer pid=1) INFO 11-30 08:42:31 [utils.py:1] env: {said}", file=sys.stderr, flush=True)
    if leak == "die":
        print(f"RuntimeError: the hub refused {said}", file=sys.stderr, flush=True)
        sys.exit(1)
loader = importlib.machinery.SourceFileLoader("standin", "/opt/standin/bin/vllm")
standin = importlib.util.module_from_spec(importlib.util.spec_from_loader("standin", loader))
sys.modules["standin"] = standin
loader.exec_module(standin)
if leak == "answer":
    os.environ["FAKE_VLLM_DEFAULT_ANSWER"] = said
if leak == "version":
    os.environ["FAKE_VLLM_VERSION"] = said
if leak == "error":
    standin.REFUSALS = {code: (kind, said) for code, (kind, _) in standin.REFUSALS.items()}
if leak == "body":
    standin.Handler._refuse = lambda self, status, *_: self._send(status, said.encode(), "text/plain")
sys.exit(standin.main(sys.argv[1:]))
'''
BREAKS: Mapping[str, Mapping[str, Any]] = {
    "error": {"error_status": 500},
    "body": {"error_status": 500},
    "answer": {},
    "version": {"default_answer": "I like trains."},
}
"""Where a server that loads tells its secrets, and what else makes its gate fail."""

SEARCH = r"""
import base64, json, os, pathlib, subprocess, sys, urllib.parse
asked = json.load(sys.stdin)
forms = {}
for name, value in asked["secrets"].items():
    raw = value.encode()
    written = [value, value[:12], json.dumps(value)[1:-1], repr(value)[1:-1], raw.hex(),
               urllib.parse.quote(value, safe=""), base64.b64encode(raw).decode()[:-4]]
    forms |= {form.encode(): name for form in written}
def look(where, content):
    for form, name in forms.items():
        if form in content:
            print(json.dumps([where, name]))
def text_of(value):
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return bytes(value)
    if isinstance(value, list):
        return b"\n".join(map(text_of, value))
    return str(value).encode()
for root in asked["roots"]:
    for path in pathlib.Path(root).rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".secrets":
            look(str(path), path.read_bytes())
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        look(str(path), path.read_bytes())
    except OSError:
        pass
subprocess.run(["journalctl", "--sync"], check=True)
journal = subprocess.run(["journalctl", "-o", "json", "--all"], capture_output=True, check=True).stdout
shouted = 0
for line in journal.splitlines():
    entry = json.loads(line)
    content = b"\n".join(text_of(v) for v in entry.values())
    who = str(entry.get("SYSLOG_IDENTIFIER"))
    if who.startswith("kimisvc-") and not who.endswith(("-gate", "-rollback")):
        shouted += any(form in content for form in forms)
    else:
        look("journal: " + who, content)
for unit in asked["units"]:
    for command in (["systemctl", "show", "--all", unit], ["systemctl", "cat", unit]):
        look(" ".join(command), subprocess.run(command, capture_output=True).stdout)
print(json.dumps(["shouted", shouted]))
"""


@dataclass(frozen=True)
class Searched:
    """Where a secret was found, and in how many of vLLM's own lines."""

    where: list[str]
    shouted: int


def leaky(stage: Stage, name: str, leak: str, script: Mapping[str, Any] | None = None) -> str:
    """Write a profile whose server tells its secrets."""
    sandbox = stage.sandbox
    sandbox.run("mkdir", "-p", LEAKY.rpartition("/")[0])
    sandbox.write(LEAKY, LEAKY_SOURCE)
    sandbox.run("chmod", "755", LEAKY)
    file = f"/etc/kimisvc/{stage.instance}.secrets"
    sandbox.write(file, FILE)
    sandbox.run("chmod", "600", file)
    sandbox.run("chown", "root:root", file)
    path = stage.profile(name, script, service={"secrets_file": file}, vllm={"executable": LEAKY})
    text = stage.sandbox.read(path)
    stage.sandbox.write(path, text.replace("[env]\n", f'[env]\nLEAK = "{leak}"\n', 1))
    return path


def everything_said(stage: Stage, path: str) -> str:
    """Call every command an operator has, in both forms; return all they wrote."""
    here = instance(stage)
    commands = [
        ("check", path), ("check", path, "--json"), ("render", path), ("diff", path),
        ("diff", path, "--json"), ("apply", path, "--dry-run"), ("apply", path, "--dry-run", "--json"),
        ("status", *here), ("status", *here, "--json"), ("history", *here), ("history", *here, "--json"),
        ("doctor", path), ("doctor", path, "--json"), ("probe", *here), ("probe", *here, "--json"),
        ("profiles",), ("profiles", "--json"),
    ]  # fmt: skip
    return what_is_said(stage, *commands)


def what_is_said(stage: Stage, *commands: tuple[str, ...]) -> str:
    """Call commands, with the key as an operator would hand it over; return all they wrote."""
    key = f"VLLM_API_KEY={SECRETS['VLLM_API_KEY']}"
    said = []
    for command in commands:
        with_key = ("env", key) if command[0] == "probe" and "--json" not in command else ()
        done = stage.sandbox.run(*with_key, "kimisvc", *command, check=False)
        said.append(f"$ {' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return "\n".join(said)


def instance(stage: Stage) -> tuple[str, str]:
    return "--instance", stage.instance


def found(stage: Stage) -> Searched:
    """Search the box for every planted secret."""
    names = [f"kimisvc-{stage.instance}{tail}.service" for tail in ("", "-gate", "-rollback")]
    asked = {
        "secrets": SECRETS, "units": names,
        "roots": ["/etc/systemd/system", "/run/systemd/system", f"/var/lib/kimisvc/{stage.instance}",
                  "/run/kimisvc", "/etc/kimisvc"],
    }  # fmt: skip
    done = stage.sandbox.run("python3", "-c", SEARCH, text=json.dumps(asked))  # type: ignore[call-arg]
    *where, shouted = [json.loads(line) for line in done.stdout.splitlines()]
    return Searched([f"{place}: {name}" for place, name in where], shouted[1])


def leaks_in(text: str) -> list[str]:
    forms = [
        form
        for value in SECRETS.values()
        for form in (
            value,
            value[:12],
            json.dumps(value)[1:-1],
            repr(value)[1:-1],
            value.encode().hex(),
        )
    ]
    return [line for line in text.splitlines() if any(form in line for form in forms)]


def test_what_a_dying_server_shouts_stays_in_its_own_journal(stage: Stage) -> None:
    status, _ = stage.apply(leaky(stage, "good", ""))
    assert status == 0
    bad = leaky(stage, "bad", "die")
    done = stage.kimisvc("apply", bad, "--json")
    assert json.loads(done.stdout)["outcome"] == "rolled-back", done.stdout
    said = f"{done.stdout}\n{done.stderr}\n{everything_said(stage, bad)}"
    assert "its last words: RuntimeError: the hub refused" in said
    assert "[redacted: VLLM_API_KEY]" in said
    assert_nowhere(stage, said)


def test_what_a_server_answers_stays_with_it(stage: Stage) -> None:
    stage.apply(leaky(stage, "good", ""))
    said = []
    for leak, script in BREAKS.items():
        done = stage.kimisvc("apply", leaky(stage, leak, leak, script), "--json")
        answer = json.loads(done.stdout)
        assert answer["outcome"] in ("rolled-back", "inconclusive"), answer
        said += [done.stdout, done.stderr, what_is_said(stage, ("probe", *instance(stage)))]
        if leak != "version":
            assert "[redacted" in answer["reason"], answer
    assert_nowhere(
        stage, "\n".join([*said, what_is_said(stage, ("history", *instance(stage), "--json"))])
    )


def assert_nowhere(stage: Stage, said: str) -> None:
    """Hold that no secret is in what was said, nor anywhere on the box but in vLLM's own words."""
    assert leaks_in(said) == []
    searched = found(stage)
    assert searched.shouted > 0, "the server shouted nothing: this test could not fail"
    assert searched.where == []


def test_what_systemd_would_write_to_the_journal_is_refused_before(stage: Stage) -> None:
    path = leaky(stage, "careless", "")
    file = f"/etc/kimisvc/{stage.instance}.secrets"
    stage.sandbox.write(file, f"export HF_TOKEN={SECRETS['HF_TOKEN']}\nVLLM_API_KEY=''\n")
    stage.sandbox.run("chmod", "640", file)
    done = stage.kimisvc("apply", path)
    assert done.returncode == 7, done.stderr
    for words in (f"{file}:1", "write HF_TOKEN=... alone", f"{file}:2", "is empty", "chmod 600"):
        assert words in done.stderr
    assert leaks_in(done.stderr + done.stdout) == []
    assert found(stage).where == []


def test_a_secret_in_a_hand_edited_unit_is_shown_to_nobody_else(stage: Stage) -> None:
    stage.apply(leaky(stage, "one", ""))
    unit = f"/etc/systemd/system/{stage.service}"
    text = stage.sandbox.read(unit)
    edit = f"[Service]\nEnvironment=HF_TOKEN={SECRETS['HF_TOKEN']}"
    stage.sandbox.write(unit, text.replace("[Service]", edit, 1))
    path = leaky(stage, "two", "", {"load_seconds": 0.1})
    shown = stage.kimisvc("diff", path)
    refused = stage.kimisvc("apply", path)
    assert refused.returncode == 7
    taken = stage.kimisvc("apply", path, "--overwrite")
    assert taken.returncode == 0, taken.stderr
    for done in (shown, refused, taken):
        assert leaks_in(done.stdout + done.stderr) == []
    copies = f"/var/lib/kimisvc/{stage.instance}/overwritten"
    modes = stage.sandbox.run("find", copies, "-type", "f", "-printf", "%m %U\n").stdout.split("\n")
    assert set(filter(None, modes)) == {"600 0"}
