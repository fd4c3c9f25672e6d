"""From the words of one command to vLLM and its arguments: env, sudo, exec, python -m, docker.

Each wrapper that is peeled off is told with what becomes of it. A command that
starts something else gives None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption import container
from kimisvc.profile.adoption.scene import Launch
from kimisvc.profile.adoption.secret_words import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.profile.adoption.scene import Scene

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_SERVER = "vllm.entrypoints.openai.api_server"
_COMMAND_LINE = ("vllm.entrypoints.cli.main", "vllm")
_DEEPEST = 8
_VENV = "kimisvc runs the vllm of one environment by its absolute path"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs another: options of its own that take a word, words before the other."""

    names: tuple[str, ...]
    why: str
    valued: tuple[str, ...] = ()
    operands: int = 0
    subcommand: str = ""


WRAPPERS: tuple[Wrapper, ...] = (
    Wrapper(("exec", "command", "nohup", "setsid", "time", "unbuffer", "catchsegv"), "", ("-a",)),
    Wrapper(("stdbuf",), "", ("-i", "-o", "-e")),
    Wrapper(("nice", "ionice", "chrt"), "the profile has no key for priorities; a drop-in can set "
            "Nice= and its like", ("-n", "-c", "-p", "--adjustment", "--class", "--classdata")),
    Wrapper(("taskset",), "the profile has no key for it; a drop-in can set CPUAffinity=",
            operands=1),
    Wrapper(("numactl",), "the profile has no key for it; vLLM has numa-bind (from 0.24), and a "
            "drop-in can set NUMAPolicy=", ("-N", "-m", "-C", "-i", "-p")),
    Wrapper(("timeout",), "a service runs until it is stopped", ("-s", "-k"), operands=1),
    Wrapper(("runuser", "setpriv", "gosu", "su-exec"), ""),
    Wrapper(("uv", "poetry", "pdm", "pipenv", "hatch", "rye"), _VENV,
            ("--with", "--python", "-p", "--project", "--directory", "--extra", "--group"),
            subcommand="run"),
    Wrapper(("conda", "mamba", "micromamba"), _VENV, ("-n", "--name", "-p", "--prefix"),
            subcommand="run"),
)  # fmt: skip


def find_launch(  # noqa: PLR0911 - one way out for each kind of program
    words: Sequence[str], scene: Scene, depth: int = 0
) -> Launch | None:
    """Given the words of a command, return the vLLM it starts, and gather what it sets.

    None if it starts something else. Raise KimisvcError for a vllm that does
    not serve, and for what cannot be unwrapped.
    """
    if depth > _DEEPEST:
        raise KimisvcError("not-simple", "one program runs another more than 8 deep")
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if name == "vllm":
        return _served(words[0], words[1:], scene)
    if _PYTHON.fullmatch(name):
        return _python(words, scene)
    if name in container.RUNNERS:
        return container.launch(words, scene)
    if name == "env":
        return find_launch(_after_env(words[1:], scene), scene, depth + 1)
    if name in ("sudo", "su", "doas"):
        return find_launch(_after_sudo(words, scene), scene, depth + 1)
    wrapper = next((row for row in WRAPPERS if name in row.names), None)
    if wrapper is not None:
        return find_launch(_unwrapped(wrapper, words, scene), scene, depth + 1)
    return None


def _unwrapped(wrapper: Wrapper, words: Sequence[str], scene: Scene) -> Sequence[str]:
    rest = list(words[1:])
    if wrapper.subcommand:
        if wrapper.subcommand not in rest:
            return []
        rest = rest[rest.index(wrapper.subcommand) + 1 :]
    operands = wrapper.operands
    user = wrapper.names[0] == "runuser"
    while rest and (rest[0].startswith("-") or operands):
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-"):
            operands -= 1
        elif rest and (word in wrapper.valued or (user and word in ("-u", "--user"))):
            value = rest.pop(0)
            if user:
                scene.user = value
    if user and words[0].rpartition("/")[2] in ("gosu", "su-exec") and rest:
        scene.user = rest.pop(0)
    if wrapper.why:
        scene.draft.drop(words[0], wrapper.why)
    return rest


