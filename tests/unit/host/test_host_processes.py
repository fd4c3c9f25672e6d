"""Programs that are really run, ports that are really bound."""

from __future__ import annotations

import os
import pwd
import select
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from host_support import PATIENCE, free_port
from staged_host import process

from kimisvc.errors import HostError
from kimisvc.host import processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVES = """
import socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
if sys.argv[2] == "listen":
    server.listen()
print("bound", flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(port: int, how: str, *more: str) -> Iterator[int]:
    """Another process has the port: bound only, as vLLM while it loads, or listening."""
    argv = [sys.executable, "-c", SERVES, str(port), how, *more]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"bound\n"
        try:
            yield process.pid
        finally:
            process.kill()


# ------------------------------------------------------------------ programs


def test_what_a_program_leaves() -> None:
    done = processes.run(["sh", "-c", "cat; echo out; echo err >&2; exit 3"], PATIENCE, "in\n")
    assert done == processes.Finished(3, "in\nout\n", "err\n")


def test_a_program_that_asks_gets_no_answer_but_an_end() -> None:
    assert processes.run(["cat"], PATIENCE) == processes.Finished(0, "", "")


def test_output_that_is_no_text_is_marked() -> None:
    assert processes.run(["printf", r"a\377b"], PATIENCE).stdout == "a\ufffdb"


def test_a_program_ended_by_a_signal() -> None:
    assert processes.run(["sh", "-c", "kill -9 $$"], PATIENCE).status == -9


def test_a_program_speaks_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert processes.run(["sh", "-c", "echo $LC_ALL"], PATIENCE).stdout == "C.UTF-8\n"


def test_programs_that_cannot_be_run(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/python\n")
    script.chmod(0o755)
    for argv0, code, words in (
        ("no-such-program", "not-found", "no-such-program: not found"),
        (str(script), "not-found", "its interpreter is missing"),
        (str(tmp_path), "cannot-run", "Permission denied"),
    ):
        with pytest.raises(HostError, match=words) as caught:
            processes.run([argv0], PATIENCE)
        assert caught.value.code == code


def test_a_program_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {noted}; wait"  # the child holds our pipes open
    with pytest.raises(HostError, match="did not end within 1 s") as caught:
        processes.run(["sh", "-c", script], 1)
    assert caught.value.code == "program-timeout"
    assert ended(int(noted.read_text()))


def ended(pid: int) -> bool:
    """Whether a process has ended, or does so now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


# ------------------------------------------------------------------ users


def test_users_and_their_groups() -> None:
    me = pwd.getpwuid(os.getuid())
    assert processes.user_ids(me.pw_name) == (me.pw_uid, me.pw_gid)
    assert me.pw_gid in processes.group_ids(me.pw_name)
    for nobody in ("no-such-user", "", "a\0b"):
        assert processes.user_ids(nobody) is None
        assert processes.group_ids(nobody) == frozenset()


def test_a_user_that_exists_is_not_made_again() -> None:
    processes.ensure_system_user(pwd.getpwuid(os.getuid()).pw_name)


# ------------------------------------------------------------------ ports


def test_a_free_port_has_no_owner() -> None:
    assert processes.port_owner(free_port()) is None


def test_who_listens_is_named() -> None:
    port = free_port()
    with serving(port, "listen") as pid:
        owner = processes.port_owner(port)
    assert owner is not None
    assert (owner.pid, owner.doing) == (pid, "listening")
    assert f"PID {pid}" in str(owner)


def test_bound_and_not_listening_is_owned_though_no_table_shows_it() -> None:
    port = free_port()
    with serving(port, "bind"):
        owner = processes.port_owner(port)
        assert owner == processes.PortOwner(
            0, "a process that cannot be seen", "", "bound, not listening"
        )
        assert processes.port_owner(port, "127.0.0.1") == owner


def test_a_vllm_that_loads_is_named_by_its_command_line() -> None:
    port = free_port()
    with serving(port, "bind", "/opt/venv/bin/vllm", "serve", "m", "--port", str(port)) as pid:
        owner = processes.port_owner(port)
    assert owner is not None
    assert (owner.pid, owner.doing) == (pid, "told to serve there")


