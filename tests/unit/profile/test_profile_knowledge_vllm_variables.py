"""VLLM_* in [env]: names that are ignored, and values that are misread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kimisvc.profile.knowledge.risk.limit import risk_findings
from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.knowledge.vllm.variables import vllm_variable_findings
from kimisvc.profile.options import OWNED_VARIABLES
from kimisvc.records.problems import Severity
from kimisvc.records.profile import Profile, VllmSettings
from kimisvc.records.vllm import KnownFrom, VariableReading, VllmKnowledge, VllmVariable

if TYPE_CHECKING:
    from kimisvc.profile.problems import Finding

NEWEST = shipped_knowledge()
ASKED = replace(NEWEST, known_from=KnownFrom.ASKED)


def profile(env: dict[str, str]) -> Profile:
    return Profile("p", VllmSettings("/v", "/m"), env=env)


def found(name: str, value: str, vllm: VllmKnowledge = NEWEST) -> list[Finding]:
    return list(vllm_variable_findings(profile({name: value}), vllm))


def only(name: str, value: str, vllm: VllmKnowledge = NEWEST) -> Finding:
    (finding,) = found(name, value, vllm)
    return finding


@pytest.mark.parametrize("name", sorted(n for n in REMOVED if n.isupper()))
def test_case_33_a_dead_variable_is_told_with_its_version(name: str) -> None:
    finding = only(name, "1")
    assert f"was removed in vLLM {REMOVED[name].removed_in}" in finding.message
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("name", "version", "instead"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.15", "attention-backend"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "0.24", "moe-backend"),
        ("VLLM_ENGINE_ITERATION_TIMEOUT_S", "0.32", "Leave it out"),
        ("VLLM_TEST_FORCE_FP8_MARLIN", "0.29", 'moe-backend = "marlin"'),
        ("VLLM_SLEEP_WHEN_IDLE", "0.18", "Leave it out"),
        ("VLLM_NVFP4_GEMM_BACKEND", "0.24", "linear-backend"),
    ],
)
def test_what_a_dead_variable_became(name: str, version: str, instead: str) -> None:
    message = only(name, "1").message
    assert version in message
    assert instead in message


def test_a_variable_that_is_read_by_the_old_vllm_that_runs_is_fine() -> None:
    old = VllmKnowledge("0.14.1", KnownFrom.ASKED, {}, frozenset({"VLLM_ATTENTION_BACKEND"}))
    assert found("VLLM_ATTENTION_BACKEND", "TRITON_MLA", old) == []


def test_a_variable_of_a_newer_vllm() -> None:
    old = VllmKnowledge("0.19.1", KnownFrom.ASKED, {}, frozenset({"VLLM_PORT"}))
    message = only("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "1", old).message
    assert message.startswith("is ignored by the installed vLLM 0.19.1; vLLM 0.33.0 reads it")


def test_a_misspelled_variable_is_an_error() -> None:
    finding = only("VLLM_WORKER_MULTIPROC_METHODE", "spawn", ASKED)
    assert finding.message.endswith(
        "Did you mean VLLM_WORKER_MULTIPROC_METHOD? "
        'If the name is meant: allow_risky = ["VLLM_WORKER_MULTIPROC_METHODE"]'
    )
    assert finding.severity is Severity.ERROR
    doubted = only("VLLM_WORKER_MULTIPROC_METHODE", "spawn")
    assert doubted == replace(finding, severity=Severity.WARNING)


def test_a_variable_that_is_meant_may_be_let_pass() -> None:
    name = "VLLM_WORKER_MULTIPROC_METHODE"  # of a plug-in, maybe
    profile = Profile("p", VllmSettings("/v", "/m"), env={name: "1"}, allow_risky=(name,))
    (finding,) = vllm_variable_findings(profile, ASKED)
    assert finding.severity is Severity.WARNING
    assert list(risk_findings(profile)) == []


@pytest.mark.parametrize("name", sorted(NEWEST.variables - set(OWNED_VARIABLES)))
def test_what_the_next_vllm_reads_is_never_refused(name: str) -> None:
    """Each variable in turn is one that the shipped table does not know yet."""
    rest = replace(NEWEST, variables=NEWEST.variables - {name})
    assert [f for f in found(name, "1", rest) if f.severity is Severity.ERROR] == []


def test_a_variable_like_no_other_is_doubted_unless_vllm_would_end_with_it() -> None:
    assert only("VLLM_OF_SOME_PLUGIN", "1").severity is Severity.WARNING
    strict = Profile(
        "p",
        VllmSettings("/v", "/m"),
        args={"fail-on-environ-validation": True},
        env={"VLLM_OF_SOME_PLUGIN": "1"},
    )
    (finding,) = vllm_variable_findings(strict, NEWEST)
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize("level", ["debug", "Warn", "FATAL", "NOTSET"])
def test_a_level_of_the_log_is_taken_in_any_case(level: str) -> None:
    assert found("VLLM_LOGGING_LEVEL", level) == []


@pytest.mark.parametrize("level", ["VERBOSE", "", " INFO", "10", "TRACE"])
def test_a_level_that_python_does_not_know_ends_vllm(level: str) -> None:
    finding = only("VLLM_LOGGING_LEVEL", level)
    assert "ends vLLM at its start: it is one of CRITICAL" in finding.message
    assert finding.severity is Severity.ERROR
    for other in ({"VLLM_CONFIGURE_LOGGING": "0"}, {"VLLM_LOGGING_CONFIG_PATH": "/l.json"}):
        env = {"VLLM_LOGGING_LEVEL": level, **other}  # by which nothing is set up, then
        assert list(vllm_variable_findings(profile(env), NEWEST)) == []


def test_the_stream_of_the_log_is_named_as_python_finds_it() -> None:
    assert found("VLLM_LOGGING_STREAM", "ext://sys.stderr") == []
    assert "nothing would be logged" in only("VLLM_LOGGING_STREAM", "stderr").message


def test_a_file_for_a_log_that_is_off_ends_vllm() -> None:
    assert found("VLLM_LOGGING_CONFIG_PATH", "/l.json") == []
    env = {"VLLM_LOGGING_CONFIG_PATH": "/l.json", "VLLM_CONFIGURE_LOGGING": "0"}
    (finding,) = vllm_variable_findings(profile(env), NEWEST)
    assert "ends vLLM at its start while VLLM_CONFIGURE_LOGGING is 0" in finding.message


def test_others_variables_are_not_judged() -> None:
    assert found("NCCL_ALGO", "Ring") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_BATCH_INVARIANT", "0"),
        ("VLLM_BATCH_INVARIANT", "1"),
        ("VLLM_USE_MODELSCOPE", "true"),
        ("VLLM_USE_MODELSCOPE", "False"),
        ("VLLM_SKIP_P2P_CHECK", "0"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "5400"),
        ("VLLM_LOG_STATS_INTERVAL", "2.5"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "spawn"),
        ("VLLM_FLOAT32_MATMUL_PRECISION", "HIGH"),
        ("VLLM_CACHE_ROOT", "/var/cache/vllm"),
        ("VLLM_PORT", "29500"),
        ("VLLM_HOST_IP", "10.0.0.1"),
        ("VLLM_HOST_IP", "fd00::1"),
    ],
)
def test_what_is_read_as_it_is_meant(name: str, value: str) -> None:
    assert found(name, value) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "VLLM_BATCH_INVARIANT",
            "true",
            "ends vLLM at its start: it is read as 0 for off, another",
        ),
        ("VLLM_BATCH_INVARIANT", "true", 'Write "1"'),
        ("VLLM_BATCH_INVARIANT", "off", 'Write "0"'),
        ("VLLM_BATCH_INVARIANT", "", "ends vLLM"),
        ("VLLM_SKIP_P2P_CHECK", "true", "would be taken for off without a word"),
        ("VLLM_NO_USAGE_STATS", "yes", 'Write "1"'),
        ("VLLM_USE_MODELSCOPE", "yes", "would be taken for off"),
        ("VLLM_USE_MODELSCOPE", "2", 'Write "0" or "1"'),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "1", 'Write "true"'),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "90min", "it is read as a whole number"),
        ("VLLM_LOG_STATS_INTERVAL", "10s", "it is read as a number"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "SPAWN", "it reads one of spawn, fork"),
        ("VLLM_MARLIN_INPUT_DTYPE", "fp16", "it reads one of int8, fp8"),
        ("VLLM_PORT", "tcp://10.0.0.1:8000", "service discovery"),
        ("VLLM_PORT", "http", "ends vLLM"),
        ("VLLM_HOST_IP", "10.0.0.1:8000", "takes an IP address"),
        ("VLLM_HOST_IP", "0.0.0.0", "[vllm] host"),
    ],
)
def test_what_is_misread(name: str, value: str, words: str) -> None:
    finding = only(name, value)
    assert words in finding.message
    assert finding.severity is Severity.ERROR


def test_zero_alone_is_off() -> None:
    vllm = replace(
        NEWEST,
        variables=frozenset({"VLLM_X"}),
        readings={"VLLM_X": VllmVariable(VariableReading.NOT_ZERO)},
    )
    assert "would be taken for on" in only("VLLM_X", "false", vllm).message
    assert found("VLLM_X", "0", vllm) == []


def test_the_port_of_the_api_is_not_vllms_own() -> None:
    assert only("VLLM_PORT", "8000").severity is Severity.WARNING
