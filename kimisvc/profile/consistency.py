"""Rules that need more than one key: each is a row that says which keys it reads.

A rule whose keys already have a problem of their own is left out, so that one
mistake is reported once. What NCCL, CUDA and vLLM make of values is knowledge
of another module; here is only what kimisvc itself needs to hold.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.context_length import ASKERS, LENGTH, longest_need, tokens
from kimisvc.profile.knowledge.parallelism import option
from kimisvc.profile.problems import Finding
from kimisvc.profile.quantities import format_duration
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimisvc.profile.problems import KeyPath
    from kimisvc.records.profile import Profile

_UNIT_ENDINGS = ("-gate", "-rollback", "-canary", "-tune")
_FIRST_FREE_PORT = 1024
_ARGUMENTS = re.compile(r" serve$|/vllm serve |/vllm --?\w| --[^/]*$")
"""A command line where a program belongs; a folder may be called so, hardly ever a program."""
NO_COUNTERS = "disable-log-stats"
"""The option of `vllm serve` under which it prints no counters of its engine."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold between the keys it reads; yields a finding for each break."""

    reads: tuple[KeyPath, ...]
    findings: Callable[[Profile], Iterator[Finding]]


def inconsistencies(draft: Profile, spoiled: set[KeyPath]) -> Iterator[Finding]:
    """Given a profile and the paths that have problems already, yield each rule it breaks.

    Spoiled keys may hold anything in the draft: no rule that reads one is asked.
    """
    for rule in RULES:
        if spoiled.isdisjoint((*rule.reads, *(path[:1] for path in rule.reads))):
            yield from rule.findings(draft)


def _runs(profile: Profile) -> Iterator[Finding]:
    least, most = profile.probe.min_runs, profile.probe.max_runs
    if least > most:
        yield Finding(
            ("probe", "min_runs"),
            f"min_runs {least} is more than max_runs {most}. Lower the one or raise the other",
            or_at=(("probe", "max_runs"),),
        )


def _instance_name(profile: Profile) -> Iterator[Finding]:
    name, path = profile.service.instance, ("service", "instance")
    if name == "exporter":
        yield Finding(path, '"exporter" would take the name of kimisvc-exporter.service')
    for ending in _UNIT_ENDINGS:
        if name.endswith(ending):
            yield Finding(
                path,
                f'"{name}" ends in {ending}, as the units that belong to an instance do. '
                "Choose another name",
            )


def _low_port(profile: Profile) -> Iterator[Finding]:
    if profile.vllm.port < _FIRST_FREE_PORT:
        yield Finding(
            ("vllm", "port"),
            f"{profile.vllm.port} is below {_FIRST_FREE_PORT} and needs a privilege that the "
            "service gives up",
            Severity.WARNING,
        )


def _program(profile: Profile) -> Iterator[Finding]:
    """As `render` would refuse it: the first word of ExecStart= has rules of its own (systemd.service(5))."""
    path, program = ("vllm", "executable"), profile.vllm.executable
    if _ARGUMENTS.search(program):
        yield Finding(
            path,
            f"{shown(program)} goes on behind the program. Name only the program: kimisvc adds "
            "serve and the model, and [args] holds the options",
        )
    if program.endswith("/"):
        yield Finding(path, f"{shown(program)} ends in a slash. Name the program, not its folder")
    found = re.search(r"[\"'\\$]", program)
    if found:
        yield Finding(
            path,
            f"{shown(program)}: systemd runs no program with {found[0]} in its path. Give it another "
            "name, or a symbolic link with a plain one",
        )


def _secrets_pattern(profile: Profile) -> Iterator[Finding]:
    """EnvironmentFile= is expanded as a shell expands names of files (systemd.exec(5), glob(7)).

    Systemd would read none of the file that was checked, or every file that is like it.
    """
    found = re.search(r"[*?[\\]", profile.service.secrets_file)
    if found:
        yield Finding(
            ("service", "secrets_file"),
            f"{shown(profile.service.secrets_file)} is a pattern for systemd, because of its "
            f"{found[0]}: it would read every file that is like it, or none. Name one file, "
            "without * ? [ and backslash",
        )