def _after_env(words: Sequence[str], scene: Scene) -> Sequence[str]:
    """The words after `env [-i] [-u NAME] [-C FOLDER] [-S] [NAME=VALUE]...`."""
    rest = list(words)
    while rest:
        assignment = ASSIGNMENT.fullmatch(rest[0])
        if assignment:
            scene.export(assignment[1], assignment[2])
        elif rest[0] in ("-i", "-", "--ignore-environment"):
            for known in list(scene.variables):
                scene.forget(known)
        elif rest[0] in ("-u", "--unset", "-C", "--chdir") and len(rest) > 1:
            option, value = rest[0], rest.pop(1)
            (scene.forget if option in ("-u", "--unset") else scene.enter)(value)
        elif not rest[0].startswith("-"):
            break
        rest.pop(0)
    return rest


def _after_sudo(words: Sequence[str], scene: Scene) -> Sequence[str]:
    """The words after `sudo [-u USER] [-EH] [NAME=VALUE]...`."""
    rest = list(words[1:])
    while rest and (rest[0].startswith("-") or ASSIGNMENT.fullmatch(rest[0])):
        word = rest.pop(0)
        assignment = ASSIGNMENT.fullmatch(word)
        if word == "--":
            break
        if word.startswith("--user="):
            scene.user = word.removeprefix("--user=")
        elif word in ("-u", "--user") and rest:
            scene.user = rest.pop(0)
        elif word in ("-g", "--group", "-h", "--host", "-p", "-C", "-D", "--chdir") and rest:
            value = rest.pop(0)
            if word in ("-D", "--chdir"):
                scene.enter(value)
        elif word in ("-c", "--command"):
            raise KimisvcError("not-simple", f"{words[0]} {word} runs a text of its own",
                               hint="import the command within it")  # fmt: skip
        elif assignment and not word.startswith("-"):
            scene.export(assignment[1], assignment[2])
    return rest


def _served(program: str, words: Sequence[str], scene: Scene) -> Launch:
    if not words or words[0] != "serve":
        what = f"vllm {shown(words[0])}" if words else "vllm without a command"
        raise KimisvcError("not-serving", f"{what} does not serve a model: `vllm serve` is needed")
    path, comment = _program(program, scene)
    return Launch(path, tuple(words[1:]), comment)


def _program(name: str, scene: Scene) -> tuple[str, str]:
    """Given vllm as the command has it, return its absolute path, as far as it can be told."""
    if "/" in name:
        return scene.absolute(name), ""
    if scene.venv:
        return f"{scene.venv}/{name}", "of the environment that the script activates"
    found = scene.look.program(name, scene.variables.get("PATH", ""))
    return (found, "found on PATH") if found else ("", "")


def _python(words: Sequence[str], scene: Scene) -> Launch | None:
    """A start as `python [-u] -m MODULE ...`, or `python SCRIPT ...`."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        if rest.pop(0) in ("-W", "-X") and rest:
            rest.pop(0)
    if rest and rest[0] == "-m":
        return _module(words[0], rest[1:], scene)
    script = rest[0] if rest else ""
    if script.rpartition("/")[2] == "vllm":
        return _served(script, rest[1:], scene)
    if script.endswith("vllm/entrypoints/openai/api_server.py"):
        return _beside(words[0], rest[1:], scene)
    return None


def _module(python: str, words: Sequence[str], scene: Scene) -> Launch | None:
    module, arguments = (words[0] if words else ""), words[1:]
    if module == _SERVER:
        return _beside(python, arguments, scene)
    if module in _COMMAND_LINE and list(arguments[:1]) == ["serve"]:
        return _beside(python, arguments[1:], scene)
    if module.startswith("vllm."):
        raise KimisvcError(
            "not-serving", f"{module} is not the server that `vllm serve` starts ({_SERVER} is)"
        )
    return None


def _beside(python: str, arguments: Sequence[str], scene: Scene) -> Launch:
    """The vllm program lies beside the Python of its environment."""
    if "/" in python:
        program = str(PurePosixPath(scene.absolute(python)).parent / "vllm")
        return Launch(program, tuple(arguments), "the program beside that Python")
    path, comment = _program("vllm", scene)
    return Launch(path, tuple(arguments), comment)
