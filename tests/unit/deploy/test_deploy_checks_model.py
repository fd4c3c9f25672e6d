"""Bad model folders: real files, spoilt as copies, downloads and modes spoil them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from staged_host import lfs_pointer, safetensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from good_host import Host

SECOND = "model-00002-of-00003.safetensors"


@pytest.fixture
def folder(host: Host) -> Path:
    return Path(host.profile.vllm.model)


def test_a_model_that_is_not_there(host: Host, folder: Path) -> None:
    shutil.rmtree(folder)
    said = f"{folder}: No such file or directory; the service could not read the model"
    assert host.error("model") == said
    assert host.ask("model files") == []


def test_a_name_on_a_hub_is_vllms_business(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.root / "moonshotai" / "Kimi-K2.5").mkdir(parents=True)
    monkeypatch.chdir(host.root)  # where a folder has that name by chance
    host.vllm(model="moonshotai/Kimi-K2.5")
    assert host.all() == ()


def test_a_missing_shard_is_named(host: Host, folder: Path) -> None:
    (folder / SECOND).unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"total_size": 900', '"total_size": 900000'))
    assert host.error("model files") == (
        f"{folder} lacks 1 of the 3 files that model.safetensors.index.json names: {SECOND};"
        " fetch the model again"
    )


def test_many_missing_shards_are_counted(host: Host, folder: Path) -> None:
    index = {"weight_map": {str(n): f"model-{n:05d}-of-00064.safetensors" for n in range(1, 65)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    said = host.error("model files")
    assert "lacks 64 of the 64 files" in said
    assert "model-00008-of-00064.safetensors and 56 more" in said


def test_a_short_shard_is_named_with_what_is_missing(host: Host, folder: Path) -> None:
    safetensors(folder / SECOND, 100, 200, short=17)
    said = host.error("model files")
    assert said.startswith(f"{folder / SECOND} is cut off: 17 of ")
    assert said.endswith("bytes are missing; fetch it again")


def test_pointers_in_place_of_all_shards(host: Host, folder: Path) -> None:
    for shard in folder.glob("*.safetensors"):
        lfs_pointer(shard, 9_800_000_000)
    messages = [problem.message for problem in host.ask("model files")]
    assert len(messages) == 3
    assert all("is a git-lfs pointer and not the file of 9.8 GB" in said for said in messages)


def test_of_many_faulty_shards_some_are_named_and_all_counted(host: Host, folder: Path) -> None:
    names = [f"model-{n:05d}-of-00064.safetensors" for n in range(1, 65)]
    for name in names:
        (folder / name).touch()
    index = {"weight_map": {name: name for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    messages = [problem.message for problem in host.ask("model files")]
    assert messages[0] == f"{folder / names[0]} is empty"
    assert messages[8:] == [f"56 more files of {folder} are faulty"]


def test_a_shard_that_the_service_may_not_read(host: Host, folder: Path) -> None:
    (folder / SECOND).chmod(0o600)
    assert host.error("model files") == f"{folder / SECOND} may not be read by others (mode 600)"


def test_a_shard_behind_a_link_into_a_home(host: Host, folder: Path) -> None:
    blob = host.root / "home" / "blob"
    blob.parent.mkdir()
    (folder / SECOND).rename(blob)
    (folder / SECOND).symlink_to(blob)
    assert "ProtectHome= hides it from the service" in host.error("model files")


def test_a_folder_that_the_service_may_not_list(host: Host, folder: Path) -> None:
    folder.chmod(0o711)
    assert "may not be listed by others" in host.error("model")


def test_an_index_of_another_model(host: Host, folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(path.read_text().replace('"total_size": 900', '"total_size": 547000000000'))
    # No loader reads that number; each file was found whole by itself.
    said = host.warning("model files")
    assert "and model.safetensors.index.json says 547.0 GB" in said


def test_an_index_that_is_no_json(host: Host, folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{\n"weight_map": {')
    (problem,) = host.ask("model files")
    assert problem.file == str(folder / "model.safetensors.index.json")
    assert problem.line == 2


def test_a_config_that_is_no_json_is_shown_by_its_line(host: Host, folder: Path) -> None:
    (folder / "config.json").write_text('{\n "architectures": [\n}\n')
    (problem,) = host.ask("model")
    assert (problem.file, problem.line) == (str(folder / "config.json"), 3)
    assert problem.message.startswith("is no JSON: ")


def test_no_config(host: Host, folder: Path) -> None:
    (folder / "config.json").unlink()
    assert host.error("model") == f"{folder} holds no config.json, so it is no model folder"
    (folder / "params.json").write_text("{}")
    assert host.ask("model") == []


def test_a_config_that_the_service_may_not_read(host: Host, folder: Path) -> None:
    (folder / "config.json").chmod(0o640)
    assert "config.json may not be read by others" in host.error("model")


def test_code_that_the_model_brings_and_that_is_not_there(host: Host, folder: Path) -> None:
    auto_map = {
        "AutoConfig": "configuration_kimi.KimiConfig",
        "AutoModel": "x/y--modeling.Model",
        "AutoProcessor": "built_in",
        "AutoTokenizer": ["tokenization_kimi.Tokenizer", None],
    }
    (folder / "tokenization_kimi.py").touch()
    (folder / "config.json").write_text(json.dumps({"auto_map": auto_map}))
    assert host.ask("model") == []  # served by vLLM's own code, it is not asked for
    host.args({"trust-remote-code": True})
    said = f"{folder} lacks configuration_kimi.py, the code that its config.json names"
    assert host.error("model") == said
    (folder / "configuration_kimi.py").touch()
    (folder / "tokenization_kimi.py").unlink()
    assert "lacks tokenization_kimi.py" in host.error("model")
    (folder / "tokenization_kimi.py").touch()
    assert host.ask("model") == []


def test_no_weights_at_all(host: Host, folder: Path) -> None:
    for path in folder.glob("*safetensors*"):
        path.unlink()
    assert "holds no weights" in host.error("model files")
    host.args({"load-format": "dummy"})
    assert host.ask("model files") == []
    assert host.not_asked("model files") == "with the load format dummy no weights are read"
    host.args({"load-format": "sharded_state"})  # those are there, or not: nobody looked
    assert "other files are read" in host.unseen("model files")


def test_a_download_that_did_not_end(host: Host, folder: Path) -> None:
    (folder / "model-00009.safetensors.incomplete").touch()
    said = f"{folder} holds model-00009.safetensors.incomplete: is a download still running"
    assert host.warning("model files").startswith(said)


def test_no_tokenizer_is_odd(host: Host, folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    said = f"{folder} holds no tokenizer (tokenizer.json or the like)"
    assert host.warning("model files") == said
    host.args({"tokenizer": "moonshotai/Kimi-K2.5"})
    assert host.ask("model files") == []


def test_a_single_file(host: Host, folder: Path) -> None:
    for path in folder.glob("*safetensors*"):
        path.unlink()
    safetensors(folder / "model.safetensors", 100)
    assert host.ask("model files") == []
    safetensors(folder / "model.safetensors", 100, short=1)
    assert "model.safetensors is cut off: 1 of " in host.error("model files")


@pytest.mark.parametrize(
    ("content", "words"), [(b"GGUF\3\0\0\0", ""), (b"PK\3\4", "is no GGUF file"), (b"", "is empty")]
)
def test_a_gguf_file(host: Host, content: bytes, words: str) -> None:
    path = host.root / "models" / "glm.gguf"
    path.write_bytes(content)
    host.vllm(model=str(path))
    assert [words in problem.message for problem in host.all()] == [True] * bool(words)


@pytest.mark.parametrize("name", [SECOND, "model.safetensors.index.json"])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(
    host: Host, folder: Path, name: str
) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    (folder / name).chmod(0o644)
    assert "is no regular file but a named pipe" in host.error("model files")


@pytest.mark.parametrize(
    ("make", "says"),
    [(os.mkfifo, "is no regular file but a named pipe"), (os.mkdir, "Is a directory")],
)
def test_a_config_that_is_no_file_is_said_to_be_none(
    host: Host, folder: Path, make: Callable[[Path], None], says: str
) -> None:
    config = folder / "config.json"
    config.unlink()
    make(config)
    (problem,) = host.ask("model")
    assert problem.file == str(config)
    assert problem.message == says
