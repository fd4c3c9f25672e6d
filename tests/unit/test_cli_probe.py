"""probe, against a server that wants an API key, loads, or does not run: what it says and ends with."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from deploy_support import Quiet, add_generation, box_at
from deploy_support import profile as made_profile

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.cli.probe import probe_text
from kimisvc.errors import NoSystemdError
from kimisvc.host import locks, systemd
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import ProbeSettings
from kimisvc.records.proof import Proof, Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.box import Box
    from kimisvc.records.profile import Profile

KEY = "planted-for-the-probe-5e1c"


def _fake_vllm() -> Any:
    """The stand-in for a server; it lies beside the tests and is no package."""
    if "fake_vllm_server" not in sys.modules:
        path = Path(__file__).parents[1] / "fake_vllm" / "fake_vllm_server.py"
        spec = importlib.util.spec_from_file_location("fake_vllm_server", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fake_vllm_server"] = module
        spec.loader.exec_module(module)
    return sys.modules["fake_vllm_server"]


class Opened(Quiet):
    """A systemd as the command opens it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class Absent:
    """No systemd at all."""

    def __enter__(self) -> Self:
        raise NoSystemdError("no-systemd", "systemd does not run here")

    def __exit__(self, *_: object) -> None:
        raise AssertionError


class Stage:
    """A box on which a profile is applied, whose server wants a key where one listens."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.systemd = Opened(kimisvc_kimi="active", kimisvc_kimi_gate="active")
        self.box: Box = box_at(folder, self.systemd)
        self.secrets = folder / "kimi.secrets"
        monkeypatch.setattr(systemd, "Systemd", lambda: self.systemd)
        monkeypatch.setattr(doors, "box", lambda *_: self.box)
        monkeypatch.setattr(doors, "installation", lambda: self.box.layout.place)
        monkeypatch.delenv(doors.API_KEY, raising=False)

    def apply(self, port: int, secrets: str = "") -> None:
        self.profile = self.wanted(port, secrets)
        add_generation(self.box, self.profile)
        self.box.generations.make_current(self.box.generations.get(1))

    def wanted(self, port: int, secrets: str) -> Profile:
        made = made_profile("guarded")
        return replace(
            made,
            vllm=replace(made.vllm, port=port),
            service=replace(made.service, secrets_file=secrets),
            probe=ProbeSettings(max_tokens=16, prompt_tokens=16, warmup=0, max_runs=3),
        )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


@pytest.fixture
def guarded() -> Iterator[int]:
    """The port of a server that answers nobody without the key."""
    fake = _fake_vllm()
    options = fake.Options("/srv/model", port=0, api_key=KEY)
    server = fake.FakeVllm(options, fake.Script(decode_tok_s=400.0))
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nothing listens at, and that nobody else gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def probed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["probe", *words])
    out, err = capsys.readouterr()
    assert KEY not in out + err
    return status, out, err


def test_the_key_of_the_secrets_file_reaches_the_server(
    stage: Stage, guarded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.secrets.write_text(f"HF_TOKEN=another\nVLLM_API_KEY={KEY}\n")
    stage.apply(guarded, str(stage.secrets))
    status, out, err = probed(capsys)
    assert (status, out.splitlines()[0].split(":")[0]) == (0, "PASS"), out + err
    assert "hint" not in out
    path = stage.folder / "mine.toml"
    path.write_text(to_toml(stage.profile))
    status, out, _ = probed(capsys, str(path), "--json")
    answer = json.loads(out)
    assert (status, answer["verdict"], answer["hint"]) == (0, "PASS", "")


def test_what_is_said_by_hand_goes_before_the_file(
    stage: Stage, guarded: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.secrets.write_text("VLLM_API_KEY=changed-since-the-start\n")
    stage.apply(guarded, str(stage.secrets))
    status, out, _ = probed(capsys)
    assert status == 6
    assert "HTTP status 401" in out.splitlines()[0]
    assert out.splitlines()[-1] == (
        f"hint: the key in {stage.secrets} is not the server's, or there is none: was the file changed"
        " since the server was started? Else put the key into VLLM_API_KEY"
    )
    monkeypatch.setenv(doors.API_KEY, KEY)
    assert probed(capsys)[0] == 0
    monkeypatch.setenv(doors.API_KEY, "stale")
    status, out, _ = probed(capsys)
    assert (status, out.splitlines()[-1]) == (
        6, f"hint: the key in VLLM_API_KEY is not the server's: without it, root reads {stage.secrets}",
    )  # fmt: skip


def test_who_may_not_read_the_file_is_told_how_to_get_the_key(
    stage: Stage, guarded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.apply(guarded, str(stage.secrets))  # not there: root cannot read it either
    status, out, _ = probed(capsys, "--json")
    answer = json.loads(out)
    assert (status, answer["verdict"]) == (6, "INCONCLUSIVE")
    assert answer["hint"] == (
        f"the server wants its API key, which {stage.secrets} may hold: run it with sudo, or put the key"
        " into VLLM_API_KEY"
    )


def test_a_server_with_a_key_that_no_file_holds(
    stage: Stage, guarded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.apply(guarded)
    status, out, _ = probed(capsys)
    said = "hint: the server wants its API key: put the key into VLLM_API_KEY"
    assert (status, out.splitlines()[-1]) == (6, said)


STOPPED = "kimisvc: kimisvc-kimi.service is inactive\n  hint: kimisvc apply starts it\n"
LOADS = (
    "kimisvc: kimisvc-kimi-gate.service is at work: the server loads, or is being measured\n"
    "  hint: watch it with: kimisvc status --follow --instance kimi\n"
)


@pytest.mark.parametrize(
    ("service", "gate", "said"),
    [("inactive", "inactive", (1, "", STOPPED)), ("active", "activating", (75, "", LOADS))],
)
def test_one_that_loads_or_is_stopped_is_no_failure_of_the_server(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    service: str, gate: str, said: tuple[int, str, str],
) -> None:  # fmt: skip
    stage.apply(port=1)
    stage.systemd.states = {"kimisvc-kimi": service, "kimisvc-kimi-gate": gate}
    assert probed(capsys) == said
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (main(["bench"]), *capsys.readouterr()) == said  # in the same words


def test_one_that_another_command_works_on(
    stage: Stage, closed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.apply(closed)
    with locks.Lock(stage.box.layout.operator_lock):
        status, out, err = probed(capsys)
    assert (status, out) == (75, "")
    assert err.startswith("kimisvc: another kimisvc is at work on this instance (")


def test_without_systemd_the_server_itself_is_asked(
    stage: Stage, closed: int, guarded: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(systemd, "Systemd", Absent)
    stage.secrets.write_text(f"VLLM_API_KEY={KEY}\n")
    stage.apply(guarded, str(stage.secrets))
    assert probed(capsys)[0] == 0
    path = stage.folder / "mine.toml"
    path.write_text(to_toml(stage.wanted(closed, "")))
    status, out, _ = probed(capsys, str(path))
    assert (status, out.splitlines()[0].split(":")[0]) == (1, "FAIL")
    assert out.splitlines()[-1] == (
        "hint: normal while vLLM loads: kimisvc status --instance kimi says whether it does"
    )
    assert sum(line.startswith("note: ") for line in out.splitlines()) == 1


def test_each_note_is_told_once() -> None:
    found = Proof(Verdict(VerdictKind.FAIL, "why"), notes=("twice", "once", "twice"))
    told = probe_text(found, "look there").splitlines()
    assert told[-3:] == ["note: twice (2 times)", "note: once", "hint: look there"]
