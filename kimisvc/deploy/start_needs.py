"""Which errors of the preflight mean that no start can succeed: for those nobody goes back by hand.

What runs would be stopped, and nothing would come up in its place. What only spoils a
figure, or may go well, must not keep an operator from going back. One row a key of an
error: `FAULTS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.host import secrets_file
from kimisvc.profile.options import option_name
from kimisvc.records.problems import Severity
from kimisvc.render.writable import WRITTEN, Lack, needed_keys, targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimisvc.records.problems import Problem
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitFile


class Then(Enum):
    """What becomes of a start on a host that has the fault."""

    ENDS = "it ends, or never serves"
    MAY_GO_ON = "it may go well"
    BY_FOLDER = "what the profile does with the folder decides"
    BY_SECRETS = (
        "it ends where the file of secrets cannot be read whole; who else may read it ends nothing"
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """A key that errors of the preflight carry, what becomes of a start then, and why."""

    key: str
    then: Then
    why: str


def _ends(key: str, why: str) -> Fault:
    return Fault(key, Then.ENDS, why)


def _may_go_on(key: str, why: str) -> Fault:
    return Fault(key, Then.MAY_GO_ON, why)


FAULTS: tuple[Fault, ...] = (
    _ends("vllm.executable", "203/EXEC"),
    _ends("vllm.model", "vLLM reads it first, or ends at a shard that is missing"),
    _ends("vllm.port", "vLLM binds it before it loads, and ends"),
    _ends("service.user", "217/USER"),
    _ends("service.working_directory", "200/CHDIR"),
    Fault(
        "service.secrets_file",
        Then.BY_SECRETS,
        "without it systemd starts nothing; half read, no key is asked",
    ),
    _ends("service.limit_nofile", "205/LIMITS"),
    _ends("hardware.gpus", "too few, not for the service, or a driver that waits for a reboot"),
    _ends("args.gpu-memory-utilization", "vLLM ends where less is free than that"),
    _ends("args.chat-template", "ValueError after the load (load_chat_template)"),
    _ends("args.reasoning-parser-plugin", "the parser that it brings is unknown then"),
    _ends("args.tool-parser-plugin", "the parser that it brings is unknown then"),
    _ends("args.mm-encoder-fp8-scale-path", "vLLM looks for it first (MultiModalConfig)"),
    _ends("args.tokenizer", "taken for a name on a hub, and not found"),
    _ends("args.hf-config-path", "taken for a name on a hub, and not found"),
    _ends("args.spec-model", "the draft cannot be read"),
    _ends("args.speculative-config", "the draft cannot be read"),
    _ends("args.speculative-config.model", "the draft cannot be read"),
    _ends("args.lora-modules", "ValueError after the load (init_static_loras)"),
    _ends("args.default-mm-loras", "loaded as those of --lora-modules"),
    _ends("env.VLLM_LOGGING_CONFIG_PATH", "vLLM ends (logger.py)"),
    _may_go_on("", "no setting is at fault: a process on the GPUs, a disk, a door that fails"),
    _may_go_on("vllm.min_version", "a wish of the profile; vLLM itself knows no such number"),
    _may_go_on("hardware.memory_gib", "what the profile reckons with, and not what vLLM takes"),
    _may_go_on("hardware.ram_gib", "what the profile reckons with, and not what vLLM takes"),
    _may_go_on("hardware.shm_gib", "what the profile reckons with, and not what NCCL takes"),
    _may_go_on("hardware.link", "slower, and not down"),
    _may_go_on("args.ssl-ca-certs", "read for HTTPS alone, which kimisvc refuses"),
    _may_go_on("args.log-config-file", "vLLM warns and goes on (load_log_config)"),
    _may_go_on("args.allowed-local-media-path", "a request that names a file is refused"),
    _may_go_on("args.generation-config", "vLLM goes on without (try_get_generation_config)"),
    _may_go_on("env", "what leaks in changes figures"),
    _may_go_on("env.NCCL_CONF_FILE", "NCCL goes on without"),
    _may_go_on("env.NCCL_GRAPH_FILE", "NCCL warns at most"),
    _may_go_on("env.NCCL_TOPO_FILE", "NCCL warns at most"),
    *(
        Fault(f"{row.table}.{row.name}", Then.BY_FOLDER, "see `_folder_keys`")
        for row in dict.fromkeys(WRITTEN)
    ),
)
"""Every key that an error of a check may carry. From systemd.exec(5), "Process exit codes", and
from vLLM 0.32: entrypoints/openai, config/multimodal.py, transformers_utils/config.py."""
_BY_KEY = MappingProxyType({row.key: row for row in FAULTS})


def decided(key: str) -> Fault | None:
    """Given the key of an error, as written in a profile, return its row; None: nobody decided it."""
    table, _, written = key.partition(".")
    name = option_name(written) if table == "args" else written
    plain = f"{table}.{name}" if name else table
    return _BY_KEY.get(plain) or _BY_KEY.get(f"{table}.{name.partition('.')[0]}")


def that_end_a_start(
    found: Iterable[Problem], profile: Profile, units: Sequence[UnitFile]
) -> tuple[Problem, ...]:
    """Given what the preflight says of a profile and its units, return what ends each start of it."""
    folders = _folder_keys(profile, units)
    return tuple(
        problem
        for problem in found
        if problem.severity is Severity.ERROR and _ends_it(problem, profile, folders)
    )


def _ends_it(problem: Problem, profile: Profile, folders: frozenset[str]) -> bool:
    fault = decided(problem.key)
    if fault is not None and fault.then is Then.BY_FOLDER:
        return problem.key in folders
    if fault is not None and fault.then is Then.BY_SECRETS:
        # What is wrong within it names the file; else it is the way to it that is told of.
        path = Path(profile.service.secrets_file)
        return bool(problem.file or secrets_file.contents(path).trouble)
    return fault is not None and fault.then is Then.ENDS


def _folder_keys(profile: Profile, units: Sequence[UnitFile]) -> frozenset[str]:
    """The keys whose folder a start needs: one that its unit opens, and a cache to be read from.

    The units of an older kimisvc open none. An error of a cache that is only read means
    that what vLLM needs of it cannot be: nothing is fetched.
    """
    read = frozenset(one.key for one in targets(profile) if one.lack is Lack.READS)
    opens = any("\nReadWritePaths=" in unit.text for unit in units)
    return read | needed_keys(profile) if opens else read