def _golden_patterns(profile: Profile) -> Iterator[Finding]:
    for number, question in enumerate(profile.golden):
        expect, path = question.expect, ("golden", number, "expect")
        if not (expect.startswith("/") and expect.endswith("/")) or expect == "/":
            continue
        if not expect[1:-1]:
            yield Finding(path, "the pattern between the slashes is empty: any answer would do")
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                re.compile(expect[1:-1])
        except (re.error, OverflowError, RecursionError, Warning) as error:
            yield Finding(path, f"the pattern between the slashes does not compile: {error}")


def _context_length(profile: Profile) -> Iterator[Finding]:
    """What [args] say; without that the model's own config.json counts (knowledge.model)."""
    longest = tokens(profile.args.get(LENGTH))
    need = longest_need(profile)
    if longest and need.tokens > longest:
        yield Finding(
            ("args", LENGTH),
            f"{need.asker}, but the context holds {longest}. "
            f"Raise {LENGTH} or shorten {need.table}",
            or_at=need.keys,
        )


def _throughput(profile: Profile) -> Iterator[Finding]:
    speed, streams = profile.gate.throughput_tok_s, profile.gate.throughput_concurrency
    keys = (("gate", "throughput_tok_s"), ("gate", "throughput_concurrency"))
    if (speed is None) != (streams is None):
        here, missing = keys if streams is None else reversed(keys)
        yield Finding(
            here,
            f"says nothing without {missing[1]}: a throughput is one of so many streams at once."
            f" Add {missing[1]}, or leave it out",
        )


def _ready_timeout(profile: Profile) -> Iterator[Finding]:
    written = profile.env.get("VLLM_ENGINE_READY_TIMEOUT_S")
    if written is None:
        return
    path = ("env", "VLLM_ENGINE_READY_TIMEOUT_S")
    deadline = profile.service.load_timeout
    if not re.fullmatch("[0-9]{1,9}", written):
        yield Finding(path, f'"{written}" is refused: vLLM reads whole seconds here')
    elif int(written) < deadline:
        yield Finding(
            path,
            f"vLLM would give up after {format_duration(int(written))}, before load_timeout "
            f"({format_duration(deadline)}). Write at least {deadline:.0f}, or leave it out",
            or_at=(("service", "load_timeout"),),
        )


def _open_host(profile: Profile) -> Iterator[Finding]:
    if profile.vllm.host in ("0.0.0.0", "::") and not profile.service.secrets_file:  # noqa: S104 - looked for, not bound
        yield Finding(
            ("vllm", "host"),
            f"{profile.vllm.host} lets every host that reaches the box use the model, and no "
            "secrets_file gives it an API key",
            Severity.WARNING,
        )


def _canary_without_counters(profile: Profile) -> Iterator[Finding]:
    """A canary measures only where vLLM's counters say that the server is idle (measure.canary).

    Under --disable-log-stats it keeps none (vllm 0.12 to 0.33, v1/metrics/loggers.py).
    """
    if profile.canary is not None and option(profile.args, NO_COUNTERS) is True:
        yield Finding(
            ("args", NO_COUNTERS),
            f"without vLLM's counters no canary can see whether the server is idle, so none ever "
            f"measures: each is skipped as skipped_unknown. Leave out {NO_COUNTERS} or [canary]",
            Severity.WARNING,
            or_at=(("canary", "every"),),
        )


RULES: tuple[Rule, ...] = (
    Rule((("probe", "min_runs"), ("probe", "max_runs")), _runs),
    Rule((("service", "instance"),), _instance_name),
    Rule((("gate", "throughput_tok_s"), ("gate", "throughput_concurrency")), _throughput),
    Rule((("vllm", "port"),), _low_port),
    Rule((("vllm", "host"), ("service", "secrets_file")), _open_host),
    Rule((("vllm", "executable"),), _program),
    Rule((("service", "secrets_file"),), _secrets_pattern),
    Rule((("golden",),), _golden_patterns),
    Rule((("args", LENGTH), *ASKERS), _context_length),
    Rule((("args", NO_COUNTERS), ("canary", "every")), _canary_without_counters),
    Rule(
        (("env", "VLLM_ENGINE_READY_TIMEOUT_S"), ("service", "load_timeout")),
        _ready_timeout,
    ),
)
"""Every rule, in the order of the tables they speak of."""
