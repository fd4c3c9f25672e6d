"""A search with another target than the gate's: it measures on, and pays for no load."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from deploy_support import Quiet, add_generation, add_start, box_at, profile

from kimisvc.cli import doors
from kimisvc.cli.tune_output import tune_json
from kimisvc.deploy.history import ApplyRow
from kimisvc.deploy.outcome import Applied, Ending, Outcome
from kimisvc.deploy.tune import trial as tune_trial
from kimisvc.deploy.tune.state import Asked, Contender, Pending, TuneState, read_state, write_state
from kimisvc.deploy.tune.summary import summary
from kimisvc.deploy.tune.trial import Means, carry_out, follow_begun
from kimisvc.deploy.wish import Wish
from kimisvc.errors import HostError, LeftAtWorkError
from kimisvc.measure.gate_rule import decide
from kimisvc.profile.resolved import to_toml
from kimisvc.records.profile import GateSettings, ProbeSettings, Risk, SpeedTarget
from kimisvc.records.proof import Sample, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.tune.state import TrialRow

PASS, FAIL, UNKNOWN = VerdictKind.PASS, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE
OWN, SOUGHT = SpeedTarget(40, 50), SpeedTarget(80, 80)
TOKENS = 16
WANTED = profile(
    "base",
    gate=GateSettings(OWN, max_ttft=0.01),
    probe=ProbeSettings(max_tokens=TOKENS, prompt_tokens=8, warmup=1),
)
GATE_RUNS = (81.0, 81.4, 81.8)
"""Far over the gate's own goal, and not shown to be over 80."""


class Systemd(Quiet):
    """The service runs, as the start that a test says; everything else is at rest."""

    def __init__(self, running: str) -> None:
        super().__init__(kimisvc_kimi="active")
        self.invocation = running


@dataclass
class Server:
    """Streams at these speeds in turn, the last for ever; `before` is called for each request."""

    speeds: list[float]
    moment: list[float]
    before: Callable[[], None] = lambda: None
    asked: int = 0
    opened: list[str] = field(default_factory=list)

    def stream(
        self, path: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        assert path
        assert timeout > 0
        self.before()
        self.asked += 1
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        made = body["max_tokens"]
        self.moment[0] += 0.5
        for index in range(made):
            self.moment[0] += 1 / speed if index else 0.0
            finish = "length" if index == made - 1 else None
            yield self.moment[0], {"choices": [{"index": 0, "text": " x", "finish_reason": finish}]}
        usage = {"prompt_tokens": 8, "completion_tokens": made, "total_tokens": made + 8}
        yield self.moment[0], {"choices": [], "usage": usage}

    def counters(self) -> None:
        return None


class Scene:
    """A box on which a gate has accepted a start with `GATE_RUNS`, and the server that it proved."""

    def __init__(self, folder: Path, *speeds: float) -> None:
        self.moment = [1000.0]
        self.systemd = Systemd("")
        self.box: Box = replace(
            box_at(folder, self.systemd), now=lambda: self.moment[0], clock=lambda: self.moment[0],
            sleep=self.sleep,
        )  # fmt: skip
        add_generation(self.box, WANTED)
        self.box.generations.make_current(self.box.generations.get(1))
        self.box.history.begin_apply(ApplyRow(90.0, None, 1, None, "base", "ada", (), None, None))
        self.systemd.invocation = add_start(self.box, 1, GATE_RUNS)
        self.server = Server(list(speeds), self.moment)
        self.told: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.moment[0] += seconds

    def step(self, text: str) -> None:
        self.told.append(text)

    def progress(self, progress: object) -> None:
        del progress

    @property
    def means(self) -> Means:
        nothing: Any = None

        def api_of(wanted: Any) -> Any:
            self.server.opened.append(wanted.name)
            return self.server

        return Means(self.box, nothing, self, api_of)

    def carried_out(
        self, monkeypatch: pytest.MonkeyPatch, target: SpeedTarget | None = SOUGHT
    ) -> TrialRow:
        """The row of a start whose apply has just ended so."""
        row = self.box.history.verdicts()[0]
        applied = Applied(Ending(Outcome.ACCEPTED, "accepted", row), 1)
        monkeypatch.setattr(tune_trial, "bring_about", lambda *_: applied)
        wish = Wish(WANTED, "as written", to_toml(WANTED), (), "ada (tune)")
        return carry_out(self.means, wish, Pending("base", 0, 990.0), target)

    def followed(self) -> TrialRow:
        """The row of the same start, begun by one who was killed."""
        wish = Wish(WANTED, "as written", to_toml(WANTED), (), "ada (tune)")
        row = follow_begun(self.means, wish, Pending("base", 0, 90.0), SOUGHT)
        assert row is not None
        return row


@pytest.mark.parametrize(
    ("gate_runs", "speeds", "kind"),
    [
        (GATE_RUNS, (81.4,), PASS),
        ((78.9, 79.3, 79.7), (79.3,), FAIL),
        (GATE_RUNS, (70.0, 92.0) * 5, UNKNOWN),
    ],
)
def test_what_its_gate_left_open_is_measured_on_that_very_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate_runs: tuple[float, ...],
    speeds: tuple[float, ...], kind: VerdictKind,
) -> None:  # fmt: skip
    monkeypatch.setattr(f"{__name__}.GATE_RUNS", gate_runs)
    scene = Scene(tmp_path, 81.0, *speeds)  # the first is warm-up
    row = scene.carried_out(monkeypatch)
    assert (row.verdict, row.started, row.generation) == (kind, True, 1)
    assert 0 < row.further_runs <= 7
    assert scene.server.asked == row.further_runs + 1
    assert row.decode_tok_s is not None
    every = [*gate_runs, *(speeds * 10)[: row.further_runs]]
    assert row.decode_tok_s.mean == pytest.approx(sum(every) / len(every))
    assert row.error > 0
    assert f"(3 runs of its gate and {row.further_runs} after it)" in row.reason
    assert any("without a load" in text for text in scene.told)


