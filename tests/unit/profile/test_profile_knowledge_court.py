"""What the judges say of a profile some of whose keys are wrong already: nothing that is not so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimisvc.profile.knowledge.court import Sight, judged
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.loader import check
from kimisvc.records.problems import Severity
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

HEAD = 'schema = 1\nextends = "baseline.toml"\n'
FP8 = {
    "model_type": "minimax_m2",
    "num_attention_heads": 48,
    "num_local_experts": 256,
    "intermediate_size": 1536,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def told(folder: Path, text: str, config: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """What is said of a profile, by key, but for the warnings of old names."""
    path = folder / "p.toml"
    path.write_text(HEAD + text)
    sight = Sight(lambda _: shipped_knowledge(), lambda _: config)
    said: dict[str, list[str]] = {}
    for problem in check(path, shipped("profiles"), lambda draft: judged(draft, sight)).problems:
        if "is deprecated" not in problem.message:
            said.setdefault(problem.key, []).append(problem.message)
    return said


WRONG = {
    "args.tensor_parallel_size": """[args]
        tensor-parallel-size = 8
        tensor_parallel_size = "8 "
        [env]
        NCCL_MIN_NCHANNELS = "4" """,
    "args.tensor-parallel-size": "[args]\ntensor-parallel-size = nan",
    "args.nnodes": """[args]
        nnodes = nan
        [env]
        NCCL_IB_TIMEOUT = "22" """,
    "args.data-parallel-size-local": """[args]
        data-parallel-size-local = nan
        data-parallel-size = 4
        [env]
        CUDA_VISIBLE_DEVICES = "0,1,2,3,4,5,6,7" """,
    "args.tool-parser-plugin": """[args]
        tool-call-parser = "of_the_plugin"
        tool-parser-plugin = nan""",
    "env.NCCL_DEBUG": """[env]
        NCCL_DEBUG = true
        NCCL_DEBUG_SUBSYS = "INIT" """,
    "env.NCCL_DEBUG ": """[env]
        NCCL_DEBUG = "IFNO"
        NCCL_DEBUG_SUBSYS = "INIT" """,
    "env.NCCL_PROTO": """max_risk = "risky"
        [env]
        NCCL_PROTO = 1.5
        NCCL_LL128_BUFFSIZE = "8192" """,
    "env.NCCL_MIN_CTAS": """[env]
        NCCL_MIN_CTAS = 8.0
        NCCL_MAX_CTAS = "8" """,
    "env.NCCL_SHM_DISABLE": """[env]
        NCCL_SHM_DISABLE = true
        NCCL_P2P_DISABLE = "1"
        NCCL_IB_TIMEOUT = "22" """,
    "vllm.port": """[vllm]
        port = "80"
        [env]
        VLLM_PORT = "8000" """,
    "vllm.min_version": """[vllm]
        min_version = "new"
        [args]
        swap-space = 4""",
    "max_risk": """max_risk = "Risky"
        [env]
        LD_PRELOAD = "/x.so" """,
    "allow_risky": """allow_risky = "LD_PRELOAD"
        [env]
        LD_PRELOAD = "/x.so" """,
    "allow_risky ": """allow_risky = "NCCL_PORTO"
        [env]
        NCCL_PORTO = "1" """,
    "env.LD_PRELOAD": """allow_risky = ["LD_PRELOAD"]
        [env]
        LD_PRELOAD = 1.5""",
    "hardware.link": """[hardware]
        link = "nvlnk"
        [env]
        NCCL_P2P_LEVEL = "SYS" """,
}


@pytest.mark.parametrize(("wrong", "text"), WRONG.items())
def test_nothing_is_said_of_a_key_that_is_wrong_as_if_it_were_not_set(
    tmp_path: Path, wrong: str, text: str
) -> None:
    assert list(told(tmp_path, text)) == [wrong.strip()]


def test_blocks_are_not_counted_where_whole_experts_may_be_meant(tmp_path: Path) -> None:
    text = "[args]\nenable-expert-parallel = nan"
    assert list(told(tmp_path, text, FP8)) == ["args.enable-expert-parallel"]
    assert "args.tensor-parallel-size" in told(tmp_path, "", FP8)


def test_what_is_right_is_still_judged_beside_a_wrong_key(tmp_path: Path) -> None:
    text = '[args]\nmax-num-seqs = nan\n[env]\nNCCL_IB_TIMEOUT = "22"\nLD_PRELOAD = "/x.so"'
    said = told(tmp_path, text)
    assert list(said) == ["args.max-num-seqs", "env.NCCL_IB_TIMEOUT", "env.LD_PRELOAD"]


def test_a_refused_value_is_not_offered_leave_as_well(tmp_path: Path) -> None:
    text = '[args]\ngpu-memory-utilization = 92\nkv-cache-dtype = "fp9"\n'
    said = told(tmp_path, text)
    assert "a share of the memory" in said["args.gpu-memory-utilization"][0]
    assert len(said["args.gpu-memory-utilization"]) == 1
    asked = Sight(lambda _: shipped_knowledge(), lambda _: None)
    (tmp_path / "q.toml").write_text(HEAD + "[args]\ngpu-memory-utilization = 0.97\n")
    (over,) = check(
        tmp_path / "q.toml", shipped("profiles"), lambda draft: judged(draft, asked)
    ).problems
    assert 'allow_risky = ["gpu-memory-utilization"]' in over.message


def test_every_line_offers_the_one_list_that_lets_all_pass(tmp_path: Path) -> None:
    top = 'allow_risky = ["NO_SUCH", "LD_AUDIT"]\n'
    body = '[env]\nLD_PRELOAD = "/x.so"\nPYTHONPATH = "/x"\nLD_AUDIT = "/x.so"\n'
    said = told(tmp_path, top + body)
    offered = 'allow_risky = ["LD_AUDIT", "LD_PRELOAD", "PYTHONPATH"], or'
    assert offered in said["env.LD_PRELOAD"][0]
    assert offered in said["env.PYTHONPATH"][0]
    assert "Take it out" in said["allow_risky"][0]
    mended = top.replace('"NO_SUCH", "LD_AUDIT"', '"LD_AUDIT", "LD_PRELOAD", "PYTHONPATH"')
    assert told(tmp_path, mended + body) == {}


def test_one_idle_variable_is_spoken_of_as_one(tmp_path: Path) -> None:
    text = '[args]\ntensor-parallel-size = 1\n[hardware]\ngpus = 1\n[env]\nNCCL_BUFFSIZE = "8192"'
    (message,) = told(tmp_path, text)["env.NCCL_BUFFSIZE"]
    assert message.startswith("has no effect: on one GPU")
    assert "Leave it out" in message


def test_a_collective_that_nobody_names_keeps_its_algorithms(tmp_path: Path) -> None:
    assert told(tmp_path, '[env]\nNCCL_ALGO = "allreduce:tree"') == {}
    both = '[env]\nNCCL_ALGO = "allreduce:tree"\nNCCL_PROTO = "allreduce:LL"'
    assert told(tmp_path, both) == {}
    others = '[env]\nNCCL_ALGO = "allreduce:tree"\nNCCL_PROTO = "Simple"'
    assert "ncclInvalidUsage" in told(tmp_path, others)["env.NCCL_ALGO"][0]


def test_a_warning_leaves_the_risk_to_be_judged(tmp_path: Path) -> None:
    text = '[args]\nkv-cache-dtype = "fp9"\n'
    (tmp_path / "p.toml").write_text(HEAD + text)
    sight = Sight(lambda _: shipped_knowledge(), lambda _: None)
    found = check(tmp_path / "p.toml", shipped("profiles"), lambda draft: judged(draft, sight))
    assert [problem.severity for problem in found.problems] == [Severity.WARNING, Severity.ERROR]


def test_what_vllm_ignores_is_not_refused_for_its_risk(tmp_path: Path) -> None:
    keys = told(tmp_path, '[env]\nVLLM_USE_V1 = "1"\nVLLM_OF_TOMORROW = "1"\n')
    strict = told(tmp_path, 'max_risk = "safe"\n[env]\nVLLM_USE_V1 = "1"\nVLLM_OF_TOMORROW = "1"\n')
    assert strict["env.VLLM_USE_V1"] == keys["env.VLLM_USE_V1"]
    assert len(strict["env.VLLM_OF_TOMORROW"]) == len(keys["env.VLLM_OF_TOMORROW"]) + 1


def test_what_is_spoiled_refuses_no_long_context(tmp_path: Path) -> None:
    long = '[args]\nmax-model-len = 1000000\n{}[env]\nVLLM_ALLOW_LONG_MAX_MODEL_LEN = "1"\n'
    key = "env.VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    assert key in told(tmp_path, long.format(""))
    assert key not in told(tmp_path, long.format("hf-overrides = nan\n"))
