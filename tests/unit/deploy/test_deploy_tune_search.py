"""The order of things of a search, with made-up starts: what is kept, when it waits, how it ends."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import add_generation, box_at, profile

from kimisvc.deploy.generations import Draft
from kimisvc.deploy.tune import leave as tune_leave
from kimisvc.deploy.tune import plan as tune_plan
from kimisvc.deploy.tune import search as tune
from kimisvc.deploy.tune import waiting
from kimisvc.deploy.tune.state import (
    Asked,
    Contender,
    TrialRow,
    TuneState,
    keep_profile,
    read_state,
    write_state,
)
from kimisvc.deploy.tune.summary import summary
from kimisvc.deploy.tune.trial import Means
from kimisvc.deploy.tune.world import World
from kimisvc.deploy.wish import Wish
from kimisvc.errors import HostError
from kimisvc.measure.tuning import Search
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import Risk
from kimisvc.records.proof import EngineCounters, Interval, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.tune.state import Pending
    from kimisvc.records.profile import Profile, SpeedTarget

PASS, FAIL, UNKNOWN = VerdictKind.PASS, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE
NAMES = ("base", "ll", "wild")
FILES = tuple(f"/etc/kimisvc/{name}.toml" for name in NAMES)
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
        self.wishes: list[Wish] = []
        self.script = {name: list(rows) for name, rows in script.items()}
        self.box: Box = replace(box_at(folder), now=lambda: self.moment, sleep=self.sleep)
        self.dies_at = -1
        self.api: Api | None = None

    def sleep(self, seconds: float) -> None:
        self.moment += seconds

    def begin(self, asked: Asked, before: int | None = None) -> None:
        risks = (Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY)
        contenders = tuple(map(Contender, NAMES, risks, itertools.count(), FILES))
        for name in NAMES:
            one = profile(name)
            keep_profile(self.box.layout, name, "as written", to_toml(one))
        write_state(self.box.layout, TuneState("kimi", self.moment, asked, contenders, before))

    def carry_out(
        self, _means: Means, wish: Wish, pending: Pending, _target: SpeedTarget | None
    ) -> TrialRow:
        if len(self.started) == self.dies_at:
            self.dies_at = -1
            raise HostError("file-error", "the disk is full")
        name = pending.candidate
        self.started.append((name, self.moment))
        self.wishes.append(wish)
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

        def wish_of(wanted: Profile, written: str, file: str) -> Wish:
            assert written.strip() == "as written"
            return Wish(wanted, written, to_toml(wanted), (), "", file=file)

        def api_of(_wanted: Profile) -> Any:
            assert self.api is not None, "nothing is to be drained"
            return self.api

        nothing: Any = None
        world = World(Means(self.box, nothing, Silent(), api_of), wish_of)
        state = tune.search(world)
        assert state is not None
        assert state == read_state(self.box.layout)
        return state

    def serve(self, busy_for: float = 0.0) -> Api:
        """Let a generation run from before, with requests that end after so many seconds."""
        self.box = replace(self.box, clock=lambda: self.moment)
        number = add_generation(self.box, profile("old"))
        self.box.generations.make_current(self.box.generations.get(number))
        self.api = Api(self, self.moment + busy_for)
        return self.api


class Api:
    """The counters of a server whose requests end at a moment; remembers when it was asked."""

    def __init__(self, stage: Stage, ends: float) -> None:
        self.stage, self.ends = stage, ends
        self.looks: list[float] = []

    def counters(self) -> EngineCounters:
        self.looks.append(self.stage.moment)
        return EngineCounters(0, 0, 0, 0, float(self.stage.moment < self.ends), 0)


def clock(hour: int, minute: int = 0, day: int = 30) -> float:
    return time.mktime((2026, 11, day, hour, minute, 0, 0, 0, -1))


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


def test_each_start_and_what_is_left_in_place_name_the_file_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"base": [(FAIL, 30.0)], "ll": [(PASS, 55.0)]})
    stage.begin(asked())
    stage.search(monkeypatch)
    assert [name for name, _ in stage.started] == ["base", "ll", "ll"]
    assert [wish.file for wish in stage.wishes] == [FILES[0], FILES[1], FILES[1]]


def test_what_is_put_back_from_before_names_its_file_and_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"base": [(FAIL, 30.0)], "ll": [(FAIL, 31.0)], "old": []}
    stage = Stage(tmp_path, script)
    old = profile("old")
    draft = Draft("old", "as written\n", to_toml(old), (), {}, "/etc/kimisvc/old.toml")
    made = stage.box.generations.add(draft, 1.0)
    stage.begin(asked(), before=made.number)
    state = stage.search(monkeypatch)
    assert state.ended is not None
    assert state.ended.left.startswith("old, which was accepted before")
    put_back = stage.wishes[-1]
    assert (put_back.file, put_back.written) == ("/etc/kimisvc/old.toml", "as written\n")
    assert put_back.resolved == to_toml(old)


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


def test_a_window_holds_what_a_failure_brings_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun at 22:25, it fails at 22:36, and what was accepted is loaded until 22:47: not by 22:45."""
    script: dict[str, list[tuple[VerdictKind, float]]] = {"base": [(PASS, 55.0)]}
    stage = Stage(tmp_path, script)
    monkeypatch.setattr(waiting, "needed", lambda *_: 660.0)
    monkeypatch.setattr(tune_plan, "needed", lambda *_: 660.0)
    stage.moment = clock(22, 25, day=10)
    stage.begin(asked(window="22:00-22:45"))
    made = stage.box.generations.get(add_generation(stage.box, profile("old")))
    stage.box.generations.make_current(made)
    stage.box.generations.accept(made)
    stage.search(monkeypatch)
    assert stage.started[0] == ("base", clock(22, day=11))


