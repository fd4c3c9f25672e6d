"""Builds the real doors for a command: what tests replace, commands get from here."""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimisvc.deploy.layout import Layout
from kimisvc.errors import KimisvcError
from kimisvc.records.units import Installation
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.deploy.box import Box
    from kimisvc.host.systemd import Systemd
    from kimisvc.host.vllm_api import VllmApi
    from kimisvc.profile.knowledge.court import Sight
    from kimisvc.profile.loader import Checked
    from kimisvc.profile.problems import Finding
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitFile
    from kimisvc.records.vllm import KnownFrom, VllmKnowledge
    from kimisvc.render.buckets import Load, Rendered

DEFAULT_INSTANCE = "kimi"
API_KEY = "VLLM_API_KEY"
LOCAL_PROFILES = Path("/etc/kimisvc/profiles")
"""Where an operator keeps the profiles of a box; a bare name is looked for there first."""


@dataclass(frozen=True, slots=True)
class Judge:
    """By what a profile was judged: its vLLM `executable` itself, or the table that ships.

    `executable` is None where the profile names none. `why_not_asked` is "" then, and where it
    was asked.
    """

    executable: Path | None
    version: str
    known_from: KnownFrom
    why_not_asked: str = ""


def installation() -> Installation:
    """Return where this kimisvc lives, as units will call it."""
    return Installation(kimisvc=Path(sys.executable).parent / "kimisvc")


def instance_or_default(name: str | None) -> str:
    """Given what the operator said, return the instance: theirs, the only one, or "kimi".

    Raise click.BadParameter where the box has instances, and none of that name; one that
    was never more than tried (its folder is there) is one.
    """
    there = instances()
    if name is not None:
        if there and name not in there and not _has_a_past(name):
            raise click.BadParameter(_no_such_instance(name, there), param_hint="--instance")
        return name
    if len(there) > 1 and DEFAULT_INSTANCE not in there:
        raise KimisvcError(
            "which-instance",
            f"this box has the instances {', '.join(there)}",
            hint="say which one with --instance",
        )
    return there[0] if len(there) == 1 else DEFAULT_INSTANCE


def _has_a_past(instance: str) -> bool:
    from kimisvc.host import files

    return files.exists(Layout(installation(), instance).state)


