"""What becomes of a hub's caches that a profile names: fetched into, read, or left alone. Pure.

As huggingface_hub (constants.py), transformers (utils/hub.py) and vLLM
(engine/arg_utils.py, weight_utils.py) choose among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


class Use(Enum):
    """What vLLM does with such a cache."""

    WRITTEN = "fetched into, or a model's code is copied there"
    READ = "what a profile names has to lie there: nothing is fetched"
    LEFT = "left alone: nothing that a profile names comes from a hub, or not through there"


def use_of(cache: str, profile: Profile) -> Use:
    """Given the name of a cache (see CACHES) and a profile, return what vLLM does with it."""
    if _brings_code(profile) and cache == _first(_CODE, profile):
        return Use.WRITTEN
    holds = cache in (_WEIGHTS, _first(_MODELS, profile))
    if not any(hub_names(profile)) or not (holds or cache == _TRANSFERS):
        return Use.LEFT
    if not _is_offline(profile):
        return Use.WRITTEN
    return Use.READ if holds else Use.LEFT


def hub_names(profile: Profile) -> Iterator[str]:
    """Given a profile, yield the names that vLLM looks up on a hub: model, tokenizer, draft, LoRA."""
    named = [profile.vllm.model]
    for written, value in profile.args.items():
        name = option_name(written)
        if name in ("tokenizer", "hf-config-path", "spec-model", "speculative-config.model"):
            named.append(str(value))
        elif name == "speculative-config":
            named.append(str(table(value).get("model", "")))
        elif name == "default-mm-loras":
            named.extend(str(one) for one in table(value).values())
        elif name == "lora-modules":
            adapters = value if isinstance(value, list | tuple) else (value,)
            named.extend(_adapter(one) for one in adapters)
    return (name for name in named if name and name[0] not in "/.~" and "://" not in name)


def kept_in(cache: str, folder: PurePosixPath, profile: Profile) -> Iterator[PurePosixPath]:
    """Given a cache, its folder and a profile, yield where in it each hub name would lie."""
    hub = folder / "hub" if cache == "HF_HOME" else folder
    yield hub
    for name in hub_names(profile):
        yield hub / f"models--{name.replace('/', '--')}"


def table(value: object) -> Mapping[str, object]:
    """Given a value of [args], return what a table holds, or a string of JSON; else nothing."""
    found = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return found if isinstance(found, Mapping) else {}


def _adapter(value: object) -> str:
    """The place of a LoRA: a table says it as its path, a word behind the name it is served as."""
    return str(table(value).get("path", "")) or str(value).partition("=")[2]


def _first(names: tuple[str, ...], profile: Profile) -> str:
    return next((name for name in names if profile.env.get(name)), "")


def _brings_code(profile: Profile) -> bool:
    return any(option_name(key) == "trust-remote-code" and on for key, on in profile.args.items())


def _is_offline(profile: Profile) -> bool:
    """The second is asked where the first is not set (huggingface_hub, constants.py)."""
    word = profile.env.get("HF_HUB_OFFLINE") or profile.env.get("TRANSFORMERS_OFFLINE", "")
    return word.lower() in _ON
