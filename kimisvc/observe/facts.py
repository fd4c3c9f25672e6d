"""The values of each metric, out of one scene. Pure; one function a row of `families`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.history.rows import CanaryResult
from kimisvc.deploy.outcome import Outcome
from kimisvc.observe import standing
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kimisvc.deploy.history.rows import CanaryRow
    from kimisvc.observe.snapshots import Scene
    from kimisvc.records.units import UnitState

    Samples = Iterator[tuple[tuple[str, ...], float]]

STATES = ("active", "activating", "deactivating", "inactive", "failed", "reloading")
"""ActiveState= as org.freedesktop.systemd1(5) lists it, but for `maintenance` of mounts."""
OUTCOMES = tuple(outcome.value for outcome in Outcome)
RESTORED = ("no", "yes")
CANARY_RESULTS = tuple(result.value for result in CanaryResult)


def up(scene: Scene) -> Samples:
    """Whether this instance can be read; vLLM's answer is not part of that."""
    known = (scene.units, scene.files, scene.history)
    yield (), float(all(view is not None for view in known))


def profile_info(scene: Scene) -> Samples:
    """The version of vLLM is that of the start that runs, before its verdict that of the files."""
    if scene.files is None or scene.files.current is None:
        return
    current = scene.files.current
    row = standing.start(scene)
    version = (row and row.vllm_version) or str(current.facts.get("vllm", ""))
    yield (current.profile, str(current.number), scene.files.digest, version), 1.0


def generation(scene: Scene) -> Samples:
    """Absent before the first."""
    if scene.files is not None and scene.files.current is not None:
        yield (), float(scene.files.current.number)


def accepted_generation(scene: Scene) -> Samples:
    """Absent before the first."""
    if scene.files is not None and scene.files.accepted is not None:
        yield (), float(scene.files.accepted)


def unit_state(scene: Scene) -> Samples:
    """One row a state for each unit there is."""
    units = scene.units
    if units is None:
        return
    yield from _states("service", units.service)
    yield from _states("gate", units.gate)
    yield from _states("rollback", units.rollback)
    if units.canary is not None:
        yield from _states("canary", units.canary)


def _states(name: str, unit: UnitState) -> Samples:
    for state in STATES:
        yield (name, state), float(unit.active_state == state)


def should_run(scene: Scene) -> Samples:
    """An operator who stops a service for good disables it."""
    if scene.units is not None and scene.files is not None:
        retired = scene.units.service.retired
        yield (), float(scene.files.current is not None and not retired)


def restarts(scene: Scene) -> Samples:
    """NRestarts= of systemd: a start by hand begins it anew."""
    if scene.units is not None:
        yield (), float(scene.units.service.restarts)


def starts(scene: Scene) -> Samples:
    """Rows of starts in history."""
    if scene.history is not None:
        yield (), float(scene.history.starts_total)


def start_limit_hit(scene: Scene) -> Samples:
    """Result= of the service."""
    if scene.units is not None:
        yield (), float(scene.units.service.result == "start-limit-hit")


def start_limit(scene: Scene) -> Samples:
    """Of the current generation."""
    if scene.files is not None and scene.files.profile is not None:
        yield (), float(scene.files.profile.service.starts)


def service_started(scene: Scene) -> Samples:
    """None runs between two starts."""
    if scene.units is not None and scene.units.service.lives:
        began = scene.units.service.started_at
        yield from _known(began or None)


def is_ready(scene: Scene) -> Samples:
    """As `kimisvc status` says."""
    ready = standing.ready(scene)
    if ready is not None:
        yield (), float(ready)


def load_progress(scene: Scene) -> Samples:
    """Absent until vLLM has named a first shard."""
    told = standing.progress(scene)
    if standing.loads(scene) and told is not None and told.total > 0:
        yield (), min(1.0, max(0.0, told.done / told.total))


def load_started(scene: Scene) -> Samples:
    """When systemd started the process that loads."""
    if standing.loads(scene) and scene.units is not None and scene.units.service.started_at > 0:
        yield (), scene.units.service.started_at


def load_timeout(scene: Scene) -> Samples:
    """Of the current generation."""
    if scene.files is not None and scene.files.profile is not None:
        yield (), scene.files.profile.service.load_timeout


def load_expected(scene: Scene) -> Samples:
    """As apply estimates it."""
    if scene.files is None or scene.files.profile is None or scene.history is None:
        return
    expected = scene.history.expected_load.get(scene.files.profile.vllm.model, 0.0)
    if expected > 0:
        yield (), expected


def load_duration(scene: Scene) -> Samples:
    """Of the newest start that became ready."""
    rows = scene.history.starts if scene.history is not None else ()
    took = next((row.load_s for row in rows if row.load_s is not None), None)
    if took is not None:
        yield (), took


def decode_speed(scene: Scene) -> Samples:
    """See `rates`."""
    if scene.engine is not None and scene.engine.live is not None:
        yield from _known(scene.engine.live.decode_tok_s)


def total_speed(scene: Scene) -> Samples:
    """See `rates`."""
    if scene.engine is not None and scene.engine.live is not None:
        yield from _known(scene.engine.live.total_tok_s)


def stalled(scene: Scene) -> Samples:
    """See `rates`."""
    if scene.engine is not None and scene.engine.live is not None:
        yield (), float(scene.engine.live.stalled)


def reachable(scene: Scene) -> Samples:
    """A server that hangs gives no view for a while, and none is no answer."""
    if scene.files is None or scene.files.current is None:
        return
    yield (), float(scene.engine is not None and scene.engine.reachable)


def _known(value: float | None) -> Samples:
    if value is not None:
        yield (), value


