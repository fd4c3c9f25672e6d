"""Which errors of the preflight keep an operator from going back by hand: each key has its decision."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_box import SERVICE, Silent, Systemd, two_generations
from good_host import LOADED, write

from kimisvc.deploy import preflight
from kimisvc.deploy.checks import files
from kimisvc.deploy.checks.secrets import secrets_problems
from kimisvc.deploy.generations import Draft
from kimisvc.deploy.rollback import Restoring, for_unit, to_generation
from kimisvc.deploy.start_needs import FAULTS, Then, decided, that_end_a_start
from kimisvc.deploy.wish import Following
from kimisvc.errors import ExitStatus, PreflightRefusedError
from kimisvc.host import nccl_conf
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.profile import Profile, ServiceSettings, VllmSettings
from kimisvc.records.units import UnitFile
from kimisvc.render.writable import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from good_host import Host

    from kimisvc.deploy.box import Box

CHOSEN = f"env.{nccl_conf.CHOSEN_BY}"
OF_FILES = frozenset(
    {
        *(f"args.{row.name}" for row in files.OPTIONS),
        *(f"env.{row.name}" for row in files.VARIABLES),
    }
)
SPELLED: Mapping[str, frozenset[str]] = {
    "key": OF_FILES,
    "f'args.{written}'": OF_FILES,
    "f'env.{row.name}'": OF_FILES,
    "f'args.{UTILIZATION}'": frozenset({"args.gpu-memory-utilization"}),
    "f'env.{nccl_conf.CHOSEN_BY}'": frozenset({CHOSEN}),
    "f'env.{nccl_conf.CHOSEN_BY}' if str(path) == chosen else 'env'": frozenset({CHOSEN, "env"}),
    "target.key": frozenset(f"{row.table}.{row.name}" for row in WRITTEN),
}
"""What the keys come to that a check puts together."""


def keys_of(module: ModuleType) -> Iterator[str]:
    """Every key that an error may carry which this module makes."""
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "Problem"):
            continue
        named = {word.arg: word.value for word in call.keywords}
        if "severity" in named and ast.unparse(named["severity"]).endswith("WARNING"):
            continue
        key = named.get("key", call.args[3] if len(call.args) > 3 else ast.Constant(""))
        if isinstance(key, ast.Constant):
            yield str(key.value)
        elif isinstance(key, ast.Name) and hasattr(module, key.id):
            yield getattr(module, key.id)
        else:
            yield from SPELLED[ast.unparse(key)]  # a KeyError: a new way of writing one


def all_keys() -> set[str]:
    modules = {inspect.getmodule(check) for _, check in preflight.CHECKS}
    return {key for module in (*modules, preflight) if module for key in keys_of(module)}


def test_each_key_that_a_check_refuses_with_is_decided() -> None:
    assert {key for key in all_keys() if decided(key) is None} == set()


def test_each_decision_is_of_one_key_that_a_check_refuses_with() -> None:
    assert {row.key for row in FAULTS} - all_keys() == set()
    plain = [row.key for row in FAULTS if row.then is not Then.BY_FOLDER]
    assert len(plain) == len(set(plain))


@pytest.mark.parametrize(
    ("key", "then"),
    [
        ("args.chat_template", Then.ENDS),  # as somebody may write it
        ("args.compilation-config.cache_dir", Then.BY_FOLDER),
        ("env.NCCL_TOPO_FILE", Then.MAY_GO_ON),
        ("args.unheard-of", None),
        ("unheard-of", None),
    ],
)
def test_a_key_is_found_however_it_is_written(key: str, then: Then | None) -> None:
    fault = decided(key)
    assert (fault.then if fault else None) is then


# ---------------------------------------------------------------- going back by hand


@pytest.fixture
def systemd() -> Systemd:
    """What runs is loaded anew for generation 1."""
    made = Systemd()
    made.service = replace(made.service, active_state="inactive")
    return made


@pytest.fixture
def box(tmp_path: Path, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> Box:
    return two_generations(tmp_path, systemd, monkeypatch)


def back(box: Box, *found: Problem, to: int = 1) -> None:
    to_generation(box, Restoring(to, "root", Following.LEAVE), lambda _: found, Silent())


@pytest.mark.parametrize("key", [row.key for row in FAULTS if row.then is Then.ENDS])
def test_what_runs_is_not_stopped_for_what_cannot_start(
    box: Box, systemd: Systemd, key: str
) -> None:
    fault = Problem("no", key=key)
    with pytest.raises(PreflightRefusedError) as caught:
        back(box, Problem("may be"), fault)
    assert (tuple(caught.value.reasons), caught.value.exit_status) == (
        (fault,), ExitStatus.PREFLIGHT_REFUSED,
    )  # fmt: skip
    assert not [asked for asked in systemd.asked if asked[0] in ("restart", "stop")]
    assert box.generations.current_number() == 2
    back(box, replace(fault, severity=Severity.WARNING))
    assert box.generations.current_number() == 1


@pytest.mark.parametrize("key", [row.key for row in FAULTS if row.then is Then.MAY_GO_ON])
def test_what_may_go_well_keeps_nobody_from_going_back(box: Box, key: str) -> None:
    back(box, Problem("no", key=key))
    assert box.generations.current_number() == 1


@pytest.mark.parametrize(
    ("text", "mode", "refused"),
    [("VLLM_API_KEY=a-key\n", 0o640, False), ("VLLM_API_KEY\n", 0o600, True), (None, 0, True)],
    ids=["open to others", "half read", "gone"],
)
def test_secrets_that_can_be_read_whole_keep_nobody_from_going_back(
    tmp_path: Path,
    text: str | None,
    mode: int,
    refused: bool,  # noqa: FBT001 - the expected answer
) -> None:
    path = tmp_path / "kimi.secrets"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    profile = Profile(
        "p", VllmSettings("/opt/vllm", "m"), service=ServiceSettings(secrets_file=str(path))
    )
    found = [one for one in secrets_problems(profile) if one.severity is Severity.ERROR]
    assert found
    assert bool(that_end_a_start(found, profile, ())) is refused


@pytest.mark.parametrize(
    ("env", "refused"), [({"HF_HUB_OFFLINE": "1"}, True), ({}, False)], ids=["offline", "fetched"]
)
def test_a_cache_that_a_model_is_only_read_from_is_needed_whatever_the_unit_opens(
    box: Box,
    env: dict[str, str],
    refused: bool,  # noqa: FBT001 - the expected answer
) -> None:
    profile = Profile(
        "hub", VllmSettings("/opt/vllm/bin/vllm", "org/model"), env={"HF_HOME": "/mnt/hf", **env}
    )
    unit = UnitFile(SERVICE, "[Service]\nNice=1\n")
    made = box.generations.add(Draft("hub", "", to_toml(profile), (unit,), {}), 1.0)
    fault = Problem("the service could not read /mnt/hf", key="env.HF_HOME")
    if refused:
        with pytest.raises(PreflightRefusedError):
            back(box, fault, to=made.number)
    else:
        back(box, fault, to=made.number)
    assert box.generations.current_number() == (2 if refused else made.number)


def test_the_unit_goes_back_whatever_the_host_is_like(box: Box, systemd: Systemd) -> None:
    """Nobody is asked there: what failed is given up."""
    systemd.service = replace(systemd.service, active_state="active")
    systemd.gate = replace(systemd.gate, active_state="failed", exec_main_status=5)
    row = for_unit(box)
    assert row is not None
    assert (row.to_generation, box.generations.current_number()) == (1, 1)


def test_what_the_checks_say_of_a_host_is_understood(host: Host) -> None:
    """An upgrade under a loaded module, a limit of the kernel, a template that is gone."""
    write(host.root / "proc" / "driver" / "nvidia" / "version", LOADED.replace("580", "570"))
    write(host.root / "proc" / "sys" / "fs" / "nr_open", "65536\n")
    host.args({"chat-template": str(host.root / "gone.jinja")})
    host.hardware(ram_gib=10**6)
    found = host.all()
    ends = {"hardware.gpus", "service.limit_nofile", "args.chat-template"}
    assert {one.key for one in found} == {*ends, "hardware.ram_gib"}
    assert {one.key for one in that_end_a_start(found, host.profile, ())} == ends
