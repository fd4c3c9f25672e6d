"""Bad hosts: programs, port, user, disk, limits, memory, /dev/shm, units, NCCL's files."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, Self

import pytest
from good_host import program, write
from staged_host import mapping, process

from kimisvc.deploy.generations import Draft, Generations
from kimisvc.deploy.layout import Layout
from kimisvc.host import files, reach
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from good_host import Host

MIB, GIB = 1 << 20, 1 << 30


# ------------------------------------------------------------------ programs


def test_no_vllm(host: Host) -> None:
    host.vllm(executable=str(host.root / "opt" / "none" / "vllm"))
    said = (
        f"{host.root}/opt/none/vllm cannot be run: {host.root}/opt/none: No such file or directory"
    )
    assert host.error("vLLM") == f"{said}; install vLLM there"


def test_a_vllm_in_somebodys_home(host: Host) -> None:
    host.vllm(executable=str(program(host.root / "home" / "venv" / "bin" / "vllm")))
    assert "ProtectHome= hides it from the service" in host.error("vLLM")


def test_a_kimisvc_in_somebodys_home(host: Host) -> None:
    here = program(host.root / "home" / "kimisvc")
    host.place = type(host.place)(here, host.place.units, host.place.state)
    assert "install kimisvc under /opt or /usr" in host.error("kimisvc")


def test_a_port_that_another_instance_has_at_boot(host: Host) -> None:
    """Which of them gets it after a reboot is a matter of luck."""
    other = Layout(host.place, "other")
    theirs = replace(host.profile, name="theirs")
    other.generations.mkdir(parents=True)
    draft = Draft("theirs", "", to_toml(theirs), (), {})
    Generations(other).make_current(Generations(other).add(draft, 1.0))
    assert host.ask("port") == []  # it is not enabled
    wants = host.place.units / "kimisvc.target.wants" / other.units.service
    wants.parent.mkdir(parents=True)
    write(host.place.units / other.units.service, "[Service]\n")
    wants.symlink_to(host.place.units / other.units.service)
    assert "is that of kimisvc-other.service, too" in host.warning("port")
    host.vllm(port=host.profile.vllm.port + 1)
    assert host.ask("port") == []


@pytest.mark.parametrize("part", ["kimisvc", "lib/python3.11/site-packages/kimisvc"])
def test_a_kimisvc_that_others_than_root_may_change(host: Host, part: str) -> None:
    venv = host.root / "opt" / "own"
    here = program(venv / "bin" / "kimisvc")
    packages = venv / "lib/python3.11/site-packages/kimisvc"
    packages.mkdir(parents=True)
    host.place = type(host.place)(here, host.place.units, host.place.state)
    assert host.ask("kimisvc") == []
    (packages if part.startswith("lib") else here).chmod(0o777)
    words = host.warning("kimisvc")
    assert f"units have root run {here}" in words
    assert "may be written by anybody: whoever may change it becomes root" in words


def test_a_vllm_that_is_too_old(host: Host) -> None:
    folder = host.root / "opt" / "vllm" / "lib" / "python3.11" / "site-packages"
    (folder / "vllm-0.15.1.dist-info").mkdir(parents=True)
    host.vllm(min_version="0.19.1")
    assert host.error("vLLM version") == "vLLM 0.15.1 is installed, 0.19.1 is needed"


@pytest.mark.parametrize("version", ["0.1.dev1+g1a2b3c4", "0.1.dev14"])
def test_a_build_without_tags_is_not_called_too_old(host: Host, version: str) -> None:
    folder = host.root / "opt" / "vllm" / "lib" / "python3.11" / "site-packages"
    (folder / f"vllm-{version}.dist-info").mkdir(parents=True)
    host.vllm(min_version="0.19.1")
    assert host.warning("vLLM version") == (
        f"vLLM {version} is a build from a checkout without tags, which tells no release;"
        " 0.19.1 is needed"
    )


def nccl(host: Host, *versions: str) -> None:
    folder = host.root / "opt" / "vllm" / "lib" / "python3.11" / "site-packages"
    for version in versions:
        (folder / f"nvidia_nccl_{version}.dist-info").mkdir(parents=True)


def test_a_variable_that_is_younger_than_the_nccl_beside_vllm(host: Host) -> None:
    nccl(host, "cu12-2.21.5")
    host.env(NCCL_MIN_CTAS="8", NCCL_CUMEM_HOST_ENABLE="1", NCCL_DEBUG="WARN")
    (problem,) = host.ask("NCCL version")
    assert (problem.key, problem.severity) == ("env.NCCL_CUMEM_HOST_ENABLE", Severity.WARNING)
    assert problem.message == (
        "NCCL 2.21.5 lies beside vLLM and ignores it without a word: NCCL 2.23 is the first that"
        " reads it"
    )
    nccl(host, "cu13-2.100.1", "cu12-2.9.9")
    assert host.ask("NCCL version") == []
    assert host.unseen("NCCL version") == ""


def test_an_nccl_that_is_not_known_is_not_judged(host: Host) -> None:
    assert "no variable of the profile" in host.not_asked("NCCL version")
    host.env(NCCL_CUMEM_HOST_ENABLE="1")
    assert host.unseen("NCCL version") == "no NCCL lies beside vLLM"
    nccl(host, "cu12-2.21.5")
    host.env(NCCL_CUMEM_HOST_ENABLE="1", VLLM_NCCL_SO_PATH="/opt/libnccl.so.2")
    assert host.unseen("NCCL version") == "VLLM_NCCL_SO_PATH may load another"


def test_a_vllm_that_tells_no_version(host: Host) -> None:
    host.vllm(min_version="0.19.1")
    assert "does not tell its version; 0.19.1 is needed" in host.error("vLLM version")


def test_no_compiler_is_odd(host: Host) -> None:
    (host.root / "usr" / "local" / "bin" / "gcc").unlink()
    said = host.warning("tools")
    assert said.startswith("no gcc or cc or clang on the PATH of the service; Triton compiles")
    program(host.root / "bin" / "clang")
    assert host.ask("tools") == []


def test_the_path_of_the_profile_is_where_tools_are_looked_for(host: Host) -> None:
    host.env(PATH=str(host.root / "mine"))
    assert len(host.ask("tools")) == 3
    for name in ("cc", "nvcc", "ninja"):
        program(host.root / "mine" / name)
    assert host.ask("tools") == []


# ------------------------------------------------------------------ port, user, units


def test_the_port_is_taken_by_a_real_socket(host: Host) -> None:
    with socket.create_server(("127.0.0.1", host.profile.vllm.port)):
        said = host.error("port")
    assert said.startswith(f"port {host.profile.vllm.port} is taken by ")
    assert f"PID {os.getpid()}" in said


def test_a_user_that_is_not_there(host: Host) -> None:
    host.service(user="no-such-user")
    assert host.error("user") == "there is no user no-such-user on this box"
    host.service(user="root")
    assert host.ask("user") == []


START = "start folder"


def starts_in(host: Host, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    host.service(working_directory=str(folder))


def test_a_folder_to_start_in_that_is_not_there(host: Host) -> None:
    assert host.not_asked(START) == "the profile names no folder to start in"
    gone = host.root / "gone" / "x"
    host.service(working_directory=str(gone))
    (problem,) = host.ask(START)
    assert problem.key == "service.working_directory"
    assert problem.message == (
        f"the service could not start in {gone}: {gone.parent}: No such file or directory; it"
        " would fail with 200/CHDIR. Name another folder, or none: it then starts in /"
    )
    gone.mkdir(parents=True)
    assert (host.all(), host.unseen(START)) == ((), "")


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_file_is_nothing_to_start_in(host: Host, mode: int) -> None:
    file = write(host.root / "x", "")
    file.chmod(mode)
    host.service(working_directory=str(file))
    assert "could not start in" in host.error(START)
    assert f"{file}: it is not a folder; it would fail" in host.error(START)


@pytest.mark.skipif(os.geteuid() != 0, reason="what root alone sees of closed folders")
def test_a_folder_to_start_in_that_the_service_may_not_see_or_enter(host: Host) -> None:
    starts_in(host, host.root / "home" / "me")
    assert "ProtectHome= hides it" in host.error(START)
    starts_in(host, host.root / "home")
    assert "ProtectHome= hides it" in host.error(START)
    folder = host.root / "data"
    starts_in(host, folder)
    folder.chmod(0o711)  # to start there it need not be listed
    assert host.ask(START) == []
    folder.chmod(0o700)
    assert f"{folder} may not be entered by others (mode 700)" in host.error(START)
    host.service(user="root")
    assert host.ask(START) == []


def test_the_folders_that_systemd_makes_are_there_to_start_in(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = host.root / "private"
    monkeypatch.setattr(reach, "HIDDEN", {str(private): "PrivateTmp= hides it"})
    host.service(working_directory=str(private))
    assert host.ask(START) == []
    starts_in(host, private / "x")
    assert "PrivateTmp= hides it" in host.error(START)
    own = host.root / "var" / "cache" / "kimisvc" / "kimi"
    host.service(working_directory=str(own))
    assert host.ask(START) == []
    host.service(working_directory=str(own / "x"))
    assert "it is not a folder, and nothing makes one there" in host.error(START)
    starts_in(host, own / "x")
    own.parent.chmod(0o700)  # the user of the service is shown his own all the same
    assert host.ask(START) == []


def test_a_masked_unit(host: Host) -> None:
    path = host.root / "units" / "kimisvc-kimi-gate.service"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/null")
    (problem,) = host.ask("units")
    assert problem.file == str(path)
    said = "kimisvc-kimi-gate.service is masked; systemctl unmask kimisvc-kimi-gate.service"
    assert problem.message == said


def test_a_mask_until_the_next_boot_masks_none_of_ours(host: Host) -> None:
    path = host.root / "run/systemd/system" / "kimisvc-kimi-gate.service"
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/null")
    assert host.ask("units") == []


# ------------------------------------------------------------------ disk, limits, memory


def test_a_full_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 3 * MIB)
    state, cache = host.ask("disk")
    assert state.message.startswith("only 3 MiB are free where ")
    assert (state.severity.value, cache.severity.value) == ("error", "warning")
    assert str(host.root / "var" / "cache" / "kimisvc" / "kimi") in cache.message
    host.hardware(gpus=0)
    assert host.ask("disk") == [state]


def test_more_open_files_than_the_kernel_allows(host: Host) -> None:
    write(host.root / "proc" / "sys" / "fs" / "nr_open", "65536\n")
    said = host.error("limits")
    assert "1048576 open files are more than this kernel allows (fs.nr_open = 65536)" in said
    host.service(limit_nofile=65536)
    assert host.ask("limits") == []


def test_a_kernel_that_promises_strictly_is_odd(host: Host) -> None:
    write(host.root / "proc" / "sys" / "vm" / "overcommit_memory", "2\n")
    assert host.warning("limits").startswith("vm.overcommit_memory is 2")


def test_too_little_memory(host: Host) -> None:
    host.hardware(ram_gib=2000)
    assert host.error("memory") == "needs 2000 GiB of memory, this box has 1100.0"


def test_memory_that_is_not_told_is_not_judged(host: Host) -> None:
    (host.root / "proc" / "meminfo").unlink()
    assert host.ask("memory") == []


def test_a_slice_that_may_take_too_little(host: Host) -> None:
    most = write(
        host.root / "sys" / "fs" / "cgroup" / "system.slice" / "memory.max", f"{64 * GIB}\n"
    )
    assert "system.slice may take 64.0" in host.error("memory")
    most.write_text(f"{1000 * GIB}\n")
    assert host.ask("memory") == []


# ------------------------------------------------------------------ /dev/shm


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 GiB are free in /dev/shm, and everywhere."""
    monkeypatch.setattr(files, "free_bytes", lambda _: 10 * GIB)


