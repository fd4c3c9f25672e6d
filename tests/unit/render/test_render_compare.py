"""What has to be written, and what a change costs: nothing, a daemon-reload or a load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.records.profile import HardwareSettings, OnFail, Profile, ServiceSettings, VllmSettings
from kimisvc.records.units import UnitFile
from kimisvc.render.compare import Change, compare, effective
from kimisvc.render.units import render

if TYPE_CHECKING:
    from kimisvc.records.units import Installation

PLAIN = Profile("plain", VllmSettings("/opt/vllm/bin/vllm", "/srv/model"), args={"seed": 1})
SERVICE, GATE, ROLLBACK = (
    "kimisvc-kimi.service",
    "kimisvc-kimi-gate.service",
    "kimisvc-kimi-rollback.service",
)
LINES = st.lists(
    st.one_of(
        st.sampled_from(["", "# a comment", "; another", "[Service]", "# settings: sha256:1"]),
        st.from_regex("[A-Z][a-z]{1,8}=[a-z]{0,8}", fullmatch=True),
    )
)


def changes(
    before: Profile, after: Profile, templates: dict[str, str], place: Installation
) -> dict[str, Change]:
    installed: dict[str, str | None] = {u.name: u.text for u in render(before, templates, place)}
    compared = compare(installed, render(after, templates, place))
    return {c.name: c.change for c in compared if c.change is not Change.SAME}


def test_nothing_changes_nothing(templates: dict[str, str], place: Installation) -> None:
    assert changes(PLAIN, PLAIN, templates, place) == {}


def test_units_that_are_not_there_are_new(templates: dict[str, str], place: Installation) -> None:
    wanted = render(PLAIN, templates, place)
    compared = compare({wanted[0].name: None}, wanted)
    assert [c.change for c in compared] == [Change.NEW] * 4
    assert compared[0].diff.startswith(f"--- {SERVICE} now\n+++ {SERVICE}\n")


def test_another_name_or_description_changes_only_comments(
    templates: dict[str, str], place: Installation
) -> None:
    after = replace(PLAIN, name="other", description="other")
    assert changes(PLAIN, after, templates, place) == {
        SERVICE: Change.COSMETIC, GATE: Change.COSMETIC, ROLLBACK: Change.COSMETIC,
    }  # fmt: skip


@pytest.mark.parametrize(
    "service",
    [
        ServiceSettings(starts=3),
        ServiceSettings(restart_delay=20),
        ServiceSettings(load_timeout=3600),
        ServiceSettings(stop_timeout=100),
    ],
)
def test_patience_changes_without_a_load(
    service: ServiceSettings, templates: dict[str, str], place: Installation
) -> None:
    after = changes(PLAIN, replace(PLAIN, service=service), templates, place)
    assert after[SERVICE] is Change.RELOADED
    assert set(after.values()) == {Change.RELOADED}


def test_what_follows_a_failure_is_no_matter_of_units(
    templates: dict[str, str], place: Installation
) -> None:
    after = replace(PLAIN, service=ServiceSettings(on_fail=OnFail.KEEP))
    assert changes(PLAIN, after, templates, place) == {}


@pytest.mark.parametrize(
    "after",
    [
        replace(PLAIN, args={"seed": 2}),
        replace(PLAIN, args={}),
        replace(PLAIN, env={"NCCL_ALGO": "Ring"}),
        replace(PLAIN, vllm=replace(PLAIN.vllm, port=8001)),
        replace(PLAIN, vllm=replace(PLAIN.vllm, model="/srv/other")),
        replace(PLAIN, vllm=replace(PLAIN.vllm, executable="/opt/other/bin/vllm")),
        replace(PLAIN, service=ServiceSettings(user="vllm")),
        replace(PLAIN, service=ServiceSettings(memory_max=2**30)),
        replace(PLAIN, service=ServiceSettings(working_directory="/srv")),
        replace(PLAIN, service=ServiceSettings(limit_nofile=65536)),
        replace(PLAIN, hardware=HardwareSettings(gpus=2)),
    ],
)
def test_what_the_process_sees_costs_a_load(
    after: Profile, templates: dict[str, str], place: Installation
) -> None:
    assert changes(PLAIN, after, templates, place)[SERVICE] is Change.CHANGED


def test_what_the_gate_asks_costs_a_gate_and_no_load(
    templates: dict[str, str], place: Installation
) -> None:
    after = replace(PLAIN, probe=replace(PLAIN.probe, min_runs=4))
    assert changes(PLAIN, after, templates, place) == {GATE: Change.CHANGED}


def test_an_option_that_looks_like_a_setting_is_still_an_option(
    templates: dict[str, str], place: Installation
) -> None:
    before = replace(PLAIN, args={"x": "Restart=no"})
    after = replace(PLAIN, args={"x": "Restart=on-failure"})
    assert changes(before, after, templates, place)[SERVICE] is Change.CHANGED


def test_effective_keeps_what_counts() -> None:
    text = "# made by\n# settings: sha256:1\n\n[Service]\n; why\n  Type=exec  \nExecStart=/a \\\n --b\n"
    assert effective(text) == "# settings: sha256:1\n[Service]\nType=exec\nExecStart=/a \\\n--b"


@given(LINES, LINES)
def test_units_are_the_same_exactly_when_their_texts_are(old: list[str], new: list[str]) -> None:
    (before, after) = ("\n".join(old), "\n".join(new))
    (compared,) = compare({"u": before}, [UnitFile("u", after)])
    assert (compared.change is Change.SAME) == (before == after)
    assert (compared.change in (Change.SAME, Change.COSMETIC)) == (
        effective(before) == effective(after)
    )


@given(LINES, st.integers(0), st.sampled_from(["# new comment", "", "; c", "   "]))
def test_a_comment_is_cosmetic_wherever_it_stands(lines: list[str], at: int, line: str) -> None:
    before = [*lines, "Type=exec"]
    after = before.copy()
    after.insert(at % len(before), line)
    (compared,) = compare({"u": "\n".join(before)}, [UnitFile("u", "\n".join(after))])
    assert compared.change is Change.COSMETIC
    assert compared.diff