# ------------------------------------------------------------------ gate and canary


def probe_speed(scene: Scene) -> Samples:
    """Mean over the runs of a probe."""
    row = standing.verdict(scene)
    if row is not None and row.decode_tok_s is not None:
        yield ("gate",), row.decode_tok_s.mean
    yield from _canary(scene, lambda run: run.decode_tok_s)


def probe_low(scene: Scene) -> Samples:
    """Its interval."""
    row = standing.verdict(scene)
    if row is not None and row.decode_tok_s is not None:
        yield ("gate",), row.decode_tok_s.low
    yield from _canary(scene, lambda run: run.low)


def probe_high(scene: Scene) -> Samples:
    """Its interval."""
    row = standing.verdict(scene)
    if row is not None and row.decode_tok_s is not None:
        yield ("gate",), row.decode_tok_s.high
    yield from _canary(scene, lambda run: run.high)


def probe_ttft(scene: Scene) -> Samples:
    """Median over the runs."""
    row = standing.verdict(scene)
    if row is not None and row.ttft_s is not None:
        yield ("gate",), row.ttft_s
    yield from _canary(scene, lambda run: run.ttft_s)


def probe_at(scene: Scene) -> Samples:
    """Of a probe that has a speed."""
    row = standing.verdict(scene)
    if row is not None and row.decode_tok_s is not None:
        yield ("gate",), row.at
    yield from _canary(scene, lambda run: run.at)


def _canary(scene: Scene, of: Callable[[CanaryRow], float | None]) -> Samples:
    run = standing.canary(scene)
    value = None if run is None else of(run)
    if value is not None:
        yield ("canary",), value


def gate_verdict(scene: Scene) -> Samples:
    """All 0: no verdict on the start that runs, or none runs."""
    row = standing.verdict(scene)
    if row is None and (scene.units is None or scene.history is None):
        return
    for kind in VerdictKind:
        yield (kind.value,), float(row is not None and row.verdict.kind is kind)


def gate_at(scene: Scene) -> Samples:
    """Absent before the verdict."""
    row = standing.verdict(scene)
    if row is not None:
        yield (), row.at


def gate_floor(scene: Scene) -> Samples:
    """Absent where the profile has no target."""
    target = scene.files.profile.gate.decode_tok_s if scene.files and scene.files.profile else None
    if target is not None:
        yield (), target.floor


def gate_goal(scene: Scene) -> Samples:
    """Absent where the profile has no target."""
    target = scene.files.profile.gate.decode_tok_s if scene.files and scene.files.profile else None
    if target is not None:
        yield (), target.goal


# ------------------------------------------------------------------ counts


def applies(scene: Scene) -> Samples:
    """One that its operator left and that has not ended is not counted yet."""
    if scene.history is not None:
        yield from _counts(scene.history.applies, OUTCOMES)


def rollbacks(scene: Scene) -> Samples:
    """Both kinds are there from the beginning, so that the first one is an increase."""
    if scene.history is not None:
        yield from _counts(scene.history.rollbacks, RESTORED)


def rollbacks_waiting(scene: Scene) -> Samples:
    """No part of the counter: they are gone with a reboot, and a counter must not fall."""
    if scene.files is not None:
        yield from _counts(scene.files.rollbacks_waiting, RESTORED)


def canary_runs(scene: Scene) -> Samples:
    """Only where the profile asks for a canary, or there were some."""
    asked = scene.files is not None and scene.files.profile is not None
    wanted = asked and scene.files.profile.canary is not None  # type: ignore[union-attr]  # just asked
    if scene.history is not None and (wanted or scene.history.canary_runs):
        yield from _counts(scene.history.canary_runs, CANARY_RESULTS)


def canary_due(scene: Scene) -> Samples:
    """Counted from the last canary, or since when canaries fly; absent where none has to.

    The first of a start has twice the time: until one has flown, systemd counts OnActiveSec=
    anew at each daemon-reload, and whoever installs a package or another instance makes one.
    """
    if scene.units is None or scene.history is None or not scene.units.service.lives:
        return
    profile = scene.files.profile if scene.files is not None else None
    if profile is not None and profile.canary is not None:
        timer = scene.units.canary_timer
        flies = timer.started_at if timer is not None and timer.active_state == "active" else 0.0
        begun = max(scene.units.service.started_at, flies)
        flown, canary = scene.history.canary_at, profile.canary
        since = flown if flown > begun else begun + canary.every
        yield (), since + canary.every + canary.spread


def _counts(found: Mapping[str, int], always: tuple[str, ...]) -> Samples:
    for name in sorted({*found, *always}):
        yield (name,), float(found.get(name, 0))


def drift(scene: Scene) -> Samples:
    """Absent unless both disk and systemd can be asked."""
    if scene.files is not None and scene.units is not None and scene.files.current is not None:
        yield (), float(len(scene.files.drift))


def contract_broken(scene: Scene) -> Samples:
    """No row where all is there, or vLLM does not answer."""
    for name in (scene.engine.missing or ()) if scene.engine is not None else ():
        yield (name,), 1.0


def contract_missing(scene: Scene) -> Samples:
    """Absent while vLLM does not answer."""
    if scene.engine is not None and scene.engine.missing is not None:
        yield (), float(len(scene.engine.missing))


def errors(scene: Scene) -> Samples:
    """One counter a source; that of systemd is the same for all instances."""
    for source, count in scene.errors.items():
        yield (source.value,), float(count)


def ages(scene: Scene) -> Samples:
    """Grows while a source hangs or fails."""
    for source, age in scene.ages.items():
        yield (source.value,), age
