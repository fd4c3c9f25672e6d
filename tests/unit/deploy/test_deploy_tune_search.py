"""The order of things of a search, with made-up starts: what is kept, when it waits, how it ends."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import box_at, profile

from kimisvc.deploy.apply import Wish
from kimisvc.deploy.tune import leave as tune_leave
from kimisvc.deploy.tune import search as tune
from kimisvc.deploy.tune.state import (
    Asked,
    Contender,
    TrialRow,
    TuneState,
    keep_profile,
    read_state,
    write_state,
)
from kimisvc.deploy.tune.trial import Means
from kimisvc.errors import HostError
from kimisvc.measure.tuning import Search
from kimisvc.profile.resolved import to_toml
from kimisvc.records import Interval, Risk, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.tune.state import Pending
    from kimisvc.records import Profile, SpeedTarget

PASS, FAIL, UNKNOWN = VerdictKind.PASS, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE
NAMES = ("base", "ll", "wild")
SECONDS = 100.0


class Silent:
    """A reporter nobody reads."""

    def step(self, text: str) -> None:
        del text

    def progress(self, progress: object) -> None:
        del progress


class Stage:
    """A box with a search on it; each candidate's starts come to what `script` says, in turn."""

    def __init__(self, folder: Path, script: Mapping[str, list[tuple[VerdictKind, float]]]) -> None:
        self.moment = 1000.0
        self.started: list[tuple[str, float]] = []
        self.script = {name: list(rows) for name, rows in script.items()}
        self.box: Box = replace(box_at(folder), now=lambda: self.moment, sleep=self.sleep)
        self.dies_at = -1

    def sleep(self, seconds: float) -> None:
        self.moment += seconds

    def begin(self, asked: Asked) -> None:
        risks = (Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY)
        contenders = tuple(map(Contender, NAMES, risks, itertools.count()))
        for name in NAMES:
            one = profile(name)
            keep_profile(self.box.layout, name, "as written", to_toml(one))
        write_state(self.box.layout, TuneState("kimi", self.moment, asked, contenders))

    def carry_out(
        self, _means: Means, wish: Wish, pending: Pending, _target: SpeedTarget | None
    ) -> TrialRow:
        if len(self.started) == self.dies_at:
            self.dies_at = -1
            raise HostError("file-error", "the disk is full")
        name = pending.candidate
        self.started.append((name, self.moment))
        self.moment += SECONDS
        assert wish.actor == "ada (tune)"
        rows = self.script[name]
        kind, speed = rows.pop(0) if rows else (PASS, 0.0)
        outcome = {PASS: "accepted", FAIL: "rolled-back", UNKNOWN: "inconclusive"}[kind]
        figure = Interval(speed, speed, speed) if speed else None
        return TrialRow(name, self.moment, SECONDS, kind, "why", outcome, True, 1, figure, 0.01)  # noqa: FBT003 - started

    def search(self, monkeypatch: pytest.MonkeyPatch) -> TuneState:
        monkeypatch.setattr(tune, "carry_out", self.carry_out)
        monkeypatch.setattr(tune_leave, "carry_out", self.carry_out)

        def wish_of(wanted: Profile, written: str) -> Wish:
            assert written == "as written"
            return Wish(wanted, written, to_toml(wanted), (), "")

        def api_of(_wanted: Profile) -> Any:
            raise AssertionError("nothing is to be drained")

        nothing: Any = None
        world = tune.World(Means(self.box, nothing, Silent()), wish_of, api_of)
        state = tune.search(world)
        assert state is not None
        assert state == read_state(self.box.layout)
        return state


def asked(**words: Any) -> Asked:
    return Asked(**{"target": ">40~50", "actor": "ada", **words})


def test_a_search_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, {"base": [(FAIL, 30.0)], "ll": [(PASS, 55.0)]})
    stage.begin(asked())
    stage.dies_at = 1
    with pytest.raises(HostError, match="disk is full"):
        stage.search(monkeypatch)
    kept = read_state(stage.box.layout)
    assert kept is not None
    assert kept.pending is not None
    assert (kept.pending.candidate, len(kept.trials)) == ("ll", 1)
    state = stage.search(monkeypatch)
    assert [trial.candidate for trial in state.trials] == ["base", "ll"]
    assert state.ended is not None
    assert (state.ended.winner, state.ended.exit) == ("ll", 0)
    assert stage.search(monkeypatch) == state  # ended is ended


def test_a_winner_that_fails_in_the_end_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"base": [(PASS, 50.0), (PASS, 50.1), (PASS, 50.05)],
              "ll": [(PASS, 60.0), (PASS, 60.1), (FAIL, 0.0)]}  # fmt: skip
    stage = Stage(tmp_path, script)
    stage.begin(asked(search=Search.EXPLORE))
    state = stage.search(monkeypatch)
    assert [trial.candidate for trial in state.trials] == ["base", "ll", "ll", "base", "ll"]
    assert state.ended is not None
    assert state.ended.winner == "base"
    assert state.spent_s == SECONDS * len(stage.started) == 600.0


def test_what_cannot_be_proven_in_the_end_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"base": [(PASS, 55.0), (UNKNOWN, 0.0), (UNKNOWN, 0.0)]})
    stage.begin(asked())
    state = stage.search(monkeypatch)
    assert state.ended is not None
    assert (state.ended.winner, state.ended.exit) == ("base", 6)
    assert "not proven this time" in state.ended.left
    assert state.restoring_s == 2 * SECONDS


def test_the_budget_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = {name: [(PASS, 50.0 + n)] * 9 for n, name in enumerate(NAMES)}
    stage = Stage(tmp_path, script)
    stage.begin(asked(search=Search.EXPLORE, max_starts=3))
    state = stage.search(monkeypatch)
    assert state.ended is not None
    assert (len(state.trials), state.ended.why) == (3, "the budget is spent")
    # A load of this model was never seen: the deadline of one is what a budget has to hold.
    (tmp_path / "poor").mkdir()
    poor = Stage(tmp_path / "poor", script)
    poor.begin(asked(budget_s=600.0))
    state = poor.search(monkeypatch)
    assert (state.trials, poor.started) == ((), [])
    assert state.ended is not None
    assert "nothing was ever accepted" in state.ended.left


def test_starts_wait_for_their_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, {"base": [(FAIL, 30.0)], "ll": [(PASS, 55.0)]})
    stage.moment = time.mktime((2026, 11, 30, 20, 0, 0, 0, 0, -1))
    began = stage.moment
    stage.begin(asked(window="22:00-22:30"))  # shorter than the deadline of a load
    state = stage.search(monkeypatch)
    (first, at), (second, later), _ = stage.started
    assert (first, at - began) == ("base", 7200.0)
    # The window has just begun, so a start that no window can hold is still let in.
    assert (second, later) == ("ll", at + SECONDS)
    assert any("waiting for the window" in text for _, text in state.log)
    assert state.spent_s == 3 * SECONDS  # waiting costs nobody anything