def test_the_runs_of_a_gate_over_a_start_that_was_kept_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate differs in its gate alone, so that nothing was loaded for it."""
    scene = Scene(tmp_path, 81.4)
    number = add_generation(scene.box, replace(WANTED, name="strict"))
    speeds = (80.0, 80.4, 80.8)
    add_start(scene.box, number, speeds, name="strict", kept=scene.systemd.invocation)
    for target, kind in ((SpeedTarget(60, 70), PASS), (SpeedTarget(90, 95), FAIL)):
        told = scene.carried_out(monkeypatch, target)
        assert (told.verdict, told.further_runs) == (kind, 0)
    assert scene.server.asked == 0
    row = scene.carried_out(monkeypatch)
    assert row.decode_tok_s is not None
    every = [*speeds, *[81.4] * row.further_runs]
    assert row.decode_tok_s.mean == pytest.approx(sum(every) / len(every))
    assert f"(3 runs of its gate and {row.further_runs} after it)" in row.reason
    assert scene.carried_out(monkeypatch, None).error > 0


def test_what_its_gate_tells_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, 1.0)
    for target, kind in (
        (None, PASS),
        (OWN, PASS),
        (SpeedTarget(60, 70), PASS),
        (SpeedTarget(90, 95), FAIL),
    ):
        row = scene.carried_out(monkeypatch, target)
        assert (row.verdict, row.further_runs) == (kind, 0)
    assert scene.server.asked == 0


def test_the_figure_that_decided_is_kept_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Scene(tmp_path, 81.4).carried_out(monkeypatch)
    contenders = (Contender("base", Risk.SAFE, 0),)
    state = TuneState("kimi", 0.0, Asked(">80"), contenders, trials=(row,))
    layout = box_at(tmp_path).layout
    write_state(layout, state)
    assert read_state(layout) == state
    assert f"{row.further_runs} after it)" in summary(state)
    assert tune_json(state)["trials"][0]["further_runs"] == row.further_runs
    # What an older kimisvc kept knows nothing of it.
    data = json.loads(layout.tune.read_text())
    del data["trials"][0]["further_runs"]
    layout.tune.write_text(json.dumps(data))
    assert read_state(layout) == replace(state, trials=(replace(row, further_runs=0),))


def test_who_was_killed_while_measuring_measures_on_after_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 81.4)
    row = scene.followed()
    assert (row.verdict, row.further_runs > 0) == (PASS, True)
    # 100 s up to its verdict, and what it took to measure on; not the hours in between.
    assert row.seconds == pytest.approx(100.0 + scene.moment[0] - 1000.0)


def test_after_a_reboot_the_start_that_runs_now_is_measured(tmp_path: Path) -> None:
    """The boot has started it anew, and its gate has judged that start by its own target."""
    scene = Scene(tmp_path, 81.4)
    scene.systemd.invocation = add_start(scene.box, 1, (85.0, 85.1, 85.2))
    row = scene.followed()
    assert (row.verdict, row.further_runs) == (PASS, 0)
    assert row.decode_tok_s is not None
    assert row.decode_tok_s.mean == pytest.approx(85.1)


def test_a_start_that_dies_while_it_is_measured_is_worth_what_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, 81.4)

    def die() -> None:
        scene.systemd.invocation = add_start(scene.box, 1, (70.0, 70.1, 70.2))
        scene.server.before = lambda: None
        raise HostError("connection-lost", "it is gone")

    def die_twice() -> None:
        scene.server.before = die
        raise HostError("connection-lost", "it is going")

    scene.server.before = die_twice
    row = scene.carried_out(monkeypatch)
    assert (row.verdict, row.further_runs) == (FAIL, 0)
    assert "under the floor of 80" in row.reason
    assert any("runs no more" in text for text in scene.told)


def test_a_start_that_goes_on_dying_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, 81.4)
    tries = iter(range(99))

    def die() -> None:
        if next(tries) % 2:
            scene.systemd.invocation = add_start(scene.box, 1, GATE_RUNS)
        raise HostError("connection-lost", "it is gone")

    scene.server.before = die
    row = scene.carried_out(monkeypatch)
    assert (row.verdict, row.reason) == (FAIL, "it ended 2 times before its speed was known")


def test_a_server_that_is_stopped_meanwhile_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, 81.4)

    def stopped() -> None:
        scene.systemd.states.clear()
        raise HostError("connection-refused", "nobody listens")

    scene.server.before = stopped
    row = scene.carried_out(monkeypatch)
    assert row.verdict is UNKNOWN
    assert "was it stopped by hand?" in row.reason


def test_a_server_that_others_use_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, 81.4)

    def busy() -> None:
        raise HostError("http-503", "too many")

    scene.server.before = busy
    row = scene.carried_out(monkeypatch)
    assert (row.verdict, row.further_runs) == (UNKNOWN, 0)
    assert row.reason.startswith("measured on after its gate: turned away as too busy")
    assert row.decode_tok_s is not None  # that of its gate


def test_who_is_told_to_leave_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, 81.4)

    def interrupt() -> None:
        raise KeyboardInterrupt

    scene.server.before = interrupt
    with pytest.raises(LeftAtWorkError):
        scene.carried_out(monkeypatch)


def test_no_key_of_the_secrets_file_is_in_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "planted-9f3b7c21d0"
    secrets = tmp_path / "kimi.secrets"
    secrets.write_text(f"VLLM_API_KEY={key}\n")
    service = replace(WANTED.service, secrets_file=str(secrets))
    monkeypatch.setattr(f"{__name__}.WANTED", replace(WANTED, service=service))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    headers = doors.api_of_root(WANTED)._headers  # noqa: SLF001 - what it sends
    assert headers == {"Authorization": f"Bearer {key}"}
    scene = Scene(tmp_path, 81.4)

    def leak() -> None:
        raise HostError("http-401", f"HTTP status 401: {key} is no key")

    scene.server.before = leak
    row = scene.carried_out(monkeypatch)
    assert "401" in row.reason
    assert key not in row.reason


def test_a_target_other_than_its_own_is_met_as_often_as_by_a_gate_of_that_target() -> None:
    """True 81.4 tok/s against >80: the gate stops after 3 runs at its own target, the search does not."""
    rnd = random.Random(1)  # noqa: S311 - a simulation
    probe, searched, gated = ProbeSettings(), Counter[VerdictKind](), Counter[VerdictKind]()

    def judged(stop_at_own: GateSettings | None) -> VerdictKind:
        samples: list[Sample] = []
        stopped = stop_at_own is None
        while True:
            stopped = (
                stopped or decide(samples, probe, stop_at_own or GateSettings(SOUGHT)) is not None
            )
            verdict = decide(samples, probe, GateSettings(SOUGHT)) if stopped else None
            if verdict is not None:
                return verdict.kind
            samples.append(Sample(128, 256, rnd.gauss(81.4, 0.4), 0.1))

    for _ in range(1000):
        searched[judged(GateSettings(OWN))] += 1
        gated[judged(None)] += 1
    assert searched[PASS] > 980
    assert abs(searched[PASS] - gated[PASS]) < 20
