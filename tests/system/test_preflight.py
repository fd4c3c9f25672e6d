"""Bad hosts that are real: apply refuses each in seconds, names it, and touches nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from stage import EXECUTABLE, MODEL, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system
MAKE_SHARD = (
    "import json, struct, sys;"
    " text = json.dumps({'a': {'dtype': 'U8', 'shape': [100], 'data_offsets': [0, 100]}}).encode();"
    " open(sys.argv[1], 'wb').write((struct.pack('<Q', len(text)) + text + bytes(100))[:int(sys.argv[2])])"
)
WHOLE = 10_000


@pytest.fixture
def folder(stage: Stage) -> str:
    """A model of three shards, in the sandbox, for this test alone."""
    path = f"/opt/standin/{stage.instance}"
    stage.sandbox.run("mkdir", "-p", path)
    names = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    index = {"weight_map": {name: name for name in names}}
    stage.sandbox.write(f"{path}/config.json", "{}\n")
    stage.sandbox.write(f"{path}/tokenizer.json", "{}\n")
    stage.sandbox.write(f"{path}/model.safetensors.index.json", json.dumps(index))
    for name in names:
        shard(stage, f"{path}/{name}")
    return path


def shard(stage: Stage, path: str, size: int = WHOLE) -> None:
    stage.sandbox.run("python3", "-c", MAKE_SHARD, path, str(size))


def refused(stage: Stage, profile: str) -> list[str]:
    """Apply, and return what stood in the way; nothing was installed for it."""
    status, answer = stage.apply(profile)
    assert (status, answer["outcome"]) == (7, "preflight-refused")
    unit = f"/etc/systemd/system/{stage.service}"
    assert stage.sandbox.run("test", "-e", unit, check=False).returncode == 1
    assert all(problem["severity"] == "error" for problem in answer["problems"])
    return [problem["message"] for problem in answer["problems"]]


def test_a_warning_is_printed_and_refuses_nothing(stage: Stage) -> None:
    done = stage.kimisvc("apply", stage.profile("plain"))
    assert done.returncode == 0, done.stderr
    assert f"warning: vllm.model: {MODEL} holds no tokenizer" in done.stderr


def test_shards_that_are_missing_short_or_shut(stage: Stage, folder: str) -> None:
    profile = stage.profile("m", vllm={"model": folder})
    second = f"{folder}/model-00002-of-00003.safetensors"
    stage.sandbox.run("rm", second)
    (missing,) = refused(stage, profile)
    assert "lacks 1 of the 3 files" in missing
    assert "model-00002-of-00003.safetensors" in missing
    shard(stage, second, 120)
    (short,) = refused(stage, profile)
    assert short.startswith(f"{second} is cut off: ")
    shard(stage, second)
    stage.sandbox.run("chmod", "600", second)
    (shut,) = refused(stage, profile)
    assert shut == f"{second} may not be read by others (mode 600)"
    stage.sandbox.run("chmod", "644", second)
    assert stage.kimisvc("doctor", profile).returncode == 0


def test_a_socket_that_has_the_port(stage: Stage) -> None:
    unit = f"squat-{stage.instance}"
    server = f"import socket; s = socket.create_server(('127.0.0.1', {stage.port})); s.accept()"
    stage.sandbox.run("systemd-run", "--unit", unit, "python3", "-c", server)
    listening = f"until ss -ltn | grep -q :{stage.port}; do :; done"
    stage.sandbox.run("bash", "-c", listening)
    try:
        (taken,) = refused(stage, stage.profile("p"))
    finally:
        stage.sandbox.run("systemctl", "stop", unit)
    assert taken.startswith(f"port {stage.port} is taken by python3")
    assert f"{unit}.service" in taken


@pytest.fixture
def nccl_conf(stage: Stage) -> Iterator[str]:
    path = "/etc/nccl.conf"
    stage.sandbox.write(path, "NCCL_PROTO=LL\n")
    yield path
    stage.sandbox.run("rm", path)


def test_a_file_that_changes_the_baseline(stage: Stage, nccl_conf: str) -> None:
    several = {"tensor-parallel-size": 2}
    (leak,) = refused(stage, stage.profile("base", args=several))
    assert f"would run with NCCL_PROTO=LL from {nccl_conf}" in leak
    said = stage.kimisvc("doctor", stage.profile("own", env={"NCCL_PROTO": "LL"}, args=several))
    assert said.returncode == 0, said.stdout


SYSTEM_CONF = "/etc/systemd/system.conf.d/50-forgotten.conf"


@pytest.fixture
def managers_own(stage: Stage) -> Iterator[None]:
    """Variables that systemd gives every service, by both ways there are."""
    stage.sandbox.run("mkdir", "-p", SYSTEM_CONF.rpartition("/")[0])
    stage.sandbox.write(SYSTEM_CONF, "[Manager]\nDefaultEnvironment=OMP_NUM_THREADS=1\n")
    stage.sandbox.run("systemctl", "daemon-reload")
    stage.sandbox.run("systemctl", "set-environment", "NCCL_PROTO=LL", "VLLM_API_KEY=planted-2f5c")
    yield
    stage.sandbox.run("systemctl", "unset-environment", "NCCL_PROTO", "VLLM_API_KEY")
    stage.sandbox.run("rm", SYSTEM_CONF)
    stage.sandbox.run("systemctl", "daemon-reload")


@pytest.mark.usefixtures("managers_own")
def test_what_was_set_in_systemd_itself(stage: Stage) -> None:
    several = {"tensor-parallel-size": 2}
    profile = stage.profile("base", args=several)
    told = sorted(refused(stage, profile))
    assert [next(n for n in ("NCCL_PROTO=LL", "OMP_NUM_THREADS", "VLLM_API_KEY") if n in words)
            for words in told] == ["NCCL_PROTO=LL", "OMP_NUM_THREADS", "VLLM_API_KEY"]  # fmt: skip
    assert "planted" not in "".join(told)
    keys = "/etc/kimisvc/manager.keys"
    stage.sandbox.write(keys, "VLLM_API_KEY=k7Zr-planted\n")
    stage.sandbox.run("chmod", "600", keys)
    ours = {"NCCL_PROTO": "Simple", "OMP_NUM_THREADS": "2"}
    own = stage.profile("own", env=ours, args=several, service={"secrets_file": keys})
    said = stage.kimisvc("doctor", own)
    assert said.returncode == 0, said.stdout


def test_little_shared_memory_and_what_was_left_there(stage: Stage) -> None:
    stage.sandbox.run("bash", "-c", "head -c 3M /dev/zero > /dev/shm/nccl-Left12")
    try:
        (low,) = refused(stage, stage.profile("s", hardware={"shm_gib": 60_000}))
    finally:
        stage.sandbox.run("rm", "/dev/shm/nccl-Left12")
    assert "nccl-Left12 (NCCL, 3 MiB, user 0)" in low
    assert "no process maps them" in low


def test_a_masked_unit_is_said_to_be_masked(stage: Stage) -> None:
    stage.sandbox.run("systemctl", "mask", stage.service)
    try:
        done = stage.kimisvc("doctor", stage.profile("masked"))
    finally:
        stage.sandbox.run("systemctl", "unmask", stage.service)
    assert done.returncode == 7
    assert f"systemctl unmask {stage.service}" in done.stdout


def test_all_that_is_wrong_at_once(stage: Stage) -> None:
    profile = stage.profile(
        "bad",
        vllm={"executable": EXECUTABLE + "x", "model": "/root/model"},
        hardware={"gpus": 8, "ram_gib": 90_000},
    )
    said = "\n".join(refused(stage, profile))
    for words in (EXECUTABLE + "x", "/root", "needs 8 GPUs", "needs 90000 GiB of memory"):
        assert words in said
    assert "is not executable" not in said  # systemd's words for what is told already
    seen = stage.kimisvc("doctor", profile)
    assert seen.returncode == 7
    assert "not looked at  model files    there is no /root/model" in seen.stdout
    assert "ok             unit files" in seen.stdout
    planned = stage.kimisvc("apply", "--dry-run", profile)
    assert planned.returncode == 7
    assert planned.stdout.startswith("would do: start vLLM")
    assert EXECUTABLE + "x" in planned.stderr


def test_a_folder_that_the_profile_names_is_opened_and_no_other(stage: Stage) -> None:
    path = f"/srv/{stage.instance}/a b 100%"
    profile = stage.profile("w", env={"VLLM_CACHE_ROOT": path, "TMPDIR": "/srv/gone"})
    told = refused(stage, profile)
    assert [words.split(": ")[0] for words in told] == [
        f"the service could not write to {path}",
        "the service could not write to /srv/gone",
    ]
    stage.sandbox.run("install", "-d", "-m", "0777", path)
    profile = stage.profile("w", env={"VLLM_CACHE_ROOT": path})
    assert stage.kimisvc("apply", profile).returncode == 0
    pid = stage.sandbox.run("systemctl", "show", "-P", "MainPID", stage.service).stdout.strip()
    mounts = stage.sandbox.run("cat", f"/proc/{pid}/mountinfo").stdout.splitlines()
    shown = {line.split()[4]: line.split()[5].split(",")[0] for line in mounts}
    assert shown[path.replace(" ", "\\040")] == "rw"
    assert shown["/"] == "ro"
