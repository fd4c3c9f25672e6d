"""Profile and templates to unit texts. Pure: the caller reads the templates."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kimisvc.records.units import UnitFile, UnitNames
from kimisvc.render.arguments import argv
from kimisvc.render.deadlines import READY_TIMEOUT, Deadlines, span
from kimisvc.render.quoting import (
    environment_assignment,
    exec_argument,
    exec_program,
    list_word,
    path_value,
    unit_text,
)
from kimisvc.render.writable import CACHE, mounted_folders, read_write_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.records.profile import Profile, ServiceSettings
    from kimisvc.records.units import Installation

SERVICE, GATE, ROLLBACK, TARGET = (
    "kimisvc-NAME.service.j2",
    "kimisvc-NAME-gate.service.j2",
    "kimisvc-NAME-rollback.service.j2",
    "kimisvc.target.j2",
)
CANARY, CANARY_TIMER = "kimisvc-NAME-canary.service.j2", "kimisvc-NAME-canary.timer.j2"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN = PurePosixPath("/run")
"""What RuntimeDirectory= is relative to."""


def render(
    profile: Profile, templates: Mapping[str, str], place: Installation
) -> tuple[UnitFile, ...]:
    """Given a profile, the templates by file name and where kimisvc lives, return the units.

    Raise KimisvcError for a value that no unit can hold. The same profile
    always gives the same texts: neither versions nor moments nor numbers of
    generations are in them, so a text that differs means a setting that differs.
    """
    from jinja2 import Environment, StrictUndefined  # 50 ms, paid only by those who render

    # Units are no HTML: values are quoted by systemd's rules, in `quoting`.
    jinja = Environment(  # noqa: S701
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    names = UnitNames.of(profile.service.instance)
    values = _values(profile, place, names)
    files = [
        (names.service, SERVICE),
        (names.gate, GATE),
        (names.rollback, ROLLBACK),
        (names.target, TARGET),
    ]
    if profile.canary is not None:
        files += [(names.canary, CANARY), (names.canary_timer, CANARY_TIMER)]
    return tuple(
        UnitFile(name, jinja.from_string(templates[template]).render(values))
        for name, template in files
    )


def gate_settings(profile: Profile) -> str:
    """Given a profile, return a digest of all that the gate asks; it changes when that does."""
    gate = asdict(profile.gate)
    for key in ("throughput_tok_s", "throughput_concurrency"):
        if gate[key] is None:
            del gate[key]  # younger than units that are installed: unset, they change none of them
    settings = (asdict(profile.probe), gate, [asdict(q) for q in profile.golden])
    text = json.dumps(settings, sort_keys=True, default=lambda enum: enum.value)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _values(profile: Profile, place: Installation, names: UnitNames) -> dict[str, Any]:
    service, vllm = profile.service, profile.vllm
    instance = service.instance
    needed = (
        vllm.executable, vllm.model, service.working_directory,
        *(str(folder) for folder in mounted_folders(profile)),
    )  # fmt: skip
    deadlines = {name: span(seconds) for name, seconds in asdict(Deadlines.of(profile)).items()}
    return {
        "profile": unit_text(profile.name),
        "instance": instance,
        "names": names,
        "service": service,
        "deadlines": deadlines,
        "restart_delay": span(service.restart_delay),
        "mounts": [list_word(path) for path in needed if path.startswith("/")],
        "gpus": profile.hardware.gpus,
        "writable": read_write_paths(profile),
        "environment": [environment_assignment(k, v) for k, v in environment(profile).items()],
        "command": " \\\n    ".join(_lines(exec_program(vllm.executable), argv(profile))),
        "kimisvc": exec_program(str(place.kimisvc)),
        "user": place.user,
        "gate_folder": PurePosixPath(place.runtime).relative_to(RUN) / instance / "gate",
        "canary_folder": PurePosixPath(place.runtime).relative_to(RUN) / instance / "canary",
        "canary": _canary(profile),
        **_paths(service),
        "settings": gate_settings(profile),
    }


def _canary(profile: Profile) -> dict[str, str]:
    """When the canary flies, as systemd.timer(5) takes it; nothing where none is asked for."""
    if profile.canary is None:
        return {}
    return {"every": span(profile.canary.every), "spread": span(profile.canary.spread)}


def _paths(service: ServiceSettings) -> dict[str, str]:
    """The paths that may be left out; empty when they are."""
    paths = {
        "secrets_file": service.secrets_file,
        "working_directory": service.working_directory,
    }
    return {name: path_value(path) if path else "" for name, path in paths.items()}


def environment(profile: Profile) -> dict[str, str]:
    """Given a profile, return what vLLM's process gets: our defaults, then [env] in its order.

    A variable of [env] that is one of ours takes its place, so that none is
    written twice. What the secrets file holds wins over both (systemd.exec(5)).
    """
    program = PurePosixPath(profile.vllm.executable)
    cache = f"{CACHE}/{profile.service.instance}"
    defaults = {
        "PATH": f"{program.parent}:/usr/local/cuda/bin:{SYSTEM_PATH}",
        "HOME": cache,
        "XDG_CACHE_HOME": cache,
        "HF_HOME": f"{cache}/huggingface",
        "VLLM_CACHE_ROOT": f"{cache}/vllm",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        READY_TIMEOUT: str(Deadlines.of(profile).engine_ready),
    }
    return defaults | dict(profile.env)


def _lines(program: str, tokens: tuple[str, ...]) -> list[str]:
    """An option and its values share a line, so that a unit can be read and compared."""
    lines = [program]
    for token in tokens:
        word = exec_argument(token)
        if token.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines
