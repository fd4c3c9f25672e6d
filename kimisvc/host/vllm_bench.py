"""The door to vLLM's own load generator, `vllm bench serve`: run unprivileged, its result read.

It is run by systemd as a transient service, as the user the server runs as
(who can read the model, and so its tokenizer) and hardened as that one. Its
result comes back on its stdout; the API key goes to it in its environment. It is
no child of ours and outlives systemd-run (systemd-run(1), --wait), so it has a name
by which it is stopped when we are.

What it writes: benchmarks/serve.py of vLLM 0.33. It ends with status 0 though
requests failed, so `completed` and `failed` are looked at; the peak it tells
counts chunks (vllm#50677) and is not taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kimisvc.errors import HostError
from kimisvc.host.processes import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIGURES = (
    "output_throughput", "request_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
    "p99_tpot_ms", "mean_itl_ms", "p99_itl_ms",
)  # fmt: skip
"""What of a result is kept, under vLLM's own names."""
TEMPERATURE = 0
"""Of sampling, as the probe has it."""
GRACE = 30.0
"""How much longer than the service itself we wait for systemd-run (s)."""
TO_STOP = 10.0
"""What the benchmark may take to end when it is stopped, before it is killed (s)."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What ends us at once unless it is caught; Ctrl-C is an exception already."""
_SCRIPT = (
    'if [ -n "$VLLM_API_KEY" ]; then export OPENAI_API_KEY="$VLLM_API_KEY"; fi; '
    '"$@" >&2 && cat /tmp/kimisvc-bench.json'
)
"""Runs its arguments, then prints the result. The key is named as this client wants it."""
HARDENED = (
    "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=yes",
    "PrivateTmp=yes", "ProtectKernelTunables=yes", "ProtectKernelModules=yes",
    "ProtectControlGroups=yes", "RestrictSUIDSGID=yes", "RestrictNamespaces=yes",
    "LockPersonality=yes", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "LimitCORE=0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a server: so many streams at once, so many requests of such lengths."""

    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """Which server, and with what: `tokenizer` is a folder or a hub id; `user` "": one of its own.

    `options` are further words for the tokenizer (trust-remote-code, its mode).
    """

    executable: str
    base_url: str
    model: str
    tokenizer: str
    user: str = ""
    secrets_file: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What one run came to; `figures` by vLLM's names, without those it did not tell."""

    completed: int
    failed: int
    figures: Mapping[str, float]


def bench(server: Server, load: Load, timeout: float) -> BenchResult:
    """Given a server and a load, run vLLM's own benchmark and return its result.

    Whatever ends us meanwhile (Ctrl-C, SIGTERM, a lost terminal) ends the load,
    too. Raise HostError where it cannot be run, fails, is not done in `timeout`
    seconds, or prints what is no result; KeyboardInterrupt where we are ended.
    """
    unit = f"run-kimisvc-bench-{os.getpid()}-{load.concurrency}.service"
    with _signals_raise():
        try:
            done = run(unit_command(server, load, timeout, unit), timeout + GRACE)
        except BaseException:
            with contextlib.suppress(HostError):  # what is raised already tells more
                run(["systemctl", "stop", unit], TO_STOP + GRACE)
            raise
    if done.status != 0:
        words = [line for line in done.stderr.strip().splitlines() if line.strip()]
        said = words[-1].strip() if words else "it said nothing"
        raise HostError(
            "bench-failed",
            f"vllm bench serve ended with status {done.status}: {said}",
            hint="its words are in the journal: journalctl -t kimisvc-bench",
        )
    return read_result(done.stdout)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Have what would end us at once raise KeyboardInterrupt; what is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = {one: signal.getsignal(one) for one in ENDING}
    for one in ENDING:
        if before[one] is signal.SIG_DFL:
            signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def unit_command(server: Server, load: Load, timeout: float, unit: str) -> list[str]:
    """Given a server and a load, return the command that runs the benchmark as the service `unit`."""
    properties = [
        f"User={server.user}" if server.user else "DynamicUser=yes",
        f"RuntimeMaxSec={timeout:.0f}",
        f"TimeoutStopSec={TO_STOP:.0f}",
        "SyslogIdentifier=kimisvc-bench",
        *HARDENED,
    ]
    if server.secrets_file:
        properties.append(f"EnvironmentFile={server.secrets_file}")
    settings = {
        # What it would cache goes to its own /tmp, and nothing is asked of a hub.
        "HOME": "/tmp", "XDG_CACHE_HOME": "/tmp", "VLLM_NO_USAGE_STATS": "1",  # noqa: S108 - PrivateTmp
    }  # fmt: skip
    if server.tokenizer.startswith("/"):
        settings |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return [
        "systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
        f"--unit={unit}",
        *(f"--property={one}" for one in properties),
        *(f"--setenv={name}={value}" for name, value in settings.items()),
        "--", "/bin/sh", "-c", _SCRIPT, "sh", *bench_command(server, load),
    ]  # fmt: skip


def bench_command(server: Server, load: Load) -> list[str]:
    """Given a server and a load, return the words of `vllm bench serve`."""
    return [
        server.executable, "bench", "serve",
        "--backend", "openai", "--endpoint", "/v1/completions", "--base-url", server.base_url,
        "--model", server.model, "--tokenizer", server.tokenizer, *server.options,
        "--dataset-name", "random", "--random-input-len", str(load.input_tokens),
        "--random-output-len", str(load.output_tokens), "--ignore-eos", "--temperature", str(TEMPERATURE),
        "--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency),
        "--seed", str(load.seed), "--disable-tqdm", "--save-result",
        "--result-dir", "/tmp", "--result-filename", "kimisvc-bench.json",  # noqa: S108 - PrivateTmp
    ]  # fmt: skip


def read_result(text: str) -> BenchResult:
    """Given what it printed, return the result. Raise HostError where it is none."""
    try:
        told: Any = json.loads(text)
        completed, failed = int(told["completed"]), int(told.get("failed", 0))
        figures = {
            name: float(told[name])
            for name in FIGURES
            if isinstance(told.get(name), (int, float)) and not isinstance(told[name], bool)
        }
    except (
        ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise HostError("bad-bench", f"vllm bench serve printed no result: {error}") from error
    return BenchResult(completed, failed, figures)