def test_a_budget_holds_what_a_failure_brings_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"base": [(FAIL, 30.0)], "ll": [(PASS, 55.0)], "old": []})
    monkeypatch.setattr(tune, "needed", lambda *_: SECONDS)
    monkeypatch.setattr(tune_plan, "needed", lambda *_: SECONDS)
    made = stage.box.generations.add(
        Draft("old", "as written\n", to_toml(profile("old")), (), {}), 1.0
    )
    stage.box.generations.make_current(made)
    stage.box.generations.accept(made)
    stage.begin(asked(budget_s=3 * SECONDS - 1), before=made.number)
    state = stage.search(monkeypatch)
    assert [trial.candidate for trial in state.trials] == ["base"]
    assert state.ended is not None
    assert state.ended.why == "the budget is spent"


def test_putting_back_waits_for_the_window_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"base": [(PASS, 55.0)], "ll": [(PASS, 55.1)]})
    monkeypatch.setattr(f"{__name__}.SECONDS", 1200.0)
    stage.moment = clock(22, day=10)
    stage.begin(asked(search=Search.EXPLORE, window="22:00-22:30", max_starts=2))
    stage.search(monkeypatch)
    assert stage.started == [(name, clock(22, day=day)) for name, day in
                             (("base", 10), ("ll", 11), ("base", 12))]  # fmt: skip


def test_each_restart_waits_for_requests_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, {"base": [(PASS, 55.0)], "ll": [(PASS, 55.1)]})
    api = stage.serve()
    stage.begin(asked(search=Search.EXPLORE, max_starts=2, drain_s=600.0))
    stage.search(monkeypatch)
    assert [name for name, _ in stage.started] == ["base", "ll", "base"]
    # Before each two looks for traffic, and as there is none, three quiet ones.
    assert [at for _, at in stage.started] == api.looks[4::5]
    assert len(api.looks) == 15
    assert "waiting for requests" not in stage.box.layout.tune.read_text()


@pytest.mark.parametrize(
    ("busy_h", "drain_h", "begins"),
    [
        (0.1, 2.0, clock(22, 6, 10)),
        (1.5, 2.0, clock(22, 0, 11)),  # drained when the window was closed: the next one
        (99.0, 0.2, clock(22, 12, 10)),  # patience ended, the window is open
        (99.0, 2.0, clock(22, 0, 11)),  # both ended: at the next window, without more patience
    ],
)
def test_a_window_holds_after_requests_have_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_h: float, drain_h: float, begins: float
) -> None:
    stage = Stage(tmp_path, {"base": [(PASS, 55.0)]})
    monkeypatch.setattr(waiting, "needed", lambda *_: 600.0)
    stage.moment = clock(22, day=10)
    stage.serve(busy_h * 3600)
    stage.begin(asked(window="22:00-23:00", drain_s=drain_h * 3600))
    state = stage.search(monkeypatch)
    _, at = stage.started[0]
    assert begins <= at <= begins + 10
    told = any("not seen idle within" in text for _, text in state.log)
    assert told is (busy_h > drain_h)
    assert any(text.startswith("waiting for requests to end, ") for _, text in state.log)


def test_a_start_that_was_not_begun_waits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to begin in the window, the box went down, and comes up by day."""
    stage = Stage(tmp_path, {"base": [(PASS, 55.0)]})
    stage.moment = clock(22, day=10)
    stage.begin(asked(window="22:00-06:00"))
    stage.dies_at = 0
    with pytest.raises(HostError):
        stage.search(monkeypatch)
    stage.moment = clock(9, day=11)
    state = stage.search(monkeypatch)
    assert stage.started[0] == ("base", clock(22, day=11))
    assert [trial.seconds for trial in state.trials] == [SECONDS]


@pytest.mark.parametrize("outcome", ["broke", "stopped"])
def test_what_could_not_be_left_in_place_is_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    stage = Stage(tmp_path, {"base": [(PASS, 44.0)], "ll": [(PASS, 44.1)]})
    stage.begin(asked(search=Search.EXPLORE, max_starts=2))
    carry_out = stage.carry_out

    def broken(*words: Any) -> TrialRow:
        row = carry_out(*words)
        if len(stage.started) <= 2:
            return row
        return replace(row, verdict=UNKNOWN, reason="no space left on device", outcome=outcome)

    monkeypatch.setattr(stage, "carry_out", broken)
    state = stage.search(monkeypatch)
    assert [name for name, _ in stage.started] == ["base", "ll", "base", "base"]
    assert state.ended is not None
    assert state.ended.left == (
        "base was to be left in place and was not: no space left on device;"
        " no generation is in place"
    )
    assert (state.ended.winner, state.ended.exit) == ("", 5)
    assert "not worse" not in summary(state)
