"""A command as typed, or a start script: run in mind up to the line that starts vLLM.

Only what is a plain list of commands: assignments, export, cd, source of an
environment, ulimit, and the start itself. Anything that chooses or loops is
refused with its line, for what it starts is not known before it runs.
"""

from __future__ import annotations

import re
from collections import ChainMap
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption.launch import ASSIGNMENT, find_launch
from kimisvc.profile.adoption.secret_words import shown
from kimisvc.profile.adoption.shell_words import HINT, Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.profile.adoption.scene import Launch, Scene
    from kimisvc.profile.adoption.shell_words import Command

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_DEEPEST = 4
_CHOOSES = {
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "{", "}", "[", "[[", "!", "test", "eval", "coproc",
}  # fmt: skip
_WITHOUT_EFFECT = {
    "shopt", "true", ":", "wait", "trap", "echo", "printf", "sleep", "umask", "$", "hash", "date",
}  # fmt: skip
_JOURNAL = "systemd keeps the service, and its output goes to the journal"
_PROFILE_FILES = "not read: what it sets is not in this profile"


def run_text(text: str, scene: Scene, arguments: Sequence[str] = (), depth: int = 0) -> Launch:
    """Given a shell text and the words after its name, return the vLLM it starts.

    Raise KimisvcError if it starts none, several, or cannot be told without
    running it.
    """
    if depth > _DEEPEST:
        raise KimisvcError("not-simple", f"one script runs another more than {_DEEPEST} deep")
    reader = Reader(text, ChainMap(scene.local, scene.variables), arguments)
    found: Launch | None = None
    for command in reader.commands():
        launched = _run(command, scene, depth)
        if launched and found:
            raise KimisvcError("several", f"line {command.line}: a second vLLM is started",
                               hint="one profile is one service: import them one by one")  # fmt: skip
        found = launched or found
        if launched and (command.end in ("&", "|") or reader.redirections):
            scene.draft.drop("what leads its output elsewhere, or it to the background", _JOURNAL)
    scene.used |= reader.used
    for name in sorted(reader.unset):
        scene.draft.unclear(f"${name}", "is not set here, so it was taken as empty")
    if found is None:
        raise KimisvcError("no-vllm", "no command in it starts vLLM", hint=HINT)
    return found


def run_words(words: Sequence[str], scene: Scene, depth: int = 0) -> Launch | None:
    """Given the words of one command, return the vLLM it starts, itself or through a script."""
    launched = find_launch(words, scene)
    if launched or not words:
        return launched
    rest = list(words)
    while rest and rest[0].rpartition("/")[2] in ("exec", "nohup", "env", "command"):
        rest.pop(0)
    name = rest[0].rpartition("/")[2] if rest else ""
    if name in _SHELLS:
        return _shell(rest[1:], scene, depth)
    if rest and "/" in rest[0]:
        return _script(rest[0], rest[1:], scene, depth)
    return None


def _run(command: Command, scene: Scene, depth: int) -> Launch | None:
    words = list(command.words)
    given: dict[str, str] = {}
    while words and (assignment := ASSIGNMENT.fullmatch(words[0])):
        given[assignment[1]] = assignment[2]
        words.pop(0)
    if not words:
        for name, value in given.items():
            exported = scene.all_exported or name in scene.variables
            (scene.variables if exported else scene.local)[name] = value
        return None
    if words[0] in _CHOOSES:
        raise KimisvcError("not-simple", f"line {command.line}: `{words[0]}` chooses or repeats "
                           "while it runs", hint=HINT)  # fmt: skip
    if _built_in(words, scene):
        return None
    before = dict(scene.variables)
    for name, value in given.items():
        scene.export(name, value)
    launched = run_words(words, scene, depth)
    if launched is None:
        scene.variables.clear()
        scene.variables.update(before)
        if words[0] not in _WITHOUT_EFFECT and command.end != "|":
            scene.draft.unclear(f"the command {shown(words[0])}", "is not run by kimisvc")
    return launched


def _built_in(words: list[str], scene: Scene) -> bool:
    """Given a command, return whether it is one that changes what comes after; then it has."""
    name, rest = words[0], words[1:]
    if name in ("export", "declare", "typeset", "readonly"):
        _export(rest, scene)
    elif name == "unset":
        for variable in rest:
            scene.forget(variable)
    elif name in ("cd", "pushd") and rest:
        scene.enter(rest[-1])
    elif name in ("source", "."):
        _source(rest[0] if rest else "", scene)
    elif name == "ulimit":
        _limit(rest, scene)
    elif name == "set":
        if any(re.fullmatch("-[a-z]*a[a-z]*|allexport", word) for word in rest):
            scene.all_exported = True
    else:
        return False
    return True


def _export(words: list[str], scene: Scene) -> None:
    for word in words:
        assignment = ASSIGNMENT.fullmatch(word)
        if assignment:
            scene.export(assignment[1], assignment[2])
        elif word in scene.local:
            scene.export(word, scene.local[word])


def _source(file: str, scene: Scene) -> None:
    activated = re.fullmatch(r"(.*/bin)/activate(\.\w+)?", scene.absolute(file))
    if activated:
        scene.venv = activated[1]
    else:
        scene.draft.unclear(f"source {shown(file)}", _PROFILE_FILES)


def _limit(words: list[str], scene: Scene) -> None:
    option, value = words[0] if words else "", words[-1] if words else ""
    if option.lstrip("-HS") == "n" and value.isdigit():
        scene.draft.put("service", "limit_nofile", int(value), "from ulimit -n")
    else:
        scene.draft.drop(f"ulimit {shown(' '.join(words))}", "kimisvc sets what many GPUs need")


def _shell(words: Sequence[str], scene: Scene, depth: int) -> Launch | None:
    """A start as `bash [-l] [-e] -c TEXT [NAME [ARGUMENT...]]`, or `bash SCRIPT [ARGUMENT...]`."""
    rest = list(words)
    while rest and rest[0].startswith(("-", "+")):
        option = rest.pop(0)
        if not option.startswith("--") and "c" in option and rest:
            return run_text(rest[0], scene, rest[2:], depth + 1)
        if option in ("-o", "+o", "--rcfile", "--init-file") and rest:
            rest.pop(0)
    return _script(rest[0], rest[1:], scene, depth) if rest else None


def _script(path: str, arguments: Sequence[str], scene: Scene, depth: int) -> Launch | None:
    """A program by its path: read it, if it is a script of a shell."""
    where = scene.absolute(path)
    if not where.startswith("/"):
        return None
    try:
        text = scene.look.read(where)
    except KimisvcError as error:
        raise KimisvcError("not-read", f"{shown(where)} starts something, and cannot be read: "
                           f"{error.message}", hint=error.hint or HINT) from error  # fmt: skip
    first = text.partition("\n")[0]
    if not re.match(r"#!\s*\S*/(?:env\s+)?(?:sh|bash|dash|zsh|ksh)\b", first) and not (
        where.endswith(".sh") and not first.startswith("#!")
    ):
        return None
    scene.draft.drop(
        f"the script {shown(where)}", "read: what it sets and starts is in this profile"
    )
    try:
        return run_text(text, scene, arguments, depth + 1)
    except KimisvcError as error:
        raise KimisvcError(
            error.code, f"{shown(where)}: {error.message}", hint=error.hint
        ) from error
