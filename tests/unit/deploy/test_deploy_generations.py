"""Generations on disk: what lies there is checked, for it is acted on as root."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.deploy.generations import Draft, Generation, Generations
from kimisvc.deploy.layout import Layout
from kimisvc.deploy.numbering import folder_name, number_in
from kimisvc.errors import KimisvcError
from kimisvc.records.names import LAST_GENERATION
from kimisvc.records.units import Installation, UnitFile

if TYPE_CHECKING:
    from pathlib import Path

TARGET = UnitFile("kimisvc.target", "[Unit]\n")
UNIT = UnitFile("kimisvc-kimi.service", "[Service]\n")
HUGE = "9" * 20
"""More than SQLite's integers hold."""
STRANGE = [
    HUGE,
    "1" * 200,
    "1000001",
    "7",
    "00007",
    "0000",
    "\u0660\u0660\u0660\u0667",
    "0007.bak",
    "-007",
    "0_07",
]


def generations(root: Path, instance: str = "kimi") -> Generations:
    place = Installation(root / "k", root / "units", root / "state", root / "run")
    return Generations(Layout(place, instance))


def added(root: Path, *units: UnitFile, instance: str = "kimi") -> Generation:
    return generations(root, instance).add(Draft("mine", "w", "r", units, {}), 1.0)


def edited(generation: Generation, **values: Any) -> None:
    """Change what a generation says of itself, as an editor does."""
    manifest = generation.path / "manifest.json"
    text = json.dumps({**json.loads(manifest.read_text()), **values})
    manifest.unlink()
    manifest.write_text(text)


@given(st.integers(1, LAST_GENERATION))
def test_a_number_is_read_as_it_is_written(number: int) -> None:
    assert number_in(folder_name(number)) == number


@given(st.text() | st.from_regex(r"[0-9]{1,30}", fullmatch=True))
def test_a_name_has_a_number_only_where_it_is_that_of_its_folder(name: str) -> None:
    number = number_in(name)
    assert number is None or (folder_name(number) == name and 1 <= number <= LAST_GENERATION)


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("link", ["current", "accepted"])
def test_a_link_at_what_is_no_generation_is_damaged_and_the_next_one_counts_on(
    tmp_path: Path, link: str, name: str
) -> None:
    one = added(tmp_path)
    (tmp_path / "state" / "kimi" / link).symlink_to(f"generations/{name}")
    there = generations(tmp_path)
    with pytest.raises(KimisvcError, match="no generation"):
        there.current() if link == "current" else there.accepted()
    assert (there.sound_current(), there.current_number(), there.sound_accepted()) == (None,) * 3
    assert added(tmp_path).number == one.number + 1


@pytest.mark.parametrize("name", STRANGE)
def test_a_folder_that_is_named_otherwise_is_none_of_ours(tmp_path: Path, name: str) -> None:
    one = added(tmp_path)
    shutil.copytree(one.path, one.path.with_name(name))
    assert generations(tmp_path).numbers() == (one.number,)
    assert added(tmp_path).number == one.number + 1


def test_behind_the_last_number_nothing_is_written(tmp_path: Path) -> None:
    one = added(tmp_path)
    one.path.rename(one.path.with_name(str(LAST_GENERATION)))
    with pytest.raises(KimisvcError, match=str(LAST_GENERATION)) as caught:
        added(tmp_path)
    assert "generations" in caught.value.hint
    assert generations(tmp_path).numbers() == (LAST_GENERATION,)


def test_a_copy_of_a_generation_is_not_the_one_it_is_called(tmp_path: Path) -> None:
    one = added(tmp_path, UNIT)
    shutil.copytree(one.path, one.path.with_name("0002"))
    assert generations(tmp_path).is_whole(1)
    assert not generations(tmp_path).is_whole(2)
    with pytest.raises(KimisvcError, match=r"0002/manifest\.json"):
        generations(tmp_path).get(2)


@pytest.mark.parametrize(
    "values",
    [
        {"created_at": 10**400},
        {"number": float("inf")},
        {"number": 2},
        {"facts": 5},
        {"facts": "x"},
    ],
)
def test_a_manifest_of_nonsense_is_damage(tmp_path: Path, values: dict[str, Any]) -> None:
    edited(added(tmp_path), **values)
    with pytest.raises(KimisvcError) as caught:
        generations(tmp_path).get(1)
    assert caught.value.code == "generation-damaged"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", ".."])
def test_a_unit_that_lies_elsewhere_is_none(tmp_path: Path, name: str) -> None:
    one = added(tmp_path, UNIT)
    (one.path / "secret").write_text("x")
    edited(one, units={name: "d"})
    with pytest.raises(KimisvcError) as caught:
        generations(tmp_path).get(1).units()
    assert caught.value.code == "generation-damaged"


def test_what_was_left_staged_goes_and_what_somebody_else_hid_stays(tmp_path: Path) -> None:
    one = added(tmp_path)
    for name in (".0002.4711", ".hidden", ".0001.bak"):
        one.path.with_name(name).mkdir()
    added(tmp_path)
    names = sorted(path.name for path in one.path.parent.iterdir())
    assert names == [".0001.bak", ".hidden", "0001", "0002"]


def test_one_of_another_instance_is_none_of_ours(tmp_path: Path) -> None:
    """As `cp -a kimi kimi-old` leaves it: brought back, it would write the units of kimi."""
    added(tmp_path, UNIT, TARGET)
    (tmp_path / "state" / "kimi").rename(tmp_path / "state" / "old")
    copied = generations(tmp_path, "old")
    with pytest.raises(KimisvcError, match=r"is of another instance: its units are kimisvc-kimi\."):
        copied.get(1)
    assert not copied.is_whole(1)


@pytest.mark.parametrize(("other", "ours"), [("glm", True), ("glm.bak", False), ("GLM", False)])
def test_the_target_may_be_of_any_instance_and_of_nothing_else(
    tmp_path: Path,
    other: str,
    ours: bool,  # noqa: FBT001 - what the case expects
) -> None:
    added(tmp_path, UNIT)
    theirs = UnitFile(f"kimisvc-{other}.service", "[Service]\n")
    added(tmp_path, TARGET, theirs, instance=other)
    assert generations(tmp_path).wrote(TARGET) is ours
    assert generations(tmp_path).wrote(UNIT)


def test_an_instance_that_cannot_be_listed_is_no_witness_and_no_hindrance(tmp_path: Path) -> None:
    added(tmp_path, UNIT, TARGET)
    (tmp_path / "state" / "aaa").mkdir()
    (tmp_path / "state" / "aaa" / "generations").write_text("no folder")
    assert generations(tmp_path).wrote(TARGET)
