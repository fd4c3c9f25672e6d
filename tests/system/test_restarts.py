"""What systemd does between starts: crashes, stops, cut-off switches; and what kimisvc makes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from stage import EXECUTABLE

if TYPE_CHECKING:
    from stage import Stage

pytestmark = pytest.mark.system

STUBBORN = "/opt/standin/bin/stubborn"
STUBBORN_TEXT = f"""#!/bin/bash
[ "$1" = serve ] || exec {EXECUTABLE} "$@"
trap '' TERM
{EXECUTABLE} "$@" &
while :; do wait; done
"""
DIES = ("systemctl", "kill", "--signal=USR1", "--kill-whom=main")


def rollback_over(stage: Stage) -> None:
    """Wait until the rollback unit has run to its end, if it was called at all."""
    unit = f"kimisvc-{stage.instance}-rollback.service"
    stage.sandbox.run(
        "timeout", "30", "bash", "-c",
        'while systemctl is-active "$0" | grep -q activating; do sleep 0.1; done', unit,
    )  # fmt: skip


def test_an_accepted_service_with_one_try_survives_a_crash(stage: Stage) -> None:
    assert stage.apply(stage.profile("one", service={"starts": 1}))[0] == 0
    before = stage.status()
    stage.sandbox.run(*DIES, stage.service)
    after = stage.until(
        lambda s: s["verdict"] is not None and s["invocation_id"] != before["invocation_id"],
        "started and proven again",
    )
    assert (after["unit_state"], after["verdict"]) == ("active", "PASS")
    assert stage.history()["rollbacks"] == []


def test_a_crash_spends_one_try_and_no_more(stage: Stage) -> None:
    """Inconclusive, so never accepted; two tries: the first crash leaves one."""
    assert stage.apply(stage.profile("vague", {"fault": "no_usage"}))[0] == 6
    before = stage.status()
    stage.sandbox.run(*DIES, stage.service)
    after = stage.until(
        lambda s: s["verdict"] is not None and s["invocation_id"] != before["invocation_id"],
        "started and judged again",
    )
    assert (after["unit_state"], after["verdict"]) == ("active", "INCONCLUSIVE")


def test_apply_waits_while_a_crash_is_slow_to_clear_up(stage: Stage) -> None:
    """A start that dies and takes longer to stop than a rest is believed (5 s)."""
    stage.sandbox.run("mkdir", "-p", f"/etc/systemd/system/{stage.service}.d")
    stage.sandbox.write(
        f"/etc/systemd/system/{stage.service}.d/slow.conf",
        "[Service]\nExecStopPost=/bin/sleep 7\nTimeoutStopSec=20s\n",
    )
    path = stage.profile("slow", {"die_during_load": 3, "load_seconds": 1.0}, service={"starts": 2})
    status, answer = stage.apply(path)
    assert (status, answer["outcome"]) == (5, "not-restored"), answer
    assert "gave up after 2 starts" in answer["reason"]


def test_follow_goes_on_between_two_starts(stage: Stage) -> None:
    assert stage.apply(stage.profile("calm", service={"restart_delay": "8s"}))[0] == 0
    stage.sandbox.run(*DIES, stage.service)
    stage.until(lambda s: s["unit_sub_state"] == "auto-restart", "between two starts")
    done = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "accepted"


def test_a_stop_that_ends_badly_is_still_a_stop(stage: Stage) -> None:
    """Killed at the timeout, the unit is "failed"; nobody wants the old one loaded for that."""
    stage.sandbox.write(STUBBORN, STUBBORN_TEXT)
    stage.sandbox.run("chmod", "755", STUBBORN)
    assert stage.apply(stage.profile("one"))[0] == 0
    two = stage.profile(
        "two", {"never_ready": True}, vllm={"executable": STUBBORN}, service={"stop_timeout": "2s"}
    )
    assert stage.kimisvc("apply", two, "--no-follow").returncode == 0
    stage.until(lambda s: s["unit_state"] == "active", "loading")
    stage.sandbox.run("systemctl", "stop", stage.service, check=False)
    rollback_over(stage)
    seen = stage.status()
    assert (seen["unit_state"], seen["unit_result"]) == ("failed", "timeout")
    assert (seen["generation"], stage.history()["rollbacks"]) == (2, [])


def test_a_stop_of_a_later_try_that_ends_badly_is_still_a_stop(stage: Stage) -> None:
    """It exits with an error on its way out, as a server that crashed before may."""
    stage.sandbox.write(STUBBORN, STUBBORN_TEXT.replace("trap '' TERM", "trap 'exit 1' TERM"))
    stage.sandbox.run("chmod", "755", STUBBORN)
    assert stage.apply(stage.profile("one"))[0] == 0
    two = stage.profile(
        "two", {"never_ready": True}, vllm={"executable": STUBBORN}, service={"starts": 3}
    )
    assert stage.kimisvc("apply", two, "--no-follow").returncode == 0
    first = stage.until(lambda s: s["main_pid"] != 0, "loading")
    stage.sandbox.run("systemctl", "kill", "--signal=KILL", stage.service)
    stage.until(lambda s: s["main_pid"] not in (0, first["main_pid"]), "loading again")
    stage.sandbox.run("systemctl", "stop", stage.service, check=False)
    rollback_over(stage)
    seen = stage.status()
    assert (seen["unit_state"], seen["unit_result"]) == ("failed", "exit-code")
    assert (seen["generation"], stage.history()["rollbacks"]) == (2, [])


def test_a_start_by_hand_that_was_one_too_many_is_rolled_back(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    two = stage.profile("two", {"never_ready": True}, service={"starts": 2})
    assert stage.kimisvc("apply", two, "--no-follow").returncode == 0
    assert stage.sandbox.run("systemctl", "restart", stage.service).returncode == 0
    assert stage.sandbox.run("systemctl", "restart", stage.service, check=False).returncode != 0
    stage.until(lambda s: (s["generation"], s["verdict"]) == (1, "PASS"), "restored and proven")
    (rollback,) = stage.history()["rollbacks"]
    assert "was started too often" in rollback["reason"]


def test_a_drop_in_that_forbids_restarts_does_not_turn_the_rollback_off(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    folder = f"/etc/systemd/system/{stage.service}.d"
    stage.sandbox.run("mkdir", "-p", folder)
    stage.sandbox.write(f"{folder}/once.conf", "[Service]\nRestart=no\n")
    status, answer = stage.apply(stage.profile("two", {"die_during_load": 3}))
    assert (status, answer["outcome"]) == (4, "rolled-back"), answer


def test_another_server_on_the_port_proves_nothing(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    two = stage.profile("two", {"never_ready": True, "load_seconds": 1.0})
    assert stage.kimisvc("apply", two, "--no-follow").returncode == 0
    stage.until(lambda s: s["unit_state"] == "active", "loading")
    # The stand-in binds its port without listening, as vLLM does; with SO_REUSEADDR so can others.
    stage.sandbox.run(
        "systemd-run", f"--unit=foreign-{stage.instance}", "--collect",
        EXECUTABLE, "serve", "/opt/standin/model", "--port", str(stage.port),
        "--served-model-name", "kimi",
    )  # fmt: skip
    seen = stage.until(lambda s: s["verdict"] is not None, "judged")
    stage.sandbox.run("systemctl", "stop", f"foreign-{stage.instance}")
    assert seen["verdict"] == "INCONCLUSIVE"
    assert f"foreign-{stage.instance}.service" in seen["reason"]
    assert seen["accepted_generation"] == 1


def test_a_switch_that_wrote_nothing_costs_no_load(stage: Stage) -> None:
    one = stage.profile("one")
    assert stage.apply(one)[0] == 0
    before = stage.status()
    units = "/etc/systemd/system"
    stage.sandbox.run("mount", "--bind", "-o", "ro", units, units)
    stage.sandbox.run("mount", "-o", "remount,bind,ro", units)
    try:
        status, answer = stage.apply(stage.profile("two", env={"OMP_NUM_THREADS": "2"}))
    finally:
        stage.sandbox.run("umount", units)
    assert status == 1, answer
    assert [a["outcome"] for a in stage.history()["applies"]] == ["broke", "accepted"]
    status, answer = stage.apply(one)
    assert (status, answer["outcome"], answer["restarted"]) == (0, "unchanged", [])
    assert stage.status()["main_pid"] == before["main_pid"]


def lose_the_accepted_one(stage: Stage) -> None:
    """Generation 1 is accepted and lost, 2 runs and could not be judged."""
    assert stage.apply(stage.profile("one"))[0] == 0
    assert stage.apply(stage.profile("vague", {"fault": "no_usage"}))[0] == 6
    stage.sandbox.run("rm", "-rf", f"/var/lib/kimisvc/{stage.instance}/generations/0001")


def test_a_lost_accepted_generation_stops_no_apply(stage: Stage) -> None:
    lose_the_accepted_one(stage)
    three = stage.profile("three", env={"OMP_NUM_THREADS": "2"})
    status, answer = stage.apply(three)
    assert (status, answer["outcome"]) == (0, "accepted"), answer
    stage.sandbox.run("rm", f"/var/lib/kimisvc/{stage.instance}/current/resolved.toml")
    status, answer = stage.apply(three)
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer


def test_a_lost_accepted_generation_is_said_by_the_rollback(stage: Stage) -> None:
    lose_the_accepted_one(stage)
    status, answer = stage.apply(stage.profile("bad", {"default_answer": "I like trains."}))
    assert (status, answer["outcome"]) == (5, "not-restored"), answer
    assert "damaged" in answer["reason"]


def test_a_deadline_that_no_load_would_meet_is_refused(stage: Stage) -> None:
    slow = {"load_seconds": 4.0}
    assert stage.apply(stage.profile("one", slow))[0] == 0
    short = stage.profile("one", slow, service={"load_timeout": "3s"})
    status, answer = stage.apply(short)
    assert (status, answer["outcome"]) == (7, "preflight-refused"), answer
    (problem,) = answer["problems"]
    assert problem["key"] == "service.load_timeout"
    assert stage.status()["generation"] == 1


def test_an_apply_that_was_cut_off_says_nothing_of_what_runs(stage: Stage) -> None:
    """Its row stays open; the next start is judged as what it is, and the next apply closes it."""
    one = stage.profile("one", service={"restart_delay": "8s"})
    assert stage.apply(one)[0] == 0
    database = f"/var/lib/kimisvc/{stage.instance}/history.sqlite"
    stage.sandbox.run(
        "python3", "-c",
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
        " db.execute('INSERT INTO applies VALUES"
        " (99, 1.0, NULL, 7, 1, \"two\", \"root\", \"\", NULL, NULL)'); db.commit()",
        database,
    )  # fmt: skip
    stage.sandbox.run(*DIES, stage.service)
    stage.until(lambda s: s["unit_sub_state"] == "auto-restart", "between two starts")
    done = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (0, "accepted"), done.stdout
    assert stage.apply(stage.profile("three", env={"OMP_NUM_THREADS": "2"}))[0] == 0
    cut_off = next(a for a in stage.history()["applies"] if a["profile"] == "two")
    assert cut_off["outcome"] == "superseded"


def test_an_operator_does_not_go_back_to_what_cannot_run(stage: Stage) -> None:
    copy = f"/opt/standin/bin/vllm-{stage.instance}"
    stage.sandbox.run("cp", EXECUTABLE, copy)
    assert stage.apply(stage.profile("old", vllm={"executable": copy}))[0] == 0
    assert stage.apply(stage.profile("new"))[0] == 0
    before = stage.status()
    stage.sandbox.run("rm", copy)
    done = stage.kimisvc("rollback", "--instance", stage.instance, "--json")
    assert done.returncode == 7, done.stdout
    assert copy in done.stderr
    assert stage.status()["main_pid"] == before["main_pid"]


def test_a_start_that_begins_while_the_gate_settles_gets_a_gate_of_its_own(stage: Stage) -> None:
    """systemd takes the start of a gate for the one that is just ending; settle asks anew."""
    assert stage.apply(stage.profile("one"))[0] == 0
    before = stage.status()
    gate = f"kimisvc-{stage.instance}-gate.service"
    stage.sandbox.run(
        "bash", "-c",
        'set -e; flock /run/kimisvc/$0/switch.lock sleep 15 & systemctl start --no-block "$1";'
        ' timeout 20 bash -c \'until [ "$(systemctl show -P SubState "$0")" = stop-post ];'
        " do sleep 0.05; done' \"$1\";"
        ' systemctl restart "kimisvc-$0.service"; wait',
        stage.instance, gate,
    )  # fmt: skip
    after = stage.until(
        lambda s: s["verdict"] is not None and s["main_pid"] not in (0, before["main_pid"]),
        "the new start judged",
    )
    assert (after["verdict"], after["accepted_generation"]) == ("PASS", 1)


def test_a_stop_between_two_starts_is_a_stop(stage: Stage) -> None:
    """The gate that ends then must not bring back what somebody stops."""
    assert stage.apply(stage.profile("one", service={"restart_delay": "8s"}))[0] == 0
    gate = f"kimisvc-{stage.instance}-gate.service"
    done = stage.sandbox.run(
        "bash", "-c",
        'flock /run/kimisvc/$0/switch.lock sleep 4 & systemctl start --no-block "$1";'
        ' timeout 20 bash -c \'until [ "$(systemctl show -P SubState "$0")" = stop-post ];'
        " do sleep 0.05; done' \"$1\";"
        ' systemctl kill --signal=USR1 --kill-whom=main "kimisvc-$0.service";'
        ' timeout 20 bash -c \'until [ "$(systemctl show -P SubState "$0")" = auto-restart ];'
        ' do sleep 0.05; done\' "kimisvc-$0.service";'
        ' systemctl stop "kimisvc-$0.service"; echo "status $?"; wait',
        stage.instance, gate,
    )  # fmt: skip
    assert "status 0" in done.stdout, done.stderr
    rollback_over(stage)
    stage.sandbox.run(
        "timeout", "30", "bash", "-c",
        'while systemctl is-active "$0" | grep -q activating; do sleep 0.1; done', gate,
    )  # fmt: skip
    assert stage.status()["unit_state"] == "inactive"


@pytest.mark.parametrize("how", ["unreadable", "symlink", "folder", "masked"])
def test_a_unit_that_is_none_stops_nobody(stage: Stage, how: str) -> None:
    one = stage.profile("one")
    assert stage.apply(one)[0] == 0
    path = f"/etc/systemd/system/kimisvc-{stage.instance}-rollback.service"
    stage.sandbox.run("rm", path)
    breaks = {
        "unreadable": f"printf '\\377\\376[Unit]' >{path}",
        "symlink": f"ln -s /nowhere {path}",
        "folder": f"mkdir {path}",
        "masked": f"ln -s /dev/null {path}",
    }
    stage.sandbox.run("sh", "-c", breaks[how])
    drift = "\n".join(stage.status()["drift"])
    assert "edited by hand" in drift
    status, answer = stage.apply(one)
    assert (status, answer["outcome"]) == (7, "preflight-refused")
    if how == "masked":
        assert "systemctl unmask" in answer["problems"][0]["message"]
    status, answer = stage.apply(one, "--overwrite")
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer
    assert stage.status()["drift"] == []
    assert len(answer["copies"]) == 1


def test_what_was_disabled_is_told_and_enabled_again(stage: Stage) -> None:
    one = stage.profile("one")
    assert stage.apply(one)[0] == 0
    stage.sandbox.run("systemctl", "disable", stage.service)
    assert stage.status()["drift"] == [f"{stage.service} is disabled: it would not start at boot"]
    status, answer = stage.apply(one)
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", [])
    assert (stage.status()["drift"], stage.status()["enabled"]) == ([], "enabled")


def test_systemd_may_re_execute_itself_under_a_gate(stage: Stage) -> None:
    path = stage.profile("slow", {"load_seconds": 3.0})
    assert stage.kimisvc("apply", path, "--no-follow").returncode == 0
    stage.until(lambda s: s["progress"] is not None, "loading")
    for _ in range(3):
        stage.sandbox.run("systemctl", "daemon-reexec")
    seen = stage.until(lambda s: s["verdict"] is not None, "judged")
    assert (seen["verdict"], seen["accepted_generation"]) == ("PASS", 1), seen["reason"]


def test_a_damaged_accepted_generation_gives_way_to_one_that_is_whole(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    assert stage.apply(stage.profile("two", env={"OMP_NUM_THREADS": "2"}))[0] == 0
    state = f"/var/lib/kimisvc/{stage.instance}"
    stage.sandbox.run(
        "sh", "-c", f"echo '# edited' >>{state}/generations/0002/units/{stage.service}"
    )
    status, answer = stage.apply(stage.profile("bad", {"default_answer": "I like trains."}))
    assert (status, answer["outcome"]) == (4, "rolled-back"), answer
    assert stage.status()["generation"] == 1


def test_a_link_of_the_state_that_is_none_is_healed_by_apply(stage: Stage) -> None:
    one = stage.profile("one")
    assert stage.apply(one)[0] == 0
    current = f"/var/lib/kimisvc/{stage.instance}/current"
    stage.sandbox.run("sh", "-c", f"rm {current}; echo 1 >{current}")
    assert any("no symlink" in line for line in stage.status()["drift"])
    status, answer = stage.apply(one)
    assert (status, answer["verdict"]) == (0, "PASS"), answer
    assert stage.status()["drift"] == []


def test_a_clock_that_was_set_back_hides_no_start(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    stage.sandbox.run(
        "python3", "-c",
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
        ' db.executemany("INSERT INTO starts (invocation, generation, profile, model, started_at,'
        " ready_at, load_s, sequence) VALUES (?, 1, 'one', 'm', 9e9, 9e9, 1.0, 1000 + ?)\","
        " [(str(n), n) for n in range(30)]); db.commit()",
        f"/var/lib/kimisvc/{stage.instance}/history.sqlite",
    )  # fmt: skip
    assert stage.status()["ready"] is True
