"""Bad hosts on which vLLM could not write what its profile asks it to write."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from good_host import write

from kimisvc.deploy.checks import writable
from kimisvc.host import processes, reach
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.render.writable import HIDDEN, OF_ITS_OWN, WRITTEN, Form, Lack, Written

if TYPE_CHECKING:
    from good_host import Host

CHECK = "write access"
EACH = pytest.mark.parametrize("row", WRITTEN, ids=lambda row: f"{row.name} {row.field}".strip())
SYSTEMS = [word for word, why in reach.HIDDEN.items() if why.startswith("ProtectHome=")]


def asks(host: Host, row: Written, path: object) -> None:
    """Have the profile name it; of a hub and with code, so that every cache is written to."""
    host.vllm(model="org/model")
    host.args({"trust-remote-code": True})
    if row.table == "env":
        host.env(**{row.name: str(path)})
    else:
        host.args({row.name: {row.field: str(path)} if row.field else str(path)})


def folder(host: Host, mode: int = 0o777) -> Path:
    path = host.root / "data" / "x"
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def named(row: Written, path: Path) -> Path:
    return path / "log" if row.form is Form.FILE else path


@EACH
def test_a_folder_that_anybody_may_write_is_in_order(host: Host, row: Written) -> None:
    asks(host, row, named(row, folder(host)))
    assert host.ask(CHECK) == []


@EACH
def test_a_folder_that_is_not_there_is_refused_with_what_always_works(
    host: Host, row: Written
) -> None:
    gone = host.root / "data"
    asks(host, row, named(row, gone / "x"))
    (problem,) = host.ask(CHECK)
    where = gone / "x"
    said = f"the service could not write to {where}: {gone}: No such file or directory. "
    assert problem.message.startswith(said)
    if row.lack is Lack.NOTHING:
        assert problem.severity is Severity.WARNING
    else:
        assert problem.severity is Severity.ERROR
        assert problem.message.endswith(
            {
                Form.FOLDER: "or name one in /var/cache/kimisvc/kimi, which systemd makes",
                Form.STANDING: "or name /var/cache/kimisvc/kimi, which systemd makes",
                Form.FILE: "or name a file in /var/cache/kimisvc/kimi, which systemd makes, not in a "
                "folder of it",
            }[row.form]
        )
    key = f"env.{row.name}" if row.table == "env" else f"args.{row.name}"
    assert problem.key == key


@EACH
def test_a_folder_that_the_service_may_only_read_is_named(host: Host, row: Written) -> None:
    path = folder(host, 0o755)
    asks(host, row, named(row, path))
    (problem,) = host.ask(CHECK)
    assert f"{path} may not be written by others (mode 755)" in problem.message


@EACH
def test_the_cache_of_the_instance_is_always_open(host: Host, row: Written) -> None:
    own = host.root / "var/cache/kimisvc/kimi"
    asks(host, row, own / "x" if row.form is Form.FOLDER else named(row, own))
    assert host.ask(CHECK) == []


MADE_BY_NOBODY = pytest.mark.parametrize(
    "row", [row for row in WRITTEN if row.form is not Form.FOLDER], ids=lambda row: row.name
)


def test_the_folder_of_sockets_is_one_that_nobody_makes(host: Host) -> None:
    host.env(VLLM_RPC_BASE_PATH=str(host.root / "var/cache/kimisvc/kimi/rpc"))
    said = host.error(CHECK)
    assert "/rpc is not there, and nothing makes it" in said
    assert said.endswith("or name /var/cache/kimisvc/kimi, which systemd makes")


@MADE_BY_NOBODY
def test_what_nobody_makes_has_to_be_there_in_what_is_open_as_well(
    host: Host, row: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, open_ = host.root / "var/cache/kimisvc/kimi", folder(host)
    host.env(VLLM_CACHE_ROOT=str(open_))
    for path in (own / "x", open_ / "x"):
        asks(host, row, named(row, path))
        assert str(path) in host.error(CHECK)
        path.mkdir(parents=True)
        path.chmod(0o777)
        assert host.ask(CHECK) == []
    tmp = str(host.root / "tmp")
    monkeypatch.setattr(reach, "HIDDEN", {tmp: "PrivateTmp= hides it"})
    asks(host, row, named(row, host.root / "tmp"))
    assert host.ask(CHECK) == []
    asks(host, row, named(row, host.root / "tmp" / "x"))
    assert f"{tmp} is the service's own and empty" in host.error(CHECK)


@pytest.mark.parametrize("models", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_what_lies_in_other_folders_asks_nothing_of_the_common_one(host: Host, models: str) -> None:
    closed, path = folder(host, 0o755), host.root / "other"
    path.mkdir()
    path.chmod(0o777)
    host.vllm(model="org/model")
    host.args({"trust-remote-code": True})
    host.env(HF_HOME=str(closed))
    assert errors(host) == ["env.HF_HOME"]
    host.env(HF_MODULES_CACHE=str(path))
    assert errors(host) == ["env.HF_HOME"]  # models are fetched into it
    host.env(**{models: str(path)})
    assert errors(host) == []
    host.env(HF_MODULES_CACHE="")
    assert errors(host) == ["env.HF_HOME"]  # code is copied there
    host.args({"trust-remote-code": False})
    closed.chmod(0o700)
    host.env(HF_HUB_OFFLINE="1")
    assert errors(host) == []


def test_the_newer_name_of_the_hubs_cache_counts(host: Host) -> None:
    path = folder(host)
    host.vllm(model="org/model")
    host.env(HUGGINGFACE_HUB_CACHE=str(host.root / "none"), HF_HUB_CACHE=str(path))
    assert errors(host) == []
    host.env(HF_HUB_CACHE="")
    assert errors(host) == ["env.HUGGINGFACE_HUB_CACHE"]


def test_the_owner_of_a_folder_may_write_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.getuid() or 4321  # others than root give a folder to nobody but themselves
    path = folder(host, 0o700)
    os.chown(path, owner, -1)
    monkeypatch.setattr(processes, "group_ids", lambda _: frozenset({9999}))
    host.service(user="vllm")
    host.env(VLLM_CACHE_ROOT=str(path))
    monkeypatch.setattr(processes, "user_ids", lambda _: (9999, 9999))
    assert "give it to user vllm" in host.error(CHECK)
    monkeypatch.setattr(processes, "user_ids", lambda _: (owner, 9999))
    assert host.ask(CHECK) == []


def test_what_lies_in_another_written_folder_is_made_there(host: Host) -> None:
    path = folder(host)
    host.env(VLLM_CACHE_ROOT=str(path), TRITON_CACHE_DIR=str(path / "a" / "b"))
    assert host.ask(CHECK) == []
    host.env(VLLM_CACHE_ROOT="")
    assert [problem.key for problem in host.ask(CHECK)] == ["env.TRITON_CACHE_DIR"]


def test_a_log_is_not_made_in_a_folder_that_is_not_there(host: Host) -> None:
    path = folder(host)
    host.env(VLLM_CACHE_ROOT=str(path), NCCL_DEBUG_FILE=str(path / "nccl" / "%h.%p"))
    assert [problem.key for problem in host.ask(CHECK)] == ["env.NCCL_DEBUG_FILE"]


def errors(host: Host) -> list[str]:
    return [one.key for one in host.ask(CHECK) if one.severity is Severity.ERROR]


def caches(host: Host, path: Path, **env: str) -> None:
    host.env(HF_HOME=str(path), HF_HUB_CACHE=str(path), **env)
    host.args({"download-dir": str(path)})


def test_where_nothing_is_fetched_reading_is_enough(host: Host) -> None:
    path = folder(host, 0o755)
    caches(host, path)
    host.args({"tokenizer": "org/tokenizer"})
    assert errors(host) == ["env.HF_HUB_CACHE", "args.download-dir"]
    host.env(HF_HUB_OFFLINE="1")
    found = host.ask(CHECK)
    assert [one.severity for one in found] == [Severity.WARNING] * 3
    assert found[1].message.endswith("To read there is enough, as nothing is fetched")


def test_where_all_of_a_model_is_local_nothing_is_needed(host: Host) -> None:
    for path in (folder(host, 0o700), host.root / "none", host.root / "home" / "me"):
        caches(host, path)
        found = host.ask(CHECK)
        assert [one.severity for one in found] == [Severity.WARNING] * 3
        assert "vLLM goes on unless it has to write there" in found[0].message


def test_code_of_the_model_is_copied_into_the_cache_wherever_the_model_lies(host: Host) -> None:
    caches(host, folder(host, 0o755), HF_HUB_OFFLINE="1")
    host.args({"trust-remote-code": True})
    assert errors(host) == ["env.HF_HOME"]


OF_A_HUB = pytest.mark.parametrize(
    ("model", "args"),
    [
        ("org/model", {}),
        ("", {"tokenizer": "org/model"}),
        ("", {"speculative-config": {"method": "eagle3", "model": "org/model"}}),
        ("", {"speculative-config": '{"model": "org/model"}'}),
        ("", {"spec-model": "org/model"}),
        ("", {"lora-modules": ["a=/srv/a", "b=org/model"]}),
        ("", {"lora-modules": [{"name": "b", "path": "org/model"}]}),
        ("", {"default-mm-loras": {"audio": "org/model"}}),
    ],
)


@OF_A_HUB
@pytest.mark.parametrize("offline", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_what_lies_in_a_cache_that_the_service_cannot_read_is_refused(
    host: Host, model: str, args: dict[str, Any], offline: str
) -> None:
    path = folder(host, 0o700)
    if model:
        host.vllm(model=model)
    caches(host, path, **{offline: "1"})
    host.args(args)
    assert errors(host) == ["env.HF_HUB_CACHE", "args.download-dir"]
    host.env(HF_HUB_CACHE="")
    assert errors(host) == ["env.HF_HOME", "args.download-dir"]
    said = host.ask(CHECK)[0].message
    assert said.startswith(f"the service could not read {path}: {path} may not be listed by others")
    assert said.endswith("nothing is fetched, so org/model would have to be read there")


@pytest.mark.parametrize(
    "args",
    [
        {"tokenizer": "/srv/t"},
        {"speculative-config": {"method": "ngram"}},
        {"lora-modules": ["a=/srv/a"]},
        {"lora-modules": '{"name": "a", "path": "/srv/a"}'},
        {"default-mm-loras": {"audio": "/srv/a"}},
    ],
)
def test_what_is_local_refuses_no_cache(host: Host, args: dict[str, Any]) -> None:
    caches(host, folder(host, 0o700))
    host.args(args)
    assert errors(host) == []


def test_a_cache_that_systemd_hides_or_empties_holds_no_model(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1")
    home, tmp = folder(host), host.root / "tmp" / "hf"
    tmp.mkdir(parents=True)
    hidden = {str(home.parent): "ProtectHome= hides it", str(tmp.parent): "PrivateTmp= hides it"}
    monkeypatch.setattr(reach, "HIDDEN", hidden)
    for path, why in ((home, "ProtectHome= hides it"), (tmp, "PrivateTmp= hides it")):
        host.env(HF_HOME=str(path))
        assert why in host.error(CHECK)


def test_a_cache_that_is_open_may_hold_a_model_that_is_not(host: Host) -> None:
    path = folder(host, 0o755)
    repository = path / "hub" / "models--org--model"
    repository.mkdir(parents=True)
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1", HF_HOME=str(path))
    assert errors(host) == []
    repository.chmod(0o700)
    assert f"the service could not read {repository}: " in host.error(CHECK)


def test_what_this_process_may_not_look_at_is_nothing_to_refuse(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a check by somebody else than root meets the private cache of a made up user."""
    path = folder(host, 0o755)
    host.vllm(model="org/model")
    own = host.root / "var/cache/kimisvc/kimi"
    host.env(HF_HUB_OFFLINE="1", HF_HOME=str(path), VLLM_RPC_BASE_PATH=str(own / "x"))
    stat = Path.stat

    def closed(self: Path, **rest: bool) -> os.stat_result:
        if self.is_relative_to(own) or self.is_relative_to(path / "hub"):
            raise PermissionError(13, "Permission denied")
        return stat(self, **rest)

    monkeypatch.setattr(Path, "stat", closed)
    assert errors(host) == []


