"""The parts of a search: its words, its state, its candidates, its hours, its verdicts."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import Quiet, add_generation, add_start, box_at, profile

from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.history import Accepted, ApplyRow, StartFigures, VerdictRow
from kimisvc.deploy.history.rows import RollbackRow
from kimisvc.deploy.outcome import Ending, Outcome
from kimisvc.deploy.owed import owe
from kimisvc.deploy.plan import Action
from kimisvc.deploy.tune.asked import WORDS, asked_of, read_plan
from kimisvc.deploy.tune.begin import cancel, refuse_hopeless, with_target
from kimisvc.deploy.tune.candidates import Offered, distance, entries, risk_of
from kimisvc.deploy.tune.meanwhile import refuse_meanwhile, stopped
from kimisvc.deploy.tune.plan import (
    Durations,
    back_seconds,
    durations,
    fallback_of,
    plan_from,
    spent,
    start_seconds,
)
from kimisvc.deploy.tune.state import (
    Asked,
    Contender,
    Ended,
    Pending,
    TrialRow,
    TuneState,
    keep_profile,
    read_state,
    unfinished,
    write_state,
)
from kimisvc.deploy.tune.summary import outlook, proposal, summary
from kimisvc.deploy.tune.trial import Means, follow_begun, judge
from kimisvc.deploy.tune.watch import watch
from kimisvc.deploy.wish import Wish
from kimisvc.errors import HostError, KimisvcError, LockedError, ProfileRefusedError
from kimisvc.host import files
from kimisvc.measure.comparison import Difference, StartFigure, compare
from kimisvc.measure.contest import winner
from kimisvc.measure.gate import budget
from kimisvc.measure.tuning import Fallback, Search, Stop, Why, next_step
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import GateSettings, ProbeSettings, Risk, SpeedTarget
from kimisvc.records.proof import Interval, Proof, Verdict, VerdictKind
from kimisvc.records.units import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.records.profile import Profile

PASS, DEGRADED, FAIL, UNKNOWN = (
    VerdictKind.PASS, VerdictKind.DEGRADED, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE,
)  # fmt: skip
NAME = "kimisvc-kimi-tune.service"
BASE = profile("base")
LL = profile("ll", env={"NCCL_PROTO": "LL"}, description="tried")
ROW = TrialRow(
    "base", 100.0, 60.0, PASS, "55.30 tok/s (95 % interval 55.10 to 55.50): at or over the goal of 50",
    "accepted", started=True, generation=1, decode_tok_s=Interval(55.1, 55.3, 55.5), error=0.1,
)  # fmt: skip
STATE = TuneState(
    "kimi", 10.0, Asked(target=">40~50", budget_s=600.0, actor="ada"),
    (Contender("base", Risk.SAFE, 0), Contender("ll", Risk.SAFE_ISH, 1)),
)  # fmt: skip


class Silent:
    """A reporter nobody reads."""

    def step(self, text: str) -> None:
        del text

    def progress(self, progress: object) -> None:
        del progress


# ---------------------------------------------------------------- state


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        replace(STATE, trials=(ROW, replace(ROW, verdict=FAIL, decode_tok_s=None)), before=3),
        replace(STATE, pending=Pending("ll", 7, 20.0), restoring_s=3.5).saying(1.0, "words"),
        replace(STATE, ended=Ended(9.0, "the target is met", "base", "base, running", 0)),
        replace(
            STATE, asked=Asked("", Search.EXPLORE, Risk.RISKY, None, 4, 0.05, 9.0, "1:00-2:00")
        ),
    ],
)
def test_a_state_is_read_as_it_was_written(tmp_path: Path, state: TuneState) -> None:
    layout = box_at(tmp_path).layout
    write_state(layout, state)
    assert read_state(layout) == state


def test_a_search_of_an_older_kimisvc_knows_no_files_and_is_read(tmp_path: Path) -> None:
    layout = box_at(tmp_path).layout
    write_state(layout, STATE)
    data = json.loads(layout.tune.read_text())
    for one in data["candidates"]:
        del one["file"]
    layout.tune.write_text(json.dumps(data))
    assert read_state(layout) == STATE
    assert STATE.file_of("ll") == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1}', "null"])
def test_a_damaged_state_says_so_and_locks_nobody_out(tmp_path: Path, text: str) -> None:
    layout = box_at(tmp_path).layout
    layout.tune.write_text(text)
    with pytest.raises(KimisvcError) as caught:
        read_state(layout)
    assert caught.value.code == "tune-damaged"
    assert not unfinished(layout)


def test_others_are_refused_until_it_has_ended(tmp_path: Path) -> None:
    box = box_at(tmp_path, Quiet(kimisvc_kimi_tune="active"))
    refuse_meanwhile(box)
    write_state(box.layout, STATE)
    with pytest.raises(LockedError, match="under way"):
        refuse_meanwhile(box)
    write_state(box.layout, replace(STATE, ended=Ended(9.0, "cancelled", "", "", 1)))
    refuse_meanwhile(box)


class OfTheSearch(Quiet):
    """The unit of the search, as systemd has it."""

    def __init__(self, **unit: Any) -> None:
        super().__init__()
        self.unit = UnitState(NAME, **unit)

    def state(self, unit: str) -> UnitState:
        assert unit == self.unit.name
        return self.unit


FAILED = {
    "load_state": "loaded", "active_state": "failed", "sub_state": "failed", "result": "signal",
}  # fmt: skip
GONE = {"load_state": "not-found", "active_state": "inactive", "sub_state": "dead"}
BY_HAND = {**GONE, "load_state": "loaded", "result": "success"}


@pytest.mark.parametrize(
    ("unit", "words", "goes_on"),
    [
        (FAILED, "is failed (signal)", "systemctl reset-failed {0} && systemctl start {0} goes on"),
        (BY_HAND, "is inactive", "; systemctl start {0} goes on"),
        (GONE, "is not there (not-found)", ""),
    ],
)
def test_a_search_that_nobody_carries_on_says_so_and_what_to_do(
    tmp_path: Path, unit: dict[str, Any], words: str, goes_on: str
) -> None:
    box = box_at(tmp_path, OfTheSearch(**unit))
    assert stopped(box) is None  # no search, no unit of one
    write_state(box.layout, STATE)
    with pytest.raises(LockedError) as caught:
        refuse_meanwhile(box)
    assert caught.value.message.endswith(f"is not at its end, and its unit {NAME} {words}")
    assert goes_on.format(NAME) in caught.value.hint
    assert ("systemctl" in caught.value.hint) is bool(goes_on)
    assert caught.value.hint.endswith("kimisvc tune --cancel --instance kimi ends it")
    write_state(box.layout, replace(STATE, ended=Ended(9.0, "cancelled", "", "", 1)))
    assert stopped(box) is None


@pytest.mark.parametrize("unit", [{**BY_HAND, "job": 7}, {**BY_HAND, "active_state": "activating"}])
def test_a_search_that_waits_for_its_unit_to_be_started_is_under_way(
    tmp_path: Path, unit: dict[str, Any]
) -> None:
    box = box_at(tmp_path, OfTheSearch(**unit))
    write_state(box.layout, STATE)
    assert stopped(box) is None


def test_who_follows_a_search_that_stopped_is_told_the_same(tmp_path: Path) -> None:
    moments = itertools.count(0.0, 20.0)
    box = replace(box_at(tmp_path, OfTheSearch(**FAILED)), clock=lambda: next(moments))
    write_state(box.layout, STATE)
    halted = stopped(box)
    assert halted is not None
    with pytest.raises(KimisvcError, match=r"not at its end, and its unit") as caught:
        watch(box, Silent())
    assert (caught.value.code, caught.value.hint) == ("search-stopped", halted.hint)


def test_a_summary_of_a_search_that_stopped_says_so() -> None:
    at_work = replace(STATE, pending=Pending("ll", 7, 20.0))
    assert "now: a start of ll" in summary(at_work)
    said = summary(at_work, "its unit is failed").splitlines()
    assert said[-1] == "stopped: its unit is failed"
    assert said[-2].startswith("was at: a start of ll, since ")


def test_only_the_newest_lines_are_kept() -> None:
    state = STATE
    for moment in range(500):
        state = state.saying(float(moment), "x")
    assert (len(state.log), state.log[-1][0]) == (200, 499.0)


# ---------------------------------------------------------------- words


def nobody(name: str) -> None:
    """Know no bare name."""
    del name


def test_a_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'profiles = ["a.toml", "/etc/b.toml"]\ntarget = "> 40 ~ 50"\nexplore = true\n'
        'max_risk = "risky"\nbudget = "3h"\nmax_starts = 6\ndrain = "10min"\nwindow = "22:00-06:00"\n'
    )
    told = read_plan(path, nobody)
    assert told["profiles"] == (str(tmp_path / "a.toml"), "/etc/b.toml")
    assert asked_of(told, "ada") == Asked(
        ">40~50", Search.EXPLORE, Risk.RISKY, 10800.0, 6, drain_s=600.0, window="22:00-06:00",
        actor="ada",
    )  # fmt: skip


def test_a_plan_knows_bare_names_and_files_beside_it_first(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('profiles = ["ll", "ring", "there/ll.toml"]')
    (tmp_path / "ring").write_text("")
    known = {"ll": tmp_path / "of the box" / "ll.toml", "ring": tmp_path / "not this one"}
    told = read_plan(path, known.get)
    files = (known["ll"], tmp_path / "ring", tmp_path / "there" / "ll.toml")
    assert told["profiles"] == tuple(map(str, files))


def test_all_problems_of_a_plan_at_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        'profiles = []\ntargt = ">40"\nexplore = "yes"\nmax_risk = "wild"\nbudget = "0s"\n'
        'max_starts = true\nwindow = "night"\ndrain = 5\n'
    )
    with pytest.raises(ProfileRefusedError) as caught:
        read_plan(path, nobody)
    said = {problem.key: (problem.line, problem.message) for problem in caught.value.problems}
    assert set(said) == {
        "profiles", "targt", "explore", "max_risk", "budget", "max_starts", "window", "drain",
    }  # fmt: skip
    assert "Did you mean target?" in said["targt"][1]
    assert said["window"] == (7, '"night" is no window of time. Write it as 22:00-06:00')
    path.write_text('profiles = ["a\\u0000b"]')
    with pytest.raises(ProfileRefusedError) as caught:
        read_plan(path, nobody)
    assert "has a control character in 'a\\x00b'" in caught.value.problems[0].message
    path.write_text("profiles = [")
    with pytest.raises(ProfileRefusedError, match="1 problem"):
        read_plan(path, nobody)


def test_each_word_takes_its_own_example(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("\n".join(f"{word.key} = {word.example}" for word in WORDS))
    assert set(read_plan(path, nobody)) == {word.key for word in WORDS}


def test_a_target_is_that_of_the_first_unless_said() -> None:
    aims = replace(BASE, gate=GateSettings(SpeedTarget(40, 50)))
    assert with_target(Asked(), aims).target == ">40~50"
    assert with_target(Asked(target=">1"), aims).target == ">1"
    assert with_target(Asked(search=Search.EXPLORE), BASE).target == ""
    with pytest.raises(KimisvcError, match="nothing is to be met"):
        with_target(Asked(), BASE)


# ---------------------------------------------------------------- candidates


def offered(*profiles: Profile) -> list[Offered]:
    return [Offered(f"/etc/{p.name}.toml", "text", p) for p in profiles]


def test_candidates_know_their_risk_and_distance() -> None:
    risky = profile("risky", env={"NCCL_P2P_LEVEL": "SYS"}, max_risk=Risk.RISKY)
    found = [entry.contender for entry in entries(offered(BASE, LL, risky))]
    assert [(c.name, c.differences) for c in found] == [("base", 0), ("ll", 1), ("risky", 1)]
    assert [entry.contender.file for entry in entries(offered(BASE, LL))] == [
        "/etc/base.toml", "/etc/ll.toml",
    ]  # fmt: skip
    assert found[0].risk is Risk.SAFE
    assert found[2].risk is Risk.RISKY
    # What it allows itself is a risk all the same: that of the search is the operator's.
    assert risk_of(replace(risky, allow_risky=("NCCL_P2P_LEVEL",))) is Risk.RISKY
    assert distance(BASE, replace(BASE, name="y", probe=ProbeSettings(min_runs=5))) == 0


def test_what_cannot_be_held_together_is_refused_whole() -> None:
    other = replace(
        LL, vllm=replace(LL.vllm, model="/srv/small"), probe=ProbeSettings(max_tokens=9)
    )
    with pytest.raises(ProfileRefusedError) as caught:
        entries(offered(BASE, other, replace(LL, name="base")))
    assert [(p.file, p.key) for p in caught.value.problems] == [
        ("/etc/ll.toml", "vllm.model"), ("/etc/ll.toml", "probe.max_tokens"),
        ("/etc/base.toml", "name"),
    ]  # fmt: skip


# ---------------------------------------------------------------- verdicts


def ended(outcome: Outcome, kind: VerdictKind | None = PASS) -> Ending:
    row = (
        None
        if kind is None
        else VerdictRow(
            "r", 1, "i", 1, "p", 0.0, Verdict(kind, "the gate's"), None, None, None, None, None, ()
        )
    )
    return Ending(outcome, "how it ended", row)


def runs(*speeds: float) -> StartFigures:
    return StartFigures("i", 1, "p", 0.0, PASS, speeds, 128, "m", "v", {}, 1)


def judged(ending: Ending, found: StartFigures | None, target: str = "") -> VerdictKind | None:
    """The verdict; None where these runs do not tell yet."""
    aim = SpeedTarget(*map(float, target.split("~"))) if target else None
    came = judge(ending, found, replace(BASE, gate=GateSettings(SpeedTarget(1, 1))), aim)
    return came.kind if isinstance(came, Verdict) else None


@pytest.mark.parametrize(
    ("speeds", "target", "kind"),
    [
        ((81.0, 81.2, 81.1), "40~50", PASS),
        ((44.9, 45.0, 45.1), "40~50", DEGRADED),
        ((30.0, 30.1, 30.2), "40~50", FAIL),
        # Stopped by another target before this one was decided.
        ((47.0, 50.0, 53.0), "20~50", None),
        ((35.0, 40.0, 45.0), "40~50", None),
        ((81.0, 81.4, 81.8), "80~80", None),
        # As many as there may be are decided.
        ((35.0, 45.0) * 5, "40~50", UNKNOWN),
    ],
)
def test_a_start_is_judged_by_the_target_of_the_search(
    speeds: tuple[float, ...], target: str, kind: VerdictKind | None
) -> None:
    assert judged(ended(Outcome.ACCEPTED), runs(*speeds), target) is kind


def test_what_the_gate_refused_stays_refused() -> None:
    fast = runs(81.0, 81.1, 81.2)
    assert judged(ended(Outcome.ROLLED_BACK, FAIL), fast, "40~50") is FAIL
    assert judged(ended(Outcome.NOT_RESTORED, None), None, "40~50") is FAIL
    assert judged(ended(Outcome.INCONCLUSIVE, UNKNOWN), fast, "40~50") is UNKNOWN
    assert judged(ended(Outcome.STOPPED, None), None, "40~50") is UNKNOWN
    assert judged(ended(Outcome.ACCEPTED, DEGRADED), fast) is DEGRADED  # no target: the gate's


# ---------------------------------------------------------------- a start begun before us


def cut_off(tmp_path: Path, speeds: tuple[float, ...] = (81.0, 81.1, 81.2)) -> tuple[Means, Wish]:
    """A start of 100 s that was begun at 90 and decided by 210, of which we hear at 1000."""
    box = box_at(tmp_path)
    add_generation(box, BASE)
    add_generation(box, LL)
    box.generations.make_current(box.generations.get(2))
    box.history.begin_apply(ApplyRow(90.0, None, 2, 1, "ll", "ada (tune)", (), None, None))
    if speeds:
        add_start(box, 2, speeds, name="ll")
    nothing: Any = None
    return Means(box, nothing, Silent(), nothing), Wish(LL, "as written\n", to_toml(LL), (), "")


@pytest.mark.parametrize(
    ("begun_at", "seconds"),
    [
        (90.0, 100.0),  # up to its verdict: the box was off after it, or before it
        (152.0, 50.0),  # a gate that was run again over a start from before
    ],
)
def test_a_start_that_went_on_without_us_took_what_it_took(
    tmp_path: Path, begun_at: float, seconds: float
) -> None:
    means, wish = cut_off(tmp_path)
    row = follow_begun(means, wish, Pending("ll", 0, begun_at), SpeedTarget(40, 50))
    assert row is not None
    assert (row.verdict, row.started, row.seconds) == (PASS, True, seconds)


def test_a_rollback_that_went_on_without_us_counts_too(tmp_path: Path) -> None:
    means, wish = cut_off(tmp_path, ())
    history = means.box.history
    add_start(means.box, 2, (9.0, 9.1, 9.2), FAIL, name="ll")
    history.add_rollback(RollbackRow(250.0, 2, 1, "under the floor"))
    add_start(means.box, 1, (81.0, 81.1, 81.2))
    row = follow_begun(means, wish, Pending("ll", 0, 90.0), SpeedTarget(40, 50))
    assert row is not None
    assert (row.verdict, row.seconds) == (FAIL, 200.0)


def test_what_was_not_begun_is_not_followed(tmp_path: Path) -> None:
    means, wish = cut_off(tmp_path)
    newest = means.box.history.sequence()
    assert follow_begun(means, wish, Pending("ll", newest, 90.0), None) is None
    other = replace(wish, resolved=to_toml(BASE))
    assert follow_begun(means, other, Pending("base", 0, 90.0), None) is None


class Stopping(Quiet):
    """A systemd in which the unit of the search is stopped at once."""

    def stop(self, unit: str) -> int:
        assert unit == NAME
        return 0


def cancelled(box: Box, pending: Pending) -> TuneState:
    """Cancel a search of two that has measured the first, over a start of the second."""
    box = replace(box, systemd=Stopping())  # type: ignore[arg-type]  # a stand-in
    write_state(box.layout, replace(STATE, trials=(ROW,), pending=pending))
    keep_profile(box.layout, "ll", "as written\n", to_toml(LL))
    state = cancel(box)
    assert state is not None
    assert state == read_state(box.layout)
    assert state.pending is None
    return state


def test_a_search_cancelled_before_its_start_leaves_nothing_to_a_gate(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())
    box = replace(means.box, systemd=Stopping())  # type: ignore[arg-type]  # a stand-in
    write_state(box.layout, replace(STATE, trials=(), pending=None))
    state = cancel(box)
    assert state is not None
    assert state.ended is not None
    assert "gate" not in state.ended.left
    assert state.ended.left.startswith("generation 2 (ll), not accepted, is ")


@pytest.mark.parametrize("unit", ["kimisvc-kimi.service", "kimisvc-kimi-gate.service"])
def test_a_search_cancelled_while_it_puts_back_leaves_that_to_its_gate(
    tmp_path: Path, unit: str
) -> None:
    """What is put back is no start of a candidate: only the units tell of it."""
    means, _ = cut_off(tmp_path, ())

    class Starting(Stopping):
        def state(self, name: str) -> UnitState:
            found = super().state(name)
            return replace(found, active_state="activating") if name == unit else found

    box = replace(means.box, systemd=Starting())  # type: ignore[arg-type]  # a stand-in
    write_state(box.layout, replace(STATE, trials=(), pending=None))
    state = cancel(box)
    assert state is not None
    assert state.ended is not None
    assert state.ended.left.startswith("what runs is left to its gate: kimisvc status --follow")


def test_a_search_is_cancelled_though_nobody_can_say_what_runs(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())

    class Silent(Stopping):
        def state(self, name: str) -> UnitState:
            raise HostError("systemd-timeout", f"{name}: no answer")

    box = replace(means.box, systemd=Silent())  # type: ignore[arg-type]  # a stand-in
    write_state(box.layout, replace(STATE, trials=(), pending=None))
    state = cancel(box)
    assert state is not None
    assert state.ended is not None
    assert state.ended.left == "what runs is not known: kimisvc-kimi.service: no answer"


def test_a_start_that_a_cancelled_search_had_begun_is_told_and_counted(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())
    state = cancelled(means.box, Pending("ll", 0, 940.0))
    left = state.trials[-1]
    assert (left.outcome, left.started, left.generation, left.seconds) == ("started", True, 2, 60.0)
    said = summary(state)
    assert "  2. ll: begun, left to its gate; 1.0 min" in said.splitlines()
    assert "cost: 2.0 min in 2 starts" in said.splitlines()
    assert "not tried" not in said


def test_one_that_its_gate_has_decided_long_ago_took_until_then(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path)
    state = cancelled(means.box, Pending("ll", 0, 90.0))
    assert "2. ll: begun, left to its gate, which said PASS; 1.7 min" in summary(state)


def test_one_that_was_rolled_back_by_hand_meanwhile_was_begun_too(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())
    means.box.history.begin_apply(ApplyRow(95.0, None, 1, 2, "base", "ada", (), None, None))
    means.box.generations.make_current(means.box.generations.get(1))
    assert cancelled(means.box, Pending("ll", 0, 90.0)).trials[-1].generation == 2


def test_one_of_which_nothing_is_known_any_more_is_not_denied(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())
    means.box.layout.history.write_text("no history")
    assert cancelled(means.box, Pending("ll", 0, 90.0)).trials[-1].started


def test_one_that_was_not_begun_yet_was_not_tried(tmp_path: Path) -> None:
    means, _ = cut_off(tmp_path, ())
    state = cancelled(means.box, Pending("ll", means.box.history.sequence(), 90.0))
    assert state.trials == (ROW,)
    assert "not tried: ll (cancelled)" in summary(state)
    owe(means.box.layout, Action.RESTART, 2)  # switched, and then nobody restarted it
    assert cancelled(means.box, Pending("ll", 0, 90.0)).trials == (ROW,)


class Removing(Stopping):
    """And in which its unit can be removed."""

    def disable(self, units: Sequence[str]) -> None:
        assert units == (NAME,)

    def reload(self) -> None:
        pass


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written but in /run; what is there can be removed."""
    whole = files.write_atomic

    def no_space(path: Path, text: str, mode: int = 0o644) -> None:
        if "run" not in path.parts:
            raise HostError("file-error", f"{path}: No space left on device")
        whole(path, text, mode)

    monkeypatch.setattr(files, "write_atomic", no_space)


