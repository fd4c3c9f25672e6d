"""The sandbox itself: what the other system tests and the demo stand on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Box

pytestmark = pytest.mark.system

SANDBOX = Path(__file__).parents[2] / "packaging" / "sandbox"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PYTHON = "/opt/kimisvc/demo/kimisvc/bin/python"
ASK_THE_BUS = (
    "from pystemd.systemd1 import Unit; unit = Unit(b'dbus.service', _autoload=True);"
    "print(unit.Unit.ActiveState.decode())"
)


def traces(name: str) -> list[str]:
    """What of a sandbox is to be seen on the host: processes, mounts, groups, files."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line for line in mounts if f"/{name}/" in line]
    found += [folder for folder, _, _ in os.walk("/sys/fs/cgroup")  # others come and go meanwhile
              if folder.endswith(f"/kimisvc-sandbox.{name}")]  # fmt: skip
    home = Path("/var/lib/kimisvc-sandbox", name)
    found += [str(home)] if home.exists() else []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"/{name}/" in command or f"start {name} " in command:
            found.append(command)
    return found


def keeper_of(box: Box) -> int:
    """The open pidfd of the process that keeps a sandbox."""
    listing = subprocess.run(
        ["pgrep", "-f", f"packaging/sandbox start {box.name} "],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return os.pidfd_open(int(listing.stdout.split()[0]))


def test_systemd_runs_as_pid_1_and_reaches_running(sandbox: Box) -> None:
    assert sandbox.run("cat", "/proc/1/comm").stdout == "systemd\n"
    sandbox.run("systemctl", "reset-failed")  # what other tests had fail in it
    assert sandbox.run("systemctl", "is-system-running", "--wait").stdout == "running\n"
    assert sandbox.run("systemctl", "is-active", "multi-user.target").stdout == "active\n"


def test_nothing_written_inside_reaches_the_host(sandbox: Box) -> None:
    marks = [f"{folder}/{sandbox.name}" for folder in ("/tmp", "/run", "/var/tmp", "/etc", "/var")]
    for mark in marks:
        sandbox.write(mark, "inside")
    assert [mark for mark in marks if Path(mark).exists()] == []


def test_the_hosts_private_files_are_not_seen_inside(another: Box, tmp_path: Path) -> None:
    another.start()
    (tmp_path / "secret").write_text("of the host")
    assert another.run("test", "-e", str(tmp_path), check=False).returncode == 1
    for folder in ("/root", "/home", "/var/lib/kimisvc-sandbox"):
        assert another.run("find", folder, "-type", "f").stdout == ""


def test_the_hosts_processes_are_not_seen_inside(sandbox: Box) -> None:
    assert "pytest" not in sandbox.run("ps", "-e", "-o", "args").stdout


def test_a_command_has_no_power_over_the_host(sandbox: Box) -> None:
    """No more than the container's own PID 1: it cannot set the clock, which is the host's."""
    done = sandbox.run("date", "--set=+1 second", check=False)
    assert done.returncode != 0
    assert "Operation not permitted" in done.stderr
    of_init = sandbox.run("grep", "CapBnd", "/proc/1/status").stdout
    assert sandbox.run("grep", "CapEff", "/proc/self/status").stdout == of_init.replace(
        "Bnd", "Eff"
    )


def test_the_network_is_a_loopback_of_its_own(sandbox: Box) -> None:
    script = "import socket as s; a = s.create_server(('127.0.0.1', 0)); b = a.getsockname();"
    script += "s.create_connection(b).close(); print([name for _, name in s.if_nameindex()])"
    assert sandbox.run("/usr/bin/python3", "-c", script).stdout == "['lo']\n"


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_pystemd_reaches_the_system_bus(sandbox: Box, user: str) -> None:
    asked = sandbox.run("runuser", "-u", user, "--", PYTHON, "-c", ASK_THE_BUS)
    assert asked.stdout == "active\n"


def test_a_dynamic_user_with_a_cache_and_a_tight_filter(sandbox: Box) -> None:
    properties = (
        "DynamicUser=yes", "CacheDirectory=tried", "ProtectSystem=strict", "ProtectHome=yes",
        "PrivateTmp=yes", "RestrictNamespaces=yes", "SystemCallFilter=@system-service",
        "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_UNIX AF_INET",
    )  # fmt: skip
    options = [word for one in properties for word in ("-p", one)]
    script = 'touch "$CACHE_DIRECTORY/mine"; stat -c %a "$CACHE_DIRECTORY/mine"; unshare -m true'
    ran = sandbox.run(
        "systemd-run", "--wait", "--pipe", "-q", *options, "sh", "-c", script, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "644\n")
    assert "Operation not permitted" in ran.stderr


def test_a_command_keeps_its_streams_and_its_status(sandbox: Box) -> None:
    ran = sandbox.run("sh", "-c", "cat; echo wrong >&2; exit 7", check=False, text="given")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "given", "wrong\n")
    assert sandbox.run("sh", "-c", "kill -9 $$", check=False).returncode == 128 + 9
    assert sandbox.run("no-such-command", check=False).returncode == 127


