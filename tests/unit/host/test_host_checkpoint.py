"""Model folders as hubs, downloads and copies leave them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from staged_host import model, safetensors

from kimisvc.errors import HostError
from kimisvc.host import checkpoint
from kimisvc.host.checkpoint import BadJson, Checkpoint, Weights

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"


def read(folder: Path) -> Checkpoint:
    found = checkpoint.read(folder)
    assert isinstance(found, Checkpoint)
    return found


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_a_whole_model(tmp_path: Path) -> None:
    found = read(model(tmp_path / "m", 3))
    assert found.weights is Weights.SAFETENSORS
    assert (found.index, found.total_size, found.missing, len(found.needed)) == (INDEX, 900, (), 3)


def test_a_shard_of_the_index_that_is_not_there(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", 3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert read(folder).missing == ("model-00002-of-00003.safetensors",)


def test_an_index_and_none_of_its_shards(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", 2)
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    assert len(read(folder).missing) == 2


def test_files_beside_the_index_are_not_needed(tmp_path: Path) -> None:
    folder = touch(model(tmp_path / "m"), "adapter.safetensors", "pytorch_model.bin")
    assert "adapter.safetensors" not in read(folder).needed


def test_without_an_index_numbers_in_the_names_promise_the_others(tmp_path: Path) -> None:
    folder = touch(tmp_path, "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors")
    found = read(folder)
    assert (found.index, found.missing) == ("", ("model-00002-of-00003.safetensors",))


def test_a_number_that_is_none_of_shards_promises_nothing(tmp_path: Path) -> None:
    assert read(touch(tmp_path, "x-1-of-99999999.safetensors")).missing == ()


@pytest.mark.parametrize(
    ("names", "weights", "needed"),
    [
        (("model.safetensors",), Weights.SAFETENSORS, ("model.safetensors",)),
        (("pytorch_model.bin",), Weights.PYTORCH, ("pytorch_model.bin",)),
        (("model.gguf",), Weights.GGUF, ("model.gguf",)),
        (("consolidated.00.pt",), Weights.TORCH, ("consolidated.00.pt",)),
        (("a.bin", "a.safetensors"), Weights.SAFETENSORS, ("a.safetensors",)),
        (("README.md",), None, ()),
    ],
)
def test_formats_in_the_order_that_vllm_has(
    tmp_path: Path, names: tuple[str, ...], weights: Weights | None, needed: tuple[str, ...]
) -> None:
    found = read(touch(tmp_path, *names))
    assert (found.weights, found.needed) == (weights, needed)


def test_an_index_of_pytorch(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "x.bin"}}')
    found = read(tmp_path)
    assert (found.weights, found.missing) == (Weights.PYTORCH, ("x.bin",))


def test_of_two_indexes_the_one_vllm_reads(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "consolidated.safetensors.index.json").write_text('{"weight_map": {"a": "x"}}')
    assert read(folder).index == INDEX
    (folder / INDEX).unlink()
    assert read(folder).index == "consolidated.safetensors.index.json"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n "weight_map": {\n', 3, "is no JSON"),
        ("[]", 0, "holds no JSON object"),
        ("{}", 0, "no table weight_map"),
        ('{"weight_map": {"a": 1}}', 0, "no table weight_map"),
        ("[" * 100_000, 0, "nested too deeply"),
    ],
)
def test_a_broken_index(tmp_path: Path, text: str, line: int, words: str) -> None:
    (tmp_path / INDEX).write_text(text)
    found = checkpoint.read(tmp_path)
    assert isinstance(found, BadJson)
    assert (found.path, found.line) == (tmp_path / INDEX, line)
    assert words in found.reason


def test_json_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"a": "\xff\xfe"}')
    bad = checkpoint.read_json(tmp_path / "x.json")
    assert isinstance(bad, BadJson)
    assert "not UTF-8" in bad.reason
    assert checkpoint.read_json(tmp_path / "y.json") == BadJson(
        tmp_path / "y.json", 0, "No such file or directory"
    )


@pytest.mark.parametrize(
    ("metadata", "total"),
    [({"total_size": 5}, 5), ({"total_size": 5.0}, 5), ({}, 0), ({"total_size": "5"}, 0), ([], 0)],
)
def test_the_total_size_where_it_is_told(tmp_path: Path, metadata: object, total: int) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": {"a": "b"}}))
    assert read(tmp_path).total_size == total


def test_downloads_that_did_not_end(tmp_path: Path) -> None:
    folder = touch(model(tmp_path / "m"), "x.safetensors.aria2", "y.incomplete")
    assert read(folder).unfinished == ("x.safetensors.aria2", "y.incomplete")


def test_sizes_are_those_of_what_links_lead_to(tmp_path: Path) -> None:
    blob = safetensors(tmp_path / "blob", 1000)
    (tmp_path / "a.safetensors").symlink_to(blob)
    names = ("a.safetensors", "b.safetensors")
    assert checkpoint.size_on_disk(tmp_path, names) == blob.stat().st_size


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir(mode=0o000)
    with pytest.raises(HostError):
        checkpoint.read(tmp_path / "m")


@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_a_pipe_or_a_device_in_place_of_a_file_is_not_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    said = BadJson(tmp_path / name, 0, "is no regular file but a named pipe")
    assert checkpoint.read_json(tmp_path / name) == said
    if name == INDEX:
        assert checkpoint.read(tmp_path) == said
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    found = checkpoint.read_json(tmp_path / name)
    assert isinstance(found, BadJson)
    assert found.reason == "is no regular file but a character device"


def test_a_file_without_an_end_is_no_json(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    found = checkpoint.read_json(tmp_path / "config.json")
    assert found == BadJson(tmp_path / "config.json", 0, "is larger than 128 MiB")
