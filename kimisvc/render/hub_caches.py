"""What becomes of a hub's caches that a profile names: fetched into, read, or left alone. Pure.

As huggingface_hub (constants.py), transformers (utils/hub.py) and vLLM
(engine/arg_utils.py, weight_utils.py) choose among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.render.arguments import option_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from kimisvc.records.profile import Profile

_MODELS = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME")
"""Where models lie: in the first of these that is set (huggingface_hub, constants.py)."""
_CODE = ("HF_MODULES_CACHE", "HF_HOME")
"""Where transformers copies a model's own code to before it runs it: as above."""
_WEIGHTS, _TRANSFERS = "download-dir", "HF_XET_CACHE"
CACHES = frozenset({*_MODELS, *_CODE, _WEIGHTS, _TRANSFERS})
"""The variables and the option that name such a cache."""
_ON = ("1", "true", "yes", "on")
_NO_DRAFTS = frozenset({"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states"})
"""Methods that vLLM writes in the place of a draft's name (vllm/config/speculative.py)."""


class Use(Enum):
    """What vLLM does with such a cache."""

    WRITTEN = "fetched into, or a model's code is copied there"
    READ = "what a profile names has to lie there: nothing is fetched"
    LEFT = "left alone: nothing that a profile names comes from a hub, or not through there"


@dataclass(frozen=True, slots=True)
class OnHub:
    """What vLLM looks up on a hub: the name that a profile gives it, and the key that gives it."""

    key: str
    name: str


def use_of(cache: str, profile: Profile) -> Use:
    """Given the name of a cache (see CACHES) and a profile, return what vLLM does with it."""
    if _brings_code(profile) and cache == _first(_CODE, profile):
        return Use.WRITTEN
    holds = cache in (_WEIGHTS, models_cache(profile))
    if not any(on_hub(profile)) or not (holds or cache == _TRANSFERS):
        return Use.LEFT
    if not is_offline(profile):
        return Use.WRITTEN
    return Use.READ if holds else Use.LEFT


def on_hub(profile: Profile) -> Iterator[OnHub]:
    """Given a profile, yield what vLLM looks up on a hub: model, tokenizer, draft, LoRA."""
    yield from _those("vllm.model", [profile.vllm.model])
    for written, value in profile.args.items():
        name, key = option_name(written), f"args.{written}"
        if name in ("tokenizer", "hf-config-path"):
            yield from _those(key, [str(value)])
        elif name in ("spec-model", "speculative-config.model"):
            yield from _those(key, _drafts(value))
        elif name == "speculative-config":
            yield from _those(key, _drafts(table(value).get("model", "")))
        elif name == "default-mm-loras":
            yield from _those(key, [str(one) for one in table(value).values()])
        elif name == "lora-modules":
            adapters = value if isinstance(value, list | tuple) else (value,)
            yield from _those(key, [_adapter(one) for one in adapters])


def models_cache(profile: Profile) -> str:
    """Given a profile, return the variable that names where models lie; "": none, so the default."""
    return _first(_MODELS, profile)


def models_in(cache: str, folder: PurePosixPath) -> PurePosixPath:
    """Given a cache and its folder, return the folder in it that holds models."""
    return folder / "hub" if cache == "HF_HOME" else folder


def repository(name: str) -> str:
    """Given a name on a hub, return what its folder is called; a GGUF's `:quant` is no part of it.

    As huggingface_hub has it (file_download.py, repo_folder_name).
    """
    return f"models--{name.partition(':')[0].replace('/', '--')}"


def kept_in(cache: str, folder: PurePosixPath, profile: Profile) -> Iterator[PurePosixPath]:
    """Given a cache, its folder and a profile, yield where in it each hub name would lie."""
    hub = models_in(cache, folder)
    yield hub
    for one in on_hub(profile):
        yield hub / repository(one.name)


def is_offline(profile: Profile) -> bool:
    """Given a profile, say whether it has nothing fetched from a hub.

    The second is asked where the first is not set (huggingface_hub, constants.py).
    """
    word = profile.env.get("HF_HUB_OFFLINE") or profile.env.get("TRANSFORMERS_OFFLINE", "")
    return word.lower() in _ON


def table(value: object) -> Mapping[str, object]:
    """Given a value of [args], return what a table holds, or a string of JSON; else nothing."""
    found = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, Mapping) else {}


def _those(key: str, names: list[str]) -> Iterator[OnHub]:
    """Those of the names that are no paths and no addresses."""
    yield from (
        OnHub(key, one) for one in names if one and one[0] not in "/.~" and "://" not in one
    )


def _drafts(value: object) -> list[str]:
    """The name of a draft model, unless it is a method, or a class of code: `package.Proposer`."""
    name = str(value)
    parts = name.split(".")
    is_code = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return [] if name in _NO_DRAFTS or is_code else [name]


def _adapter(value: object) -> str:
    """The place of a LoRA: a table says it as its path, a word behind the name it is served as."""
    return str(table(value).get("path", "")) or str(value).partition("=")[2]


def _first(names: tuple[str, ...], profile: Profile) -> str:
    return next((name for name in names if profile.env.get(name)), "")


def _brings_code(profile: Profile) -> bool:
    return any(option_name(key) == "trust-remote-code" and on for key, on in profile.args.items())
