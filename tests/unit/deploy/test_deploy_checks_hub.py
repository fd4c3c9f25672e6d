"""Caches of a hub that lack what a profile names, where nothing is fetched: vLLM would end there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from good_host import write

from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from good_host import Host

CHECK = "model"
COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40


@pytest.fixture
def cache(host: Host) -> Path:
    """The empty cache of a hub, which anybody may read, of a profile that fetches nothing."""
    path = host.root / "data" / "hf"
    path.mkdir(parents=True)
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1", HF_HOME=str(path))
    return path


def fetched(hub: Path, name: str = "org/model", ref: str = "main", commit: str = COMMIT) -> Path:
    """Lay a repository as huggingface_hub does; return its folder."""
    folder = hub / f"models--{name.replace('/', '--')}"
    write(folder / "snapshots" / commit / "config.json", "{}")
    write(folder / "refs" / ref, commit)
    return folder


def keys(host: Host) -> list[str]:
    return [one.key for one in host.ask(CHECK)]


def test_a_model_that_nobody_fetched_is_refused_before_the_load(host: Host, cache: Path) -> None:
    (problem,) = host.ask(CHECK)
    assert (problem.key, problem.severity) == ("vllm.model", Severity.ERROR)
    said = f"org/model is not in {cache}/hub, and nothing is fetched: vLLM would end at its start. "
    assert problem.message.startswith(said)
    assert "Fetch it there first (hf download)" in problem.message
    assert problem in host.all()
    fetched(cache / "hub")
    assert host.ask(CHECK) == []
    assert host.unseen(CHECK) == ""
    assert host.unseen("model files") == "org/model is a name on a hub, whose cache vLLM reads"


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize(("word", "refused"), [("1", 1), ("TRUE", 1), ("on", 1), ("0", 0), ("", 0)])
def test_what_is_fetched_need_not_be_there(
    host: Host, cache: Path, variable: str, word: str, refused: int
) -> None:
    assert cache.is_dir()
    host.env(HF_HUB_OFFLINE="")
    host.env(**{variable: word})
    assert len(host.ask(CHECK)) == refused
    assert bool(host.unseen(CHECK)) is not bool(refused)


def test_the_cache_is_the_one_that_vllm_takes(host: Host, cache: Path) -> None:
    older, newer = host.root / "older", host.root / "newer"
    for variable, path in (("HUGGINGFACE_HUB_CACHE", older), ("HF_HUB_CACHE", newer)):
        fetched(cache / "hub")
        assert host.ask(CHECK) == []
        path.mkdir()
        host.env(**{variable: str(path)})
        assert f"org/model is not in {path}, and" in host.error(CHECK)
        fetched(path)
        assert host.ask(CHECK) == []


def test_where_no_cache_is_named_it_is_the_one_of_the_instance(host: Host) -> None:
    own = host.root / "var/cache/kimisvc/kimi/huggingface/hub"
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1")
    assert f"org/model is not in {own}, and" in host.error(CHECK)  # systemd makes it, and empty
    fetched(own)
    assert host.ask(CHECK) == []


def test_a_cache_in_that_of_the_instance_is_looked_into(host: Host) -> None:
    own = host.root / "var/cache/kimisvc/kimi/hf"
    host.vllm(model="org/model")
    host.env(HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(own))
    assert f"org/model is not in {own}, and" in host.error(CHECK)
    fetched(own)
    assert host.ask(CHECK) == []


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"tokenizer": "org/other"}, "args.tokenizer"),
        ({"hf_config_path": "org/other"}, "args.hf_config_path"),
        ({"speculative-config": {"method": "eagle3", "model": "org/other"}},
         "args.speculative-config"),
        ({"speculative-config": '{"model": "org/other"}'}, "args.speculative-config"),
        ({"speculative-config.model": "org/other"}, "args.speculative-config.model"),
        ({"spec-model": "org/Qwen2.5"}, "args.spec-model"),
        ({"lora-modules": ["a=/srv/a", "b=org/other"]}, "args.lora-modules"),
        ({"lora-modules": [{"name": "b", "path": "org/other"}]}, "args.lora-modules"),
        ({"default-mm-loras": {"audio": "org/other"}}, "args.default-mm-loras"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["org/model", ""])
def test_each_name_has_to_be_there_wherever_the_model_lies(
    host: Host, cache: Path, args: dict[str, Any], key: str, model: str
) -> None:
    host.vllm(model=model or str(next(host.root.glob("models/*"))))
    fetched(cache / "hub")
    host.args(args)
    assert keys(host) == [key]
    assert " is not in " in host.error(CHECK)
    for name in ("org/other", "org/Qwen2.5"):
        fetched(cache / "hub", name)
    assert keys(host) == []


def test_all_that_is_missing_is_told_at_once_and_each_once(host: Host, cache: Path) -> None:
    assert cache.is_dir()
    host.args({"tokenizer": "org/model", "spec-model": "org/draft"})
    assert keys(host) == ["vllm.model", "args.spec-model"]


@pytest.mark.parametrize(
    "args",
    [
        {"speculative-config": {"method": "ngram", "model": "ngram"}},
        {"speculative-config": {"model": "[ngram]"}},
        {"speculative-config": {"method": "custom_class", "model": "package.Proposer"}},
        {"spec-model": "suffix"},
        {"tokenizer": "s3://bucket/tokenizer"},
        {"tokenizer": "./tokenizer"},
    ],
)
def test_what_is_no_name_on_a_hub_is_not_looked_for(
    host: Host, cache: Path, args: dict[str, Any]
) -> None:
    fetched(cache / "hub")
    host.args(args)
    assert host.ask(CHECK) == []


def test_the_quantization_of_a_gguf_is_no_part_of_its_folder(host: Host, cache: Path) -> None:
    host.vllm(model="org/model:Q4_K_M")
    assert "org/model:Q4_K_M is not in" in host.error(CHECK)
    fetched(cache / "hub")
    assert host.ask(CHECK) == []


def test_a_folder_of_that_name_where_the_service_starts_goes_first(host: Host, cache: Path) -> None:
    assert keys(host) == ["vllm.model"]
    (host.root / "org" / "model").mkdir(parents=True)
    assert keys(host) == []
    host.service(working_directory=str(cache))
    assert keys(host) == ["vllm.model"]
    (cache / "org" / "model").mkdir(parents=True)
    assert keys(host) == []


def spoilt(cache: Path) -> Iterator[Path]:
    """Yield a repository again and again, each time without what its main revision needs."""
    folder = fetched(cache / "hub")
    (folder / "refs" / "main").unlink()
    yield folder
    write(folder / "refs" / "main", OTHER)
    yield folder


def test_a_cache_without_the_snapshot_of_main_holds_no_model(host: Host, cache: Path) -> None:
    for _ in spoilt(cache):
        said = host.error(CHECK)
        assert f'org/model is in {cache}/hub, but not its revision "main", and nothing' in said


@pytest.mark.parametrize(
    ("model", "option", "key"),
    [("org/model", "revision", "vllm.model"), ("", "tokenizer-revision", "args.tokenizer")],
)
def test_the_revision_that_is_asked_for_has_to_be_there(
    host: Host, cache: Path, model: str, option: str, key: str
) -> None:
    if not model:
        host.vllm(model=str(next(host.root.glob("models/*"))))
        host.args({"tokenizer": "org/model"})
    folder = fetched(cache / "hub")
    for revision, ref in (("v2", "v2"), ("refs/pr/1", "refs/pr/1")):
        host.args({option: revision})
        assert keys(host) == [key]
        assert f'not its revision "{revision}"' in host.error(CHECK)
        write(folder / "refs" / ref, COMMIT)
        assert keys(host) == []
    host.args({option: OTHER})
    assert f"but not its revision {OTHER}, and" in host.error(CHECK)
    host.args({option: COMMIT})
    (folder / "refs" / "main").unlink()  # a commit needs no file that names it
    assert keys(host) == []


@pytest.mark.parametrize("shut", ["models--org--model", "refs/main", f"snapshots/{COMMIT}"])
def test_what_may_not_be_looked_at_refuses_nothing(
    host: Host, cache: Path, monkeypatch: pytest.MonkeyPatch, shut: str
) -> None:
    folder = fetched(cache / "hub")
    closed = folder if shut == folder.name else folder / shut
    stat, opened = Path.stat, os.open

    def no_stat(self: Path, **rest: bool) -> os.stat_result:
        if self.is_relative_to(closed):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **rest)

    def no_open(path: str | Path, *rest: Any, **more: Any) -> Any:
        if Path(path).is_relative_to(closed):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(Path, "stat", no_stat)
    monkeypatch.setattr(os, "open", no_open)
    assert host.ask(CHECK) == []
    assert str(closed) in host.unseen(CHECK)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"VLLM_USE_MODELSCOPE": "True"}, "with VLLM_USE_MODELSCOPE names may be looked up else"),
        ({"VLLM_MODEL_REDIRECT_PATH": "/srv/x"}, "with VLLM_MODEL_REDIRECT_PATH names may be"),
        ({"HF_HUB_CACHE": "/data/$USER"}, "HF_HUB_CACHE does not say by itself which folder"),
        ({"HF_HUB_CACHE": "~/hub"}, "HF_HUB_CACHE does not say by itself which folder"),
        ({"HF_HUB_CACHE": "/nowhere"}, "there is no /nowhere"),
    ],
)
def test_where_nobody_can_tell_the_cache_nothing_is_said(
    host: Host, cache: Path, env: dict[str, str], why: str
) -> None:
    host.env(**env)
    assert host.ask(CHECK) == []
    assert host.unseen(CHECK).startswith(why)
    host.env(VLLM_USE_MODELSCOPE="False", VLLM_MODEL_REDIRECT_PATH="", HF_HUB_CACHE=str(cache))
    assert keys(host) == ["vllm.model"]


def test_a_profile_that_names_nothing_on_a_hub_needs_no_cache(host: Host) -> None:
    host.env(HF_HUB_OFFLINE="1", HF_HOME="/nowhere")
    assert host.ask(CHECK) == []
    assert host.unseen(CHECK) == ""
