"""One deadline is given, all others follow; none may cut off the one within it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.gate import budget
from kimisvc.records.profile import (
    GateSettings,
    GoldenQuestion,
    ProbeSettings,
    Profile,
    ServiceSettings,
    VllmSettings,
)
from kimisvc.records.proof import IDLE_PATIENCE
from kimisvc.render.deadlines import READY_TIMEOUT, Deadlines, span

VLLM = VllmSettings("/opt/vllm/bin/vllm", "/srv/model")
SECONDS = st.floats(1, 86400, allow_nan=False)

profiles = st.builds(
    Profile,
    name=st.just("p"),
    vllm=st.just(VLLM),
    service=st.builds(
        ServiceSettings,
        load_timeout=SECONDS,
        starts=st.integers(1, 10),
        restart_delay=st.floats(0, 3600),
        stop_timeout=st.floats(1, 3600),
    ),
    probe=st.builds(
        ProbeSettings,
        warmup=st.integers(0, 10),
        max_runs=st.integers(1, 100),
        timeout=st.floats(1, 3600),
    ),
    gate=st.builds(
        GateSettings,
        require_reasoning=st.booleans(),
        throughput_tok_s=st.none() | st.just(900.0),
    ),
    golden=st.lists(st.just(GoldenQuestion("q", "a")), max_size=5).map(tuple),
)


@given(profiles)
def test_load_timeout_ends_before_vllm_s_own_and_that_before_systemd_s(profile: Profile) -> None:
    deadlines = Deadlines.of(profile)
    assert profile.service.load_timeout <= deadlines.engine_ready <= deadlines.start


@given(profiles, st.integers(0, 200_000))
def test_a_ready_timeout_of_the_profile_is_kept_within_systemd_s(
    profile: Profile, own: int
) -> None:
    deadlines = Deadlines.of(replace(profile, env={READY_TIMEOUT: str(own)}))
    assert deadlines.engine_ready == own
    assert max(own, profile.service.load_timeout) <= deadlines.start


@given(profiles)
def test_the_start_limit_outlasts_all_tries(profile: Profile) -> None:
    service = profile.service
    one = service.load_timeout + service.restart_delay + service.stop_timeout
    assert Deadlines.of(profile).start_limit > service.starts * one


@given(profiles)
def test_the_gate_is_not_cut_off_while_it_may_still_prove(profile: Profile) -> None:
    assert Deadlines.of(profile).gate > profile.service.load_timeout + budget(profile)


@given(profiles)
def test_the_rollback_outlasts_the_stop_of_the_service(profile: Profile) -> None:
    assert Deadlines.of(profile).rollback > profile.service.stop_timeout


def test_the_figures_of_a_36_minute_loader() -> None:
    assert Deadlines.of(Profile("p", VLLM)) == Deadlines(
        load=2700, engine_ready=2760, start=2820, start_limit=5790, gate=5310, stop=90,
        rollback=330, canary=360,
    )  # fmt: skip


@given(profiles)
def test_a_canary_ends_by_itself_before_systemd_ends_it(profile: Profile) -> None:
    """The last request may begin when one has already taken all the time of one."""
    assert Deadlines.of(profile).canary > 2 * (profile.probe.timeout + IDLE_PATIENCE)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0"), (0.0004, "1ms"), (0.25, "250ms"), (1, "1s"), (90, "1min 30s"), (2700, "45min"),
        (5530, "1h 32min 10s"), (86400, "24h"), (1_000_000, "277h 46min 40s"),
    ],
)  # fmt: skip
def test_a_time_is_written_as_systemd_reads_it(seconds: float, written: str) -> None:
    assert span(seconds) == written


@given(st.floats(0, 10_000_000))
def test_a_written_time_is_not_shorter_and_less_than_a_millisecond_longer(seconds: float) -> None:
    units = {"h": 3600, "min": 60, "s": 1, "ms": 0.001}
    parts = [re.fullmatch(r"(\d+)(\w*?)", part) for part in span(seconds).split()]
    total = sum(int(part[1]) * units.get(part[2], 1) for part in parts if part)
    assert seconds - 1e-6 <= total < seconds + 0.001 + 1e-6
