"""A merged unit to the start of vLLM it makes, and its settings to those of [service]."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc import environment_file
from kimisvc.environment_file import Oddity
from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption import unit_words
from kimisvc.profile.adoption.directives import may_be_shown, reason
from kimisvc.profile.adoption.script import run_words
from kimisvc.profile.adoption.secret_words import secret_variable, shown
from kimisvc.profile.adoption.unit_file import specifier_values
from kimisvc.profile.quantities import format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kimisvc.environment_file import Assignment
    from kimisvc.profile.adoption.scene import Launch, Scene
    from kimisvc.profile.adoption.unit_file import Unit

_SERVICE = "Service"
_ENVIRONMENT = ("Environment", "EnvironmentFile", "UnsetEnvironment", "PassEnvironment")
_NO_ASSIGNMENT = (
    "systemd ignores it: no NAME=value. Blanks in a value need quotes around the whole, a comment "
    "a line of its own"
)
_SHELLS_WAY = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*:[^}]*\}?")
_YES = ("yes", "true", "on", "1", "y", "t")
_MISPLACED = ("StartLimitIntervalSec", "StartLimitInterval", "StartLimitBurst")


def take_unit(unit: Unit, scene: Scene) -> Launch:
    """Given a unit, gather its environment and settings, and return the vLLM it starts.

    Raise KimisvcError if it starts none.
    """
    known = specifier_values(unit.name)
    _take_environment(unit, scene, known)
    scene.user = unit.last("User")
    _take_folder(unit.last("WorkingDirectory"), scene, known)
    for line in unit.ignored:
        scene.draft.drop(
            f"the line {shown(line)}", "systemd takes it for no setting and ignores it"
        )
    launch = _started(unit, scene, known)
    for (section, key), values in unit.values.items():
        _take_setting(section, key, values[-1], scene)
    if not scene.user and unit.last("DynamicUser") not in _YES:
        scene.draft.drop("no User=", "it ran as root; kimisvc makes a user for the service, who "
                         "must be able to read the model")  # fmt: skip
    return launch


# ---------------------------------------------------------------- environment


def _take_environment(unit: Unit, scene: Scene, known: Mapping[str, str]) -> None:
    """systemd.exec(5): files come after Environment=, and win."""
    for value in unit.all("Environment"):
        read = unit_words.assignments(value, known)
        for name, text in read.found.items():
            scene.export(name, text)
        if read.ignored or read.problem:
            words = " ".join(word if shown(word) == word else "..." for word in read.ignored)
            scene.draft.unclear(
                f"Environment=... {shown(words)}".rstrip(), read.problem or _NO_ASSIGNMENT
            )
    for value in unit.all("EnvironmentFile"):
        _take_file(value, scene, known)
    for value in unit.all("UnsetEnvironment"):
        for name in value.split():
            scene.forget(name)
    for value in unit.all("PassEnvironment"):
        scene.draft.unclear(f"PassEnvironment={shown(value)}",
                            "comes from the environment of systemd itself")  # fmt: skip


def _take_file(value: str, scene: Scene, known: Mapping[str, str]) -> None:
    """A file with secrets stays where it is, as secrets_file; what else it sets is written out."""
    draft = scene.draft
    try:
        path = unit_words.specifiers(value.removeprefix("-"), known)
        text = scene.look.read(path)
    except ValueError as error:
        draft.unclear(f"EnvironmentFile={shown(value)}", str(error))
        return
    except KimisvcError as error:
        draft.unclear(
            f"EnvironmentFile={shown(value)}", f"{error.message}: what it sets is missing here"
        )
        if not value.startswith("-"):
            _keep_file(value, scene, "not read; taken for the file of keys and tokens")
        return
    lines = environment_file.read(text)
    found = environment_file.variables(lines)
    for name, setting in found.items():
        scene.export(name, setting, path)
    for line in lines:
        _note_dropped(line, path, scene)
    secrets = [name for name, setting in found.items() if secret_variable(name, setting)]
    if secrets:
        rest = ", ".join(name for name in found if name not in secrets)
        _keep_file(path, scene, f"holds {', '.join(secrets)}; mode 0600" +
                   (f". It wins over [env]: take out of it {rest}" if rest else ""))  # fmt: skip
    else:
        draft.drop(f"EnvironmentFile={shown(value)}", "what it sets is in [env]")


def _note_dropped(line: Assignment, path: str, scene: Scene) -> None:
    """What is no name of a variable may be a key that stands alone: it is told by its line."""
    where, last = f"{path}:{line.line}", (line.name.split() or [""])[-1]
    if Oddity.COMMENT_GOES_ON in line.oddities:
        scene.draft.unclear(where, "a comment that ends in a backslash: systemd before 254 takes "
                            "the next line as part of it; it is taken as a line here")  # fmt: skip
    elif line.is_dropped and line.name.startswith("export ") and environment_file.is_name(last):
        scene.draft.unclear(
            f"{where}: export {shown(last)}",
            "systemd ignores the line: `export` is a shell's word",
        )
    elif line.is_dropped:
        scene.draft.unclear(where, "systemd ignores the line: no NAME=value")


def _keep_file(path: str, scene: Scene, words: str) -> None:
    if scene.draft.value("service", "secrets_file") is None:
        scene.draft.put("service", "secrets_file", path, words)
    else:
        scene.draft.unclear(f"EnvironmentFile={shown(path)}",
                            "a second file of secrets: a profile names one, join them")  # fmt: skip


def _take_folder(value: str, scene: Scene, known: Mapping[str, str]) -> None:
    if not value:
        return
    try:
        path = unit_words.specifiers(value.removeprefix("-"), known)
    except ValueError as error:
        scene.draft.unclear(f"WorkingDirectory={shown(value)}", str(error))
        return
    if path.startswith("/"):
        scene.folder = path.rstrip("/") or "/"
    else:
        scene.draft.unclear(f"WorkingDirectory={shown(value)}", "depends on the user: write it out")


# ---------------------------------------------------------------- the command


def _started(unit: Unit, scene: Scene, known: Mapping[str, str]) -> Launch:
    commands = unit.all("ExecStart")
    if len(commands) != 1:
        many = "has no ExecStart=" if not commands else "has several ExecStart="
        raise KimisvcError("no-vllm", f"{unit.name} {many}: one is needed to adopt it")
    try:
        prefixes, words = unit_words.command_words(commands[0], known)
    except ValueError as error:
        raise KimisvcError("bad-command", f"ExecStart= of {unit.name}: {error}") from error
    if ";" in words:
        raise KimisvcError("several", f"ExecStart= of {unit.name} holds several commands (;)")

    for word in words[1:]:
        found = _SHELLS_WAY.search(word)
        if found:
            scene.draft.unclear(shown(found[0]), "is a shell's way to put in a variable, and reaches "
                                "vLLM as it stands: systemd knows only ${NAME}")  # fmt: skip
    if ":" not in prefixes:
        words = [words[0], *unit_words.expand(words[1:], scene.variables, scene.used.add)]
    for name in sorted(scene.used - scene.variables.keys()):
        scene.draft.unclear(f"${name}", "is not set by the unit, so it was taken as empty")
    launch = run_words(words, scene)
    if launch is None:
        raise KimisvcError(
            "no-vllm",
            f"{unit.name} starts {shown(words[0])}, which is not vLLM and no plain shell script",
            hint="import the command that it runs: kimisvc import 'vllm serve ...'",
        )
    if set(prefixes) & {"+", "!"}:
        scene.draft.drop(f"the {prefixes} before ExecStart=", "vLLM needs no privileges of its own")
    return launch


# ---------------------------------------------------------------- settings


def _take_setting(section: str, key: str, value: str, scene: Scene) -> None:
    if section == _SERVICE and key in (*_ENVIRONMENT, "User", "WorkingDirectory", "ExecStart"):
        return
    said = f"{key}={shown(value)}" if may_be_shown(key) else f"{key}=..."
    taken = _TAKEN.get(key) if section == _SERVICE else None
    if taken is not None:
        why = taken(key, value, scene)
        if why:
            scene.draft.drop(said, why)
    elif section == _SERVICE and key in _MISPLACED:
        scene.draft.drop(said, "systemd ignores it in [Service]; kimisvc sets a limit that holds")
    elif key.startswith("X-") or section.startswith("X-"):
        scene.draft.drop(said, "systemd does not look at it")
    elif reason(key):
        scene.draft.drop(said, reason(key))
    else:
        scene.draft.unclear(said, "the profile has no key for it; if it is needed, put it into a "
                            "drop-in for kimisvc's unit (systemctl edit)")  # fmt: skip


def _load_timeout(key: str, value: str, scene: Scene) -> str:
    return _duration("load_timeout", key, value, scene, 86400)


def _stop_timeout(key: str, value: str, scene: Scene) -> str:
    return _duration("stop_timeout", key, value, scene, 3600)


def _both_timeouts(key: str, value: str, scene: Scene) -> str:
    return _load_timeout(key, value, scene) or _stop_timeout(key, value, scene)


def _restart_delay(key: str, value: str, scene: Scene) -> str:
    return _duration("restart_delay", key, value, scene, 3600)


def _duration(target: str, key: str, value: str, scene: Scene, most: float) -> str:
    """Given a time span, put it where it belongs; or return why it is left out."""
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        return (
            f"{error}" if "infinity" not in value else "a deadline is needed: kimisvc has its own"
        )
    if target != "restart_delay" and not 1 <= seconds <= most:
        return (
            "0 is no deadline for systemd; kimisvc has its own" if not seconds else "out of range"
        )
    if seconds > most:
        return "longer than kimisvc waits"
    scene.draft.put("service", target, format_duration(seconds), f"from {key}=")
    return ""


def _files(key: str, value: str, scene: Scene) -> str:
    hard = value.rpartition(":")[2]
    if not hard.isdigit():
        return "kimisvc's default is 1048576"
    scene.draft.put("service", "limit_nofile", int(hard), f"from {key}=")
    return ""


def _memory(key: str, value: str, scene: Scene) -> str:
    if value == "infinity":
        return "no limit is the default"
    try:
        size = parse_size(f"{value} B" if value.isdigit() else value)
    except ValueError:
        return "a share of the memory is not known here: write memory_max with a unit"
    scene.draft.put("service", "memory_max", format_size(size), f"from {key}=")
    return ""


def _quota(key: str, value: str, scene: Scene) -> str:
    percent = re.fullmatch(r"([0-9]{1,7})%", value)
    if percent is None:
        return "only whole percents are read"
    scene.draft.put("service", "cpu_quota_percent", int(percent[1]), f"from {key}=")
    return ""


_TAKEN: Mapping[str, Callable[[str, str, Scene], str]] = {
    "TimeoutStartSec": _load_timeout,
    "TimeoutStopSec": _stop_timeout,
    "TimeoutSec": _both_timeouts,
    "RestartSec": _restart_delay,
    "LimitNOFILE": _files,
    "MemoryMax": _memory,
    "MemoryLimit": _memory,
    "CPUQuota": _quota,
}
"""Settings that have a key in [service]: each function returns why it did not take the value."""
