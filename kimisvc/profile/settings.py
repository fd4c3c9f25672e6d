"""THE table: one row for each key a profile may hold.

Validation, the resolved form, the key reference and the names suggested for a
typo are all made from it; add a key by adding a row here and a field of the
same name to its record. Two tables have no rows, because any name is a key
there: [args] and [env] (see `options`). Values are given as a profile spells
them; that they agree with the defaults of the records is held by a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kimisvc.records.names import INSTANCE, INSTANCE_RULE
from kimisvc.records.profile import Link, OnFail, Risk, Where

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """What values a key takes, in the words of a message."""

    TEXT = "a string"
    PATH = "an absolute path"
    INTEGER = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    CHOICE = "one of a few words"
    NAMES = "a list of strings"
    DURATION = "a duration"
    SIZE = "a size"
    TARGET = "a speed target"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it takes, what it means, what it is without being written.

    `low` and `high` are in the base unit of the kind (seconds, bytes, tokens);
    a `pattern` must match the whole string, and `rule` says it in words.
    `default` is spelled as in TOML, and None where nothing is set. `becomes`
    names the directives of the units that carry it, or what reads it instead.
    """

    table: str
    key: str
    kind: Kind
    help: str
    example: str
    default: bool | int | float | str | tuple[str, ...] | None = None
    required: bool = False
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: type[Enum] | None = None
    pattern: str = ""
    rule: str = ""
    becomes: str = ""


_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_USER = r"[a-z_][a-z0-9_-]{0,30}"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"
_MODEL = r"/.+|[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9._-]+)?"
_DAY = 86400.0

TEXT, PATH, INTEGER, NUMBER = Kind.TEXT, Kind.PATH, Kind.INTEGER, Kind.NUMBER
DURATION = Kind.DURATION