def test_a_command_can_have_a_terminal(sandbox: Box) -> None:
    ran = sandbox.verb("run", "--tty", "--", "sh", "-c", "test -t 0 && test -t 1 && tty; exit 3")
    assert ran.returncode == 3
    assert ran.stdout.startswith("/dev/pts/")


def test_killing_the_caller_kills_the_command(sandbox: Box) -> None:
    caller = subprocess.Popen(
        [SANDBOX, "run", sandbox.name, "--", "sh", "-c", "echo up; exec sleep 7654"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with caller:
        assert caller.stdout is not None
        said = caller.stdout.readline()
        caller.kill()
        assert said == "up\n"
        # The pipe's other end closes when the command is gone, too.
        assert caller.stdout.read() == ""
    assert "sleep 7654" not in sandbox.run("ps", "-e", "-o", "args").stdout


@pytest.mark.parametrize("how", ["reboot", "crash"])
def test_a_boot_keeps_the_files_and_the_journal(sandbox: Box, how: str) -> None:
    sandbox.write("/var/lib/kept", how)
    sandbox.write("/tmp/lost", how)
    sandbox.run("sh", "-c", f"echo remember-{how} | systemd-cat; journalctl --sync")
    before = sandbox.read(BOOT_ID)
    getattr(sandbox, how)()
    assert sandbox.read(BOOT_ID) != before
    assert sandbox.read("/var/lib/kept") == how
    assert sandbox.run("test", "-e", "/tmp/lost", check=False).returncode == 1
    assert f"remember-{how}" in sandbox.run("journalctl", "-b", "-1", "-o", "cat").stdout


def test_two_live_side_by_side_and_one_stops_without_a_trace(sandbox: Box, another: Box) -> None:
    another.start("--bind-ro", f"{SANDBOX.parent}:/mnt/packaging")
    assert another.read(BOOT_ID) != sandbox.read(BOOT_ID)
    assert another.run("test", "-x", "/mnt/packaging/sandbox").returncode == 0
    assert another.run("touch", "/mnt/packaging/x", check=False).returncode == 1
    assert traces(another.name) != []
    another.stop()
    assert traces(another.name) == []
    assert sandbox.run("true").returncode == 0


def test_a_name_is_taken_once(sandbox: Box) -> None:
    again = sandbox.verb("start")
    assert again.returncode == 1
    assert "stop it first" in again.stderr
    assert sandbox.run("true").returncode == 0


def test_an_owner_that_is_killed_takes_the_sandbox_along(another: Box) -> None:
    with subprocess.Popen(["sleep", "7655"]) as owner:
        try:
            another.start(owner=owner.pid)
            keeper = keeper_of(another)
        finally:
            owner.kill()
    assert select.select([keeper], [], [], 20)[0] == [keeper]
    os.close(keeper)
    purged = subprocess.run([SANDBOX, "purge"], capture_output=True, text=True, check=True)
    assert f"{another.name}: ended, removed" in purged.stderr
    assert traces(another.name) == []


def test_what_a_killed_start_left_is_removed(another: Box) -> None:
    with subprocess.Popen([SANDBOX, "start", another.name]) as starter:
        deadline = time.monotonic() + 20
        while not another.home.exists():
            assert time.monotonic() < deadline
        starter.send_signal(signal.SIGKILL)
    another.stop()
    assert traces(another.name) == []


def test_a_wrong_name_is_refused(sandbox: Box) -> None:
    refused = type(sandbox)("../etc").verb("start")
    assert refused.returncode == 2
    assert type(sandbox)("nobody-made-it").run("true", check=False).returncode == 1
