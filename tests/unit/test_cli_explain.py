"""explain: what will really run, and who said so."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kimisvc.cli.explain import WIDTH
from kimisvc.cli.main import main
from kimisvc.profile.explained import _does as does
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge

if TYPE_CHECKING:
    from pathlib import Path

MINE = """schema = 1
extends = "ll_ring.toml"
name = "mine"

[service]
starts = 1

[env]
NCCL_DEBUG = "WARN"
"""


@pytest.fixture
def settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    assert main(["explain", str(file), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    return {f"{row['table']}.{row['key']}".strip("."): row for row in rows}


def test_each_setting_has_its_origin(settings: dict[str, Any]) -> None:
    where = {
        key: (row["origin"], row["file"].rpartition("/")[2], row["line"])
        for key, row in settings.items()
    }
    assert where["service.starts"] == ("profile", "mine.toml", 6)
    assert where["env.NCCL_DEBUG"] == ("profile", "mine.toml", 9)
    assert where["env.NCCL_ALGO"][:2] == ("extends", "ll_ring.toml")
    assert where["args.tensor-parallel-size"][:2] == ("extends", "baseline.toml")
    assert where["golden[0].expect"][:2] == ("extends", "baseline.toml")
    assert where["golden[0].where"] == ("default of kimisvc", "", 0)
    assert where["service.restart_delay"] == ("default of kimisvc", "", 0)
    assert where["env.VLLM_NO_USAGE_STATS"] == ("default of kimisvc", "", 0)
    assert where["args.max-num-seqs"] == ("default of vLLM", "", 0)


def test_each_setting_says_what_it_becomes_and_risks(settings: dict[str, Any]) -> None:
    algo = settings["env.NCCL_ALGO"]
    assert algo["becomes"] == 'Environment="NCCL_ALGO=Ring"'
    assert algo["judgement"]["risk"] == "safe-ish"
    assert algo["judgement"]["source"]
    assert settings["args.tensor-parallel-size"]["becomes"] == "--tensor-parallel-size 8"
    assert settings["service.starts"]["becomes"] == "StartLimitBurst=, StartLimitIntervalSec="
    assert [key for key, row in settings.items() if not row["does"]] == []


def test_a_key_says_which_folder_the_unit_opens_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    dump = 'NCCL_DEBUG_FILE = "/data/hf/nccl/%p"\nNCCL_TOPO_DUMP_FILE = "/srv/t/topo.xml"\n'
    written = '[args]\ndownload-dir = "/data/hf"\ncompilation-config.cache_dir = "/data/torch"\n'
    file.write_text(MINE + dump + written)
    assert main(["explain", str(file), "--json"]) == 0
    rows = {row["key"]: row["becomes"] for row in json.loads(capsys.readouterr().out)["settings"]}
    assert rows["NCCL_DEBUG_FILE"].endswith('%%p", ReadWritePaths=-/data/hf')
    assert rows["NCCL_TOPO_DUMP_FILE"].endswith('.xml", ReadWritePaths=-/srv/t')
    assert rows["download-dir"] == "--download-dir /data/hf, ReadWritePaths=-/data/hf"
    assert rows["compilation-config"].endswith(", ReadWritePaths=/data/torch")
    assert rows["NCCL_DEBUG"] == 'Environment="NCCL_DEBUG=WARN"'


def test_a_variable_says_since_when_it_is_read(settings: dict[str, Any]) -> None:
    assert settings["env.NCCL_PROTO"]["does"].endswith(
        " Since NCCL 2.5; before 2.24 unknown names were ignored."
    )


@pytest.mark.parametrize(
    ("name", "ages"),
    [
        ("NCCL_MIN_CTAS", "Since NCCL 2.17; 64 at most, 32 before 2.25."),
        ("HF_HUB_ENABLE_HF_TRANSFER",
         "Without effect since huggingface_hub 1.0; use HF_XET_HIGH_PERFORMANCE."),
        ("NCCL_BLOCKING_WAIT", "Deprecated since PyTorch 2.2; use TORCH_NCCL_BLOCKING_WAIT."),
        ("CUDA_VISIBLE_DEVICES", ""),
    ],
)  # fmt: skip
def test_what_versions_make_of_a_variable(name: str, ages: str) -> None:
    assert VARIABLES[name].ages == ages


def test_a_question_names_the_line_of_each_of_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    one = '[[golden]]\nprompt = "a"\nexpect = "b"\n'
    two = '[[golden]]\nprompt = "c"\nwhere = "reasoning"\nexpect = "d"\n'
    file.write_text(MINE + one + two)
    assert main(["explain", str(file), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    where = {
        f"{row['table']}.{row['key']}": (row["origin"], row["line"])
        for row in rows
        if row["table"].startswith("golden")
    }
    first = MINE.count("\n")
    assert where == {
        "golden[0].prompt": ("profile", first + 2),
        "golden[0].expect": ("profile", first + 3),
        "golden[0].where": ("default of kimisvc", 0),
        "golden[0].max_tokens": ("default of kimisvc", 0),
        "golden[1].prompt": ("profile", first + 5),
        "golden[1].expect": ("profile", first + 7),
        "golden[1].where": ("profile", first + 6),
        "golden[1].max_tokens": ("default of kimisvc", 0),
    }


@pytest.mark.parametrize(
    ("name", "does", "risk"),
    [
        ("VLLM_LOG_STATS_INTERVAL", "Seconds between lines of statistics.", "safe"),
        ("VLLM_LORA_ENABLE_DUAL_STREAM", "A variable of vLLM, which reads ", "safe-ish"),
        (
            "VLLM_USE_V1",
            "Removed in vLLM 0.11, which ignores it. There is no other engine. Leave it out.",
            "safe",
        ),
        ("VLLM_RPC_TIMEOUT", "Removed in vLLM 0.23, which ignores it. Leave it out.", "safe"),
        ("VLLM_PLUGINS", "The only plugins that are loaded; unset: all", "safe-ish"),
        ("MY_OWN", "Not described here; vLLM's processes get it as it is.", None),
    ],
)
def test_every_variable_says_what_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, does: str, risk: str | None
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'{MINE}{name} = "1"\n')
    assert main(["explain", str(file), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    (row,) = (row for row in rows if row["key"] == name)
    assert row["does"].startswith(does)
    assert (row["judgement"] or {}).get("risk") == risk


def test_what_the_installed_vllm_is_too_old_for_is_said_not_to_be_read() -> None:
    new = shipped_knowledge()
    old = replace(new, version="0.9.0", variables=new.variables - {"VLLM_PORT"})
    assert does("VLLM_PORT", new) == "First port of vLLM's own processes."
    assert does("VLLM_PORT", old).endswith(" vLLM 0.9.0 does not read it.")
    assert does("NCCL_PROTO", old) == does("NCCL_PROTO", new)
    assert does("VLLM_USE_V1", replace(old, variables=frozenset({"VLLM_USE_V1"}))).startswith(
        "A variable of vLLM"
    )


def test_every_option_of_vllm_is_told_once(settings: dict[str, Any]) -> None:
    told = {key.removeprefix("args.") for key in settings if key.startswith("args.")}
    owned = {"host", "port", "served-model-name", "model"}
    assert told == set(shipped_knowledge().options) - owned


def test_defaults_are_named_and_explained_where_that_is_asked_for(
    tmp_path: Path, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    assert main(["explain", str(file)]) == 0
    short = capsys.readouterr().out
    assert "mine: judged by vLLM" in short
    (own,) = [line for line in short.splitlines() if "restart_delay" in line]
    assert own.endswith("(default of kimisvc; becomes: RestartSec=, StartLimitIntervalSec=)")
    left = short[short.index("left to vLLM (default of vLLM") :]
    assert max(map(len, left.splitlines())) <= WIDTH
    valued, unset = left.split("left to vLLM, and not set")
    untouched = [row for row in settings.values() if row["origin"] == "default of vLLM"]
    assert len(untouched) > 200
    for row in untouched:
        name, value = row["key"], row["value"]
        where, words = (valued, f" {name} = {value}") if value else (unset, f" {name}")
        assert re.search(rf"{re.escape(words)}(,|\n|$)", where)
    assert main(["explain", str(file), "--all"]) == 0
    whole = capsys.readouterr().out
    assert "restart_delay" in whole
    assert "left to vLLM" not in whole
    assert len(whole.splitlines()) > 2 * len(short.splitlines())


def test_what_is_refused_is_not_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every judge is asked: NCCL, vLLM's options and variables, the model's shape, the risk."""
    file = tmp_path / "mine.toml"
    file.write_text(
        MINE
        + 'NCCL_BUFFSIZE = "16M"\nNCCL_PORTO = "LL"\nVLLM_USE_V1_TYPO = "1"\n'
        + 'NCCL_P2P_LEVEL = "SYS"\n[args]\nmax-model-lenght = 4096\nswap-space = 12\n'
        + "tensor-parallel-size = 7\n"
    )
    assert main(["explain", str(file)]) == 3
    said = capsys.readouterr().err
    for words in (
        "env.NCCL_BUFFSIZE", "Did you mean NCCL_PROTO", "max-model-len", "swap-space",
        "env.NCCL_P2P_LEVEL", "hardware.gpus" if "hardware.gpus" in said else "tensor-parallel-size",
    ):  # fmt: skip
        assert words in said


def test_an_option_that_nobody_judged_is_said_to_be_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE + "\n[args]\nsleep-of-tomorrow = 1\n")
    assert main(["explain", str(file)]) == 0
    said = capsys.readouterr().out
    told = said[said.index("sleep-of-tomorrow") :].splitlines()[:4]
    assert "safe-ish)" in told[0]
    assert [line for line in told if line.startswith("      risk: not judged: ")]
    before = said[: said.index("[args]")]
    assert "not judged" not in before


def test_why_the_vllm_of_the_profile_was_not_asked_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, program = tmp_path / "mine.toml", tmp_path / "vlm"
    file.write_text(f'{MINE}[vllm]\nexecutable = "{program}"\n')
    assert main(["explain", str(file)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1] == f"{program} could not be asked: No such file or directory"
    assert main(["explain", str(file), "--json"]) == 0
    vllm = json.loads(capsys.readouterr().out)["vllm"]
    assert (vllm["known_from"], vllm["why_not_asked"]) == ("shipped", "No such file or directory")