SETTINGS: tuple[Setting, ...] = (
    # ------------------------------------------------------------ top of the file
    Setting("", "schema", INTEGER, "version of the profile format", "1", required=True, low=1,
            high=1),
    Setting("", "extends", TEXT, "file whose keys are taken first (beside this file, or shipped)",
            '"baseline.toml"'),
    Setting("", "name", TEXT, "name of the profile; without it, the name of its file",
            '"ll_ring"', pattern=_NAME,
            rule="letters, digits, dot, dash and underscore, 64 at most, a letter or digit first",
            becomes="name in history and status, header of the units"),
    Setting("", "description", TEXT, "one line for people", '"Kimi-K2.5 on 8 GPUs"', default="",
            becomes="for people alone"),
    Setting("", "max_risk", Kind.CHOICE, "highest class of risk a setting may have",
            '"safe-ish"', default="safe-ish", choices=Risk,
            becomes="read by check"),
    Setting("", "allow_risky", Kind.NAMES,
            "settings allowed although over max_risk, or near the name of another",
            '["NCCL_P2P_LEVEL"]', default=(),
            becomes="read by check"),
    # ------------------------------------------------------------ table service
    Setting("service", "instance", TEXT, "names the units: kimisvc-INSTANCE.service", '"kimi"',
            default="kimi", pattern=INSTANCE.pattern, rule=INSTANCE_RULE,
            becomes="names of the units, folder of the state, CacheDirectory="),
    Setting("service", "user", TEXT, "user vLLM runs as; without it, a user made for the service",
            '"vllm"', default="", pattern=_USER, rule="the name of a user of the system",
            becomes="User= (without it DynamicUser=)"),
    Setting("service", "load_timeout", DURATION,
            "deadline from start to ready; every other deadline is made from it", '"45min"',
            default="45min", low=1, high=_DAY,
            becomes="TimeoutStartSec=, StartLimitIntervalSec=, Environment= (VLLM_ENGINE_READY_TIMEOUT_S)"),
    Setting("service", "starts", INTEGER, "starts tried before systemd gives up", "2", default=2,
            low=1, high=20,
            becomes="StartLimitBurst=, StartLimitIntervalSec="),
    Setting("service", "restart_delay", DURATION, "pause before systemd starts again", '"15s"',
            default="15s", low=0, high=3600,
            becomes="RestartSec=, StartLimitIntervalSec="),
    Setting("service", "stop_timeout", DURATION, "time to stop in before systemd kills", '"90s"',
            default="90s", low=1, high=3600,
            becomes="TimeoutStopSec=, StartLimitIntervalSec="),
    Setting("service", "on_fail", Kind.CHOICE, "what follows a failed gate", '"rollback"',
            default="rollback", choices=OnFail,
            becomes="read by the rollback"),
    Setting("service", "secrets_file", PATH,
            "file of NAME=value lines (mode 0600) with keys and tokens", '"/etc/kimisvc/secrets"',
            default="",
            becomes="EnvironmentFile="),
    Setting("service", "working_directory", PATH, "folder vLLM starts in", '"/srv/models"',
            default="",
            becomes="WorkingDirectory=, RequiresMountsFor="),
    Setting("service", "memory_max", Kind.SIZE, "main memory the service may use; 0: no limit",
            '"600 GiB"', default="0", low=0,
            becomes="MemoryMax="),
    Setting("service", "limit_nofile", INTEGER, "open files and sockets", "1048576",
            default=1048576, low=1024, high=2**30,
            becomes="LimitNOFILE="),
    Setting("service", "cpu_quota_percent", INTEGER, "CPU time; 100 is one core, 0: no limit",
            "800", default=0, unit="percent", low=0, high=1_000_000,
            becomes="CPUQuota="),
    # ------------------------------------------------------------ table vllm
    Setting("vllm", "executable", PATH, "the vllm program, in its own environment",
            '"/opt/vllm/bin/vllm"', required=True,
            becomes="ExecStart=, RequiresMountsFor=, Environment= (PATH)"),
    Setting("vllm", "model", TEXT, "folder of the model, or its hub id",
            '"/srv/models/Kimi-K2.5"', required=True, pattern=_MODEL,
            rule="an absolute path, or a hub id (org/name)",
            becomes="ExecStart=, RequiresMountsFor="),
    Setting("vllm", "host", TEXT, "address the server listens on", '"127.0.0.1"',
            default="127.0.0.1", pattern=_HOST,
            rule="an address or host name, without http:// and without a port",
            becomes="ExecStart= (--host)"),
    Setting("vllm", "port", INTEGER, "port the server listens on", "8000", default=8000, low=1,
            high=65535,
            becomes="ExecStart= (--port)"),
    Setting("vllm", "served_model_name", TEXT, "name clients ask for; without it, `model`",
            '"kimi"', default="",
            becomes="ExecStart= (--served-model-name)"),
    Setting("vllm", "min_version", TEXT, "oldest vLLM that may run this", '"0.19.1"', default="",
            pattern=r"[0-9]+(\.[0-9]+){0,3}((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?",
            rule="a version such as 0.19.1",
            becomes="read by the preflight"),
    # ------------------------------------------------------------ table hardware
    Setting("hardware", "gpus", INTEGER, "GPUs needed; 0: not asked for", "8", default=0, low=0,
            high=1024,
            becomes="ExecStartPre= (device nodes), and read by the preflight"),
    Setting("hardware", "memory_gib", NUMBER, "memory each GPU must have", "95", default=0.0,
            unit="GiB", low=0, high=65536,
            becomes="read by the preflight"),
    Setting("hardware", "link", Kind.CHOICE, "what connects the GPUs", '"pcie"', default="any",
            choices=Link,
            becomes="read by the preflight"),
    Setting("hardware", "shm_gib", NUMBER, "free space /dev/shm must have", "32", default=0.0,
            unit="GiB", low=0, high=65536,
            becomes="read by the preflight"),
    Setting("hardware", "ram_gib", NUMBER, "main memory the box must have", "128", default=0.0,
            unit="GiB", low=0, high=100_000,
            becomes="read by the preflight"),
    # ------------------------------------------------------------ table probe
    Setting("probe", "max_tokens", INTEGER, "tokens each run generates", "256", default=256,
            unit="tokens", low=2, high=131072,
            becomes="read by the gate"),
    Setting("probe", "prompt_tokens", INTEGER, "length of the prompt, about", "128", default=128,
            unit="tokens", low=1, high=1_048_576,
            becomes="read by the gate"),
    Setting("probe", "warmup", INTEGER, "runs thrown away first", "1", default=1, unit="runs",
            low=0, high=100,
            becomes="TimeoutStartSec= of the gate, and read by it"),
    Setting("probe", "min_runs", INTEGER, "runs measured at least; an interval needs two", "3",
            default=3, unit="runs", low=2, high=1000,
            becomes="read by the gate"),
    Setting("probe", "max_runs", INTEGER, "runs measured at most", "10", default=10, unit="runs",
            low=2, high=1000,
            becomes="TimeoutStartSec= of the gate, and read by it"),
    Setting("probe", "precision", NUMBER, "stop when the interval's half width is this share",
            "0.02", default=0.02, low=0.0001, high=0.5,
            becomes="read by the gate"),
    Setting("probe", "timeout", DURATION, "deadline of one run", '"120s"', default="2min", low=1,
            high=3600,
            becomes="TimeoutStartSec= of the gate and the canary, and read by both"),
    # ------------------------------------------------------------ table gate
    Setting("gate", "decode_tok_s", Kind.TARGET,
            "speed of one stream: under the floor fails, at the goal passes", '">40~50"',
            unit="tokens per second",
            becomes="read by the gate"),
    Setting("gate", "max_ttft", DURATION, "longest time to the first token", '"2s"', low=0.001,
            high=3600,
            becomes="read by the gate"),
    Setting("gate", "require_reasoning", Kind.FLAG, "the answer must carry reasoning", "true",
            default=False,
            becomes="read by the gate"),
    Setting("gate", "throughput_tok_s", NUMBER,
            "least throughput of many streams together; needs throughput_concurrency", "900",
            unit="tokens per second", low=0.01, high=100_000,
            becomes="read by the gate"),
    Setting("gate", "throughput_concurrency", INTEGER,
            "how many streams at once throughput_tok_s is meant for", "64", low=2, high=512,
            becomes="read by the gate"),
    # ------------------------------------------------------------ table golden
    Setting("golden", "prompt", TEXT, "a question", '"What is the capital of France?"',
            required=True,
            becomes="asked by the gate"),
    Setting("golden", "expect", TEXT, "what the answer must contain: a substring, or /regex/",
            '"Paris"', required=True,
            becomes="asked by the gate"),
    Setting("golden", "where", Kind.CHOICE, "which part of the answer", '"content"',
            default="content", choices=Where,
            becomes="asked by the gate"),
    Setting("golden", "max_tokens", INTEGER, "longest answer", "64", default=64, unit="tokens",
            low=1, high=131072,
            becomes="asked by the gate"),
    # ------------------------------------------------------------ table canary
    Setting("canary", "every", DURATION, "time between two short probes of an idle server",
            '"10min"', required=True, low=10, high=7 * _DAY,
            becomes="OnActiveSec=, OnUnitActiveSec=, RandomizedDelaySec= of the canary's timer"),
    Setting("canary", "max_tokens", INTEGER, "tokens of such a probe", "32", default=32,
            unit="tokens", low=2, high=131072,
            becomes="read by the canary"),
)  # fmt: skip

FREE_TABLES = ("args", "env")
"""The tables whose keys are names of vLLM's options and of environment variables."""

TABLES: Mapping[str, Mapping[str, Setting]] = MappingProxyType(
    {
        table: MappingProxyType({row.key: row for row in SETTINGS if row.table == table})
        for table in dict.fromkeys(row.table for row in SETTINGS)
    }
)
"""Every row by table ("" for the top of the file) and key."""
