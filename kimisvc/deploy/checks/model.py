"""Checks of the model: that all of it is there, whole, and readable by the service.

A missing or short shard is found by vLLM when its turn comes, half an hour into
a load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks import hub
from kimisvc.deploy.checks.inspection import Unseen, few, not_asked, warning
from kimisvc.host import checkpoint, reach, safetensors_header
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.records.problems import Problem
from kimisvc.render.hub_caches import is_offline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection

KEY = "vllm.model"
CONFIGS = ("config.json", "params.json")
"""The second is Mistral's own format."""
TOKENIZERS = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tiktoken.model", "tekken.json",
    "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "qwen.tiktoken",
)  # fmt: skip
NO_FILES = "dummy"
"""The value of --load-format for which no weights are read, but made up (vllm, config/load.py)."""
OTHER_FILES = ("tensorizer", "sharded_state", "ipc_cache")
"""Values of --load-format for which other files are read, or what another process holds."""
MOST_NAMED = 8
"""So many faulty files are named; of the rest only how many there are."""


def reachable(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield why a model cannot be read; a name on a hub is vLLM's own business, unless it is offline."""
    model = Path(about.profile.vllm.model)
    yield from hub.missing(about)
    if not model.is_absolute():
        if not is_offline(about.profile):
            yield _of_a_hub(about)
        return
    why = reach.why_unreachable(model, about.viewer)
    if why:
        yield Problem(f"{why}; the service could not read the model", key=KEY)
    elif unseen := reach.why_unseen(model):
        yield Unseen(unseen)
    elif model.is_dir():
        yield from _config(about, model)


def complete(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each file of weights that is missing, cut off, no weights at all, or not readable."""
    model = Path(about.profile.vllm.model)
    form = option(about.profile.args, "load-format")
    if not model.is_absolute():
        yield _of_a_hub(about)
        return
    if form == NO_FILES:
        yield not_asked(f"with the load format {form} no weights are read")
        return
    if form in OTHER_FILES:
        yield Unseen(f"with the load format {form} other files are read, or none")
        return
    if unread := reach.why_unread(model):
        yield Unseen(unread)
    elif model.is_file():
        yield from _faults(about, model.parent, (model.name,))
    elif model.is_dir():
        yield from _folder(about, model)
    else:
        yield Unseen(f"there is no {model}")


def _of_a_hub(about: Inspection) -> Unseen:
    how = "whose cache vLLM reads" if is_offline(about.profile) else "from which vLLM fetches it"
    return Unseen(f"{about.profile.vllm.model} is a name on a hub, {how}")


def _folder(about: Inspection, model: Path) -> Iterator[Problem | Unseen]:
    found = checkpoint.read(model)
    if isinstance(found, checkpoint.BadJson):
        yield _bad_json(found)
        return
    if found.unfinished:
        names = few(found.unfinished, MOST_NAMED)
        yield warning(f"{model} holds {names}: is a download still running, or broken off?", KEY)
    if found.weights is None:
        yield Problem(f"{model} holds no weights (no .safetensors, .bin, .pt or .gguf)", key=KEY)
        return
    if found.missing:
        why = f"that {found.index} names" if found.index else "that the others' names promise"
        yield Problem(
            f"{model} lacks {len(found.missing)} of the {len(found.needed)} files {why}:"
            f" {few(found.missing, MOST_NAMED)}; fetch the model again",
            key=KEY,
        )
    faults = tuple(_faults(about, model, tuple(n for n in found.needed if n in found.present)))
    yield from faults
    if not faults and not found.missing:
        yield from _small(model, found)
    if not _has_tokenizer(about, found):
        yield warning(f"{model} holds no tokenizer (tokenizer.json or the like)", KEY)


def _small(model: Path, found: checkpoint.Checkpoint) -> Iterator[Problem]:
    """Every file is whole by itself, and still they may be of another model than the index."""
    size = checkpoint.size_on_disk(model, found.needed)
    if size < found.total_size:
        human = safetensors_header.human
        yield warning(
            f"the files of {model} are {human(size)} together, and {found.index} says"
            f" {human(found.total_size)}: is it the index of another model?",
            KEY,
        )


def _faults(about: Inspection, folder: Path, names: tuple[str, ...]) -> Iterator[Problem | Unseen]:
    """Yield a problem for each faulty file; after some only how many more there are."""
    viewer, faulty = about.viewer, 0
    for name in names:
        path = folder / name
        why = reach.why_unreachable(path, viewer)
        if not why and (unread := reach.why_unread(path)):
            yield Unseen(unread)
            return  # the others are most likely as shut; what was found before is told
        if not why:
            fault = safetensors_header.fault(path)
            why = f"{path} {fault}" if fault else ""
        if why:
            faulty += 1
            if faulty <= MOST_NAMED:
                yield Problem(why, key=KEY)
    if faulty > MOST_NAMED:
        yield Problem(f"{faulty - MOST_NAMED} more files of {folder} are faulty", key=KEY)


def _config(about: Inspection, model: Path) -> Iterator[Problem | Unseen]:
    if unseen := reach.why_unseen(model / CONFIGS[0]):
        yield Unseen(unseen)
        return
    there = [model / name for name in CONFIGS if (model / name).exists()]
    if not there:
        yield Problem(f"{model} holds no config.json, so it is no model folder", key=KEY)
        return
    why = reach.why_unreachable(there[0], about.viewer)
    if why:
        yield Problem(f"{why}; the service could not read the model", key=KEY)
        return
    if unread := reach.why_unread(there[0]):
        yield Unseen(unread)
        return
    config = checkpoint.read_json(there[0])
    if isinstance(config, checkpoint.BadJson):
        yield _bad_json(config)
        return
    if option(about.profile.args, "trust-remote-code") is not True:
        return  # the code of the model is not asked for then
    for name in _own_code(config.get("auto_map")):
        if not (model / name).is_file():
            yield Problem(f"{model} lacks {name}, the code that its config.json names", key=KEY)


def _own_code(auto_map: object) -> list[str]:
    """The files of code in a model's auto_map: "module.Class"; "repository--…" is elsewhere.

    Of a tokenizer there may be two, in a list, and one of them null.
    """
    if not isinstance(auto_map, dict):
        return []
    values = [v if isinstance(v, list) else [v] for v in auto_map.values()]
    named = [value for several in values for value in several if isinstance(value, str)]
    return sorted(
        {f"{value.rpartition('.')[0]}.py" for value in named if "." in value and "--" not in value}
    )


def _has_tokenizer(about: Inspection, found: checkpoint.Checkpoint) -> bool:
    elsewhere = option(about.profile.args, "tokenizer", "skip-tokenizer-init") is not None
    inside = found.weights is checkpoint.Weights.GGUF  # the file holds it
    return elsewhere or inside or any(name in found.names for name in TOKENIZERS)


def _bad_json(bad: checkpoint.BadJson) -> Problem:
    return Problem(bad.reason, file=str(bad.path), line=bad.line, key=KEY)
