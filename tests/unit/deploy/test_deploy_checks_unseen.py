"""Hosts on which who asks may look at less than the service: that refuses nothing, and is told."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from good_host import program, write
from staged_host import mapping, model, process

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


# ------------------------------------------------------------------ whose it is


OURS = "kimisvc-kimi.service"
GIB = 1 << 30
LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def listener(host: Host) -> Iterator[int]:
    """A process of root's that listens at the port of the profile."""
    argv = [sys.executable, "-c", LISTENS, str(host.profile.vllm.port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"bound\n"
        try:
            yield server.pid
        finally:
            server.kill()


def hide_others(host: Host) -> None:
    """Let /proc be mounted with hidepid=: what is not of who asks is shut to them."""
    for folder in (host.root / "proc").iterdir():
        if folder.name.isdecimal():
            folder.chmod(0o700)


def test_whose_the_port_is_others_than_root_cannot_see_while_our_service_runs(
    host: Host, listener: int
) -> None:
    process(host.root / "proc", 9, "vllm", OURS)
    assert f"(PID {listener}" in host.error("port")  # it is not of our unit, root sees
    with as_somebody_else():
        assert host.ask("port") == []
        said = host.unseen("port")
    assert said == f"who has port {host.profile.vllm.port} only root can see"


@pytest.mark.usefixtures("listener")
def test_a_port_that_is_taken_while_nothing_of_ours_runs_is_a_strangers_to_all(host: Host) -> None:
    with as_somebody_else():
        assert "is taken by a process of another user (listening)" in host.error("port")
    hide_others(host)
    with as_somebody_else():
        assert host.unseen("port").startswith("who has port ")  # ours may run, unseen


def test_a_port_of_who_asks_is_told_whatever_else_is_hidden(host: Host) -> None:
    hide_others(host)
    with as_somebody_else(), socket.create_server(("127.0.0.1", host.profile.vllm.port)):
        assert f"PID {os.getpid()}" in host.error("port")


def mapped(host: Host, gib: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What our service has in a /dev/shm with 10 GiB free; its maps are shut to others."""
    monkeypatch.setattr(files, "free_bytes", lambda _: 10 * GIB)
    path = host.root / "dev" / "shm" / "psm_1f"
    path.write_bytes(b"x" * (1 << 20))
    monkeypatch.setattr("kimisvc.host.shared_memory.BLOCK", gib * GIB // path.stat().st_blocks)
    folder = process(host.root / "proc", 9, "python3", OURS, mapping(path))
    (folder / "maps").chmod(0o400)
    return folder


def test_what_our_service_has_in_shared_memory_is_not_missed_by_who_cannot_see_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, ours = "shared memory", mapped(host, 8, monkeypatch)
    host.hardware(shm_gib=16)
    assert (host.ask(check), host.unseen(check)) == ([], "")
    with as_somebody_else():
        assert host.ask(check) == []
        lies = f"who uses 8192 MiB that lie in {host.root}/dev/shm only root can see"
        assert host.unseen(check) == lies
        host.hardware(shm_gib=19)  # all of it would not be enough
        assert "needs 19 GiB free" in host.error(check)
    host.hardware(shm_gib=16)
    (ours / "cgroup").write_text("0::/system.slice/other.service\n")
    with as_somebody_else():  # ours does not run: nothing is given back
        assert host.error(check).endswith("; run it with sudo to see who uses them")
    hide_others(host)
    with as_somebody_else():
        assert host.unseen(check) == lies


def test_who_cannot_see_who_uses_shared_memory_calls_it_no_leftover(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = mapped(host, 2, monkeypatch)
    with as_somebody_else():
        assert host.ask("shared memory") == []
        assert host.unseen("shared memory").startswith("who uses 2048 MiB")
    (ours / "maps").write_text("")
    for folder in (host.root / "proc").glob("[0-9]*"):
        folder.rename(folder.with_name(f"was-{folder.name}"))  # hidepid=2: it is not even listed
    with as_somebody_else():
        assert host.unseen("shared memory").startswith("who uses 2048 MiB")
    ours.with_name("was-9").rename(ours)
    (ours / "maps").write_text("")
    assert host.warning("shared memory").startswith("a crash left its files in ")


def test_our_own_service_on_the_gpus_is_nobodys_stranger_where_proc_hides_it(host: Host) -> None:
    process(host.root / "proc", 9, "python3", OURS, title="VLLM::Worker_TP0")
    host.card(2, pids=(9,), used=90 * GIB)
    hide_others(host)
    assert host.all() == ()
    with as_somebody_else():
        assert host.all() == ()
        assert host.unseen("GPU processes") == "what computes on GPU 2 (PID 9) only root can see"
        assert host.unseen("other vLLMs") == (
            f"{host.root}/proc shows the processes of others to root alone"
        )


def test_memory_that_nobody_is_named_for_may_be_ours_where_proc_hides_it(host: Host) -> None:
    host.card(1, used=30 * GIB)
    with as_somebody_else():
        assert host.error("GPU processes").startswith("GPU 1: 30.0 GiB are held by a process")
    hide_others(host)
    with as_somebody_else():
        assert host.unseen("GPU processes") == "who holds 30.0 GiB of GPU 1 only root can see"


def test_a_stranger_that_can_be_seen_is_told_whoever_asks(host: Host) -> None:
    process(host.root / "proc", 4242, "ollama", "ollama.service", title="VLLM::EngineCore")
    host.card(2, pids=(4242,))
    with as_somebody_else():
        assert "ollama.service) computes on GPU 2" in host.error("GPU processes")
        assert "is a vLLM that is not part of" in host.warning("other vLLMs")
