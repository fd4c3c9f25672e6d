"""Bad hosts whose options name files and folders: gone, hidden, closed, of another kind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from good_host import write

from kimisvc.deploy.checks.files import OPTIONS, VARIABLES, Else, Takes
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.options import OWNED_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from good_host import Host

CHECK = "option files"
SHAPES: dict[str, Callable[[str], Any]] = {
    "speculative-config": lambda path: {"method": "eagle3", "model": path},
    "lora-modules": lambda path: (f"a={path}",),
    "default-mm-loras": lambda path: {"audio": path},
}
"""How a path stands in the value of an option, where it is not the value."""


def value(option: str, path: object) -> Any:
    return SHAPES.get(option, str)(str(path))


def there(host: Host, takes: Takes) -> Path:
    """A path that such an option takes."""
    path = host.root / "data" / "x"
    if takes is Takes.FILE:
        return write(path, "")
    path.mkdir(parents=True)
    return path


EACH = pytest.mark.parametrize("row", OPTIONS, ids=lambda row: row.name)


@EACH
def test_vllm_has_the_option_and_it_may_stand_in_args(row: Any) -> None:
    head, _, field = row.name.partition(".")
    known = shipped_knowledge().options
    assert head in known
    assert head not in OWNED_OPTIONS
    assert not field or field in known[head].fields


@EACH
def test_what_is_there_is_in_order(host: Host, row: Any) -> None:
    host.args({row.name: value(row.name, there(host, row.takes))})
    assert host.all() == ()


@EACH
def test_what_is_not_there_is_named(host: Host, row: Any) -> None:
    gone = host.root / "gone" / "x"
    host.args({row.name: value(row.name, gone)})
    (problem,) = host.ask(CHECK)
    said = f"the service could not read {gone}: {gone.parent}: No such file or directory"
    assert (problem.key, problem.message) == (f"args.{row.name}", said)


@EACH
def test_what_is_of_another_kind_is_named(host: Host, row: Any) -> None:
    pipe = host.root / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    host.args({row.name: value(row.name, pipe)})
    assert host.error(CHECK) == f"{pipe} is not {row.takes.value}"
    other = there(host, Takes.FOLDER if row.takes is Takes.FILE else Takes.FILE)
    host.args({row.name: value(row.name, other)})
    assert bool(host.ask(CHECK)) is (row.takes is not Takes.EITHER)


@EACH
def test_what_the_service_may_not_see_is_named(host: Host, row: Any) -> None:
    hidden = host.root / "home" / "me"
    hidden.mkdir(parents=True)
    host.args({row.name: value(row.name, hidden)})
    assert "ProtectHome= hides it" in host.error(CHECK)
    path = there(host, row.takes)
    path.parent.chmod(0o700)
    host.args({row.name: value(row.name, path)})
    assert f"{path.parent} may not be entered by others (mode 700)" in host.error(CHECK)


@EACH
@pytest.mark.parametrize("word", ["./x", "../x", "~/x", "x.jinja"])
def test_a_relative_path_is_refused_unless_it_may_be_a_name(
    host: Host, row: Any, word: str
) -> None:
    host.args({row.name: value(row.name, word)})
    if row.otherwise is Else.NAME and word == "x.jinja":
        assert host.ask(CHECK) == []
    else:
        said = host.error(CHECK)
        assert said.startswith(f'"{word}" is no absolute path, and the service starts in another')


def test_a_relative_path_is_looked_for_where_the_service_starts(host: Host) -> None:
    path = write(host.root / "data" / "t.jinja", "x")
    host.service(working_directory=str(path.parent))
    host.args({"chat-template": "./t.jinja", "tokenizer": "org/name"})
    assert host.all() == ()
    path.unlink()
    assert "data/t.jinja: No such file or directory" in host.error(CHECK)


@pytest.mark.parametrize(
    "options",
    [
        {"chat-template": "{{ messages }}"},
        {"chat-template": "{% for m in messages %}/{% endfor %}"},
        {"generation-config": "vllm"},
        {"tokenizer": "moonshotai/Kimi-K2.5"},
        {"tokenizer": "s3://bucket/tokenizer"},
        {"speculative-config": {"method": "ngram", "num_speculative_tokens": 4}},
        {"speculative-config": '{"method": "ngram"}'},
        {"speculative-config": "{broken"},
        {"lora-modules": ("a=org/adapter",)},
        {"lora-modules": "a"},
        {"default-mm-loras": "{}"},
        {"tokenizer": True, "chat-template": 3, "lora-modules": ({"path": 1},)},
        {"served": "/nowhere", "middleware": ("/nowhere",)},
    ],
)
def test_what_is_no_path_is_left_to_vllm(host: Host, options: dict[str, Any]) -> None:
    host.args(options)
    assert host.ask(CHECK) == []


@pytest.mark.parametrize(
    ("option", "shape"),
    [
        ("chat_template", "/nowhere/x"),
        ("speculative_config", {"model": "/nowhere/x"}),
        ("speculative-config", json.dumps({"model": "/nowhere/x"})),
        ("lora-modules", "a=/nowhere/x"),
        ("lora-modules", {"name": "a", "path": "/nowhere/x"}),
        ("lora-modules", ({"name": "a", "path": "/nowhere/x"}, "b=org/b")),
        ("lora-modules", json.dumps({"name": "a", "path": "/nowhere/x"})),
        ("lora-modules", (json.dumps({"name": "a", "path": "/nowhere/x"}),)),
    ],
)
def test_a_path_is_found_however_it_is_written(host: Host, option: str, shape: Any) -> None:
    host.args({option: shape})
    (problem,) = host.ask(CHECK)
    assert problem.key == f"args.{option}"
    assert problem.message.startswith("the service could not read /nowhere/x: /nowhere")


def test_the_cache_of_the_service_is_made_when_it_starts(host: Host) -> None:
    cache = host.root / "var" / "cache" / "kimisvc"
    host.args({"allowed-local-media-path": str(cache / host.profile.service.instance / "media")})
    assert host.ask(CHECK) == []
    host.args({"allowed-local-media-path": str(cache / "of-another" / "media")})
    assert "No such file" in host.error(CHECK)


@pytest.mark.parametrize("name", [row.name for row in VARIABLES])
def test_the_file_of_a_variable_is_looked_for_as_well(host: Host, name: str) -> None:
    file = write(host.root / "data" / "x", "{}")
    host.env(**{name: str(file)})
    assert host.ask(CHECK) == []
    host.env(**{name: str(file.parent)})
    assert host.error(CHECK) == f"{file.parent} is not a file"
    file.unlink()
    host.env(**{name: str(file)})
    (problem,) = host.ask(CHECK)
    assert problem.key == f"env.{name}"
    assert "No such file or directory" in problem.message
    host.env(**{name: ""})
    assert host.ask(CHECK) == []


def test_every_bad_path_is_named_at_once(host: Host) -> None:
    host.args({"lora-modules": ("a=/no/a", "b=/no/b"), "tokenizer": "/no/t", "chat-template": "c"})
    assert len(host.ask(CHECK)) == 4