def test_the_cache_of_the_instance_may_hold_a_model(host: Host) -> None:
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1", HF_HOME=str(host.root / "var/cache/kimisvc/kimi/hf"))
    assert host.ask(CHECK) == []


def test_what_systemd_hides_stays_refused_with_the_reason(host: Host) -> None:
    home = host.root / "home" / "me"
    home.mkdir(parents=True)
    home.chmod(0o777)
    host.env(HF_HOME=str(home), TRITON_CACHE_DIR=str(home))
    assert len([one for one in host.ask(CHECK) if "ProtectHome= hides it" in one.message]) == 2


@pytest.mark.parametrize("path", ["/", "/var", "/var/log", "/etc/x", "/usr/share/x", "/srv"])
def test_what_is_the_systems_is_never_opened(host: Host, path: str) -> None:
    host.env(TRITON_CACHE_DIR=path)
    assert host.error(CHECK).startswith(f"{path} is shared by the whole box, and stays")


def test_temporary_files_are_the_services_own(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp = str(host.root / "tmp")
    monkeypatch.setattr(reach, "HIDDEN", {tmp: "PrivateTmp= hides it"})
    host.env(TMPDIR=f"{tmp}/vllm", TRITON_CACHE_DIR=tmp, NCCL_DEBUG_FILE=f"{tmp}/nccl.%h.%p")
    assert host.ask(CHECK) == []
    host.env(NCCL_DEBUG_FILE=f"{tmp}/nccl/%h.%p")
    assert f"{tmp} is the service's own and empty: {tmp}/nccl is not in it" in host.error(CHECK)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_CACHE_ROOT", "~/vllm"), ("CUDA_LOG_FILE", "stderr"), ("CUDA_LOG_FILE", "/dev/stderr"),
        ("TRITON_CACHE_DIR", ""), ("NCCL_DEBUG_FILE", "/dev/stdout"),
    ],
)  # fmt: skip
def test_what_needs_no_folder_is_left_alone(host: Host, name: str, value: str) -> None:
    host.env(**{name: value})
    assert host.ask(CHECK) == []


