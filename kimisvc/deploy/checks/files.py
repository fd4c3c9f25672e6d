"""Check of the files that options and variables name: there, of the right kind, seen by the service.

vLLM opens most of them after the weights are loaded, or at the first request. What
it writes to is another check's (`writable`).
One row an option or variable: `OPTIONS`, `VARIABLES`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.host import CACHE
from kimisvc.deploy.checks.inspection import Unseen
from kimisvc.host import reach
from kimisvc.profile.options import option_name
from kimisvc.profile.values import shown
from kimisvc.records.problems import Problem

if TYPE_CHECKING:
    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.records.profile import ArgValue

_TEMPLATE = re.compile(r"[{}\n]")
"""vLLM takes a chat template for the text of one if it has any of these (chat_utils)."""
_BESIDE = re.compile(r"(\.\.?|~[^/]*)(/|$)")
"""How a path begins that cannot be the name of a model on a hub."""


class Takes(Enum):
    """What a path that an option names has to be."""

    FILE = "a file"
    FOLDER = "a folder"
    EITHER = "a file or a folder"


class Else(Enum):
    """What a word that is no absolute path means: a path all the same, or a name on a hub."""

    PATH = "a path"
    NAME = "a name"


@dataclass(frozen=True, slots=True)
class PathOption:
    """An option or variable whose value names paths, and how they are read out of its value."""

    name: str
    takes: Takes
    otherwise: Else
    paths: Callable[[ArgValue], Iterator[str]]


def _word(value: ArgValue) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value


def _template(value: ArgValue) -> Iterator[str]:
    yield from (word for word in _word(value) if not _TEMPLATE.search(word))


def _loras(value: ArgValue) -> Iterator[str]:
    """Adapters as NAME=PATH, as a table with the key path, or as a list of such."""
    value = _from_json(value)
    if isinstance(value, str):
        yield from _word(value.partition("=")[2])
    elif isinstance(value, Mapping):
        yield from _word(value.get("path", ""))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _loras(item)


def _values(value: ArgValue) -> Iterator[str]:
    value = _from_json(value)
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _word(item)


def _draft(value: ArgValue) -> Iterator[str]:
    value = _from_json(value)
    if isinstance(value, Mapping):
        yield from _word(value.get("model", ""))


def _from_json(value: ArgValue) -> ArgValue:
    """A table or list that stands as JSON in a string: vLLM takes both."""
    if not (isinstance(value, str) and value.lstrip()[:1] in ("{", "[")):
        return value
    try:
        found: ArgValue = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found


OPTIONS: tuple[PathOption, ...] = (
    PathOption("chat-template", Takes.FILE, Else.PATH, _template),
    PathOption("reasoning-parser-plugin", Takes.FILE, Else.PATH, _word),
    PathOption("tool-parser-plugin", Takes.FILE, Else.PATH, _word),
    PathOption("ssl-ca-certs", Takes.FILE, Else.PATH, _word),
    PathOption("log-config-file", Takes.FILE, Else.PATH, _word),
    PathOption("mm-encoder-fp8-scale-path", Takes.FILE, Else.PATH, _word),
    PathOption("allowed-local-media-path", Takes.FOLDER, Else.PATH, _word),
    PathOption("tokenizer", Takes.EITHER, Else.NAME, _word),
    PathOption("hf-config-path", Takes.EITHER, Else.NAME, _word),
    PathOption("generation-config", Takes.FOLDER, Else.NAME, _word),
    PathOption("spec-model", Takes.EITHER, Else.NAME, _word),
    PathOption("speculative-config", Takes.EITHER, Else.NAME, _draft),
    PathOption("speculative-config.model", Takes.EITHER, Else.NAME, _word),
    PathOption("lora-modules", Takes.FOLDER, Else.NAME, _loras),
    PathOption("default-mm-loras", Takes.FOLDER, Else.NAME, _values),
)
"""Options of `vllm serve` that read files or folders (its help; arg_utils, cli_args)."""
VARIABLES: tuple[PathOption, ...] = (
    PathOption("VLLM_LOGGING_CONFIG_PATH", Takes.FILE, Else.PATH, _word),
    PathOption("NCCL_GRAPH_FILE", Takes.FILE, Else.PATH, _word),
    PathOption("NCCL_TOPO_FILE", Takes.FILE, Else.PATH, _word),
)
"""Variables of files: without the first vLLM ends (logger.py), of the others NCCL warns at most."""
_BY_NAME = {row.name: row for row in OPTIONS}


def of_options(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each path in [args] or [env] that is of no use, or would be looked for elsewhere."""
    for written, value in about.profile.args.items():
        if row := _BY_NAME.get(option_name(written)):
            yield from _of_row(about, row, value, f"args.{written}")
    for row in VARIABLES:
        yield from _of_row(about, row, about.profile.env.get(row.name, ""), f"env.{row.name}")


def _of_row(
    about: Inspection, row: PathOption, value: ArgValue, key: str
) -> Iterator[Problem | Unseen]:
    for word in row.paths(value):
        path = _meant(about, row, word)
        if isinstance(path, Problem):
            yield replace(path, key=key)
        elif path is None or path.is_relative_to(
            about.root / CACHE / about.profile.service.instance
        ):
            continue  # not to be found here, or made by systemd and shown to the service alone
        elif why := reach.why_unreachable(path, about.viewer):
            yield Problem(f"the service could not read {path}: {why}", key=key)
        elif unseen := reach.why_unseen(path):
            yield Unseen(unseen)
        elif not _is(path, row.takes):
            yield Problem(f"{path} is not {row.takes.value}", key=key)


def _meant(about: Inspection, row: PathOption, word: str) -> Path | Problem | None:
    """The path that a word means; None: a name on a hub, or a word of vLLM's own, is its business."""
    path, base = Path(word), about.profile.service.working_directory
    if path.is_absolute():
        return path
    if row.otherwise is Else.NAME and not _BESIDE.match(word):
        return None
    if not base:
        return Problem(
            f"{shown(word)} is no absolute path, and the service starts in another folder "
            "than you do, so it would not be found. Write the whole path"
        )
    return Path(base) / word


def _is(path: Path, takes: Takes) -> bool:
    file, folder = path.is_file(), path.is_dir()
    return {Takes.FILE: file, Takes.FOLDER: folder, Takes.EITHER: file or folder}[takes]
