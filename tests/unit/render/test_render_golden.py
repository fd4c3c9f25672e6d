"""The units of every shipped profile, word for word, as files to read and to review.

After a change that is meant: KIMISVC_REGENERATE_GOLDEN=yes pytest tests/unit/render
rewrites tests/golden and fails, so that a run that rewrites never passes; then
read the difference with git, and run again without it. It is refused where CI is set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import load

from kimisvc.render.units import render

if TYPE_CHECKING:
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import Installation, UnitFile

TOP = Path(__file__).parents[3]
GOLDEN = TOP / "tests" / "golden"
SHIPPED = sorted(path.stem for path in (TOP / "profiles").glob("*.toml"))
NAMES = [*SHIPPED, "everything"]
REGENERATE = "KIMISVC_REGENERATE_GOLDEN"


@pytest.fixture
def wanted(
    request: pytest.FixtureRequest,
    templates: dict[str, str],
    place: Installation,
    everything: Profile,
) -> tuple[UnitFile, ...]:
    """The units of the profile that the test is asked for."""
    folder = TOP / "profiles"
    profile = everything
    if request.param != "everything":
        profile = load(folder / f"{request.param}.toml", folder)
    return render(profile, templates, place)


@pytest.mark.parametrize(("name", "wanted"), [(name, name) for name in NAMES], indirect=["wanted"])
def test_units_are_those_that_were_reviewed(name: str, wanted: tuple[UnitFile, ...]) -> None:
    folder = GOLDEN / name
    if os.environ.get(REGENERATE) == "yes" and "CI" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for unit in wanted:
            (folder / unit.name).write_text(unit.text)
        pytest.fail(f"rewrote {folder.relative_to(TOP)}: read the difference, then run again")
    there = {path.name: path.read_text() for path in folder.iterdir()} if folder.is_dir() else {}
    assert there == {unit.name: unit.text for unit in wanted}, f"see {__name__} on how to renew"


def test_no_golden_folder_is_left_over() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(NAMES)


# ------------------------------------------------------------ what systemd says of it

PROGRAM = re.compile(r'^(Exec\w+=[-+]*)("[^"]*"|\S+)', re.MULTILINE)


def verify(units: list[tuple[str, str]], folder: Path) -> str:
    """Given units by name, return what systemd-analyze says of them; its exit status says nothing.

    Programs are replaced by one that is there, for none of them is on a test machine.
    """
    for name, text in units:
        (folder / name).write_text(PROGRAM.sub(r"\1/bin/true", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no",
         *(str(folder / name) for name, _ in units)],
        capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return "\n".join(line for line in done.stderr.splitlines() if "kimisvc" in line)


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_has_nothing_to_say_about_the_golden_units(name: str, tmp_path: Path) -> None:
    units = [(path.name, path.read_text()) for path in sorted((GOLDEN / name).iterdir())]
    assert len(units) in (4, 6)  # with a canary
    assert verify(units, tmp_path) == ""


@needs_systemd
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Restart=sometimes", "Failed to parse service restart specifier"),
        ("StartLimitIntervalSec=3h", "Unknown key"),
        ('Environment="B=C%D"', "Failed to resolve specifiers"),
        ("Environment=E=two words", "Invalid environment assignment"),
    ],
)
def test_systemd_would_say_so_if_a_unit_were_wrong(line: str, said: str, tmp_path: Path) -> None:
    name = "kimisvc-kimi.service"
    text = (GOLDEN / "baseline" / name).read_text()
    units = [(p.name, p.read_text()) for p in (GOLDEN / "baseline").iterdir() if p.name != name]
    wrong = text.replace("[Service]\n", f"[Service]\n{line}\n")
    assert said in verify([*units, (name, wrong)], tmp_path)
