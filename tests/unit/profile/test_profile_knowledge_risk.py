"""What a setting may cost, and what a profile has to say to have it all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.profile.knowledge.risk.limit import risk_findings
from kimisvc.profile.knowledge.risk.variables import variable_risk
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.variables.vllm import VLLM
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, HardwareSettings, Link, Profile, Risk, VllmSettings

SAFE, SAFE_ISH, RISKY = Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY
DOCUMENTED = "NCCL user guide, Environment Variables"


def profile(env: dict[str, str], link: Link = Link.PCIE) -> Profile:
    return Profile(
        name="p",
        vllm=VllmSettings("/v/bin/vllm", "/m"),
        env=env,
        args={"tensor-parallel-size": 8},
        hardware=HardwareSettings(gpus=8, link=link),
    )


def risk_of(name: str, env: dict[str, str], link: Link = Link.PCIE) -> Risk | None:
    judged = variable_risk(name, env[name], profile(env, link))
    return judged.risk if judged else None


@pytest.mark.parametrize(
    ("name", "value", "risk"),
    [
        ("NCCL_DEBUG", "WARN", SAFE),
        ("NCCL_DEBUG", "VERSION", SAFE),
        ("NCCL_DEBUG", "INFO", SAFE_ISH),
        ("NCCL_DEBUG_FILE", "/var/log/nccl.%h.%p", SAFE),
        ("NCCL_IB_DISABLE", "1", SAFE),
        ("NCCL_SOCKET_IFNAME", "lo", SAFE),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", SAFE),
        ("OMP_NUM_THREADS", "8", SAFE),
        ("NCCL_IGNORE_CPU_AFFINITY", "1", SAFE),
        ("NCCL_MIN_CTAS", "8", SAFE_ISH),
        ("NCCL_MAX_NCHANNELS", "16", SAFE_ISH),
        ("NCCL_BUFFSIZE", "16777216", SAFE_ISH),
        ("NCCL_BUFFSIZE", "4194304", SAFE),
        ("NCCL_NTHREADS", "256", SAFE_ISH),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", SAFE_ISH),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "8", SAFE),
        ("NCCL_ALGO", "Ring", SAFE_ISH),
        ("NCCL_ALGO", "^tree", SAFE_ISH),
        ("NCCL_ALGO", "ring,tree;allreduce:tree", SAFE_ISH),
        ("NCCL_ALGO", "Tree", RISKY),
        ("NCCL_ALGO", "^ring", RISKY),
        ("NCCL_ALGO", "allreduce:tree", SAFE_ISH),
        ("NCCL_ALGO", "ring;allreduce:nvls", RISKY),
        ("NCCL_PROTO", "LL", SAFE_ISH),
        ("NCCL_PROTO", "LL,Simple", SAFE_ISH),
        ("NCCL_PROTO", "^LL128", SAFE_ISH),
        ("NCCL_PROTO", "LL,LL128,Simple", RISKY),
        ("NCCL_PROTO", "^LL", RISKY),
        ("NCCL_PROTO", "LL;allgather:ll128", RISKY),
        ("NCCL_P2P_LEVEL", "PHB", SAFE_ISH),
        ("NCCL_P2P_LEVEL", "SYS", RISKY),
        ("NCCL_P2P_DISABLE", "1", SAFE_ISH),
        ("NCCL_P2P_DISABLE", "0", SAFE),
        ("NCCL_SHM_DISABLE", "1", SAFE_ISH),
        ("NCCL_GRAPH_FILE", "/g.xml", RISKY),
        ("NCCL_CHUNK_SIZE", "65536", RISKY),
        ("NCCL_IGNORE_DISABLED_P2P", "1", RISKY),
        ("NCCL_LAUNCH_MODE", "GROUP", RISKY),
        ("NCCL_GRAPH_MIXING_SUPPORT", "0", RISKY),
        ("NCCL_GRAPH_MIXING_SUPPORT", "1", SAFE),
        ("NCCL_CHECKS_DISABLE", "1", RISKY),
        ("NCCL_TUNER_PLUGIN", "foo", RISKY),
        ("NCCL_TUNER_PLUGIN", "none", SAFE),
        ("NCCL_NET_PLUGIN", "/x.so", RISKY),
        ("LD_PRELOAD", "/x.so", RISKY),
        ("LD_PRELOAD", "x.so", RISKY),
        ("VLLM_NCCL_SO_PATH", "libnccl.so.2", RISKY),
        ("VLLM_CUDART_SO_PATH", "/x.so", RISKY),
        ("VLLM_RUST_FRONTEND_PATH", "/x", RISKY),
        ("LD_AUDIT", "/x.so", RISKY),
        ("LD_LIBRARY_PATH", "/x", SAFE_ISH),
        ("PYTHONPATH", "/x", RISKY),
        ("PYTHONINSPECT", "1", RISKY),
        ("PYTHONOPTIMIZE", "1", SAFE_ISH),
        ("PYTHONHASHSEED", "0", SAFE),
        ("NCCL_DEBUG", "NONE", SAFE),
        ("VLLM_NCCL_SO_PATH", "/x.so", RISKY),
        ("NCCL_PROTO", "", SAFE),
        ("NCCL_UNHEARD_OF", "1", None),
    ],
)
def test_risk_by_value_on_eight_gpus_over_pcie(name: str, value: str, risk: Risk | None) -> None:
    assert risk_of(name, {name: value}) is risk


def test_risk_by_link() -> None:
    assert risk_of("NCCL_PROTO", {"NCCL_PROTO": "LL128"}, Link.NVLINK) is SAFE_ISH
    assert risk_of("NCCL_PROTO", {"NCCL_PROTO": "LL128"}, Link.ANY) is RISKY
    assert risk_of("NCCL_P2P_LEVEL", {"NCCL_P2P_LEVEL": "SYS"}, Link.NVLINK) is SAFE_ISH


@pytest.mark.parametrize("off", [{"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_LEVEL": "LOC"}])
def test_risk_by_combination(off: dict[str, str]) -> None:
    both = off | {"NCCL_SHM_DISABLE": "1"}
    assert {risk_of(name, both) for name in both} == {RISKY}
    assert {risk_of(name, off) for name in off} == {SAFE_ISH}


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_every_judgement_has_a_sentence_and_a_source(name: str) -> None:
    judged = variable_risk(name, "1", profile({name: "1"}))
    assert judged
    assert judged.why
    assert judged.source


def test_what_exceeds_is_refused_with_both_ways_out() -> None:
    (finding,) = risk_findings(profile({"NCCL_PROTO": "LL,LL128,Simple"}))
    assert finding.severity is Severity.ERROR
    assert finding.path == ("env", "NCCL_PROTO")
    assert finding.message.startswith(
        '"LL,LL128,Simple" is risky, and max_risk is "safe-ish": LL128 is turned on'
    )
    assert f"({DOCUMENTED}, NCCL_PROTO)" in finding.message
    assert finding.message.endswith(
        'Leave it out, or take the risk: allow_risky = ["NCCL_PROTO"], or max_risk = "risky"'
    )


def test_each_way_out_is_one() -> None:
    draft = profile({"NCCL_PROTO": "LL,LL128,Simple", "LD_PRELOAD": "/x.so"})
    assert len(list(risk_findings(draft))) == 2
    assert list(risk_findings(replace(draft, max_risk=RISKY))) == []
    (left,) = risk_findings(replace(draft, allow_risky=("NCCL_PROTO",)))
    assert 'allow_risky = ["NCCL_PROTO", "LD_PRELOAD"]' in left.message
    assert list(risk_findings(replace(draft, allow_risky=("LD_PRELOAD", "NCCL_PROTO")))) == []


def test_max_risk_safe_refuses_what_costs_speed() -> None:
    draft = replace(profile({"NCCL_PROTO": "LL", "NCCL_DEBUG": "WARN"}), max_risk=SAFE)
    (finding,) = risk_findings(draft)
    assert '"LL" is safe-ish, and max_risk is "safe"' in finding.message


def test_leave_that_nothing_needs_is_told() -> None:
    draft = replace(
        profile({"NCCL_PROTO": "LL"}), allow_risky=("NCCL_PROTO", "NCCL_ALGO", "trust-me")
    )
    found = list(risk_findings(draft))
    assert {finding.path for finding in found} == {("allow_risky",)}
    assert {finding.severity for finding in found} == {Severity.WARNING}
    within, *unset = [finding.message for finding in found]
    assert within.startswith('"NCCL_PROTO" needs no leave')
    assert all("is set neither in [env] nor in [args]" in message for message in unset)


def test_an_illegal_value_is_not_judged_as_well() -> None:
    assert list(risk_findings(profile({"LD_PRELOAD": "~/x.so"}))) == []
    both = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
    assert list(risk_findings(profile(both))) == []


@pytest.mark.parametrize("written", ["enforce_eager", "enforce-eager", "--enforce-eager"])
def test_options_are_judged_by_whom_the_caller_hands_over(written: str) -> None:
    def judge(name: str, value: ArgValue, _profile: Profile) -> Judgement | None:
        known = name == "enforce-eager" and value is True
        return Judgement(RISKY, "is slow", "vLLM, options") if known else None

    draft = replace(profile({}), args={"enforce-eager": True, "dtype": "auto"})
    (finding,) = risk_findings(draft, judge)
    assert finding.path == ("args", "enforce-eager")
    assert "true is risky" in finding.message
    assert list(risk_findings(replace(draft, allow_risky=(written,)), judge)) == []


# ---------------------------------------------------------------- variables of vLLM

DANGERS = sorted(row.name for row in VLLM if row.risk is Risk.RISKY)


def test_every_judged_variable_of_vllm_is_one_of_the_newest() -> None:
    assert {row.name for row in VLLM} <= shipped_knowledge().variables


@pytest.mark.parametrize(
    "name",
    ["VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_INSECURE_SERIALIZATION",
     "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"],
)  # fmt: skip
def test_what_is_not_for_production_is_risky(name: str) -> None:
    assert name in DANGERS


LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 262144}


@pytest.mark.parametrize(
    ("args", "risk"),
    [
        ({"max-model-len": 1010000}, RISKY),
        ({"max-model-len": 1010000, "hf-overrides": {"architectures": ["A"]}}, RISKY),
        ({"max_model_len": "1M", "hf_overrides": {"text_config": {"rope_parameters": YARN}}}, SAFE_ISH),
        ({"max-model-len": 131072, "hf-overrides": '{"rope_scaling": {"factor": 4.0}}'}, SAFE_ISH),
        ({"max-model-len": 131072, "hf-overrides.rope_parameters.factor": 4.0}, SAFE_ISH),
        ({"hf-overrides": {"rope_parameters": YARN}}, SAFE_ISH),
        ({}, SAFE_ISH),
        ({"max-model-len": "auto"}, SAFE_ISH),
        ({"max-model-len": -1}, SAFE_ISH),
    ],
)  # fmt: skip
def test_a_length_beyond_the_models_own_is_sound_where_positions_are_scaled(
    args: dict[str, ArgValue], risk: Risk
) -> None:
    draft = replace(profile({LONG: "1"}), args=args)
    judged = variable_risk(LONG, "1", draft)
    assert judged is not None
    assert judged.risk is risk
    found = list(risk_findings(draft))
    assert bool(found) is (risk is RISKY)
    assert all(("args", "hf-overrides") in finding.reads for finding in found)


@pytest.mark.parametrize("name", DANGERS)
def test_a_danger_of_vllm_needs_leave(name: str) -> None:
    one = replace(profile({name: "1"}), args={"max-model-len": 10**6})
    (finding,) = risk_findings(one)
    assert finding.message.startswith('"1" is risky, and max_risk is "safe-ish": ')
    assert list(risk_findings(replace(one, allow_risky=(name,)))) == []


@pytest.mark.parametrize("name", sorted(shipped_knowledge().variables))
def test_every_variable_of_vllm_has_a_risk_with_its_reason(name: str) -> None:
    judged = variable_risk(name, "/x", profile({}))
    assert judged is not None
    assert judged.why
    assert judged.source
    strict = replace(profile({name: "/x"}), max_risk=Risk.SAFE)
    assert bool(list(risk_findings(strict))) is (judged.risk is not Risk.SAFE)


def test_fewer_plugins_are_no_danger() -> None:
    """Without the variable vLLM loads all that are installed; empty it loads none."""
    assert list(risk_findings(profile({"VLLM_PLUGINS": "a,b"}))) == []
    some, none = (variable_risk("VLLM_PLUGINS", value, profile({})) for value in ("a", ""))
    assert some is not None
    assert none is not None
    assert (some.risk, none.risk, none.why) == (SAFE_ISH, SAFE, "loads no plugin")
    other = variable_risk("VLLM_LORA_RESOLVER_CACHE_DIR", "", profile({}))
    assert other is not None
    assert other.why == "an empty value is as good as none"


@pytest.mark.parametrize(
    ("name", "version"), [("VLLM_USE_V1", "0.11"), ("VLLM_RPC_TIMEOUT", "0.23")]
)
def test_what_vllm_removed_risks_nothing_where_it_is_not_read(name: str, version: str) -> None:
    new = shipped_knowledge()
    old = replace(new, variables=new.variables | {name})
    ignored, read = (variable_risk(name, "1", profile({}), vllm) for vllm in (new, old))
    assert ignored is not None
    assert read is not None
    assert (ignored.risk, read.risk) == (SAFE, SAFE_ISH)
    assert ignored.why == f"removed in vLLM {version}, which ignores it"
    assert read.why.startswith("not judged")


def test_a_variable_of_vllm_without_a_row_is_said_not_to_be_judged() -> None:
    for name in ("VLLM_LORA_ENABLE_DUAL_STREAM", "VLLM_OF_TOMORROW"):
        judged = variable_risk(name, "1", profile({}))
        assert judged is not None
        assert (judged.risk, judged.why[:10]) == (Risk.SAFE_ISH, "not judged")