def _no_such_instance(name: str, there: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, there, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"this box has no instance {name!r}, it has {', '.join(there)}{meant}"


def instances() -> tuple[str, ...]:
    """Return the names of the instances of this box: those of which a generation was installed."""
    from kimisvc.deploy.instances import installed

    return installed(installation())


def box(systemd: Systemd, instance: str) -> Box:
    """Given an open door to systemd and an instance, return its box."""
    from kimisvc.deploy.box import Box

    return Box(Layout(installation(), instance), systemd)


def checked(path: str) -> Checked:
    """Given a profile's path, or its bare name, return what checking it found.

    It is judged by the vLLM that it names, where that is here to be asked.
    """
    return checked_by(path)[0]


def checked_by(path: str) -> tuple[Checked, Judge | None]:
    """Given a profile's path, or its bare name, return what checking found, and who judged.

    None: it was too spoiled for anybody to judge it.
    """
    from kimisvc.profile.knowledge.court import judged
    from kimisvc.profile.loader import check

    seen, asked = sight(), list[Judge]()

    def vllm(executable: Path) -> VllmKnowledge:
        known = seen.vllm(executable)
        named = executable if executable.name else None
        why = known.why_not_asked if named else ""
        asked.append(Judge(named, known.version, known.known_from, why))
        return known

    def judges(draft: Profile) -> Iterator[Finding]:
        yield from judged(draft, replace(seen, vllm=vllm))
        yield from _broken_config(draft.vllm.model)

    file = find_profile(path)
    found = check(file, shipped("profiles"), judges)
    if not os.path.exists(file):  # noqa: PTH110 - raises for no name
        found = _with_folders(found) if file.name == path else _with_name(found, file)
    return found, asked[-1] if asked else None


def _broken_config(model: str) -> Iterator[Finding]:
    """What keeps a config.json that is there from being judged; vLLM stops at it as well.

    One that is not there, or not for us to read, is the preflight's business.
    """
    from kimisvc.host.checkpoint import BadJson, read_json
    from kimisvc.profile.problems import Finding

    path = Path(model) / "config.json"
    if not path.is_absolute() or not os.access(path, os.R_OK):
        return
    found = read_json(path)
    if isinstance(found, BadJson):
        where = f"{path}:{found.line}" if found.line else str(path)
        yield Finding(("vllm", "model"), f"{where} {found.reason}; vLLM could not read the model")


def sight() -> Sight:
    """Return what the judges of a profile may see of this box."""
    from kimisvc.profile.knowledge.court import Sight

    return Sight(vllm=knowledge, config=model_config)


def model_config(model: str) -> Mapping[str, object] | None:
    """Given a model, return what its config.json says; None where there is none to read."""
    from kimisvc.host.checkpoint import BadJson, read_json

    if not model.startswith("/"):
        return None  # a name on a hub: what it says is vLLM's to fetch
    found = read_json(Path(model) / "config.json")
    return None if isinstance(found, BadJson) else found


def knowledge(executable: Path) -> VllmKnowledge:
    """Given the vllm program, return what it knows; where it cannot be asked, what ships, and why."""
    from kimisvc.host import vllm_binary
    from kimisvc.host.vllm_inspect import NoAnswer
    from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge

    def asking() -> None:
        click.echo(f"kimisvc: asking {executable} what it knows, once per version", err=True)

    context = click.get_current_context(silent=True)
    told = context.find_root().meta if context else {}
    key = f"{__name__}.{executable}"  # one command asks once, also where no answer can be kept
    if key not in told:
        caches = vllm_binary.cache_folders()
        known = vllm_binary.knowledge(executable, caches, asking=asking)
        if isinstance(known, NoAnswer):
            known = replace(shipped_knowledge(), why_not_asked=known.why)
        told[key] = known
    found: VllmKnowledge = told[key]
    return found


def find_profile(path: str) -> Path:
    """Given a path or a bare name, return the file.

    An existing path goes first, then a profile of the box, then a shipped one.
    """
    given = Path(path)
    if given.name != path:
        return given
    try:
        return given if given.exists() else named_profile(path) or given
    except OSError:
        return given  # no name a file could have; the check says so


def named_profile(name: str) -> Path | None:
    """Given a bare name, return the profile that it names: of the box, else a shipped one."""
    if Path(name).name != name:
        return None
    try:
        named = (
            folder / f"{name.removesuffix('.toml')}.toml"
            for folder in (LOCAL_PROFILES, shipped("profiles"))
        )
        return next((file for file in named if file.is_file()), None)
    except OSError:
        return None  # no name a file could have


def _with_folders(found: Checked) -> Checked:
    """Given what checking a bare name that names nothing found, add where it was looked for."""
    sought = (
        f"Bare names are those of the files in {LOCAL_PROFILES} and {shipped('profiles')}:"
        " kimisvc profiles lists them"
    )
    said = tuple(replace(one, message=f"{one.message} {sought}") for one in found.problems)
    return replace(found, problems=said)


def _with_name(found: Checked, file: Path) -> Checked:
    """Given what checking a path that is not there found, add the profile that has that bare name."""
    meant = named_profile(file.name)
    if meant is None:
        return found
    hint = f"Did you mean {meant.stem}, the profile {meant}?"
    said = tuple(replace(one, message=f"{one.message} {hint}") for one in found.problems)
    return replace(found, problems=said)


def units_of(profile: Profile, load: Load | None = None) -> tuple[UnitFile, ...]:
    """Given a profile, return the units it becomes on this box."""
    return as_wanted(profile, load).units


def as_wanted(profile: Profile, load: Load | None = None) -> Rendered:
    """Given a profile and whether a load is paid anyway (no, unless that is said), return what is wanted.

    That is the profile with what kimisvc adds to it on this box, and the units it becomes. vLLM is
    asked for histogram buckets of ours where it takes them and no load is paid for that.
    """
    from kimisvc.render.buckets import Load, Rendered, candidates, chosen, taking
    from kimisvc.render.units import render

    place, texts = installation(), templates()
    layout = Layout(place, profile.service.instance)
    service, current = layout.units.service, current_units(layout)
    takes = taking(knowledge(Path(profile.vllm.executable)))
    wanted = candidates(profile, current.get(service, ""), takes, load or Load.SPARED)
    return chosen([Rendered(one, render(one, texts, place)) for one in wanted], service, current)


def current_units(layout: Layout) -> dict[str, str]:
    """Given an instance, return the texts of its current units; none where they cannot be read."""
    from kimisvc.deploy.generations import Generations

    try:
        current = Generations(layout).current()
        return {unit.name: unit.text for unit in current.units()} if current else {}
    except KimisvcError:
        return {}


def templates() -> dict[str, str]:
    """Return the shipped unit templates, by file name."""
    return {path.name: path.read_text() for path in sorted(shipped("units").iterdir())}


def api(profile: Profile) -> VllmApi:
    """Given a profile, return the door to its server; the key comes from the environment."""
    from kimisvc.host.vllm_api import VllmApi

    return VllmApi(base_url(profile), os.environ.get(API_KEY))


def api_of_root(profile: Profile) -> VllmApi:
    """Given a profile, return the door to its server for root, who may read the key in its secrets file.

    The gate's unit gets it from there by systemd; a search works for several profiles. Where the
    file may not be read, or has no key, that comes from the environment.
    """
    from kimisvc.host import secrets_file
    from kimisvc.host.vllm_api import VllmApi

    name = profile.service.secrets_file
    held = secrets_file.variables(secrets_file.contents(Path(name))) if name else {}
    return VllmApi(base_url(profile), held.get(API_KEY) or os.environ.get(API_KEY))


def api_of_operator(profile: Profile) -> VllmApi:
    """Given a profile, return the door to its server for who called, with the key that they may have.

    What they say in VLLM_API_KEY goes first: the secrets file may have changed since the server
    was started with it. Else it is read there, where they may read it: root, as a rule.
    """
    return api(profile) if os.environ.get(API_KEY) else api_of_root(profile)


def base_url(profile: Profile) -> str:
    """Given a profile, return where its server is reached from this box."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(  # noqa: S104 - read, not bound
        profile.vllm.host, profile.vllm.host
    )
    return f"http://{f'[{host}]' if ':' in host else host}:{profile.vllm.port}"


def actor() -> str:
    """Return who called: behind sudo, the one before it."""
    sudo = os.environ.get("SUDO_USER")
    if sudo:
        return sudo
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def need_root(what: str) -> None:
    """Given what is about to be done, raise KimisvcError unless we are root."""
    if os.geteuid() != 0:
        raise KimisvcError("not-root", f"{what} needs root", hint="run it with sudo")
