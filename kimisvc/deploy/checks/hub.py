"""Check of a profile that fetches nothing: all that it names on a hub lies in the cache of its hub.

With HF_HUB_OFFLINE vLLM puts the folder of a snapshot in the place of each name
before it loads anything, and ends where there is none (vllm/engine/arg_utils.py,
repo_utils.py `get_model_path`). huggingface_hub finds it by a file
refs/REVISION, which holds a commit, and a folder snapshots/COMMIT
(_snapshot_download.py, `local_files_only`). --download-dir is not asked for that.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.host import CACHE
from kimisvc.deploy.checks.inspection import Unseen
from kimisvc.host import files, reach
from kimisvc.host.reach import Presence
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.profile.values import shown
from kimisvc.records.problems import Problem
from kimisvc.render.hub_caches import is_offline, models_cache, models_in, on_hub, repository
from kimisvc.render.writable import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.deploy.checks.inspection import Inspection
    from kimisvc.render.hub_caches import OnHub

ELSEWHERE = ("VLLM_USE_MODELSCOPE", "VLLM_MODEL_REDIRECT_PATH")
"""With these vLLM looks in another hub's cache, or puts other names in the place of these."""
OFF = ("", "0", "false")
REVISIONS = {"vllm.model": "revision", "args.tokenizer": "tokenizer-revision"}
"""The option that says which revision is looked up; what else may be named is asked for none."""
MAIN = "main"
"""The revision that is looked up where none is asked for (huggingface_hub, constants.py)."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def missing(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each name that vLLM will not find, as nothing is fetched and its cache does not hold it."""
    sought = [one for one in on_hub(about.profile) if not _is_beside(about, one.name)]
    if not is_offline(about.profile) or not sought:
        return
    cache = _cache(about)
    if isinstance(cache, Unseen):
        yield cache
        return
    told: set[str] = set()
    for one in sought:
        lack = _lack(about, cache, one)
        if isinstance(lack, Unseen):
            yield lack
        elif lack and lack not in told:
            told.add(lack)  # a tokenizer often is that of the model: told once
            yield _problem(lack, one.key)


def _problem(lack: str, key: str) -> Problem:
    return Problem(
        f"{lack}: vLLM would end at its start. Fetch it there first (hf download), name the"
        " cache that holds it (HF_HOME or HF_HUB_CACHE), or give the path of its folder",
        key=key,
    )


def _is_beside(about: Inspection, name: str) -> bool:
    """Whether a folder has that name where the service starts, which goes before a hub's cache."""
    base = about.profile.service.working_directory
    return reach.presence(Path(base or about.root) / name) is not Presence.GONE


def _cache(about: Inspection) -> Path | Unseen:
    """The folder in which vLLM looks names up, or why that cannot be looked into."""
    for variable in ELSEWHERE:
        if about.profile.env.get(variable, "").lower() not in OFF:
            return Unseen(f"with {variable} names may be looked up elsewhere")
    own = about.root / CACHE / about.profile.service.instance
    variable = models_cache(about.profile)
    if not variable:
        return own / "huggingface" / "hub"  # the HF_HOME that a unit sets
    folder = next(one.folder for one in targets(about.profile) if one.key == f"env.{variable}")
    if folder is None or "$" in str(folder):  # which huggingface_hub puts variables in the place of
        return Unseen(f"{variable} does not say by itself which folder it means")
    if not folder.is_relative_to(own) and reach.presence(Path(folder)) is Presence.GONE:
        return Unseen(f"there is no {folder}")  # told by another check
    return Path(models_in(variable, folder))


def _lack(about: Inspection, cache: Path, one: OnHub) -> str | Unseen:
    """What of a name the cache does not hold, or why that cannot be seen; "" if it holds it."""
    folder = cache / repository(one.name)
    found = reach.presence(folder)
    if found is Presence.GONE:
        return f"{one.name} is not in {cache}, and nothing is fetched"
    if found is Presence.UNKNOWN:
        return _not_seen(folder)
    asked = REVISIONS.get(one.key)
    revision = str(option(about.profile.args, asked) or MAIN) if asked else ""
    if not revision:
        return ""
    is_commit = _COMMIT.fullmatch(revision) is not None
    said = revision if is_commit else shown(revision)
    commit = revision if is_commit else _commit(folder / "refs" / revision)
    if isinstance(commit, Unseen):
        return commit
    snapshot = reach.presence(folder / "snapshots" / commit) if commit else Presence.GONE
    if snapshot is Presence.UNKNOWN:
        return _not_seen(folder / "snapshots" / commit)
    words = f"{one.name} is in {cache}, but not its revision {said}, and nothing is fetched"
    return words if snapshot is Presence.GONE else ""


def _commit(ref: Path) -> str | Unseen:
    """The commit that a file of a revision holds; "" if there is none."""
    try:
        return files.read_bytes(ref).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return _not_seen(ref)


def _not_seen(path: Path) -> Unseen:
    return Unseen(reach.why_unread(path) or f"{path} could not be looked at")
