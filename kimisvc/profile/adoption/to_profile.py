"""A start of vLLM to the tables of a profile: which option, variable or setting goes where."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption import vllm_words
from kimisvc.profile.adoption.config_file import config_words
from kimisvc.profile.adoption.secret_words import (
    VARIABLES,
    secret_option,
    secret_variable,
    shown,
)
from kimisvc.profile.knowledge.parallelism import NODES, SIZES, gpus_here, option
from kimisvc.profile.options import OWNED_VARIABLES
from kimisvc.profile.quantities import format_duration
from kimisvc.profile.secret_looks import looks_random
from kimisvc.profile.secret_signs import SETTINGS, secret_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kimisvc.profile.adoption.draft import Draft
    from kimisvc.profile.adoption.scene import Launch, Scene
    from kimisvc.profile.adoption.vllm_words import Options, Written
    from kimisvc.records.profile import ArgValue

EXECUTABLE = "/opt/vllm/bin/vllm"
SECRETS_FILE = "/etc/kimisvc/secrets"
_LEFT_OUT: Mapping[str, str] = {
    "PATH": "kimisvc sets it: the folder of the program first, then CUDA's and the system's",
    "VIRTUAL_ENV": "the program's own path says which environment it is",
    "LD_PRELOAD": "left out for safety: write it into [env] if vLLM needs it",
    "HOME": "kimisvc points it to the cache folder of the instance: a home may be hidden from it",
    "PYTHONUNBUFFERED": "vLLM's log goes to stderr, which is not buffered",
    "OLDPWD": "a shell's own", "PWD": "a shell's own", "SHLVL": "a shell's own",
    **dict(OWNED_VARIABLES),
}  # fmt: skip
_DASHES = ("\u2012", "\u2013", "\u2014", "\u2212")
"""What a web page or a text processor makes of two hyphens."""
_READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
_DAY = 86400


def take_launch(
    launch: Launch, scene: Scene, options: Options, variables: frozenset[str] = frozenset()
) -> None:
    """Given how vLLM is started, put every option and variable where it belongs in the draft.

    `variables` are those that vLLM is known to read.
    """
    draft = scene.draft
    draft.put("vllm", "executable", launch.program or EXECUTABLE, launch.comment or (
        "" if launch.program else "a guess: write where it lies (command -v vllm)"))  # fmt: skip
    words = _with_config(launch.words, scene, options)
    written, loose = vllm_words.read(words, options)
    if loose:
        _take_model(loose[0], scene, "")
    keys = _behind_a_key(words)
    for word in loose[1:]:
        dash = "; it begins with a dash that is no hyphen" if word[:1] in _DASHES else ""
        what = f"the word {shown(word) or '(an empty one)'}"
        if word in keys or looks_random(word):
            what = "a word that may be a key (not shown)"
        draft.unclear(what, f"belongs to no option that takes it{dash}")
    seen: dict[str, str] = {}
    for one in written:
        _take_option(one, scene, options, seen)
    _fill_in(scene)
    take_environment(scene, variables)


def _behind_a_key(words: Sequence[str]) -> set[str]:
    """The words behind --api-key=FIRST: with an equals sign it takes one, and they belong to none."""
    found, behind = set[str](), False
    for word in words:
        if vllm_words.is_option(word):
            name, equals, _ = word.lstrip("-").partition("=")
            behind = bool(equals) and secret_option(name)
        elif behind:
            found.add(word)
    return found


def _with_config(words: Sequence[str], scene: Scene, options: Options) -> list[str]:
    """All words: vLLM puts those of a --config file before the command line, which therefore wins."""
    rest, before = list(words), list[str]()
    for position, word in enumerate(words):
        if word.replace("_", "-").startswith("--config="):
            scene.draft.drop(f"--config={shown(word.partition('=')[2])}", "vLLM takes and ignores "
                             "it when written with an equals sign, so it never held")  # fmt: skip
            rest.remove(word)
        elif word == "--config" and position + 1 < len(words):
            path = words[position + 1]
            text = scene.look.read(scene.absolute(path))
            before = config_words(text, path, scene.draft.drop)
            scene.draft.drop(
                f"--config {shown(path)}", "its settings are in this profile, one by one"
            )
            start = rest.index("--config")
            del rest[start : start + 2]
    if not before:
        return rest
    _, loose = vllm_words.read(rest[:1], options)
    return [*loose, *before, *rest[len(loose) :]]


def _take_option(one: Written, scene: Scene, options: Options, seen: dict[str, str]) -> None:
    draft = scene.draft
    key, value = vllm_words.value_of(one, options)
    if secret_option(key.rpartition(".")[2]) or secret_option(key):
        _take_secret(key, one, scene)
        return
    secret = secret_in(key, value) or _assigned_secret(one.values)
    if secret:
        draft.unclear(
            f"--{key}", f"was left out: it holds {secret}, which belongs in the secrets file"
        )
        return
    why = vllm_words.uncarried(one)
    if why:
        draft.unclear(f"--{key}", why)
        return
    before, last = draft.value("args", key), value
    value = vllm_words.joined(key, before, last)
    if key in seen and value is last:
        draft.drop(f"{seen[key]} (the first of two)", "of an option given twice the last holds")
    seen[key] = one.spelled
    owned = _OWNED.get(key)
    if owned is not None:
        owned(one, value, scene)
        return
    written = one.spelled.lstrip("-").partition(".")[0].replace("_", "-").removeprefix("no-")
    alias = written != key.partition(".")[0].removeprefix("no-") or one.spelled.endswith("+")
    draft.put("args", key, value, f"written {one.spelled}" if alias else "")


def _assigned_secret(words: Sequence[str]) -> str:
    """What secret a word like NAME=VALUE holds, in words; "" if none."""
    pairs = (word.partition("=") for word in words)
    return "a secret" if any(secret_variable(name, value) for name, _, value in pairs) else ""


def _take_secret(key: str, one: Written, scene: Scene) -> None:
    variable = VARIABLES.get(key) or ("VLLM_API_KEY" if "api-key".startswith(key) else "")
    if not one.values:
        scene.draft.drop(f"--{key}", "it has no value")
    elif variable:
        scene.draft.secrets[variable] = f"--{key}"
        if len(one.values) > 1:
            scene.draft.unclear(
                f"--{key}", "has several values: the secrets file holds one of them"
            )
    else:
        scene.draft.unclear(f"--{key}", "looks like a secret, and was left out: no variable of "
                            "vLLM is known that carries it")  # fmt: skip


def _take_model(word: str, scene: Scene, comment: str) -> None:
    secret = secret_in("", word)
    if secret:
        scene.draft.unclear("the word for the model", f"was left out: it holds {secret}")
        return
    path = word.startswith(("./", "../")) or word in (".", "..")
    model = scene.absolute(word) if path else word
    if model != word:
        comment = f"{word}, from the folder it was started in"
    scene.draft.put("vllm", "model", model.rstrip("/") or model, comment)


def _model(one: Written, value: ArgValue, scene: Scene) -> None:
    del value
    if one.values:
        _take_model(one.values[0], scene, f"from {one.spelled}")


def _host(one: Written, value: ArgValue, scene: Scene) -> None:
    del value
    if scene.container and scene.draft.value("vllm", "host") is not None:
        scene.draft.drop(f"{one.spelled} {shown(' '.join(one.values))}", "within the container")
    else:
        scene.draft.put("vllm", "host", " ".join(one.values), f"from {one.spelled}")


def _port(one: Written, value: ArgValue, scene: Scene) -> None:
    if scene.container and scene.draft.value("vllm", "port") is not None:
        scene.draft.drop(f"{one.spelled} {shown(str(value))}", "the port within the container")
    else:
        scene.draft.put("vllm", "port", value, f"from {one.spelled}")


def _served(one: Written, value: ArgValue, scene: Scene) -> None:
    del value
    scene.draft.put("vllm", "served_model_name", one.values[0] if one.values else "",
                    f"from {one.spelled}")  # fmt: skip
    for name in one.values[1:]:
        scene.draft.unclear(f"{one.spelled} ... {shown(name)}",
                            "a profile has one served_model_name: clients of the others have to "
                            "ask for the first")  # fmt: skip


_OWNED: Mapping[str, Callable[[Written, ArgValue, Scene], None]] = {
    "model": _model,
    "model-tag": _model,
    "host": _host,
    "port": _port,
    "served-model-name": _served,
}


def _fill_in(scene: Scene) -> None:
    """What the command left to vLLM's defaults and a profile would default to differently."""
    draft = scene.draft
    if draft.value("vllm", "host") is None:
        draft.put("vllm", "host", "0.0.0.0",  # noqa: S104 - said, not bound
                  "vLLM's default: all addresses. 127.0.0.1 keeps it to this box")  # fmt: skip
    if draft.value("vllm", "model") is None:
        draft.unclear(
            "the model", "is not named in the command; vLLM would take a tiny one of its own"
        )
    args = {key: one.value for (table, key), one in draft.entries.items() if table == "args"}
    gpus = gpus_here(args) or 0
    if gpus > 1:
        words = " x ".join(name for name in SIZES if option(args, name))
        nodes = option(args, NODES)
        draft.put("hardware", "gpus", gpus, f"from {words}{f' on {nodes} boxes' if nodes else ''}")
    if scene.user and scene.user != "root":
        draft.put("service", "user", scene.user)
    if scene.folder.startswith("/"):
        draft.put("service", "working_directory", scene.folder)