def test_a_search_is_cancelled_on_a_full_disk_and_stands_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    means, _ = cut_off(tmp_path, ())
    box = replace(means.box, systemd=Removing())  # type: ignore[arg-type]  # a stand-in
    write_state(box.layout, replace(STATE, trials=(ROW,), pending=Pending("ll", 0, 940.0)))
    keep_profile(box.layout, "ll", "as written\n", to_toml(LL))
    box.layout.installed(NAME).write_text("[Service]\n")
    fill_disk(monkeypatch)
    with pytest.raises(LockedError):
        refuse_meanwhile(box)
    state = cancel(box)
    assert state is not None
    assert (state.ended is not None, state.trials[-1].outcome) == (True, "started")
    said = summary(state)
    assert (
        "what runs is left to its gate: kimisvc status --follow --instance kimi; this summary is all"
        in said
    )
    assert f"could not be kept: {box.layout.tune}: No space left on device" in said
    refuse_meanwhile(box)
    assert (read_state(box.layout), box.layout.installed(NAME).exists()) == (None, False)
    assert cancel(box) is None


def test_a_search_that_cannot_even_be_removed_is_not_told_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is mounted read-only."""
    box = box_at(tmp_path, Stopping())
    write_state(box.layout, STATE)
    fill_disk(monkeypatch)

    def read_only(path: Path) -> None:
        raise HostError("file-error", f"{path}: Read-only file system")

    monkeypatch.setattr(files, "remove", read_only)
    with pytest.raises(HostError, match="Read-only"):
        cancel(box)
    assert unfinished(box.layout)


# ---------------------------------------------------------------- plan and words


def test_a_plan_knows_what_was_measured_and_spent() -> None:
    refused = replace(ROW, candidate="ll", verdict=FAIL, started=False, seconds=2.0)
    state = replace(STATE, trials=(ROW, refused), restoring_s=5.0)
    assert (spent(state).seconds, spent(state).starts) == (67.0, 1)
    plan = plan_from(state, {"base": 900.0, "ll": 800.0})
    # What it took may have been its gate alone: putting it back is a load.
    assert [c.start_s for c in plan.candidates] == [900.0, 800.0]
    explored = replace(state, asked=replace(state.asked, search=Search.EXPLORE))
    loads = plan_from(explored, {"base": 900.0, "ll": 800.0}).candidates
    assert [c.start_s for c in loads] == [60.0, 800.0]
    assert next_step(plan, spent(state)) == Stop(Why.TARGET_MET, "base")
    assert plan_from(replace(STATE, asked=Asked()), {"base": 1, "ll": 1}).budget.seconds == math.inf


def test_how_long_a_start_takes_is_from_history(tmp_path: Path) -> None:
    systemd = Quiet(kimisvc_kimi="active")
    box = box_at(tmp_path, systemd)
    assert start_seconds(box, BASE, Search.FIRST_THAT_MEETS) is None
    add_start(box, add_generation(box, BASE), (55.0, 55.1))
    seen = durations(box.history, "/srv/model")
    assert (seen.load_s, seen.gate_s) == (50.0, 50.0)
    assert start_seconds(box, LL, Search.FIRST_THAT_MEETS) == 100.0
    box.generations.make_current(box.generations.get(1))
    box.generations.accept(box.generations.get(1))
    assert box.generations.get(1).resolved() == to_toml(BASE)
    assert start_seconds(box, BASE, Search.FIRST_THAT_MEETS) == 50.0  # it runs: the gate alone
    assert start_seconds(box, BASE, Search.EXPLORE) == 100.0


def test_a_gate_that_measured_nothing_says_nothing_of_how_long_one_takes(tmp_path: Path) -> None:
    """A wrong golden answer ends it within a moment; the next one makes its runs."""
    box = box_at(tmp_path, Quiet(kimisvc_kimi="active"))
    first = add_generation(box, BASE)
    wrong = GateRecord(
        record="wrong", generation=first, profile="base", model="/srv/model", invocation="wrong",
        service_started_at=100.0, began_at=90.0, ended_at=150.3, ready_at=150.0, load_s=50.0,
        proof=Proof(Verdict(VerdictKind.FAIL, "golden question answered wrongly")),
    )  # fmt: skip
    box.history.add_record(wrong, Accepted.NO)
    assert durations(box.history, "/srv/model") == Durations(50.0, None)
    box.generations.make_current(box.generations.get(first))
    box.generations.accept(box.generations.get(first))
    assert start_seconds(box, BASE, Search.FIRST_THAT_MEETS) == budget(BASE)
    add_start(box, first, (55.0, 55.1))
    assert durations(box.history, "/srv/model") == Durations(50.0, 50.0)


def test_what_runs_and_could_not_be_judged_takes_its_gate_alone_too(tmp_path: Path) -> None:
    systemd = Quiet(kimisvc_kimi="active")
    box = box_at(tmp_path, systemd)
    add_start(box, add_generation(box, BASE), (55.0, 55.1))
    systemd.invocation = add_start(box, add_generation(box, LL), (55.0, 55.1), UNKNOWN, name="ll")
    box.generations.make_current(box.generations.get(2))
    assert start_seconds(box, LL, Search.FIRST_THAT_MEETS) == 50.0
    systemd.invocation = "it was started again, and still loads"
    assert start_seconds(box, LL, Search.FIRST_THAT_MEETS) == 100.0


def test_what_a_failure_gives_way_to_is_what_is_accepted_with_its_load(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    known = {"base": to_toml(BASE), "ll": to_toml(LL)}
    assert fallback_of(box, known, None) == Fallback()
    first, second = add_generation(box, BASE), add_generation(box, LL)
    add_start(box, first, (55.0, 55.1))  # 50 s of load, and 50 of its gate
    box.generations.make_current(box.generations.get(first))
    assert fallback_of(box, known, None) == Fallback()
    box.generations.accept(box.generations.get(first))
    assert fallback_of(box, known, first) == Fallback(100.0, "base")
    assert fallback_of(box, {"ll": known["ll"]}, first) == Fallback(100.0)
    assert (back_seconds(box, BASE), back_seconds(box, LL)) == (0.0, 100.0)
    # While another runs, a start of the accepted one itself may be rolled back to it.
    box.generations.make_current(box.generations.get(second))
    assert fallback_of(box, known, first) == Fallback(100.0)
    box.generations.accept(box.generations.get(second))
    assert fallback_of(box, known, first) == Fallback(100.0, "ll", 100.0)


def test_the_summary_says_all_a_ticket_needs() -> None:
    slower = replace(
        ROW, candidate="ll", verdict=DEGRADED, reason="judged", seconds=2160.0,
        decode_tok_s=Interval(54.0, 54.4, 54.8),
    )  # fmt: skip
    state = replace(
        STATE, trials=(ROW, slower), restoring_s=90.0,
        candidates=(*STATE.candidates, Contender("wild", Risk.RISKY, 3)),
        ended=Ended(4000.0, "all candidates were tried", "base", "base, accepted and running", 0),
    )  # fmt: skip
    said = summary(state)
    for words in (
        "by ada", ">40~50 tok/s", "10 min at most",
        "1. base: PASS, 55.30 tok/s (95 % interval 55.10 to 55.50): at or over the goal of 50; 1.0 min",
        "2. ll: DEGRADED, 54.40 tok/s (95 % interval 54.00 to 54.80): judged; 36 min",
        "not tried: wild, it is risky",
        "ll against base (1 start of each): -1.6 %", "inconclusive",
        "cost: 38 min in 2 starts, 1.5 min of it to leave",
        "ended: all candidates were tried",
        "left in place: base, accepted and running at 55.30 tok/s; the only one that met the target",
    ):  # fmt: skip
        assert words in said, said


def test_what_would_be_tried_is_no_search_that_began() -> None:
    wild, sound = Contender("wild", Risk.RISKY, 3), Contender("plain", Risk.SAFE, 2)
    said = proposal(replace(STATE, candidates=(*STATE.candidates, wild, sound)))
    tail = [
        "would try:", "  1. base, safe", "  2. plain, safe", "  3. ll, safe-ish",
        "  not tried: wild, it is risky",
    ]  # fmt: skip
    assert said.splitlines()[2:] == tail
    for word in ("1970", "ended", "cost", "ada"):
        assert word not in said
    assert "--status" not in told((None, None))


def searched(**speeds: tuple[float, ...]) -> TuneState:
    """A comparison that has ended, of so many starts of each."""
    rows = tuple(
        replace(ROW, candidate=name, error=0.01, decode_tok_s=Interval(v - 1, v, v + 1))
        for name, all_of_it in speeds.items()
        for v in all_of_it
    )
    contenders = (*STATE.candidates, Contender("x", Risk.SAFE, 2))
    state = replace(STATE, candidates=contenders, trials=rows)
    plan = plan_from(state, {one.name: 0.0 for one in contenders})
    chosen = winner(plan.candidates, plan.margin)
    assert chosen is not None
    return replace(state, ended=Ended(9.0, "the budget is spent", chosen.name, "it runs", 0))


def test_a_ticket_claims_no_more_than_the_search_found() -> None:
    """At 95 % ll would be faster; at the confidence of three contestants that is open."""
    base, ll = (80.0, 81.2), (84.4, 85.6)
    figures = [[StartFigure(v, 0.01) for v in side] for side in (base, ll)]
    assert compare(*figures).verdict is Difference.BETTER
    state = searched(base=base, ll=ll, x=(80.2, 81.0))
    said = summary(state)
    line = next(line for line in said.splitlines() if "ll against base" in line)
    assert "(2 starts of each)" in line
    assert "(99.17 % interval" in line
    assert "inconclusive" in line
    assert state.ended is not None
    assert state.ended.winner == "base"
    assert "the simplest that is not shown to be worse" in said


def test_a_ticket_claims_no_simplest_where_an_assumed_spread_chose() -> None:
    """One start each, and no budget for another: 80.0 against 81.9 is inconclusive, and is said to be."""
    said = summary(searched(base=(80.0,), ll=(81.9,), x=()))
    assert "ll against base (1 start of each): +2.4 %" in said
    assert "inconclusive" in said
    assert said.splitlines()[-1] == (
        "left in place: it runs at 81.90 tok/s; the fastest seen; it is not shown that the simpler"
        " ones are worse"
    )


def test_a_ticket_says_that_it_chose_among_those_that_met_the_target() -> None:
    missed = replace(ROW, verdict=DEGRADED, decode_tok_s=Interval(49.8, 49.9, 50.0))
    met = replace(ROW, candidate="ll", decode_tok_s=Interval(50.3, 50.4, 50.5))
    ended_so = Ended(9.0, "the target is met", "ll", "ll runs", 0)
    state = replace(STATE, trials=(missed, met), ended=ended_so)
    assert summary(state).endswith("; the only one that met the target")
    also = replace(met, candidate="x", decode_tok_s=Interval(50.2, 50.3, 50.4))
    three = (*STATE.candidates, Contender("x", Risk.SAFE, 2))
    said = summary(replace(state, trials=(missed, met, also), candidates=three))
    assert said.endswith(
        "; of those that met the target, the simplest that is not shown to be worse"
    )


def test_a_ticket_compares_equal_numbers_of_starts() -> None:
    said = summary(searched(base=(80.0, 80.1), ll=(80.05, 80.0, 99.0), x=()))
    assert "ll against base (2 starts of each): -0.0 %" in said
    assert "the simplest that is not worse" in summary(searched(base=(50.0, 50.1), ll=(40.0, 40.1)))


def told(seconds: Iterable[float | None]) -> str:
    return outlook(STATE, dict(zip(("base", "ll"), seconds, strict=True)))


def test_a_search_that_would_start_nothing_is_refused() -> None:
    refuse_hopeless(STATE, {"base": 599.0, "ll": 9999.0})
    with pytest.raises(KimisvcError, match=r"may take 45 min, and the budget is 10 min"):
        refuse_hopeless(STATE, {"base": 2700.0, "ll": 2700.0})
    again = (
        r"may take 8.3 min, putting back what is accepted if it fails 8.3 min, and the budget is"
    )
    with pytest.raises(KimisvcError, match=again):
        refuse_hopeless(STATE, {"base": 500.0, "ll": 500.0}, Fallback(500.0))
    refuse_hopeless(STATE, {"base": 500.0, "ll": 500.0}, Fallback(500.0, "base"))
    wild = replace(STATE, candidates=(Contender("wild", Risk.RISKY, 0),))
    with pytest.raises(KimisvcError, match="over the allowed risk, safe-ish"):
        refuse_hopeless(wild, {"wild": 1.0})


def test_the_outlook_says_what_is_known() -> None:
    assert told((2160.0, None)).startswith("how long it will take is not known")
    plenty = replace(STATE, asked=replace(STATE.asked, budget_s=None))
    said = outlook(plenty, {"base": 2160.0, "ll": 2160.0})
    assert said == "it will take 36 min to 1 h 48 min (a start takes about 36 min here)"
    said = outlook(plenty, {"base": 2160.0, "ll": 2160.0}, Fallback(2160.0))
    assert said == "it will take 36 min to 2 h 24 min (a start takes about 36 min here)"
