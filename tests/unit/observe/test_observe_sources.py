"""Each source read into its view, from a real state folder, a real history, a made-up server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from observe_support import PROFILE, unit

from kimisvc.deploy.box import Box
from kimisvc.deploy.gate.record import GateRecord
from kimisvc.deploy.generations import Draft, Generations
from kimisvc.deploy.history import Accepted, ApplyRow, History, RollbackRow
from kimisvc.deploy.history.file import HistoryFile
from kimisvc.deploy.history.rows import CanaryResult, CanaryRow
from kimisvc.deploy.layout import Layout
from kimisvc.deploy.status import drift
from kimisvc.deploy.unkept import keep_rollback, take_rollbacks
from kimisvc.errors import HostError, KimisvcError
from kimisvc.host.vllm_page import Page
from kimisvc.observe import sources
from kimisvc.observe.snapshots import EngineView, FilesView, HistoryView
from kimisvc.observe.sources import EngineReader, FilesReader, HistoryReader, units_view
from kimisvc.records.profile import VllmSettings
from kimisvc.records.units import Installation, UnitFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.host.systemd import Systemd
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitState

PAGE = (Path(__file__).parent / "captured" / "0.32.0-idle.txt").read_text()
RESOLVED = """schema = 1
name = "mine"
[vllm]
executable = "/opt/vllm/bin/vllm"
model = "/srv/models/Kimi"
[gate]
decode_tok_s = ">40~50"
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    place = Installation(
        tmp_path / "kimisvc", tmp_path / "units", tmp_path / "state", tmp_path / "run"
    )
    place.units.mkdir()
    return Layout(place, "kimi")


def generation(layout: Layout) -> None:
    """Write the next generation, install its units, make it current and accepted."""
    units = tuple(UnitFile(name, f"# {name}\n") for name in
                  (layout.units.service, layout.units.gate, layout.units.rollback,
                   layout.units.target))  # fmt: skip
    generations = Generations(layout)
    made = generations.add(Draft("mine", RESOLVED, RESOLVED, units, {"vllm": "0.32.0"}), 900.0)
    for one in units:
        layout.installed(one.name).write_text(one.text)
    generations.make_current(made)
    generations.accept(made)


def nothing_said() -> Mapping[str, UnitState]:
    return {}


# ------------------------------------------------------------------ files


def test_files_before_the_first_apply(layout: Layout) -> None:
    assert FilesReader(layout, nothing_said).read() == FilesView()


def test_a_lost_link_is_not_an_instance_that_was_never_applied(layout: Layout) -> None:
    generation(layout)
    reader = FilesReader(layout, nothing_said)
    reader.read()
    target = layout.current.readlink()
    layout.current.unlink()
    for _ in range(2):
        with pytest.raises(KimisvcError, match="is missing, so which generation"):
            reader.read()
    layout.current.symlink_to(target)
    assert reader.read().current is not None


@pytest.mark.parametrize("unit", ["installed", "gone"])
@pytest.mark.parametrize("generations", ["there", "lost"])
def test_somebody_is_woken_where_a_unit_is_installed_and_nothing_names_it(
    layout: Layout, unit: str, generations: str
) -> None:
    """And only there: an apply that broke before its switch put nothing in force."""
    generation(layout)
    layout.current.unlink()
    if generations == "lost":
        layout.generations.rename(layout.state / "lost")
    reader = FilesReader(layout, nothing_said)
    if unit == "installed":
        with pytest.raises(KimisvcError, match="is missing, so which generation"):
            reader.read()
        return
    layout.installed(layout.units.service).unlink()
    assert reader.read() == FilesView()


def test_files_of_a_generation(layout: Layout) -> None:
    generation(layout)
    view = FilesReader(layout, nothing_said).read()
    assert view.current is not None
    assert view.profile is not None
    assert (view.current.number, view.accepted, view.drift) == (1, 1, ())
    assert view.profile.gate.decode_tok_s is not None
    assert view.profile.gate.decode_tok_s.floor == 40
    assert len(view.digest) == 64


