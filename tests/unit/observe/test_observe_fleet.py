"""An instance of which something cannot be told: the page of the others does not suffer."""

from __future__ import annotations

import http.client
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from observe_support import healthy
from prometheus_client import generate_latest

from kimisvc.errors import HostError
from kimisvc.observe import exporter, fleet
from kimisvc.observe.exporter import Address, registry, serve
from kimisvc.observe.families import FAMILIES, Family, Kind
from kimisvc.observe.fleet import Fleet
from kimisvc.observe.sources import units_view
from kimisvc.observe.troubles import Troubles
from kimisvc.records.units import Installation, UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kimisvc.deploy.layout import Layout
    from kimisvc.observe.snapshots import Scene, UnitsView

BAD = "two"


def page(*scenes: Scene) -> dict[str, dict[str, float]]:
    """The series of each instance by name, as Prometheus scrapes them."""
    made = registry(lambda: scenes, "1")
    found: dict[str, dict[str, float]] = {scene.instance: {} for scene in scenes}
    for metric in made.collect():
        for sample in metric.samples:
            if "instance" in sample.labels:
                found[sample.labels["instance"]][sample.name] = sample.value
    assert generate_latest(made)
    return found


def broken(_: Scene) -> Iterator[Any]:
    raise RuntimeError("of one alone")


def no_figure(_: Scene) -> Iterator[Any]:
    yield (), None


def too_many_labels(_: Scene) -> Iterator[Any]:
    yield 5, 1.0


@pytest.mark.parametrize("samples", [broken, no_figure, too_many_labels])
def test_a_metric_that_cannot_be_told_is_left_out_for_that_instance_which_is_not_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def told(scene: Scene) -> Any:
        return samples(scene) if scene.instance == BAD else [((), 1.0)]

    one = healthy(tmp_path)
    before = page(one)["kimi"]
    families = (*FAMILIES, Family("kimisvc_more", Kind.GAUGE, "One more.", told))
    monkeypatch.setattr(exporter, "FAMILIES", families)
    found = page(one, replace(one, instance=BAD))
    assert found["kimi"] == {**before, "kimisvc_more": 1.0}
    assert found[BAD] == {**before, "kimisvc_up": 0.0}
    told_once = [line for line in capsys.readouterr().err.splitlines() if "kimisvc_more" in line]
    assert len(told_once) == 1
    assert told_once[0].startswith(f"{BAD}: page: kimisvc_more: unexpected ")


def test_a_label_that_is_no_text_takes_nobodys_page(tmp_path: Path) -> None:
    one = healthy(tmp_path)
    assert one.files is not None
    assert one.files.current is not None
    odd = replace(one.files.current, profile=os.fsdecode(b"caf\xe9"))
    odder = replace(one, instance=BAD, files=replace(one.files, current=odd))
    server = serve(registry(lambda: (odder, one), "1"), Address("127.0.0.1", 0))
    try:
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        line.request("GET", "/metrics")
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
    finally:
        server.close()
    assert answer.status == 200
    assert 'kimisvc_up{instance="kimi"} 1.0' in text
    assert 'kimisvc_up{instance="two"} 1.0' in text
    assert "caf\\\\udce9" in text


# ------------------------------------------------------------------ the fleet


class Apart:
    """Plays the process that asks systemd, which fails where a unit of `bad` is asked about."""

    def __init__(self, bad: str = "", error: Exception | None = None) -> None:
        self.bad = bad
        self.error = error or HostError("systemd", "Invalid argument")

    def states(self, units: Sequence[str], timeout: float) -> Mapping[str, UnitState]:
        assert timeout > 0
        if self.bad and any(self.bad in unit for unit in units):
            raise self.error
        return {name: UnitState(name, "loaded", "active", "running") for name in units}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def place(tmp_path: Path) -> Installation:
    for name in ("one", BAD):
        (tmp_path / "state" / name / "generations").mkdir(parents=True)
    return Installation(tmp_path / "k", tmp_path / "units", tmp_path / "state", tmp_path / "run")


def watched(place: Installation, apart: Apart) -> Fleet:
    """A fleet that has looked once; systemd was asked once."""
    made = Fleet(place, 60.0, apart)  # type: ignore[arg-type]  # plays the door
    made.find()
    made._systemd.look()  # noqa: SLF001 - in this thread, once
    return made


def known(made: Fleet) -> dict[str, bool]:
    """Of which instances the units are known."""
    return {scene.instance: scene.units is not None for scene in made.scenes()}


@pytest.mark.parametrize("error", [None, ValueError("a fault of ours")])
def test_units_of_which_systemd_cannot_be_asked_hide_no_others(
    place: Installation, error: Exception | None, capsys: pytest.CaptureFixture[str]
) -> None:
    made = watched(place, Apart(BAD, error))
    try:
        assert known(made) == {"one": True, BAD: False}
        assert "systemd, of all instances at once: " in capsys.readouterr().err
    finally:
        made.stop()


def test_a_systemd_that_cannot_be_asked_at_all_is_an_error_of_that_source(
    place: Installation,
) -> None:
    made = watched(place, Apart("kimisvc"))
    try:
        assert known(made) == {"one": False, BAD: False}
        assert made._systemd.errors() == 1  # noqa: SLF001 - as a scene tells it
    finally:
        made.stop()


def test_units_that_cannot_be_made_sense_of_hide_no_others(
    place: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def view(layout: Layout, states: Mapping[str, UnitState]) -> UnitsView | None:
        if layout.instance == BAD:
            raise KeyError(layout.instance)
        return units_view(layout, states)

    monkeypatch.setattr(fleet, "units_view", view)
    made = watched(place, Apart())
    try:
        assert known(made) == {"one": True, BAD: False}
    finally:
        made.stop()


@pytest.mark.parametrize("name", [b"drp.bak", b"a b", b"\xff\xfe", b"UP"])
def test_a_folder_of_another_name_is_not_watched(place: Installation, name: bytes) -> None:
    (place.state / os.fsdecode(name) / "generations").mkdir(parents=True)
    made = watched(place, Apart())
    try:
        assert known(made) == {"one": True, BAD: True}
    finally:
        made.stop()


def test_a_fault_of_ours_in_the_search_leaves_the_instances_that_are_known(
    place: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = watched(place, Apart())
    try:
        with monkeypatch.context() as ill:
            ill.setattr(fleet, "begun", broken)
            made.find()
        assert known(made) == {"one": True, BAD: True}
        made.find()
        told = [line for line in capsys.readouterr().err.splitlines() if "instances:" in line]
        assert told == [
            "instances: unexpected RuntimeError: of one alone", "instances: can be read again",
        ]  # fmt: skip
    finally:
        made.stop()


def test_a_journal_that_is_gone_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    monkeypatch.setattr("sys.stderr", Gone())
    Troubles().say("kimi: files", "gone")