def test_a_vllm_that_serves_is_told_once_whatever_its_connections() -> None:
    port = free_port()
    with (
        serving(port, "listen", "/opt/venv/bin/vllm", "serve", "m", f"--port={port}") as pid,
        socket.create_connection(("127.0.0.1", port), PATIENCE),
    ):
        owners = processes.port_owners(port)
    assert [(owner.pid, owner.doing) for owner in owners] == [(pid, "listening")]


def test_the_near_end_of_a_connection_has_its_port_too() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), PATIENCE) as client,
    ):
        owner = processes.port_owner(client.getsockname()[1])
        assert owner is not None
        assert owner.pid == os.getpid()
        assert owner.doing == "as the near end of a connection"


def test_a_connection_that_lingers_after_its_server_is_gone_hinders_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            server.accept()[0].close()  # the one who closes first keeps TIME_WAIT
            assert client.recv(1) == b""
    assert processes.port_owner(port) is None


@pytest.mark.parametrize(
    ("host", "theirs", "taken"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("localhost", "127.0.0.1", True),
    ],
)
def test_only_addresses_that_overlap_matter(host: str, theirs: str, taken: bool) -> None:  # noqa: FBT001 - a case
    with socket.create_server((theirs, 0)) as server:
        owner = processes.port_owner(server.getsockname()[1], host)
    assert (owner is not None) is taken


@pytest.mark.parametrize(
    ("argv", "port"),
    [
        ("/v/bin/python3 /v/bin/vllm serve m --host 127.0.0.1 --port 8130", 8130),
        ("/v/bin/vllm serve m --port=8130 --x", 8130),
        ("vllm serve m", 8000),
        ("python -m vllm.entrypoints.openai.api_server --model m", 8000),
        ("vllm serve m --port", None),
        ("vllm bench serve --port 8130", None),
        ("grep vllm serve-me --port 8130", None),
        ("nginx --port 8130", None),
        ("VLLM::EngineCore", None),
        ("", None),
    ],
)
def test_where_a_command_line_serves(argv: str, port: int | None) -> None:
    assert processes.vllm_port(argv.split()) == port


def test_a_process_that_is_gone_has_no_unit_and_no_name() -> None:
    gone = 2**22 + 1  # over the largest id that Linux gives
    assert processes.unit_of(gone) == ""
    assert processes.name_of(gone) == "a process that has ended"


# ------------------------------------------------------------------ titles


def test_processes_by_the_title_they_gave_themselves(tmp_path: Path) -> None:
    process(tmp_path, 40, "python3", "kimisvc-kimi.service", title="VLLM::Worker_TP0")
    process(tmp_path, 5, "python3", title="VLLM::EngineCore_DP0")
    process(tmp_path, 6, "python3", "x.service", title="MINE::Worker_TP1")
    process(tmp_path, 7, "VLLMish", title="VLLM: no")
    process(tmp_path, 8, "bash", title="/bin/bash")
    (tmp_path / "sys").mkdir()
    found = processes.titled(("VLLM", "MINE"), tmp_path)
    assert [str(one) for one in found] == [
        "VLLM::EngineCore_DP0 (PID 5)",
        "MINE::Worker_TP1 (PID 6, x.service)",
        "VLLM::Worker_TP0 (PID 40, kimisvc-kimi.service)",
    ]
    assert [one.pid for one in processes.titled(("MINE",), tmp_path)] == [6]


def test_whether_a_unit_has_a_process(tmp_path: Path) -> None:
    process(tmp_path, 40, "python3", "kimisvc-kimi.service")
    assert processes.runs("kimisvc-kimi.service", tmp_path)
    assert not processes.runs("kimisvc-kimi-gate.service", tmp_path)


def test_a_process_without_a_title_is_called_as_its_command(tmp_path: Path) -> None:
    process(tmp_path, 8, "ktransformers", title="/opt/venv/bin/python3")
    assert str(processes.process(8, tmp_path)) == "ktransformers (PID 8)"
    assert str(processes.process(9, tmp_path)) == "a process that cannot be seen from here (PID 9)"


def test_a_real_process_that_sets_its_title() -> None:
    argv = ["VLLM::Worker_TP7", "-c", "echo up; read nothing"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, executable="/bin/sh", stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        found = [one for one in processes.titled(("VLLM",)) if one.pid == child.pid]
        child.kill()
    assert [one.name for one in found] == ["VLLM::Worker_TP7"]
