"""`docker run ... vllm/vllm-openai ...`: what of it can be said without the container. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption.scene import Launch
from kimisvc.profile.adoption.secret_words import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.profile.adoption.scene import Scene

RUNNERS = ("docker", "podman", "nerdctl")
_ALONE = re.compile(
    r"-[ditPq]+|--(rm|init|privileged|read-only|detach|interactive|tty|publish-all|no-healthcheck|"
    r"oom-kill-disable|sig-proxy|disable-content-trust|quiet|replace|tls-verify)"
)
_WHY = "kimisvc runs vLLM from an environment on the box itself, not in a container"
_REASONS = {
    "--gpus": "all GPUs of the box are seen; CUDA_VISIBLE_DEVICES in [env] chooses",
    "--runtime": _WHY, "--network": _WHY, "--net": _WHY,
    "--ipc": "the service sees the box's own /dev/shm; [hardware] shm_gib says what it must have",
    "--shm-size": "the service sees the box's own /dev/shm; [hardware] shm_gib says what it must "
    "have",
    "--restart": "kimisvc restarts always, up to [service] starts times in a row",
    "--name": "the unit has the name of the instance",
}  # fmt: skip


def launch(words: Sequence[str], scene: Scene) -> Launch | None:
    """Given a command of docker's, return the vLLM it runs; None if it runs nothing.

    Variables are gathered; ports and folders that mean something else outside
    are told. Raise KimisvcError where the image's program is not vLLM's server.
    """
    rest = list(words[1:])
    if "run" not in rest[:3]:
        return None
    rest = rest[rest.index("run") + 1 :]
    entry: str | None = None
    while rest and rest[0].startswith("-"):
        name, value = _option(rest)
        if name == "--entrypoint":
            entry = value
        elif name:
            _take(name, value, scene)
    if not rest:
        raise KimisvcError("not-serving", f"{words[0]} run names no image")
    image, arguments = rest[0], rest[1:]
    scene.container = image
    scene.draft.unclear(
        f"{words[0]} run {shown(image)}",
        f"{_WHY}: install the same vLLM there and write its program into [vllm] executable",
    )
    return Launch("", tuple(_after_entry(entry, arguments)), "not told by an image: write yours")


def _option(rest: list[str]) -> tuple[str, str]:
    """Take one option off the front; its value is "" where it has none."""
    word = rest.pop(0)
    if _ALONE.fullmatch(word):
        return "", ""
    name, equals, value = word.partition("=")
    if equals:
        return name, value
    if re.fullmatch(r"-[evpuw].+", word) and not word.startswith("--"):
        return word[:2], word[2:]
    return name, rest.pop(0) if rest else ""


def _take(name: str, value: str, scene: Scene) -> None:
    draft = scene.draft
    if name in ("-e", "--env"):
        variable, equals, text = value.partition("=")
        if equals:
            scene.export(variable, text)
        else:
            draft.unclear(f"-e {shown(variable)}", "its value is that of the shell it was run in")
    elif name == "--env-file":
        draft.unclear(f"--env-file {shown(value)}", "not read: docker's syntax is not systemd's")
    elif name in ("-v", "--volume", "--mount"):
        draft.unclear(
            f"{name} {shown(value)}",
            "outside of the container the folder is at its own place: mind [vllm] model and [env]",
        )
    elif name in ("-p", "--publish"):
        _publish(value, scene)
    else:
        draft.drop(name, _REASONS.get(name, _WHY))


def _publish(value: str, scene: Scene) -> None:
    """Take -p [ADDRESS:]OUTSIDE:INSIDE; clients know the one outside."""
    address, _, outside = value.removesuffix("/tcp").rpartition(":")[0].rpartition(":")
    if outside.isdigit():
        host = address.strip("[]") or "0.0.0.0"  # noqa: S104 - said, not bound
        scene.draft.put("vllm", "host", host, "as published")
        scene.draft.put("vllm", "port", int(outside), "as published: the port clients know")
    else:
        scene.draft.unclear(f"-p {shown(value)}", "no one port outside of the container")


def _after_entry(entry: str | None, arguments: list[str]) -> list[str]:
    """The words for the server: the image's own program is it, unless another is named."""
    words = [*(entry.split() if entry else []), *arguments]
    if words[:2] == ["vllm", "serve"]:
        return words[2:]
    if "-m" in words and words[words.index("-m") + 1 :][:1] == [
        "vllm.entrypoints.openai.api_server"
    ]:
        return words[words.index("-m") + 2 :]
    if entry is None and (not words or words[0].startswith("-") or "/" in words[0]):
        return words
    raise KimisvcError(
        "not-serving",
        "the container runs a program of its own",
        hint="import the `vllm serve ...` that runs within it",
    )