@pytest.mark.parametrize("value", ["vllm", "./x", "/data/../etc"])
def test_a_path_that_nobody_can_open_is_refused(host: Host, value: str) -> None:
    host.env(VLLM_CACHE_ROOT=value)
    assert host.error(CHECK).startswith(f'"{value}" is no absolute path without ..')


def test_a_relative_path_is_one_below_the_working_directory(host: Host) -> None:
    path = folder(host)
    host.service(working_directory=str(path.parent))
    host.env(VLLM_CACHE_ROOT="x")
    assert host.ask(CHECK) == []


def test_a_file_is_no_folder(host: Host) -> None:
    path = write(host.root / "data" / "x", "")
    path.chmod(0o777)
    host.env(VLLM_CACHE_ROOT=str(path))
    assert "it is not a folder" in host.error(CHECK)


def test_a_file_system_that_is_mounted_read_only(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(host)
    host.env(VLLM_CACHE_ROOT=str(path))
    read_only: Any = lambda _: SimpleNamespace(f_flag=os.ST_RDONLY)  # noqa: E731 - one word
    monkeypatch.setattr(os, "statvfs", read_only)
    assert "its file system is mounted read-only" in host.error(CHECK)


def test_without_such_a_key_there_is_nothing_to_look_at(host: Host) -> None:
    assert host.not_asked(CHECK).startswith("the profile names no folder to be written")


def test_the_table_names_options_that_vllm_has() -> None:
    known = shipped_knowledge().options
    for row in WRITTEN:
        if row.table == "args":
            assert row.name in known
            assert (
                not row.field or row.field in known[row.name].value.fields or known[row.name].fields
            )


def test_render_and_preflight_mean_the_same_folders() -> None:
    hidden = {path for path, why in reach.HIDDEN.items() if why.startswith("ProtectHome=")}
    assert hidden == set(HIDDEN)
    assert reach.HIDDEN.keys() - hidden == set(OF_ITS_OWN) - {str(writable.ANYWHERE)}
