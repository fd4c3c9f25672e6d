"""profiles: what there is, what fits, and what became of it here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.deploy.catalogue import catalogue
from kimisvc.deploy.generations import Draft, Generations
from kimisvc.deploy.layout import Layout
from kimisvc.errors import KimisvcError
from kimisvc.profile.resolved import to_toml
from kimisvc.records.problems import Problem, Severity
from kimisvc.records.units import Installation
from kimisvc.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from kimisvc.profile.loader import Checked
    from kimisvc.records.profile import Profile

TEXT = """schema = 1
name = "mine"
[vllm]
executable = "/opt/vllm/bin/vllm"
model = "/srv/model"
"""


def fits(profile: Profile) -> tuple[Problem, ...]:
    del profile
    return (Problem("no fan in sight", severity=Severity.WARNING),)


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    return Installation(
        tmp_path / "kimisvc", tmp_path / "units", tmp_path / "state", tmp_path / "run"
    )


def test_a_profile_that_was_applied_is_known_by_its_name(
    tmp_path: Path, place: Installation
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TEXT)
    profile = doors.checked(str(file)).profile
    assert profile is not None
    generations = Generations(Layout(place, "kimi"))
    made = generations.add(Draft("mine", TEXT, to_toml(profile), (), {}), 1.0)
    generations.make_current(made)

    (listed,) = catalogue([file], lambda path: doors.checked(str(path)), fits, place)
    assert (listed.current, listed.accepted, listed.changed) == (1, None, False)
    assert listed.in_the_way == ()  # a warning keeps nobody away

    generations.accept(made)
    file.write_text(TEXT + "port = 8001\n")
    (listed,) = catalogue([file], lambda path: doors.checked(str(path)), fits, place)
    assert (listed.current, listed.accepted, listed.changed) == (1, 1, True)


def test_every_shipped_profile_is_listed_and_why_it_does_not_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profiles", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert {one["name"] for one in listed if one["shipped"]} == {
        file.stem for file in shipped("profiles").glob("*.toml")
    }
    assert all(one["fits"] or one["problems"] for one in listed)


def test_a_reason_that_many_profiles_share_is_told_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(
            TEXT.replace("mine", name).replace("/opt/vllm/", "/no/such/place/")
        )
    assert main(["profiles", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "/no: " in line]
    assert [line.split(": ")[0] for line in lines] == ["one, two"]


def test_a_profile_with_a_fault_is_listed_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text(TEXT + "prot = 1\n")
    assert main(["profiles", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    where = f"{tmp_path / 'broken.toml'}:6"
    assert f"broken: {where}: vllm.prot: unknown key. Did you mean port?" in said
    assert main(["profiles", str(tmp_path / "nowhere")]) == 1
    assert "no such file or folder" in capsys.readouterr().err


def test_no_name_of_a_file_steers_the_terminal_or_makes_up_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    odd = tmp_path / "odd\nbaseline: sound\x1b[2J.toml"
    odd.write_text(TEXT)
    for command in ("check", "explain", "render", "profiles"):
        status = main([command, str(odd)])
        said = "".join(capsys.readouterr())
        assert status == (0 if command == "profiles" else 3)
        assert "odd baseline: sound [2J" in said
        assert "has a control character in its path" in said
        assert "\x1b" not in said
        assert not [line for line in said.splitlines() if line.startswith("baseline: sound")]
    main(["check", str(tmp_path / "od.toml")])
    main(["profiles", f"{odd}.gone"])
    said = "".join(capsys.readouterr())
    assert "Did you mean" not in said
    assert "\x1b" not in said


@pytest.mark.parametrize("number", ["0x" + "f" * 9000, "9" * 9000])
def test_a_number_without_end_hides_neither_the_other_problems_nor_the_other_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, number: str
) -> None:
    (tmp_path / "endless.toml").write_text(f"{TEXT}port = {number}\n[args]\nx = {number}\n")
    (tmp_path / "mine.toml").write_text(TEXT)
    assert main(["profiles", str(tmp_path), "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)["profiles"]}
    assert {"mine", "baseline", "endless"} <= set(listed)
    keys = [problem["key"] for problem in listed["endless"]["problems"]]
    assert keys == (["vllm.port", "args.x"] if number[:2] == "0x" else [""])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KimisvcError("odd", "the disk is on fire"), "the disk is on fire"),
        (ValueError("planted"), "kimisvc cannot judge it (ValueError)"),
    ],
)
def test_a_file_that_kimisvc_trips_over_hides_no_other(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    says: str,
) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    real = doors.checked

    def checked(path: str) -> Checked:
        if path.endswith("mine.toml"):
            raise error
        return real(path)

    monkeypatch.setattr(doors, "checked", checked)
    assert main(["profiles", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"mine: {tmp_path}/mine.toml: {says}" in said
    assert "planted" not in said
    assert "baseline" in said


def test_a_bare_name_is_looked_for_on_the_box_before_among_the_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doors, "LOCAL_PROFILES", tmp_path)
    assert doors.find_profile("baseline") == shipped("profiles") / "baseline.toml"
    (tmp_path / "baseline.toml").write_text(TEXT)
    assert doors.find_profile("baseline") == tmp_path / "baseline.toml"


def test_a_bare_name_that_names_nothing_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "nosuch"]) == 3
    said = capsys.readouterr().err
    assert "nosuch: error: no such file." in said or "nosuch: no such file." in said
    assert str(doors.LOCAL_PROFILES) in said
    assert str(shipped("profiles")) in said
    assert main(["check", str(tmp_path / "nosuch.toml")]) == 3
    assert str(doors.LOCAL_PROFILES) not in capsys.readouterr().err


def test_a_path_that_is_not_there_is_led_to_the_profile_of_that_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "profiles/ll_ring.toml"]) == 3
    meant = shipped("profiles") / "ll_ring.toml"
    said = capsys.readouterr().err
    assert f"no such file. Did you mean ll_ring, the profile {meant}?" in said
