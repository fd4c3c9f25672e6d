"""The command line: bad input gets one clear message, the right status, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click import Argument, Context

from kimisvc.cli import doors
from kimisvc.cli.main import COMMANDS, FOR_UNITS, kimisvc, main
from kimisvc.cli.reporter import Live
from kimisvc.errors import PreflightRefusedError
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Problem
from kimisvc.records.progress import Phase, Progress
from kimisvc.records.vllm import KnownFrom
from kimisvc.shipped import shipped

KIMISVC = Path(sys.executable).parent / "kimisvc"
GOOD = """schema = 1
[vllm]
executable = "/opt/vllm/bin/vllm"
model = "/srv/model"
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out, said.err


def test_check_says_sound(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    status, out, _ = call(capsys, "check", str(profile))
    assert (status, out) == (0, f"{profile}: sound\n")


def test_check_says_by_what_it_judged(
    capsys: pytest.CaptureFixture[str], profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped_version = shipped_knowledge().version
    program = profile.with_name("vllm")  # not there, wherever the test runs
    profile.write_text(GOOD.replace("/opt/vllm/bin/vllm", str(program)))
    _, _, err = call(capsys, "check", str(profile))
    why = "No such file or directory"
    words = f"could not be asked: {why}; judged by the shipped table of vLLM {shipped_version}"
    assert err == f"kimisvc: {program} {words}\n"
    _, out, _ = call(capsys, "check", "--json", str(profile))
    table = {"version": shipped_version, "known_from": "shipped", "why_not_asked": why}
    assert json.loads(out)["judged_by"] == {"executable": str(program), **table}
    _, _, err = call(capsys, "render", str(profile))
    assert err == f"kimisvc: {program} {words}\n"
    program.write_text("#!/bin/sh\n")
    status, _, err = call(capsys, "check", str(profile))
    assert (status, err) == (0, f"kimisvc: {program} {words.replace(why, 'is not executable')}\n")
    asked = replace(shipped_knowledge(), known_from=KnownFrom.ASKED, version="0.30.1")
    monkeypatch.setattr(doors, "knowledge", lambda _: asked)
    _, out, err = call(capsys, "check", "--json", str(profile))
    judge = json.loads(out)["judged_by"]
    assert (judge["known_from"], judge["why_not_asked"], err) == ("asked", None, "")
    profile.write_text("schema = 1\n[vllm\n")
    _, out, err = call(capsys, "check", "--json", str(profile))
    assert (json.loads(out)["judged_by"], err) == (None, "")


@pytest.mark.parametrize("command", ["check", "render"])
def test_a_profile_that_names_no_vllm_has_none_that_could_be_asked(
    capsys: pytest.CaptureFixture[str], profile: Path, command: str
) -> None:
    profile.write_text(re.sub("executable = .*", "", GOOD))
    _, _, err = call(capsys, command, str(profile))
    assert err.startswith("kimisvc: no [vllm] executable to ask; judged by the shipped table")
    _, out, _ = call(capsys, "check", "--json", str(profile))
    judge = json.loads(out)["judged_by"]
    assert (judge["executable"], judge["known_from"]) == (None, "shipped")
    assert judge["why_not_asked"] is None


def test_check_in_json(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    profile.write_text(GOOD + "port = 99999\n[gate]\nmax_tftt = 1\n")
    status, out, _ = call(capsys, "check", "--json", str(profile))
    assert status == 3
    problems = json.loads(out)["problems"]
    assert {(p["line"], p["key"], p["severity"]) for p in problems} == {
        (5, "vllm.port", "error"),
        (7, "gate.max_tftt", "error"),
    }
    assert all(p["file"] == str(profile) and p["message"] for p in problems)


def test_json_of_a_path_that_is_no_text_is_json_in_utf_8(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, _ = call(capsys, "check", "--json", os.fsdecode(bytes(tmp_path) + b"/k\xe9.toml"))
    assert status == 3
    (problem,) = json.loads(out.encode())["problems"]
    assert problem["file"].endswith("/k\ufffd.toml")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("schema = 1\n[vllm\n", 2, "mine.toml:2"),
        (GOOD + "port = 'x'\n", 5, "vllm.port"),
        (GOOD + "[service]\ninstance = 'a/b'\n", 6, "service.instance"),
        ("extends = 'mine.toml'\nschema = 1\n", 1, "mine.toml"),
        ("extends = 'nowhere.toml'\nschema = 1\n", 1, "nowhere.toml"),
    ],
)
@pytest.mark.parametrize("command", ["check", "render", "diff", "apply", "doctor", "probe"])
def test_a_bad_profile_is_refused_by_every_command(
    capsys: pytest.CaptureFixture[str],
    profile: Path,
    command: str,
    text: str,
    line: int,
    words: str,
) -> None:
    profile.write_text(text)
    status, out, err = call(capsys, command, str(profile))
    assert status == 3
    assert out == ""
    assert f"{profile}:{line}" in err
    assert words in err


@pytest.mark.parametrize("command", ["check", "render", "apply"])
def test_a_profile_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        status, _, err = call(capsys, command, str(path))
        assert status == 3
        assert str(path) in err


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "check")[0] == 2
    assert call(capsys, "apply", "x", "--jsn")[0] == 2
    status, _, err = call(capsys, "aply")
    assert status == 2
    assert "apply" in err


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
@pytest.mark.skipif(os.geteuid() != 0, reason="apply asks for root before it asks for systemd")
def test_no_systemd(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    for arguments in (("status",), ("apply", str(profile)), ("diff", str(profile)), ("rollback",)):
        status, _, err = call(capsys, *arguments)
        assert status == 7
        assert "systemd does not run here" in err


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
@pytest.mark.skipif(os.geteuid() != 0, reason="apply asks for root before it asks for systemd")
def test_a_refusal_in_json(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    status, out, _ = call(capsys, "apply", "--json", str(profile))
    answer = json.loads(out)
    assert (status, answer["exit"], answer["outcome"]) == (7, 7, "no-systemd")
    profile.write_text("schema = 1\n")
    status, out, _ = call(capsys, "apply", "--json", str(profile))
    answer = json.loads(out)
    assert (status, answer["exit"], answer["outcome"]) == (3, 3, "profile-refused")
    assert answer["problems"]


def test_others_than_root_hear_what_is_wrong_with_a_profile_before_they_need_root(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, profile: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    status, _, err = call(capsys, "apply", str(profile))
    assert (status, "apply needs root" in err) == (1, True)
    profile.write_text("schema = 1\nnmae = 'x'\n")
    status, _, err = call(capsys, "apply", str(profile))
    assert (status, "needs root" in err) == (3, False)
    assert f"{profile}:2: nmae" in err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in FOR_UNITS])
def test_a_program_gets_json_whatever_goes_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    found = kimisvc.get_command(Context(kimisvc), command)
    assert found is not None
    parameters = [one.name for one in found.params if isinstance(one, Argument)]
    monkeypatch.setattr("os.geteuid", lambda: 65534)  # "rollback needs root" is an error, too
    profiles = [one for one in parameters if one in ("profile", "profiles", "base", "other")]
    given = ["/no/such/profile.toml"] * len(profiles)
    status, out, _ = call(capsys, command, *given, "--json")
    answer = json.loads(out)
    assert answer.get("exit", status) == status
    assert "Traceback" not in out


@pytest.mark.parametrize("name", ["a/b", "../../etc", "", "UPPER", "x" * 33])
@pytest.mark.parametrize(
    "command", ["status", "history", "rollback", "probe", "gate", "canary", "settle"]
)
def test_an_instance_that_is_no_name_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    status, _, err = call(capsys, command, "--instance", name)
    assert status == 2
    assert "no instance name" in err


def test_a_fault_of_ours_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, profile: Path
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("never thought of")

    monkeypatch.setattr("kimisvc.profile.loader.check", broken)
    status, _, err = call(capsys, "check", str(profile))
    assert status == 1
    assert err.startswith("kimisvc: unexpected RuntimeError: never thought of\n")
    status, out, err = call(capsys, "check", "--json", str(profile))
    answer = json.loads(out)
    assert (status, answer["exit"], answer["outcome"]) == (1, 1, "unexpected")
    assert answer["reason"] == "unexpected RuntimeError: never thought of"
    assert err.startswith("kimisvc: unexpected RuntimeError: never thought of\n")


def test_a_stdout_that_is_full_is_said_once_though_json_was_asked_for(profile: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [KIMISVC, "check", "--json", str(profile)], stdout=full, stderr=subprocess.PIPE,
            check=False, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("No space left on device") == 1
    assert "Traceback" not in done.stderr


def test_a_prompt_with_brackets_can_be_shown_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with Live() as live:
        live.step("[/INST] [bold]")
        live.progress(Progress(Phase.GOLDEN, 1, "i", 0.0, 0.0, "What is [/INST]?", 1, 2))


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_what_is_written_can_be_read_by_the_units_whatever_the_umask(
    profile: Path, tmp_path: Path, mask: int
) -> None:
    folder = tmp_path / "units"
    done = subprocess.run(
        [KIMISVC, "render", str(profile), "-o", str(folder)],
        umask=mask, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o644}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_render_prints_units_and_writes_them(
    capsys: pytest.CaptureFixture[str], profile: Path, tmp_path: Path
) -> None:
    status, out, _ = call(capsys, "render", str(profile))
    assert status == 0
    assert "ExecStart=/opt/vllm/bin/vllm" in out
    folder = tmp_path / "units"
    status, _, _ = call(capsys, "render", str(profile), "-o", str(folder))
    assert status == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "kimisvc-kimi-gate.service",
        "kimisvc-kimi-rollback.service",
        "kimisvc-kimi.service",
        "kimisvc.target",
    ]


@pytest.mark.parametrize("name", sorted(path.stem for path in shipped("profiles").glob("*.toml")))
def test_a_shipped_profile_is_found_by_its_name(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert call(capsys, "check", name)[0] == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    status, out, _ = call(capsys, command, "--help")
    assert status == 0
    assert out.startswith("Usage: kimisvc")
    assert len(out) > 200


def test_the_overview_shows_what_an_operator_may_call(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "--help")
    assert status == 0
    for command in COMMANDS:
        assert (f"  {command} " in out) is (command not in FOR_UNITS)


def test_a_reader_who_leaves_is_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{KIMISVC} render baseline | head -1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("# ====")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_check_needs_neither_requests_nor_pystemd() -> None:
    program = (
        "import sys\nfrom kimisvc.cli.main import main\nmain(['check', 'll_ring'])\n"
        "slow = {'requests', 'pystemd', 'scipy', 'rich', 'jinja2', 'psutil', 'pynvml'}\n"
        "sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD"])
def test_what_is_said_of_a_secret_is_whole_and_without_it(
    capsys: pytest.CaptureFixture[str], profile: Path, name: str
) -> None:
    profile.write_text(GOOD + f'[env]\n{name} = "letmein-7c1d"\n')
    status, _, err = call(capsys, "check", str(profile))
    assert status == 3
    assert f"env.{name}: looks like a secret (by its name)" in err
    assert "letmein" not in err


def test_a_token_in_the_place_of_a_name_is_not_shown(
    capsys: pytest.CaptureFixture[str], profile: Path
) -> None:
    token = "hf_pLantedTokenAbCdEfGh12345678"
    profile.write_text(GOOD + f'[env]\n{token} = "1"\n[args]\n{token} = "1"\n')
    for command in ("check", "explain", "apply"):
        for form in ((), ("--json",)):
            status, out, err = call(capsys, command, str(profile), *form)
            assert status == 3
            assert token not in out + err


@pytest.mark.parametrize(
    "args", ["cudagraph-capture-sizes = []", "cudagraph-capture-sizes = [-1, 4]"]
)
def test_what_cannot_be_rendered_is_refused_by_check(
    capsys: pytest.CaptureFixture[str], profile: Path, args: str
) -> None:
    profile.write_text(GOOD + f"[args]\n{args}\n")
    assert call(capsys, "check", str(profile))[0] == 3


def test_a_refusal_is_headed_by_what_is_true_of_every_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit by hand does not make a host unfit."""

    def refuse(*_: object, **__: object) -> None:
        raise PreflightRefusedError([Problem("was edited by hand", file="kimisvc-kimi.service")])

    monkeypatch.setattr(kimisvc, "main", refuse)
    status, _, err = call(capsys, "apply", "mine")
    assert status == 7
    assert err.splitlines()[0] == "kimisvc: preflight refused; nothing was touched:"


def test_no_help_of_an_option_leans_on_a_sentence_before_it() -> None:
    for name in COMMANDS:
        command = kimisvc.get_command(Context(kimisvc), name)
        assert command is not None
        for parameter in command.params:
            words = (getattr(parameter, "help", None) or "").split()
            assert not {"it", "of", "in"} & {word.lower() for word in words[:1]}, parameter.name
            assert words[:2] != ["Read", "it"], parameter.name
