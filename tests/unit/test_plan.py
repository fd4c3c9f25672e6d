"""What an apply would do, decided from what lies and runs on the box."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kimisvc.deploy.plan import Action, Situation, Standing, make_plan
from kimisvc.records.units import UnitFile, UnitNames, UnitState

NAMES = UnitNames.of("kimi")
ACTIVE = UnitState(NAMES.service, "loaded", "active", "running", main_pid=7)
IDLE = UnitState(NAMES.gate, "loaded", "inactive", "dead")
SERVICE = "[Service]\nExecStart=/opt/vllm/bin/vllm serve /srv/kimi\n"
GATE = "# settings: sha256:1\n[Service]\nType=oneshot\n"
WANTED = (
    UnitFile(NAMES.service, SERVICE),
    UnitFile(NAMES.gate, GATE),
    UnitFile(NAMES.rollback, "[Service]\nType=oneshot\n"),
    UnitFile(NAMES.target, "[Unit]\n"),
)
TEXTS = {unit.name: unit.text for unit in WANTED}
RUNS = Situation(
    names=NAMES, standing=Standing.SAME, installed=TEXTS, ours=TEXTS, foreign=frozenset(),
    service=ACTIVE, gate=IDLE,
    accepted=True,
)  # fmt: skip
NOTHING_THERE = dict.fromkeys(TEXTS)


def with_text(name: str, text: str) -> Situation:
    there = {**TEXTS, name: text}
    return replace(RUNS, installed=there, ours=there, standing=Standing.OTHER)


@pytest.mark.parametrize(
    ("situation", "action"),
    [
        (RUNS, Action.NOTHING),
        (replace(RUNS, installed=NOTHING_THERE, ours={}, standing=Standing.FIRST), Action.RESTART),
        (with_text(NAMES.service, SERVICE.replace("kimi", "other")), Action.RESTART),
        (with_text(NAMES.service, "# from another profile\n" + SERVICE), Action.RECORD),
        (with_text(NAMES.gate, GATE.replace("sha256:1", "sha256:2")), Action.GATE),
        (replace(RUNS, standing=Standing.OTHER), Action.RECORD),
        (replace(RUNS, accepted=False), Action.GATE),
        (replace(RUNS, service=replace(ACTIVE, active_state="inactive")), Action.RESTART),
        (replace(RUNS, service=replace(ACTIVE, active_state="failed")), Action.RESTART),
        (
            replace(RUNS, accepted=False, gate=replace(IDLE, active_state="activating")),
            Action.FOLLOW,
        ),
        (replace(RUNS, proven=False), Action.GATE),
        (replace(RUNS, owed=Action.RESTART), Action.RESTART),
        (replace(RUNS, owed=Action.RESTART, accepted=False), Action.RESTART),
        (replace(RUNS, owed=Action.GATE), Action.GATE),
        (
            replace(RUNS, standing=Standing.OTHER, gate=replace(IDLE, active_state="activating")),
            Action.GATE,
        ),
        (replace(RUNS, gate=replace(IDLE, active_state="deactivating")), Action.FOLLOW),
        (
            replace(
                with_text(NAMES.gate, GATE.replace("sha256:1", "sha256:2")),
                gate=replace(IDLE, active_state="activating"),
            ),
            Action.GATE,
        ),
    ],
)
def test_what_is_done(situation: Situation, action: Action) -> None:
    assert make_plan(situation, WANTED).action is action


def test_units_that_only_differ_in_comments_are_rewritten_and_nothing_restarts() -> None:
    plan = make_plan(with_text(NAMES.rollback, "# old\n[Service]\nType=oneshot\n"), WANTED)
    assert (plan.action, plan.written) == (Action.RECORD, (NAMES.rollback,))


def test_after_an_upgrade_of_kimisvc_the_same_profile_rewrites_its_units() -> None:
    older = {**TEXTS, NAMES.target: "# older words\n[Unit]\n"}
    plan = make_plan(replace(RUNS, installed=older, ours=older), WANTED)
    assert (plan.action, plan.written) == (Action.RECORD, (NAMES.target,))


def test_a_unit_that_is_not_what_we_wrote_was_edited_by_hand() -> None:
    edited = replace(
        RUNS,
        installed={**TEXTS, NAMES.service: SERVICE + "Nice=5\n"},
        foreign=frozenset({NAMES.service}),
    )
    plan = make_plan(edited, WANTED)
    (edit,) = plan.hand_edits
    assert edit.unit == NAMES.service
    assert "+Nice=5" in edit.diff


def test_a_unit_that_somebody_else_put_there_counts_as_edited_too() -> None:
    foreign = replace(
        RUNS,
        standing=Standing.FIRST,
        ours={},
        installed={**NOTHING_THERE, NAMES.service: "[X]\n"},
        foreign=frozenset({NAMES.service}),
    )
    assert [edit.unit for edit in make_plan(foreign, WANTED).hand_edits] == [NAMES.service]


def test_the_target_of_another_instance_is_no_edit() -> None:
    second = replace(
        RUNS, standing=Standing.FIRST, ours={},
        installed={**NOTHING_THERE, NAMES.target: TEXTS[NAMES.target]},
        foreign=frozenset({NAMES.target}),
    )  # fmt: skip
    assert make_plan(second, WANTED).hand_edits == ()


CANARY = (
    UnitFile(NAMES.canary, "[Service]\nType=oneshot\n"),
    UnitFile(NAMES.canary_timer, "[Timer]\nOnActiveSec=10min\n"),
)
WITH_CANARY = (*WANTED, *CANARY)
TEXTS_WITH_CANARY = {unit.name: unit.text for unit in WITH_CANARY}
CANARY_RUNS = replace(RUNS, installed=TEXTS_WITH_CANARY, ours=TEXTS_WITH_CANARY)


def test_a_canary_comes_without_a_restart_and_without_a_gate() -> None:
    there = {**TEXTS, NAMES.canary: None, NAMES.canary_timer: None}
    plan = make_plan(replace(RUNS, installed=there, standing=Standing.OTHER), WITH_CANARY)
    assert plan.action is Action.RECORD
    assert (plan.written, plan.removed) == ((NAMES.canary, NAMES.canary_timer), ())


def test_a_canary_goes_without_a_restart_and_without_a_gate() -> None:
    plan = make_plan(replace(CANARY_RUNS, standing=Standing.OTHER), WANTED)
    assert plan.action is Action.RECORD
    assert (plan.written, plan.removed) == ((), (NAMES.canary, NAMES.canary_timer))
    assert [u.diff.splitlines()[-1] for u in plan.units[-2:]] == [
        "-Type=oneshot", "-OnActiveSec=10min",
    ]  # fmt: skip


def test_other_times_of_the_canary_are_recorded() -> None:
    later = UnitFile(NAMES.canary_timer, "[Timer]\nOnActiveSec=20min\n")
    plan = make_plan(replace(CANARY_RUNS, standing=Standing.OTHER), (*WITH_CANARY[:-1], later))
    assert (plan.action, plan.written) == (Action.RECORD, (NAMES.canary_timer,))


def test_with_its_canary_in_place_there_is_nothing_to_do() -> None:
    plan = make_plan(CANARY_RUNS, WITH_CANARY)
    assert (plan.action, plan.written, plan.removed) == (Action.NOTHING, (), ())


def test_a_timer_that_was_stopped_is_started_again() -> None:
    assert make_plan(replace(CANARY_RUNS, waiting=False), WITH_CANARY).action is Action.RECORD


def test_what_a_cut_off_removal_left_is_removed() -> None:
    """The generation without a canary is the current one already, and one of its files is left."""
    left = replace(RUNS, installed={**TEXTS, NAMES.canary: CANARY[0].text})
    plan = make_plan(left, WANTED)
    assert (plan.action, plan.removed) == (Action.RECORD, (NAMES.canary,))


def test_a_canary_that_was_edited_is_not_removed_silently() -> None:
    edited = {**TEXTS_WITH_CANARY, NAMES.canary: CANARY[0].text + "Nice=5\n"}
    now = replace(
        CANARY_RUNS, installed=edited, foreign=frozenset({NAMES.canary}), standing=Standing.OTHER
    )
    plan = make_plan(now, WANTED)
    assert [edit.unit for edit in plan.hand_edits] == [NAMES.canary]
    assert NAMES.canary in plan.removed


def test_somebody_elses_unit_under_the_name_of_a_canary_is_left_alone() -> None:
    there = {**TEXTS, NAMES.canary_timer: "[Timer]\n"}
    now = replace(RUNS, installed=there, foreign=frozenset({NAMES.canary_timer}))
    plan = make_plan(now, WANTED)
    assert (plan.action, plan.removed, plan.hand_edits) == (Action.NOTHING, (), ())
    (edit,) = make_plan(now, WITH_CANARY).hand_edits
    assert edit.unit == NAMES.canary_timer


def test_a_unit_that_is_gone_is_written_again() -> None:
    plan = make_plan(replace(RUNS, installed={**TEXTS, NAMES.rollback: None}), WANTED)
    assert plan.written == (NAMES.rollback,)
    assert plan.hand_edits == ()


def test_a_unit_of_another_generation_is_no_edit_but_what_a_cut_off_apply_left() -> None:
    half = replace(RUNS, installed={**TEXTS, NAMES.service: "# of generation 2\n[Service]\n"})
    plan = make_plan(half, WANTED)
    assert plan.hand_edits == ()
    assert plan.action is Action.RESTART


def test_units_put_on_disk_by_somebody_else_are_no_proof_that_they_run() -> None:
    placed = {**TEXTS, NAMES.service: SERVICE.replace("kimi", "other")}
    wanted = tuple(UnitFile(name, text) for name, text in placed.items())
    there = replace(RUNS, installed=placed, standing=Standing.OTHER)
    assert make_plan(there, wanted).action is Action.RESTART


def test_a_gate_unit_that_a_cut_off_apply_left_is_no_proof_either() -> None:
    placed = {**TEXTS, NAMES.gate: GATE.replace("sha256:1", "sha256:2")}
    wanted = tuple(UnitFile(name, text) for name, text in placed.items())
    there = replace(RUNS, installed=placed, standing=Standing.OTHER)
    assert make_plan(there, wanted).action is Action.GATE
