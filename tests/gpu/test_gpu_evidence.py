"""The evidence itself, where there are GPUs; and everywhere that what takes and shows it is right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gpu_driver import STEPS
from gpu_hardening import directives
from gpu_place import BASE, FLOOR, POISONED, REFUSED, SECOND, Place, place, write_profiles
from gpu_report import TABLES, filled
from gpu_steps import WINDOW_S, compared

from kimisvc.cli import doors
from kimisvc.profile.loader import Checked, check

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHIPPED = ROOT / "profiles"
PAGE = ROOT / "docs" / "evidence-2xh200.md"
RESULTS = HERE / "results"

Found = dict[str, Any]


def why_not() -> str:
    """Say why the evidence cannot be taken here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("nvidia-smi") is None:
        return "needs GPUs: there is no nvidia-smi"
    if not Path("/run/systemd/system").is_dir():
        return "needs a systemd as PID 1: tests/gpu/README.md"
    executable = place(HERE / "places" / "h200.toml", SHIPPED).executable
    return "" if executable.exists() else f"needs vLLM as {executable}"


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_every_step_ends_and_holds_what_is_promised(tmp_path: Path) -> None:
    driver = [sys.executable, str(HERE / "gpu_driver.py"), "--results", str(tmp_path)]
    subprocess.run(driver, check=True, timeout=3600)
    steps = json.loads((tmp_path / "results.json").read_text())["steps"]
    one, two, live = (steps[name]["facts"] for name in ("1", "2", "5"))
    assert (one["apply"]["exit"], one["apply"]["verdict"]) == (0, "PASS")
    probe = one["probe"]
    assert probe["engine_decode_tok_s"] == pytest.approx(probe["decode_tok_s"], rel=0.002)
    assert one["counters"]["off_by"] <= 0.002
    assert one["bench"]["off_by"] <= 0.005
    assert two["second"]["exit"] == two["second_again"]["exit"] == two["base_again"]["exit"] == 0
    assert live["off_by"] <= 0.01
    assert steps["4a"]["facts"]["apply"]["exit"] == 4
    assert steps["4c"]["facts"]["apply"]["exit"] == 4
    assert steps["4c"]["facts"]["says_why"]
    assert steps["4b"]["facts"]["after"]["verdict"] == "PASS"
    assert steps["6"]["facts"]["stop"]["processes_left"] == []
    assert steps["6"]["facts"]["trials"]["as shipped"]["well"]


# ---------------------------------------------------------------- the profiles of a run


@pytest.fixture(params=["h200", "cpu"])
def where(request: pytest.FixtureRequest) -> Place:
    return place(HERE / "places" / f"{request.param}.toml", SHIPPED)


def judged(profile: Path) -> Checked:
    return check(profile, SHIPPED)


def test_what_is_to_be_applied_passes_check_and_what_is_to_be_refused_does_not(
    where: Place, tmp_path: Path
) -> None:
    profiles = write_profiles(where, tmp_path, 0, "")
    for name in (BASE, SECOND, FLOOR, POISONED):
        assert not [str(p) for p in judged(profiles[name]).problems if p.severity.value == "error"]
    refused = doors.checked(str(profiles[REFUSED]))
    assert any("NCCL_PROTO" in problem.key for problem in refused.problems)


def test_the_number_of_gpus_and_the_target_reach_every_profile(tmp_path: Path) -> None:
    where = place(HERE / "places" / "h200.toml", SHIPPED)
    profiles = write_profiles(where, tmp_path, 8, ">20~30")
    for name in (BASE, SECOND, POISONED):
        profile = judged(profiles[name]).profile
        assert profile is not None
        assert (profile.args["tensor-parallel-size"], profile.hardware.gpus) == (8, 8)
        assert profile.gate.decode_tok_s is not None
        assert profile.gate.decode_tok_s.goal == 30


def test_the_second_profile_has_the_nccl_values_that_ship(tmp_path: Path) -> None:
    where = place(HERE / "places" / "h200.toml", SHIPPED)
    profile = judged(write_profiles(where, tmp_path, 2, "")[SECOND]).profile
    assert profile is not None
    assert (profile.env["NCCL_ALGO"], profile.env["NCCL_PROTO"]) == ("Ring", "LL")


def test_the_poison_is_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    where = place(HERE / "places" / "h200.toml", SHIPPED)
    write_profiles(where, tmp_path, 2, "")
    poison = tmp_path / "poison.env"
    assert poison.stat().st_mode & 0o777 == 0o600
    assert poison.read_text() == "NCCL_PROTO=XYZ\n"


# ---------------------------------------------------------------- figures


def samples(shown: Callable[[int], float | None], rate: float = 50.0) -> list[list[float | None]]:
    return [[float(at), rate * at, shown(at)] for at in range(60)]


def test_the_live_speed_is_compared_where_its_window_is_within_the_stream() -> None:
    told = compared(samples(lambda at: 50.5 if at > WINDOW_S else 20.0))
    assert told["counted_tok_s"] == pytest.approx(50.0)
    assert told["off_by"] == pytest.approx(0.01)
    assert told["moments"] > 10


def test_a_stream_too_short_for_the_window_compares_nothing() -> None:
    assert compared(samples(lambda _: 50.0)[:30])["off_by"] is None
    assert compared(samples(lambda _: None))["off_by"] is None


# ---------------------------------------------------------------- the page


def test_a_table_of_the_results_stands_in_the_page_and_the_text_around_it_stays() -> None:
    bench = {"exit": 0, "decode_tok_s": 55.5, "off_by": 0.006}
    found = {"gpus": 2, "steps": {"1": {"facts": {"bench": bench}}}}
    text = "before\n<!-- base -->\nold\n<!-- /base -->\nafter\n<!-- nothing -->\n"
    page = filled(text, found)
    assert "| vllm bench serve, 1000 / mean TPOT (tok/s) | 55.5 | 0.600 % | **no**" in page
    assert "old" not in page
    assert page.startswith("before\n")
    assert page.endswith("after\n<!-- nothing -->\n")
    assert filled(page, found) == page


@pytest.mark.parametrize("found", [{}, {"steps": {s.name: {"shows": "", "seconds": 0.0,
                                   "ended": False, "facts": {}} for s in STEPS}}])  # fmt: skip
def test_every_table_can_be_made_of_a_run_that_was_cut_off(found: Found) -> None:
    for table in TABLES.values():
        assert table(found).startswith("| ")


def test_the_page_has_a_place_for_every_table() -> None:
    text = PAGE.read_text()
    assert [name for name in TABLES if f"<!-- {name} -->" not in text] == []


@pytest.mark.parametrize("kept", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_page_shows_the_results_that_are_kept(kept: Path) -> None:
    text = (ROOT / "docs" / f"evidence-{kept.stem}.md").read_text()
    assert filled(text, json.loads(kept.read_text())) == text


def test_the_trials_run_under_the_hardening_of_the_unit() -> None:
    unit = next(
        text for name, text in doors.templates().items() if name == "kimisvc-NAME.service.j2"
    )
    found = directives(unit)
    assert "ProtectSystem=strict" in found
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK" in found
    assert not [line for line in found if line.startswith(("WantedBy", "UMask", "MemoryMax"))]