def segment(host: Host, name: str, monkeypatch: pytest.MonkeyPatch, gib: int = 0) -> Path:
    """A file in /dev/shm; with `gib`, one that counts as so large, without taking it."""
    path = host.root / "dev" / "shm" / name
    path.write_bytes(b"x" * MIB)
    if gib:
        monkeypatch.setattr("kimisvc.host.shared_memory.BLOCK", gib * GIB // path.stat().st_blocks)
    return path


def test_no_shared_memory_at_all(host: Host) -> None:
    (host.root / "dev" / "shm").rmdir()
    assert host.ask("shared memory") == []
    host.hardware(shm_gib=16)
    assert host.error("shared memory") == f"there is no {host.root}/dev/shm"


@pytest.mark.usefixtures("little")
def test_too_little_shared_memory_and_nothing_left_there(host: Host) -> None:
    host.hardware(shm_gib=16)
    said = host.error("shared memory")
    assert said.startswith(f"needs 16 GiB free in {host.root}/dev/shm, there are 10.0; ")
    assert "remount,size=" in said


@pytest.mark.usefixtures("little")
def test_what_a_crash_left_is_named_with_what_to_do(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(host, "nccl-Ab12", monkeypatch, gib=8)
    host.hardware(shm_gib=16)
    said = host.error("shared memory")
    assert said == (
        f"needs 16 GiB free in {host.root}/dev/shm, there are 10.0:"
        f" nccl-Ab12 (NCCL, 8192 MiB, user {os.getuid()});"
        " no process maps them: remove nccl-Ab12"
    )


@pytest.mark.usefixtures("little")
def test_of_much_that_was_left_some_is_named_and_all_counted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        segment(host, f"psm_{number}", monkeypatch)
    host.hardware(shm_gib=16)
    said = host.error("shared memory")
    assert "psm_5 (Python's shared memory, 1 MiB" in said
    assert ", 3 more of 3 MiB together; " in said
    assert said.endswith("remove psm_0 and the others without one")


@pytest.mark.usefixtures("little")
def test_what_another_uses_is_named_with_who(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    path = segment(host, "psm_1f", monkeypatch, gib=8)
    process(host.root / "proc", 5, "python3", "other.service", mapping(path))
    host.hardware(shm_gib=16)
    said = host.error("shared memory")
    assert "in use by python3 (PID 5, other.service)" in said
    assert "remove" not in said


@pytest.mark.usefixtures("little")
def test_what_our_own_service_uses_is_given_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = segment(host, "psm_1f", monkeypatch, gib=8)
    process(host.root / "proc", 5, "python3", "kimisvc-kimi.service", mapping(path))
    host.hardware(shm_gib=16)
    assert host.ask("shared memory") == []


def test_much_that_was_left_is_odd_though_enough_is_free(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(host, "nccl-Ab12", monkeypatch, gib=2)
    assert host.warning("shared memory").startswith("a crash left its files in ")


def test_little_that_was_left_is_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(host, "nccl-Ab12", monkeypatch)
    assert host.ask("shared memory") == []


# ------------------------------------------------------------------ NCCL's files


def test_a_baseline_with_settings_from_a_forgotten_file(host: Host) -> None:
    write(host.root / "etc" / "nccl.conf", "# tried in spring\nNCCL_PROTO=LL\n")
    assert host.error("NCCL files") == (
        f"baseline would run with NCCL_PROTO=LL from {host.root}/etc/nccl.conf;"
        " write it into [env], or take it out of there"
    )


def test_what_the_profile_sets_itself_wins_over_the_file(host: Host) -> None:
    write(host.root / "etc" / "nccl.conf", "NCCL_PROTO=LL\n")
    host.env(NCCL_PROTO="Simple")
    assert host.ask("NCCL files") == []


def test_the_home_of_a_made_up_user_is_the_root_folder(host: Host) -> None:
    write(host.root / ".nccl.conf", "NCCL_ALGO=Ring\n")
    write(host.root / "etc" / "nccl.conf", "NCCL_ALGO=Tree\n")
    assert f"NCCL_ALGO=Ring from {host.root}/.nccl.conf" in host.error("NCCL files")


def test_the_home_of_a_user_of_the_box(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(pw_dir="/srv/vllm", pw_uid=4242, pw_gid=4242)
    monkeypatch.setattr("pwd.getpwnam", lambda _: entry)
    monkeypatch.setattr("os.getgrouplist", lambda *_: [4242])
    host.service(user="vllm")
    conf = write(host.root / "srv" / "vllm" / ".nccl.conf", "NCCL_P2P_LEVEL=SYS\n")
    assert f"NCCL_P2P_LEVEL=SYS from {conf}" in host.error("NCCL files")
    conf.chmod(0o600)
    assert host.ask("NCCL files") == []


def test_a_file_in_a_home_that_the_service_does_not_see(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = SimpleNamespace(pw_dir="/home/me", pw_uid=4242, pw_gid=4242)
    monkeypatch.setattr("pwd.getpwnam", lambda _: entry)
    monkeypatch.setattr("os.getgrouplist", lambda *_: [4242])
    host.service(user="me")
    write(host.root / "home" / "me" / ".nccl.conf", "NCCL_P2P_LEVEL=SYS\n")
    assert host.ask("NCCL files") == []


def test_a_file_that_the_profile_names(host: Host) -> None:
    conf = host.root / "opt" / "nccl.conf"
    host.env(NCCL_CONF_FILE=str(conf))
    assert host.error("NCCL files") == (
        f"{conf}: No such file or directory; NCCL would say nothing and go on without it"
    )
    conf.mkdir()
    assert host.error("NCCL files").startswith(f"{conf}: Is a directory; NCCL would")
    conf.rmdir()
    write(conf, "NCCL_PROTO=LL\n")
    assert f"NCCL_PROTO=LL from {conf}" in host.warning("NCCL files")


@pytest.mark.parametrize(
    "setting",
    [
        "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=eth0", "NCCL_IB_HCA=mlx5", "NCCL_IB_GID_INDEX=3",
        "NCCL_IB_PCI_RELAXED_ORDERING=1", "NCCL_RAS_ENABLE=0",
    ],
)  # fmt: skip
def test_what_changes_no_figure_is_only_odd(host: Host, setting: str) -> None:
    write(host.root / "etc" / "nccl.conf", setting)
    assert setting in host.warning("NCCL files")


@pytest.mark.parametrize("name", ["NCCL_TUNER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_NEVER_HEARD_OF"])
def test_what_loads_code_or_is_unknown_is_in_the_way(host: Host, name: str) -> None:
    write(host.root / "etc" / "nccl.conf", f"{name}=x\n")
    assert name in host.error("NCCL files")


def test_one_gpu_alone_talks_to_none(host: Host) -> None:
    write(host.root / "etc" / "nccl.conf", "NCCL_PROTO=LL\n")
    host.hardware(gpus=1)
    host.args({"tensor-parallel-size": 1})
    assert "NCCL_PROTO=LL" in host.warning("NCCL files")


def test_a_value_that_may_be_a_secret_is_not_shown(host: Host) -> None:
    write(host.root / "etc" / "nccl.conf", "HF_TOKEN=planted-2f5c\n")
    said = host.error("NCCL files")
    assert "HF_TOKEN" in said
    assert "planted" not in said


def test_the_key_of_nccls_own_network_is_not_shown(host: Host) -> None:
    write(host.root / "etc" / "nccl.conf", "NCCL_PSK=planted-2f5c\n")
    said = host.warning("NCCL files")
    assert "NCCL_PSK" in said
    assert "planted" not in said


def test_a_pipe_in_the_place_of_a_file_is_waited_for(host: Host) -> None:
    pipe = write(host.root / "etc" / "nccl.conf", "")
    pipe.unlink()
    os.mkfifo(pipe)
    assert host.error("NCCL files") == (
        f"{pipe} is a named pipe, and NCCL would wait for what is written there; remove it"
    )
    pipe.rename(host.root / "chosen")
    host.env(NCCL_CONF_FILE=str(host.root / "chosen"))
    (problem,) = host.ask("NCCL files")
    assert (problem.key, problem.severity.value) == ("env.NCCL_CONF_FILE", "error")


def test_a_folder_in_the_place_of_a_file_says_nothing_to_nccl(host: Host) -> None:
    (host.root / "etc" / "nccl.conf").mkdir(parents=True)
    assert host.ask("NCCL files") == []


# ------------------------------------------------------------------ systemd's own environment


class Manager:
    """systemd, with an environment of its own."""

    given: ClassVar[dict[str, str]] = {}

    def __init__(self, running: Path) -> None:
        assert running.parts[-3:] == ("run", "systemd", "system")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def environment(self) -> dict[str, str]:
        return {"LANG": "C.UTF-8", "PATH": "/usr/bin", "HTTPS_PROXY": "http://p:1", **self.given}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that were set in systemd itself; what it has anyway harms nobody."""
    monkeypatch.setattr("kimisvc.host.systemd.Systemd", Manager)
    given: dict[str, str] = {}
    monkeypatch.setattr(Manager, "given", given)
    return given


def test_a_box_without_systemd_has_no_environment_of_its(host: Host) -> None:
    assert host.ask("environment") == []


def test_what_was_set_in_systemd_reaches_a_profile_that_does_not_say_so(
    host: Host, manager: dict[str, str]
) -> None:
    assert host.ask("environment") == []
    manager["NCCL_PROTO"] = "LL"
    assert host.error("environment") == (
        "baseline would run with NCCL_PROTO=LL from systemd's own environment (systemctl"
        " show-environment); write it into [env], or take it out of there: systemctl"
        " unset-environment NCCL_PROTO, or DefaultEnvironment= in system.conf"
    )
    host.env(NCCL_PROTO="Simple")
    assert host.ask("environment") == []


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_ATTENTION_BACKEND", "VLLM_NEVER_HEARD_OF", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD",
        "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONOPTIMIZE",
        "LD_AUDIT", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_CONF_FILE",
    ],
)  # fmt: skip
def test_whatever_tunes_vllm_or_loads_code_is_in_the_way(
    host: Host, manager: dict[str, str], name: str
) -> None:
    manager[name] = "1"
    assert name in host.error("environment")


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "HF_HUB_OFFLINE", "PYTHONUTF8"]
)
def test_of_systemds_own_what_changes_no_figure_is_only_odd(
    host: Host, manager: dict[str, str], name: str
) -> None:
    manager[name] = "1"
    assert name in host.warning("environment")


def test_of_systemds_own_what_one_gpu_or_none_does_not_use_is_only_odd(
    host: Host, manager: dict[str, str]
) -> None:
    host.hardware(gpus=1)
    host.args({"tensor-parallel-size": 1})
    manager["NCCL_PROTO"] = "LL"
    assert "NCCL_PROTO" in host.warning("environment")
    manager.clear()
    manager["CUDA_LAUNCH_BLOCKING"] = "1"
    assert "CUDA_LAUNCH_BLOCKING" in host.error("environment")
    host.hardware(gpus=0)
    assert "CUDA_LAUNCH_BLOCKING" in host.warning("environment")


def test_a_secret_of_systemds_own_is_not_shown_and_the_secrets_file_wins(
    host: Host, manager: dict[str, str]
) -> None:
    manager["VLLM_API_KEY"] = "planted-2f5c"
    said = host.error("environment")
    assert "VLLM_API_KEY" in said
    assert "write it into the secrets file" in said
    assert "planted" not in said
    keys = write(host.root / "keys", "VLLM_API_KEY=x7\nexport NCCL_PSK=1\n")
    host.service(secrets_file=str(keys))
    assert host.ask("environment") == []
    manager["NCCL_PSK"] = "planted-2f5c"  # systemd drops the line with export
    assert "planted" not in host.warning("environment")
