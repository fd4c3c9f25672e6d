"""Hosts on which who asks may look at less than the service: that refuses nothing, and is told."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

import pytest
from good_host import program, write
from staged_host import model

from kimisvc.deploy import preflight
from kimisvc.errors import HostError
from kimisvc.host import files, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from good_host import Host

    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.records.problems import Problem

SERVICE, OTHER = 4321, 65534
"""The users that the service runs as and that asks."""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes somebody else")


@pytest.fixture
def shut(host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the service's own that nobody else may enter."""
    monkeypatch.setattr(processes, "user_ids", lambda _: (SERVICE, SERVICE))
    monkeypatch.setattr(processes, "group_ids", lambda _: frozenset({SERVICE}))
    host.service(user="vllm")
    folder = host.root / "srv"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)


def give(path: Path) -> None:
    """Give all below a folder to the service, and shut the folder itself to all others."""
    for one in (path, *path.rglob("*")):
        os.chown(one, SERVICE, SERVICE, follow_symlinks=False)
    path.chmod(0o700)


def start_folder(host: Host, folder: Path) -> None:
    (folder / "work").mkdir()
    host.service(working_directory=str(folder / "work"))


def model_folder(host: Host, folder: Path) -> None:
    host.vllm(model=str(model(folder / "kimi")))


def model_itself(host: Host, folder: Path) -> None:
    folder.rmdir()
    host.vllm(model=str(model(folder)))


def executable(host: Host, folder: Path) -> None:
    host.vllm(executable=str(program(folder / "bin" / "vllm")), min_version="0.1")


def interpreter(host: Host, folder: Path) -> None:
    python, vllm = program(folder / "python"), host.root / "opt" / "vllm" / "bin" / "vllm"
    vllm.write_text(f"#!{python}\n")


def template(host: Host, folder: Path) -> None:
    host.args({"chat-template": str(write(folder / "kimi.jinja", ""))})


def cache(host: Host, folder: Path) -> None:
    (folder / "cache").mkdir()
    host.env(VLLM_CACHE_ROOT=str(folder / "cache"))


def hub_cache(host: Host, folder: Path) -> None:
    (folder / "hf").mkdir()
    host.args({"tokenizer": "org/tokenizer"})
    host.env(HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(folder / "hf"))


def nccl_file(host: Host, folder: Path) -> None:
    host.env(NCCL_CONF_FILE=str(write(folder / "nccl.conf", "")))


def device_nodes(host: Host, folder: Path) -> None:
    host.root.joinpath("dev").rename(folder / "dev")
    host.root.joinpath("dev").symlink_to(folder / "dev")


@pytest.mark.parametrize(
    ("check", "stage"),
    [
        ("start folder", start_folder),
        ("model", model_folder),
        ("model", model_itself),
        ("model files", model_folder),
        ("model files", model_itself),
        ("vLLM", executable),
        ("vLLM", interpreter),
        ("vLLM version", executable),
        ("option files", template),
        ("write access", cache),
        ("write access", hub_cache),
        ("NCCL files", nccl_file),
        ("GPU nodes", device_nodes),
    ],
)
def test_what_is_shut_to_who_asks_alone_is_not_looked_at(
    host: Host, shut: Path, check: str, stage: Callable[[Host, Path], None]
) -> None:
    stage(host, shut)
    give(shut)
    with as_somebody_else():
        said = host.unseen(check)  # which is empty where there is any problem
        assert str(shut) in said or str(host.root / "dev") in said
        assert "Permission denied" in said
    if check != "vLLM version":  # a program that tells none refuses for that
        assert host.ask(check) == []
        assert host.unseen(check) == ""


def test_a_file_that_may_be_seen_and_not_read_is_not_judged(host: Host, shut: Path) -> None:
    folder = model(shut / "kimi")
    host.vllm(model=str(folder))
    config, shard = folder / "config.json", min(folder.glob("*.safetensors"))
    for path, check in ((config, "model"), (shard, "model files")):
        os.chown(path, SERVICE, SERVICE)
        path.chmod(0o600)
        with as_somebody_else():
            assert host.ask(check) == []
            assert host.unseen(check).startswith(f"{path}: Permission denied (to who asks")


def test_what_the_service_cannot_reach_is_told_whoever_asks(host: Host, shut: Path) -> None:
    host.service(working_directory=str(shut / "work"))
    shut.chmod(0o700)  # root's own
    with as_somebody_else():
        assert f"{shut} may not be entered by user {SERVICE} (mode 700)" in host.error(
            "start folder"
        )
    shut.chmod(0o755)
    with as_somebody_else():
        assert f"{shut}/work: No such file or directory" in host.error("start folder")


def test_the_other_paths_are_told_beside_one_that_is_shut(host: Host, shut: Path) -> None:
    template(host, shut)
    cache(host, shut)
    give(shut)
    host.args({"tool-parser-plugin": "/nowhere/plugin.py"})
    host.env(TRITON_CACHE_DIR="/nowhere/triton")
    with as_somebody_else():
        assert [one.key for one in host.ask("option files")] == ["args.tool-parser-plugin"]
        assert [one.key for one in host.ask("write access")] == ["env.TRITON_CACHE_DIR"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_door_that_is_shut_costs_only_its_check(
    host: Host, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def plain(_: Inspection) -> Iterator[Problem]:
        raise OSError(number, os.strerror(number), "/srv/x")
        yield

    def of_ours(_: Inspection) -> Iterator[Problem]:
        error = OSError(number, os.strerror(number), "/srv/y")
        raise files.translated(error, host.root) from error
        yield

    monkeypatch.setattr(preflight, "CHECKS", (("plain", plain), ("ours", of_ours)))
    assert host.unseen("plain") == f"/srv/x: {os.strerror(number)}"
    assert host.unseen("ours") == f"{host.root}: {os.strerror(number)}"
    assert host.all() == ()


def test_what_was_found_before_a_door_failed_is_kept(
    host: Host, shut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(about: Inspection) -> Iterator[Problem]:
        yield from dict(checks)["option files"](about)  # type: ignore[misc]  # of problems alone
        raise HostError("file-error", "/dev/shm: Input/output error")

    checks = preflight.CHECKS
    host.args({"tool-parser-plugin": str(shut / "plugin.py")})
    monkeypatch.setattr(preflight, "CHECKS", (("half", half),))
    assert [one.key for one in host.all()] == ["args.tool-parser-plugin", ""]
