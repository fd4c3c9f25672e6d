"""Check of what vLLM is asked to write to: there, and the service may.

A hub's cache that nothing is fetched into is asked for reading alone: the model
has to be found there, and whether it is, is another check's (`hub`). The unit
opens such folders (`kimisvc.render.writable`), but it makes none, and gives the
user of the service no right that he has not: vLLM would find out after the load.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.checks.host import CACHE, PRIVATE
from kimisvc.deploy.checks.inspection import Unseen, few, not_asked, warning
from kimisvc.host import reach
from kimisvc.profile.values import shown
from kimisvc.records.problems import Problem
from kimisvc.render.hub_caches import kept_in, on_hub
from kimisvc.render.writable import Form, Lack, Target, is_the_systems, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from kimisvc.deploy.checks.inspection import Inspection

_ENOUGH = {
    Lack.READS: "To read there is enough, as nothing is fetched",
    Lack.NOTHING: "vLLM goes on unless it has to write there: no model that it needs lies there",
}
"""Why a fault of such a folder does not keep vLLM from serving."""
MOST_NAMED = 3
"""So many names on a hub are named; of the rest only how many there are."""
ANYWHERE = Path("/dev")
"""Written to as devices are; no folder of it has to be opened."""


def folders(about: Inspection) -> Iterator[Problem | Unseen]:
    """Yield each folder that the service could not write to though the profile asks for it."""
    asked = tuple(targets(about.profile))
    if not asked:
        yield not_asked("the profile names no folder to be written but the service's own cache")
    faults = {target: _fault(about, target) for target in asked}
    sound = {target.folder for target in asked if target.folder and not faults[target]}
    for target, why in faults.items():
        if unread := _unreadable(about, target):
            named = dict.fromkeys(one.name for one in on_hub(about.profile))
            names = few(tuple(named), MOST_NAMED)
            message = f"{unread}; nothing is fetched, so {names} would have to be read there"
            yield Problem(message, key=target.key)
        elif not why and (unseen := _unseen(about, target)):
            yield Unseen(unseen)
        elif not why or (_is_missing(target) and _is_made_in(target, sound)):
            continue
        elif target.lack in _ENOUGH:
            yield warning(f"{why}. {_ENOUGH[target.lack]}", target.key)
        else:
            yield Problem(f"{why}. {_instead(about, target)}", key=target.key)


def _unreadable(about: Inspection, target: Target) -> str:
    """Why what a hub's cache has to hold cannot be read by the service; "" if it can, or need not."""
    if target.lack is not Lack.READS:
        return ""
    if target.folder is None:
        return _unnamed(target)
    folder, own = Path(target.folder), about.root / CACHE / about.profile.service.instance
    if folder.is_relative_to(own):
        return ""  # made by systemd at the start, and shown to the service alone
    cache = target.key.partition(".")[2]
    inside = (Path(one) for one in kept_in(cache, target.folder, about.profile))
    there = (one for one in inside if reach.presence(one) is reach.Presence.THERE)
    for path in (folder, *there):
        if why := reach.why_unreachable(path, about.viewer, reach.Need.READ):
            return f"the service could not read {path}: {why}"
    return ""


def _unseen(about: Inspection, target: Target) -> str:
    """Why this process may not look at it; "" if it may, or if it is the service's own."""
    own = about.root / CACHE / about.profile.service.instance
    if target.folder is None or Path(target.folder).is_relative_to(own) or _is_device(target):
        return ""
    return reach.why_unseen(Path(target.folder))


def _fault(about: Inspection, target: Target) -> str:
    if target.folder is None:
        return _unnamed(target)
    folder, own = Path(target.folder), about.root / CACHE / about.profile.service.instance
    made = target.form is Form.FOLDER
    if folder.is_relative_to(own):
        there = made or folder == own or not _is_gone(folder)
        return "" if there else f"{folder} is not there, and nothing makes it"
    if _is_device(target):
        return ""
    if private := _private(folder):
        there = made or str(folder) == private
        return "" if there else f"{private} is the service's own and empty: {folder} is not in it"
    if is_the_systems(target.folder):
        return f"{folder} is shared by the whole box, and stays read-only to the service"
    why = _closed(about, folder)
    return f"the service could not write to {folder}: {why}" if why else ""


def _unnamed(target: Target) -> str:
    """What is wrong with a word that names no place by itself."""
    of_home = target.word.startswith("~") and target.key.startswith("env.VLLM_")
    if of_home or (target.form is Form.FILE and target.word in ("stdout", "stderr")):
        return ""  # vLLM puts HOME in the place of ~, which is the cache
    return f"{shown(target.word)} is no absolute path without .., so nothing can be opened there"


def _closed(about: Inspection, folder: Path) -> str:
    """Why the service may not write into a folder; "" if it may."""
    why = reach.why_unreachable(folder, about.viewer, reach.Need.FILL)
    if why or reach.why_unseen(folder):
        return why
    if not folder.is_dir():
        return "it is not a folder"
    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    return "its file system is mounted read-only" if read_only else ""


def _is_device(target: Target) -> bool:
    return target.form is Form.FILE and Path(str(target.path)).is_relative_to(ANYWHERE)


def _private(folder: Path) -> str:
    """The folder of temporary files, new at each start, that it lies in; "" if in none."""
    for hidden, why in reach.HIDDEN.items():
        if why.startswith(PRIVATE) and folder.is_relative_to(hidden):
            return hidden
    return ""


def _is_missing(target: Target) -> bool:
    return target.form is Form.FOLDER and _is_gone(Path(str(target.folder)))


def _is_gone(path: Path) -> bool:
    return reach.presence(path) is reach.Presence.GONE


def _is_made_in(target: Target, sound: set[PurePosixPath]) -> bool:
    """Whether it lies in another folder that the service may write, and so is made there."""
    return target.folder is not None and not sound.isdisjoint(target.folder.parents)


def _instead(about: Inspection, target: Target) -> str:
    service = about.profile.service
    owner = f"give it to user {service.user}"
    if not service.user:
        owner = "name its owner as [service] user (without one systemd makes a user up)"
    own = f"{Path('/') / CACHE / service.instance}, which systemd makes"
    other = {
        Form.FOLDER: f"name one in {own}",
        Form.STANDING: f"name {own}",
        Form.FILE: f"name a file in {own}, not in a folder of it",
    }[target.form]
    return f"Make a folder for it and {owner}; or {other}"
