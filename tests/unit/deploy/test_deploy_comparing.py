"""Which starts speak for a profile, and which may be held together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import add_generation, add_start, box_at, profile

from kimisvc.cli.compare import compared_json, compared_text
from kimisvc.deploy.comparing import (
    held_together,
    held_together_anyway,
    of_generation,
    of_name,
    of_profile,
    speed_settings,
)
from kimisvc.deploy.contests import contests
from kimisvc.errors import KimisvcError
from kimisvc.measure.comparison import Difference
from kimisvc.records.profile import GateSettings, ProbeSettings, SpeedTarget
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from pathlib import Path

BASE = profile("base")
LL = profile("ll", env={"NCCL_PROTO": "LL"})
NB, LL_RUNS = ((55.33, 55.33), (55.44, 55.44)), ((56.43, 56.43), (56.32, 56.32))


def test_starts_count_by_what_the_profile_says(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    first, other, again = (add_generation(box, one) for one in (BASE, LL, BASE))
    for generation, runs in ((first, NB[0]), (other, LL_RUNS[0]), (again, NB[1])):
        add_start(box, generation, runs)
    assert of_generation(box, first).generations == (first, again)
    assert [s.runs for s in of_generation(box, again).starts] == [NB[0], NB[1]]
    assert [s.runs for s in of_profile(box, LL, "ll.toml").starts] == [LL_RUNS[0]]


def test_what_changes_no_speed_makes_no_other_profile() -> None:
    gate = GateSettings(SpeedTarget(40, 50))
    same = replace(
        BASE, name="x", description="words", gate=gate, probe=ProbeSettings(min_runs=4),
        service=replace(BASE.service, load_timeout=60.0),
    )  # fmt: skip
    assert speed_settings(same) == speed_settings(BASE)
    for other in (
        LL, replace(BASE, args={"max-num-seqs": 4}), replace(BASE, probe=ProbeSettings(max_tokens=9)),
        replace(BASE, service=replace(BASE.service, cpu_quota_percent=100)),
        replace(BASE, vllm=replace(BASE.vllm, model="/srv/other")),
    ):  # fmt: skip
        assert speed_settings(other) != speed_settings(BASE)


def test_a_name_is_its_newest_meaning(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    old = add_generation(box, profile("base", args={"max-num-seqs": 1}))
    new = add_generation(box, BASE)
    add_start(box, old, (1.0, 1.0))
    add_start(box, new, (55.0, 55.1))
    side = of_name(box, "base")
    assert side is not None
    assert side.generations == (new,)
    assert f"earlier generations ({old})" in side.notes[-1]
    assert of_name(box, "nobody") is None


def test_the_story_and_two_starts_each(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    add_start(box, a, (81.4, 81.4))
    add_start(box, b, (81.9, 81.9))
    found = held_together(of_generation(box, a), of_generation(box, b), 0.02)
    assert found.comparison.verdict is Difference.INCONCLUSIVE
    assert found.comparison.further_starts == 3
    assert {key: (x, y) for key, x, y in found.differences} == {
        "name": ('"base"', '"ll"'), "env.NCCL_PROTO": ("", '"LL"'),
    }  # fmt: skip
    assert found.unlike == ()


def test_measured_on_two_h200(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    for generation, runs in ((a, NB[0]), (b, LL_RUNS[0]), (b, LL_RUNS[1]), (a, NB[1])):
        add_start(box, generation, runs)
    found = held_together(of_generation(box, a), of_generation(box, b), 0.02)
    assert found.comparison.ratio == pytest.approx(1.018, abs=0.001)
    assert found.comparison.verdict is Difference.BETTER


def test_what_differs_in_more_is_refused_unless_told(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    add_start(box, a, (55.0, 55.1))
    add_start(box, b, (56.0, 56.1), vllm="0.33.0", driver="590.2", gpus=["H200"] * 2)
    sides = of_generation(box, a), of_generation(box, b)
    with pytest.raises(KimisvcError) as caught:
        held_together(*sides, 0.02)
    assert caught.value.code == "not-comparable"
    for words in ("vllm: 0.32.0 and 0.33.0", "driver: 580.1 and 590.2", "1 x H200 and 2 x H200"):
        assert words in caught.value.message
    found = held_together_anyway(*sides, 0.02)
    assert [name for name, _, _ in found.unlike] == ["vllm", "gpus", "driver"]


def test_starts_of_several_environments_are_told_with_how_many_were_which(tmp_path: Path) -> None:
    """Whatever the newest of each side had in common: the others are in the figure as well."""
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    for vllm, gpu in (("0.24.0", "A100"), ("0.24.0", "A100"), ("0.32.0", "H200")):
        add_start(box, a, (55.0, 55.1), vllm=vllm, gpus=[gpu])
    add_start(box, b, (55.2, 55.1))
    found = held_together_anyway(of_generation(box, a), of_generation(box, b), 0.02)
    assert found.comparison.starts == (3, 1)
    assert found.unlike == (
        ("vllm", "0.24.0 (2 of 3 starts); 0.32.0 (1 of 3 starts)", "0.32.0"),
        ("gpus", "1 x A100 (2 of 3 starts); 1 x H200 (1 of 3 starts)", "1 x H200"),
    )
    assert compared_json(found)["unlike"][0]["base"] == found.unlike[0][1]
    assert "also differs" in compared_text(found)
    # Those that are left out of a fair comparison are in no figure.
    assert held_together(of_generation(box, a), of_generation(box, b), 0.02).unlike == ()


def test_the_same_two_environments_in_other_shares_are_told_too(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    for generation, drivers in ((a, ("580.1", "590.2")), (b, ("580.1", "580.1", "590.2"))):
        for driver in drivers:
            add_start(box, generation, (55.0, 55.1), driver=driver)
    found = held_together_anyway(of_generation(box, a), of_generation(box, b), 0.02)
    assert [row[0] for row in found.unlike] == ["driver"]
    assert found.unlike[0][2] == "580.1 (2 of 3 starts); 590.2 (1 of 3 starts)"


@pytest.mark.parametrize("fact", ["prompt_tokens", "max_tokens"])
def test_another_length_is_another_question(tmp_path: Path, fact: str) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    add_start(box, a, (55.0, 55.1))
    length: Any = {fact: 64}
    add_start(box, b, (56.0, 56.1), **length)
    with pytest.raises(KimisvcError, match=f"{fact}: .* and 64"):
        held_together(of_generation(box, a), of_generation(box, b), 0.02)


def test_clocks_are_of_a_moment_and_no_other_environment(tmp_path: Path) -> None:
    """Nor is a start of before, which has neither them nor a temperature."""
    box = box_at(tmp_path)
    base, other = add_generation(box, BASE), add_generation(box, LL)
    clocks = [["SM 1965 of 1980 MHz"], ["SM 1980 of 1980 MHz"], ["SM 345 of 1980 MHz"]]
    add_start(box, base, NB[0], clocks=clocks[0], temperature=0)
    add_start(box, base, NB[1], clocks=clocks[1], temperature=0)
    add_start(box, other, LL_RUNS[0], clocks=clocks[2], temperature=0)
    add_start(box, other, LL_RUNS[1])
    compared = held_together(of_profile(box, BASE, "b"), of_profile(box, LL, "l"), 1.02)
    assert compared.unlike == ()
    assert (len(compared.base.starts), len(compared.other.starts)) == (2, 2)


def test_only_the_newest_environment_that_both_have(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a, b = add_generation(box, BASE), add_generation(box, LL)
    add_start(box, a, (10.0, 10.0), vllm="0.31.0")
    add_start(box, b, (20.0, 20.0), vllm="0.31.0")
    add_start(box, a, (55.0, 55.1))
    add_start(box, b, (56.0, 56.1))
    add_start(box, b, (70.0, 70.1), vllm="0.33.0")
    found = held_together(of_generation(box, a), of_generation(box, b), 0.02)
    assert [s.runs for s in found.base.starts] == [(55.0, 55.1)]
    assert [s.runs for s in found.other.starts] == [(56.0, 56.1)]
    assert sum("another environment" in note for note in found.notes) == 2


def test_a_start_that_was_kept_speaks_for_all_it_was_asked_of(tmp_path: Path) -> None:
    """Only the gate changed, twice: another target, which bears on no speed, and other prompts."""
    box = box_at(tmp_path)
    strict = replace(BASE, name="strict", gate=GateSettings(SpeedTarget(40, 50)))
    longer = replace(BASE, name="longer", probe=ProbeSettings(prompt_tokens=1024))
    a, b, c, d = (add_generation(box, one) for one in (BASE, strict, longer, LL))
    start = add_start(box, a, (55.0, 55.2))
    add_start(box, b, (55.4, 55.6), name="strict", kept=start)
    add_start(box, c, (50.0, 50.2), name="longer", kept=start, prompt_tokens=1024)
    for number in (a, b):
        assert [s.runs for s in of_generation(box, number).starts] == [(55.4, 55.6)]
    assert [s.runs for s in of_generation(box, c).starts] == [(50.0, 50.2)]
    add_start(box, d, (56.0, 56.1))
    # What was asked with short prompts is held against what was.
    found = held_together(of_generation(box, a), of_generation(box, d), 0.02)
    assert (found.comparison.starts, found.unlike) == ((1, 1), ())
    with pytest.raises(KimisvcError, match="prompt_tokens: 1024 and 128"):
        held_together(of_generation(box, c), of_generation(box, d), 0.02)
    with pytest.raises(KimisvcError, match="the same starts speak for both") as caught:
        held_together_anyway(of_generation(box, a), of_generation(box, c), 0.02)
    assert "nothing that bears on speed" not in caught.value.message


def test_failed_starts_have_no_say(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    a = add_generation(box, BASE)
    add_start(box, a, (5.0, 5.0), VerdictKind.FAIL)
    with pytest.raises(KimisvcError) as caught:
        held_together(of_generation(box, a), of_generation(box, a), 0.02)
    assert caught.value.code == "no-starts"
    add_start(box, a, (55.0, 55.1), VerdictKind.DEGRADED)
    side = of_generation(box, a)
    assert [s.runs for s in side.starts] == [(55.0, 55.1)]
    assert "1 starts that were not accepted" in side.notes[0]


def test_a_generation_that_is_gone_still_has_its_starts(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    add_start(box, 7, (55.0, 55.1))
    side = of_generation(box, 7)
    assert (side.profile, len(side.starts)) == (None, 1)
    add_start(box, 9, (56.0, 56.1))
    assert held_together(side, of_generation(box, 9), 0.02).differences == ()
    with pytest.raises(KimisvcError, match="no generation 8"):
        of_generation(box, 8)


@pytest.mark.parametrize("hold", [held_together, held_together_anyway])
def test_the_same_starts_are_not_held_against_themselves(tmp_path: Path, hold: Any) -> None:
    """Profiles that differ in name, gate or port alone are one as to speed."""
    box = box_at(tmp_path)
    twin = replace(
        BASE, name="twin", gate=GateSettings(SpeedTarget(1, 2)), vllm=replace(BASE.vllm, port=8001)
    )
    a, b = add_generation(box, BASE), add_generation(box, twin)
    add_start(box, a, (55.0, 55.1))
    add_start(box, b, (55.2, 55.1), name="twin")
    add_start(box, 9, (55.3, 55.1))
    gone = of_generation(box, 9)
    named = of_name(box, "base"), of_name(box, "twin")
    assert named[0] is not None
    assert named[1] is not None
    for sides in (named, (of_generation(box, a), of_profile(box, twin, "t.toml")), (gone, gone)):
        with pytest.raises(KimisvcError, match="the same starts speak for both") as caught:
            hold(*sides, 0.02)
        assert caught.value.code == "same-speed-settings"
    listed = contests(box, ("base", "twin"))
    assert (listed.rows, len(listed.apart)) == ((), 1)
    assert listed.apart[0].startswith("base and twin differ in nothing that bears on speed")