def test_files_are_read_anew_only_where_they_changed(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation(layout)
    reader = FilesReader(layout, nothing_said)
    first = reader.read()
    calls: list[int] = []

    def counted(*given: Any) -> Any:
        calls.append(1)
        return drift(*given)

    monkeypatch.setattr(sources, "drift", counted)
    assert reader.read() == first
    assert calls == []
    layout.installed(layout.units.gate).write_text("# edited\n")
    assert reader.read().drift == (f"{layout.units.gate} was edited by hand",)
    layout.installed(layout.units.gate).unlink()
    assert reader.read().drift == (f"{layout.units.gate} is missing",)
    assert len(calls) == 2


def test_the_next_generation_is_seen(layout: Layout) -> None:
    generation(layout)
    reader = FilesReader(layout, nothing_said)
    reader.read()
    generation(layout)
    view = reader.read()
    assert view.current is not None
    assert (view.current.number, view.accepted) == (2, 2)


def test_a_reload_that_systemd_wants_is_drift(layout: Layout) -> None:
    generation(layout)
    states: dict[str, UnitState] = {}
    reader = FilesReader(layout, lambda: states)
    assert reader.read().drift == ()
    states[layout.units.service] = unit(layout.units.service, needs_reload=True)
    assert len(reader.read().drift) == 1


def test_progress_is_read_each_time(layout: Layout) -> None:
    generation(layout)
    reader = FilesReader(layout, nothing_said)
    assert reader.read().progress is None
    layout.gate.mkdir(parents=True)
    layout.progress.write_text(
        '{"phase": "loading", "generation": 1, "invocation": "x", "started_at": 1.0,'
        ' "updated_at": 2.0, "done": 3, "total": 64}'
    )
    told = reader.read().progress
    assert told is not None
    assert (told.done, told.total) == (3, 64)


def test_damaged_state_is_a_failure_each_time_and_mends(layout: Layout) -> None:
    generation(layout)
    reader = FilesReader(layout, nothing_said)
    manifest = layout.current / "manifest.json"
    manifest.chmod(0o644)
    whole = manifest.read_text()
    manifest.write_text("{")
    for _ in range(2):
        with pytest.raises(KimisvcError):
            reader.read()
    manifest.write_text(whole)
    assert reader.read().current is not None


# ------------------------------------------------------------------ history


def record(invocation: str, load_s: float) -> GateRecord:
    return GateRecord(
        record=f"r-{invocation}", generation=1, profile="mine", model="/srv/models/Kimi",
        invocation=invocation, service_started_at=1000.0, began_at=1000.0, ready_at=1100.0,
        load_s=load_s, vllm_version="0.32.0",
    )  # fmt: skip


def test_no_history_before_the_first_generation_is_an_empty_one(layout: Layout) -> None:
    assert HistoryReader(layout).read() == HistoryView()


def test_a_history_that_was_removed_is_a_failure(layout: Layout) -> None:
    generation(layout)
    with pytest.raises(HostError) as error:
        HistoryReader(layout).read()
    assert error.value.code == "history-missing"


def test_history_is_counted(layout: Layout) -> None:
    history = History(layout.history)
    for outcome in ("accepted", "accepted", "rolled-back", ""):
        sequence = history.begin_apply(ApplyRow(1.0, None, 1, None, "mine", "root", (), None, None))
        if outcome:
            history.end_apply(sequence, 2.0, outcome, 0)
    history.add_rollback(RollbackRow(3.0, 2, 1, "slow"))
    history.add_rollback(RollbackRow(4.0, 2, None, "slow"))
    for name, load in (("a", 100.0), ("b", 300.0), ("c", 200.0)):
        history.add_record(record(name, load), Accepted.NO)
    reader = HistoryReader(layout)
    view = reader.read()
    assert view.applies["accepted"] == 2
    assert view.applies["rolled-back"] == 1
    assert view.rollbacks == {"yes": 1, "no": 1}
    assert view.starts_total == 3
    assert view.expected_load == {"/srv/models/Kimi": 200.0}
    assert reader.read() is view
    history.add_rollback(RollbackRow(5.0, 3, 1, "wrong"))
    assert reader.read().rollbacks["yes"] == 2


def test_a_rollback_that_waits_for_room_is_shown_apart_and_never_makes_a_counter_fall(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation(layout)
    box, history = Box(layout, cast("Systemd", None)), HistoryReader(layout)
    reader = FilesReader(layout, dict)
    box.history.begin_apply(ApplyRow(1.0, None, 1, None, "mine", "root", (), None, None))
    box.history.add_rollback(RollbackRow(3.0, 2, 1, "slow"))
    assert reader.read().rollbacks_waiting == {}

    def full(*_: object) -> None:
        raise HostError("history-unusable", "disk full")

    layout.runtime.mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as disk:
        disk.setattr(History, "add_rollback", full)
        keep_rollback(box, RollbackRow(4.0, 3, 1, "wrong"))
        keep_rollback(box, RollbackRow(5.0, 3, None, "wrong"))
    assert reader.read().rollbacks_waiting == {"yes": 1, "no": 1}
    assert history.read().rollbacks == {"yes": 1}
    take_rollbacks(box)
    assert reader.read().rollbacks_waiting == {}
    assert history.read().rollbacks == {"yes": 2, "no": 1}


def canary(result: CanaryResult, at: float) -> CanaryRow:
    return CanaryRow(at, "a", 1, "mine", result, 79.0 if result is CanaryResult.MEASURED else None)


def test_canaries_are_counted_though_history_forgets_old_ones(layout: Layout) -> None:
    history, reader = History(layout.history), HistoryReader(layout)
    for at in (1.0, 2.0):
        history.add_canary(canary(CanaryResult.MEASURED, at))
    history.add_canary(canary(CanaryResult.SKIPPED_BUSY, 3.0))
    view = reader.read()
    assert view.canary_runs == {"measured": 2, "skipped_busy": 1}
    assert view.canary is not None
    assert (view.canary.at, view.canary_at) == (2.0, 3.0)
    history.prune(3.0)
    assert reader.read().canary_runs == {"measured": 2, "skipped_busy": 1}
    history.add_canary(canary(CanaryResult.FAILED, 4.0))
    view = reader.read()
    assert view.canary_runs == {"measured": 2, "skipped_busy": 1, "failed": 1}
    assert view.canary is not None


def test_a_canary_that_could_not_see_counts_as_such_and_not_as_one_that_flew(
    layout: Layout,
) -> None:
    history, reader = History(layout.history), HistoryReader(layout)
    history.add_canary(canary(CanaryResult.SKIPPED_UNKNOWN, 1.0))
    assert reader.read().canary_at == 0.0
    for result, at, flown in (
        (CanaryResult.SKIPPED_BUSY, 2.0, 2.0),
        (CanaryResult.SKIPPED_UNKNOWN, 3.0, 2.0),
        (CanaryResult.FAILED, 4.0, 4.0),
        (CanaryResult.SKIPPED_UNKNOWN, 5.0, 4.0),
    ):
        history.add_canary(canary(result, at))
        assert reader.read().canary_at == flown
        assert HistoryReader(layout).read().canary_at == flown
    assert reader.read().canary_runs == {"skipped_busy": 1, "skipped_unknown": 3, "failed": 1}


def test_of_very_many_canaries_few_are_read(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of them, read by four readers at once, took hundreds of megabytes."""
    history, reader = History(layout.history), HistoryReader(layout)
    history.add_canary(canary(CanaryResult.MEASURED, 1.0))
    for at in range(2, 50):
        history.add_canary(canary(CanaryResult.SKIPPED_BUSY, float(at)))
    rows: list[int] = []
    select = HistoryFile.select

    def counted(file: HistoryFile, query: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        found = select(file, query, arguments)
        rows.append(len(found))
        return found

    monkeypatch.setattr(HistoryFile, "select", counted)
    view = reader.read()
    assert view.canary is not None
    assert (view.canary.at, view.canary_at) == (1.0, 49.0)
    assert view.canary_runs == {"measured": 1, "skipped_busy": 48}
    assert sum(rows) < 10
    history.prune(40.0)
    history.add_canary(canary(CanaryResult.SKIPPED_BUSY, 50.0))
    rows.clear()
    view = reader.read()
    assert view.canary is not None
    assert (view.canary.at, view.canary_at) == (1.0, 50.0)
    assert sum(rows) < 10


def test_the_count_of_canaries_does_not_fall_when_old_ones_go_and_the_exporter_is_started_anew(
    layout: Layout,
) -> None:
    """A counter that falls from 5 to 2 would read as two new failures, and page somebody."""
    history = History(layout.history)
    for at in range(5):
        history.add_canary(canary(CanaryResult.FAILED, float(at)))
    history.add_canary(canary(CanaryResult.MEASURED, 5.0))
    before = HistoryReader(layout).read().canary_runs
    for moment in (3.0, 4.5):
        history.prune(moment)
        assert HistoryReader(layout).read().canary_runs == before == {"failed": 5, "measured": 1}
    history.add_canary(canary(CanaryResult.FAILED, 6.0))
    assert HistoryReader(layout).read().canary_runs == {"failed": 6, "measured": 1}


def test_a_history_that_began_anew_is_counted_anew(layout: Layout) -> None:
    history, reader = History(layout.history), HistoryReader(layout)
    for at in (1.0, 2.0):
        history.add_canary(canary(CanaryResult.MEASURED, at))
    reader.read()
    layout.history.unlink()
    history.add_canary(canary(CanaryResult.FAILED, 3.0))
    assert reader.read().canary_runs == {"failed": 1}


def test_a_history_that_is_no_database_is_a_failure_each_time(layout: Layout) -> None:
    layout.history.parent.mkdir(parents=True)
    layout.history.write_bytes(b"no database at all" * 100)
    reader = HistoryReader(layout)
    for _ in range(2):
        with pytest.raises(KimisvcError):
            reader.read()


# ------------------------------------------------------------------ vLLM


class Server:
    """Answers with one page after the other; an error is raised."""

    def __init__(self, *said: str | HostError) -> None:
        self.said = list(said)
        self.asked: list[tuple[str, int]] = []
        self.now = 0.0

    def __call__(self, host: str, port: int, timeout: float) -> Page:
        del timeout
        self.asked.append((host, port))
        self.now += 5.0
        one = self.said.pop(0)
        if isinstance(one, HostError):
            raise one
        return Page(self.now, one)


REFUSED, LATE = HostError("connection-refused", ""), HostError("timeout", "")


def page(tokens: float, running: float = 1.0, engine: int = 0) -> str:
    """A page of an engine that makes a token for each of those that run in each iteration."""
    told = {
        "vllm:generation_tokens_total": tokens,
        "vllm:iteration_tokens_total_count": tokens / running,
        "vllm:num_requests_running": running,
    }
    lines = []
    for line in PAGE.replace('engine="0"', f'engine="{engine}"').splitlines():
        series, _, value = line.rpartition(" ")
        lines.append(f"{series} {told.get(series.partition('{')[0], value)}")
    return "\n".join(lines)


def read(server: Server, profile: Profile | None = PROFILE) -> list[EngineView]:
    reader = EngineReader(lambda: profile, server)
    return [reader.read() for _ in range(len(server.said))]


def test_an_engine_is_measured_over_its_pages() -> None:
    views = read(Server(page(100), page(350), page(600)))
    assert all(view.reachable and view.missing == () for view in views)
    assert views[-1].live is not None
    assert views[-1].live.decode_tok_s == pytest.approx(50.0)


@pytest.mark.parametrize("running", [1, 4])
@pytest.mark.parametrize("engines", [1, 2, 4])
def test_each_engine_of_a_server_is_measured_and_the_total_is_of_all(
    engines: int, running: int
) -> None:
    def pages(steps: float) -> str:
        return "\n".join(page(steps * running, running, engine) for engine in range(engines))

    views = read(Server(pages(100), pages(350), pages(600)))
    assert views[-1].live is not None
    assert views[-1].live.total_tok_s == pytest.approx(50.0 * engines * running)
    assert views[-1].live.decode_tok_s == pytest.approx(50.0)


def test_one_of_two_engines_that_stands_is_a_stall() -> None:
    pages = [f"{page(n * 250.0)}\n{page(100, engine=1)}" for n in range(30)]
    found = read(Server(*pages))[-1].live
    assert found is not None
    assert found.stalled
    assert found.decode_tok_s == pytest.approx(50.0)
    assert found.total_tok_s == pytest.approx(50.0)


def test_a_server_that_is_not_there_is_a_fact() -> None:
    assert read(Server(REFUSED)) == [EngineView()]


def test_after_a_silence_a_new_window_begins() -> None:
    views = read(Server(page(100), REFUSED, page(5000)))
    assert views[-1].live is not None
    assert views[-1].live.total_tok_s is None


def test_one_that_is_there_and_gives_no_page_is_a_failure_and_begins_a_new_window() -> None:
    server = Server(page(100), LATE, page(5000))
    reader = EngineReader(lambda: PROFILE, server)
    reader.read()
    with pytest.raises(HostError):
        reader.read()
    found = reader.read()
    assert found.live is not None
    assert found.live.total_tok_s is None


def test_a_server_without_statistics_is_reachable_and_breaks_the_contract() -> None:
    (view,) = read(Server("python_info 1\n"))
    assert view.reachable
    assert view.live is None
    assert view.missing


def test_nothing_is_asked_before_there_is_a_profile() -> None:
    server = Server(page(1))
    assert read(server, None) == [EngineView()]
    assert server.asked == []


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("", "127.0.0.1"), ("10.0.0.7", "10.0.0.7")],
)
def test_a_server_that_listens_everywhere_is_asked_here(host: str, asked: str) -> None:
    server = Server(page(1))
    read(server, replace(PROFILE, vllm=VllmSettings("/x", "/m", host=host, port=8123)))
    assert server.asked == [(asked, 8123)]


# ------------------------------------------------------------------ systemd


def test_units_of_an_instance_are_picked_out(layout: Layout) -> None:
    names = sources.unit_names(layout)
    states = {name: unit(name) for name in names}
    view = units_view(layout, states)
    assert view is not None
    assert view.service.name == layout.units.service
    assert view.canary is not None
    assert view.canary_timer is not None
    gone = replace(states[names[3]], load_state="not-found")
    view = units_view(layout, {**states, names[3]: gone})
    assert view is not None
    assert view.canary is None
    del states[layout.units.gate]
    assert units_view(layout, states) is None
