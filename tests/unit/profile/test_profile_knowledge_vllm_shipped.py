"""The table that ships, and what of it a wheel carries."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from loading import load

from kimisvc.profile.knowledge.risk.limit import risk_findings
from kimisvc.profile.knowledge.risk.options import OPTION_ROWS, option_risk
from kimisvc.profile.knowledge.risk.ordinary import ORDINARY
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.profile import ArgValue, Profile, Risk, VllmSettings
from kimisvc.records.vllm import KnownFrom, OptionKind, VariableReading, VllmKnowledge

PROJECT = Path(__file__).parents[3]


def test_the_table_is_that_of_the_newest() -> None:
    known = shipped_knowledge()
    assert (known.version, known.known_from) == ("0.33.0", KnownFrom.SHIPPED)
    assert known.options["tensor-parallel-size"].short == ("tp",)
    assert known.options["max-model-len"].kind is OptionKind.SIZE
    assert known.options["enable-prefix-caching"].negatives == (
        "no-enable-prefix-caching",
        "disable-prefix-caching",
    )
    assert known.readings["VLLM_SKIP_P2P_CHECK"].reads is VariableReading.ONE
    assert len(known.options) > 300
    assert len(known.variables) > 300


def test_it_is_read_when_first_wanted() -> None:
    code = (
        "import kimisvc.profile.knowledge.vllm.options as options; "
        "print(options.shipped_knowledge.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_wheel_carries_every_file_of_the_package() -> None:
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["kimisvc"]
    assert "exclude" not in build["targets"]["wheel"]
    assert (PROJECT / "kimisvc/profile/knowledge/vllm/table.json").is_file()


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"version": "1", "options": [{}], "variables": {}},
        {"version": "1", "options": [{"name": "x", "kind": "ODD"}], "variables": {}},
        {"version": "1", "options": [], "variables": {"VLLM_X": ["ODD"]}},
        {"version": "1", "options": 3, "variables": {}},
        {"version": "1", "options": [], "variables": []},
    ],
)
def test_what_is_of_another_form_is_no_knowledge(told: object) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        VllmKnowledge.of(told, KnownFrom.ASKED)


@pytest.mark.parametrize(
    ("name", "value", "risk"),
    [
        ("trust-remote-code", True, Risk.SAFE_ISH),
        ("trust_remote_code", True, Risk.SAFE_ISH),
        ("trust-remote-code", False, Risk.SAFE),
        ("no-trust-remote-code", True, Risk.SAFE),
        ("enforce-eager", True, Risk.SAFE),
        ("disable-custom-all-reduce", True, Risk.SAFE),
        ("kv-cache-dtype", "auto", Risk.SAFE),
        ("kv-cache-dtype", "fp8", Risk.SAFE_ISH),
        ("kv-cache-dtype", "nvfp4", Risk.RISKY),
        ("kv-cache-dtype", "int8_per_token_head", Risk.SAFE_ISH),
        ("kv-cache-dtype", "FP8", Risk.SAFE_ISH),
        ("kv-cache-dtype", "turboquant_k8v4", Risk.RISKY),
        ("gpu-memory-utilization", 0.92, Risk.SAFE),
        ("gpu-memory-utilization", 0.96, Risk.RISKY),
        ("speculative-config", {"method": "mtp"}, Risk.SAFE_ISH),
        ("speculative-config.method", "mtp", Risk.SAFE_ISH),
        ("load-format", "safetensors", Risk.SAFE),
        ("load-format", "fastsafetensors", Risk.SAFE_ISH),
        ("load-format", "dummy", Risk.RISKY),
        ("enable-sleep-mode", True, Risk.SAFE_ISH),
        ("worker-cls", "a.B", Risk.RISKY),
        ("max-model-len", 4096, Risk.SAFE),
        ("limit_mm_per_prompt.image", 4, Risk.SAFE),
        ("enable-prompt-embeds", True, Risk.RISKY),
        ("enable-mm-embeds", True, Risk.RISKY),
        ("enable-mm-embeds", False, Risk.SAFE),
        ("io-processor-plugin", "prithvi", Risk.RISKY),
        ("model-class-overrides", {"A": "m:B"}, Risk.RISKY),
        ("trust-request-mm-kwargs", True, Risk.RISKY),
        ("dtype", "auto", Risk.SAFE),
        ("dtype", "float32", Risk.SAFE),
        ("dtype", "float16", Risk.SAFE_ISH),
        ("dtype", "bfloat16", Risk.SAFE),
        ("chat-template", "/t.jinja", Risk.SAFE_ISH),
        ("gpu-memory-utilization", "much", Risk.SAFE_ISH),
        ("additional-config", "{}", Risk.SAFE_ISH),
        ("of-tomorrow", False, Risk.SAFE_ISH),
    ],
)
def test_the_risk_of_an_option(name: str, value: ArgValue, risk: Risk) -> None:
    judged = option_risk(name, value, Profile("p", VllmSettings("/v", "/m")))
    assert judged.risk is risk
    assert judged.why
    assert judged.source.startswith("https://")


@pytest.mark.parametrize("name", ["additional-config", "of-tomorrow", "no-of-tomorrow"])
def test_an_option_that_nobody_judged_is_said_to_be_such_and_is_not_safe(name: str) -> None:
    strict = Profile("p", VllmSettings("/v", "/m"), args={name: "x"}, max_risk=Risk.SAFE)
    (finding,) = risk_findings(strict, option_risk)
    assert '"x" is safe-ish, and max_risk is "safe": not judged: ' in finding.message
    assert list(risk_findings(replace(strict, max_risk=Risk.SAFE_ISH), option_risk)) == []


def test_every_ordinary_option_is_one_of_the_newest_and_judged_once() -> None:
    assert shipped_knowledge().options.keys() >= ORDINARY.keys()
    assert ORDINARY.keys().isdisjoint(row.name for row in OPTION_ROWS)


def test_ordinary_options_pass_where_nothing_may_be_risked() -> None:
    args: dict[str, ArgValue] = {
        "tensor-parallel-size": 8, "max-model-len": "128K", "max-num-seqs": 16,
        "max-num-batched-tokens": 8192, "tool-call-parser": "kimi_k2",
        "enable-auto-tool-choice": True, "reasoning-parser": "kimi_k2",
        "enable-prefix-caching": False, "download-dir": "/data", "seed": 1,
    }  # fmt: skip
    strict = Profile("p", VllmSettings("/v", "/m"), args=args, max_risk=Risk.SAFE)
    assert list(risk_findings(strict, option_risk)) == []


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "profiles").glob("*.toml")), ids=lambda p: p.stem
)
def test_every_option_of_a_shipped_profile_is_judged(path: Path) -> None:
    profile = load(path, PROJECT / "profiles")
    unjudged = [
        name
        for name, value in profile.args.items()
        if option_risk(name, value, profile).why.startswith("not judged")
    ]
    assert unjudged == []


def _with(connector: str, **extra: ArgValue) -> dict[str, ArgValue]:
    return {"kv_connector": connector, "kv_connector_extra_config": extra}


OFFLOADING, NIXL = _with("OffloadingConnector", block_size=64), _with("NixlConnector")


@pytest.mark.parametrize(
    ("args", "risk", "words"),
    [
        ({"kv-transfer-config": OFFLOADING}, Risk.SAFE_ISH, "nothing leaves the box"),
        ({"kv-transfer-config": json.dumps(OFFLOADING)}, Risk.SAFE_ISH, "nothing leaves"),
        ({"kv_transfer_config": _with("SimpleCPUOffloadConnector")}, Risk.SAFE_ISH, "memory"),
        ({"kv-transfer-config.kv_connector": "OffloadingConnector"}, Risk.SAFE_ISH, "memory"),
        ({"kv-transfer-config.kv_connector": "NixlConnector"}, Risk.RISKY, "sends"),
        ({"kv-transfer-config": _with("OffloadingConnector", spec_name="X")}, Risk.RISKY, "may"),
        ({"kv-transfer-config": OFFLOADING | {"kv_connector_module_path": "a.b"}}, Risk.RISKY,
         "sends"),
        ({"kv-transfer-config": _with("LMCacheConnectorV1")}, Risk.RISKY, "may send"),
        ({"kv-transfer-config": NIXL}, Risk.RISKY, "sends the cache"),
        ({"kv-transfer-config": _with("Of.A.Plugin")}, Risk.RISKY, "sends the cache"),
        ({"kv-transfer-config": _with("DecodeBenchConnector")}, Risk.RISKY, "nonsense"),
        ({"kv-transfer-config": _with("ExampleConnector")}, Risk.RISKY, "into files"),
        ({"kv-transfer-config": _with("MultiConnector", connectors=[OFFLOADING])}, Risk.SAFE_ISH,
         "memory"),
        ({"kv-transfer-config": _with("MultiConnector", connectors=[OFFLOADING, NIXL])},
         Risk.RISKY, "sends the cache"),
        ({"kv-transfer-config": "{"}, Risk.RISKY, "sends the cache"),
        ({"kv-offloading-size": 100}, Risk.SAFE_ISH, "nothing leaves the box"),
        ({"kv-offloading-size": 100, "kv_offloading_backend": "lmcache"}, Risk.RISKY, "may send"),
    ],
)  # fmt: skip
def test_the_cache_of_requests_is_judged_by_where_it_goes(
    args: dict[str, ArgValue], risk: Risk, words: str
) -> None:
    name, value = next(iter(args.items()))
    judged = option_risk(name, value, Profile("p", VllmSettings("/v", "/m"), args=args))
    assert judged.risk is risk
    assert words in judged.why


def test_sleeping_is_risky_where_everybody_may_send_to_sleep() -> None:
    profile = Profile("p", VllmSettings("/v", "/m"), env={"VLLM_SERVER_DEV_MODE": "1"})
    judged = option_risk("enable-sleep-mode", value=True, profile=profile)
    assert judged.risk is Risk.RISKY


@pytest.mark.parametrize("word", shipped_knowledge().options["kv-cache-dtype"].choices)
def test_the_reason_of_each_format_of_the_cache_is_its_own(word: str) -> None:
    profile = Profile("p", VllmSettings("/v", "/m"))
    judged = option_risk("kv-cache-dtype", word, profile)
    bits = {Risk.SAFE: "as exact", Risk.SAFE_ISH: "8 halves", Risk.RISKY: "fewer than 8 bits"}
    assert bits[judged.risk] in judged.why
    other = option_risk("kv-cache-dtype", "of_a_plugin", profile)
    assert "none of vLLM's own" in other.why
