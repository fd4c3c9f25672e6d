"""doctor: rows and JSON, with and without a profile, GPUs, or a systemd."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from staged_host import Card, Nvml

from kimisvc.cli import doctor as command
from kimisvc.cli import doors
from kimisvc.cli.main import main
from kimisvc.deploy import verify
from kimisvc.deploy.checks.inspection import Finding, Looked, warning
from kimisvc.deploy.preflight import CHECKS
from kimisvc.errors import HostError
from kimisvc.host import gpu, pci
from kimisvc.records.problems import Problem
from kimisvc.records.units import Installation, UnitFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    path.write_text('schema = 1\n[vllm]\nexecutable = "/nowhere/vllm"\nmodel = "/nowhere/model"\n')
    return str(path)


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A box with systemd, two GPUs, and nothing applied."""
    found = gpu.survey(Nvml(Card(), Card(says={"nvmlDeviceGetCurrPcieLinkWidth": 8})))
    monkeypatch.setattr(gpu, "survey", lambda _=None: found)
    monkeypatch.setattr(pci, "bridges", lambda _: pci.Bridges(seen=("0000:00:01.0",)))
    monkeypatch.setattr(pci, "iommu", lambda *_: pci.Iommu((), 0, 0))
    monkeypatch.setattr(command, "_systemd", lambda: Finding("systemd", (), "257.1"))
    place = Installation(tmp_path / "kimisvc", tmp_path / "units", tmp_path / "state")
    monkeypatch.setattr(doors, "installation", lambda: place)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["doctor", *arguments])
    return status, capsys.readouterr().out


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status, out = call(capsys, "--json", *arguments)
    answer: dict[str, Any] = json.loads(out)
    return status, answer


@pytest.mark.usefixtures("box")
def test_the_box_alone(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = call(capsys)
    assert status == 0
    rows = [line.split(maxsplit=2) for line in out.splitlines()]
    assert rows[0] == ["box", "GPUs", "2, driver 580.159.04"]
    assert any(
        line.startswith("box      GPU 0    NVIDIA H200, 140.0 GiB") for line in out.splitlines()
    )
    assert "warning  GPU 1    GPU 1 runs over 8 PCIe lanes of 16" in out
    assert "ok       systemd  257.1" in out


@pytest.mark.usefixtures("box")
def test_a_profile_that_would_not_run(capsys: pytest.CaptureFixture[str], profile: str) -> None:
    status, out = call(capsys, profile)
    assert status == 7
    assert "in the way     model          /nowhere: No such file or directory" in out
    for name, _ in CHECKS:
        assert f"  {name}" in out
    # systemd says the same of the program once more, and only what is new is told.
    assert "install vLLM there" in out
    assert "is not executable" not in out


@pytest.mark.usefixtures("box")
def test_each_word_for_what_was_not_looked_at_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, told = call(capsys, "--help")
    told = " ".join(told.split())  # as wide as the terminal that reads it
    assert all(f'"{word.value}"' in told for word in Looked if word is not Looked.YES)


@pytest.mark.usefixtures("box")
def test_what_systemd_says_of_the_units_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    bad = (UnitFile("kimisvc-x.service", "[Service]\nExecStart=/bin/true\nNoSuchKey=1\n"),)
    monkeypatch.setattr(doors, "units_of", lambda _: bad)
    status, out = call(capsys, profile)
    assert status == 7
    assert "in the way     unit files     systemd-analyze: kimisvc-x.service:3: Unknown key" in out

    def broken(_: object) -> None:
        raise HostError("not-found", "systemd-analyze: not found")

    monkeypatch.setattr(verify, "verify", broken)
    assert "in the way     unit files     systemd-analyze: not found" in call(capsys, profile)[1]


@pytest.mark.usefixtures("box")
def test_json_has_everything(capsys: pytest.CaptureFixture[str], profile: str) -> None:
    status, answer = asked(capsys, profile)
    assert (status, answer["profile"]) == (7, "mine")
    assert answer["box"] == {"systemd": "257.1", "GPUs": "2, driver 580.159.04"}
    assert [one["check"] for one in answer["checks"]] == [
        "systemd", *(name for name, _ in CHECKS), "unit files",
    ]  # fmt: skip
    assert answer["nvml"]["gpus"][1]["bus"] == "0000:0b:00.0"
    assert answer["nvml"]["conditions"][1]["pcie_width"] == 8
    assert answer["nvml"]["pairs"][0]["nvlink"] is True
    (narrow,) = next(c for c in answer["conditions"] if c["check"] == "GPU 1")["problems"]
    assert narrow["severity"] == "warning"


@pytest.mark.usefixtures("box")
def test_without_nvml_it_says_so_and_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    none = gpu.NoGpus(gpu.reason("Driver Not Loaded"))
    monkeypatch.setattr(gpu, "survey", lambda _=None: none)
    status, answer = asked(capsys, profile)
    assert (status, answer["nvml"]) == (7, None)
    assert answer["box"]["GPUs"].startswith("none: Driver Not Loaded: load it with modprobe nvidia")
    assert len(answer["checks"]) == len(CHECKS) + 2
    looked = {one["check"]: one["looked"] for one in answer["checks"]}
    unasked = ("vLLM version", "driver", "GPU nodes", "GPU link")
    assert {looked[name] for name in unasked} == {"not asked for"}
    assert (looked["model files"], looked["port"]) == ("not looked at", "looked at")
    _, out = call(capsys, profile)
    assert "not asked for  driver         the profile asks for no GPUs" in out
    assert "not looked at  model files    there is no /nowhere/model" in out
    assert not any(line.startswith("ok") and "GPU" in line for line in out.splitlines())


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    ("problem", "status", "row"),
    [
        (Problem("systemd does not run here"), 7, "in the way  systemd  systemd does not run here"),
        (warning("is odd"), 0, "warning  systemd  is odd"),
    ],
)
def test_what_stands_in_the_way_ends_it_and_a_warning_does_not(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    problem: Problem,
    status: int,
    row: str,
) -> None:
    monkeypatch.setattr(command, "_systemd", lambda: Finding("systemd", (problem,)))
    done, out = call(capsys)
    assert done == status
    assert row in out


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    ("instances", "target", "words"),
    [
        (("one", "two"), "generations/0001", "this box has the instances one, two"),
        (("kimi",), "elsewhere", "kimi/current"),
    ],
)
def test_what_is_applied_may_be_unclear_and_the_box_is_shown_all_the_same(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    instances: tuple[str, ...],
    target: str,
    words: str,
) -> None:
    for name in instances:
        folder = tmp_path / "state" / name
        folder.mkdir(parents=True)
        (folder / "current").symlink_to(target)
    status = main(["doctor"])
    out, err = capsys.readouterr()
    assert status == 0
    assert "box      GPUs     2, driver" in out
    assert words in err
    assert err.rstrip().endswith("looking at the box alone")