def take_environment(scene: Scene, variables: frozenset[str]) -> None:
    """Given the variables at the start of vLLM, put each into [env], among the secrets, or aside.

    `variables` are those that vLLM is known to read.
    """
    draft = scene.draft
    for name, value in scene.variables.items():
        origin = scene.origins.get(name, "")
        if secret_variable(name, value):
            draft.secrets.setdefault(name, origin or "the environment")
        elif name in scene.used and not _reads(name, variables):
            draft.drop(name, "its value stands in the command line, which is written out here")
        elif name == _READY_TIMEOUT:
            _take_ready_timeout(value, draft)
        elif name in _LEFT_OUT:
            draft.drop(name, _LEFT_OUT[name])
        else:
            draft.put("env", name, value, f"from {origin}" if origin else "")
    _name_secrets_file(draft)
    if scene.user == "root":
        draft.drop("user root", "vLLM needs no root: kimisvc makes a user for the service")


def _take_ready_timeout(value: str, draft: Draft) -> None:
    """How long vLLM waits for its engine: the best word on loads, where nothing else says one."""
    draft.drop(_READY_TIMEOUT, "made from load_timeout")
    if value.isdigit() and 1 <= int(value) <= _DAY and not draft.value("service", "load_timeout"):
        span = format_duration(int(value))
        draft.put("service", "load_timeout", span, f"from {_READY_TIMEOUT}")


def _reads(name: str, variables: frozenset[str]) -> bool:
    """Whether vLLM, or a library below it, reads a variable."""
    return name in variables or (SETTINGS.fullmatch(name) is not None and name[:5] != "VLLM_")


def _name_secrets_file(draft: Draft) -> None:
    kept = draft.entries.get(("service", "secrets_file"))
    missing = [name for name, where in draft.secrets.items() if not kept or where != kept.value]
    names = ", ".join(missing)
    if kept and missing:
        draft.put("service", "secrets_file", kept.value, f"{kept.comment}. Add a line for {names}")
    elif missing:
        draft.put("service", "secrets_file", SECRETS_FILE,
                  f"make it (mode 0600), with a line NAME=value for {names}")  # fmt: skip


def profile_name(model: object, fallback: str) -> str:
    """Given the model, return the name of a profile made from it."""
    parts = str(model or fallback).rstrip("/").split("/")
    hub = [part for part in parts if part.startswith("models--")]  # a cache of the hub's
    last = hub[0].rpartition("--")[2] if hub else parts[-1]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:64]
    return name if name and not secret_in("", name) else "adopted"


def refuse_unwritable(texts: Sequence[str]) -> None:
    """Given texts, raise KimisvcError if one is not plain UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise KimisvcError("not-text", "it holds bytes that are no UTF-8 text") from error
