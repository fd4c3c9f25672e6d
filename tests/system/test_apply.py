"""The main job on a real systemd, with the stand-in: each ending of an apply."""

from __future__ import annotations

import json
import threading

import pytest
from stage import Stage

pytestmark = pytest.mark.system

WRONG_ANSWER = {"default_answer": "I like trains."}


def test_requests_may_end_before_the_restart(stage: Stage) -> None:
    tokens = 1200  # 6 s
    stage.apply(stage.profile("used", {"max_model_len": 2 * tokens}))
    answer = stage.use(tokens)
    done = stage.kimisvc("apply", "--drain", "1min", stage.profile("next"))
    assert done.returncode == 0, done.stderr
    assert f"waiting for requests on port {stage.port} to end, 1min at most" in done.stderr
    assert "restarting all the same" not in done.stderr
    assert stage.sandbox.read(answer).rstrip().endswith("data: [DONE]")


def test_first_install(stage: Stage) -> None:
    status, answer = stage.apply(stage.profile("first"))
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "PASS")
    assert answer["generation"] == 1
    assert answer["previous_generation"] is None
    assert answer["decode_tok_s_low"] > 100
    seen = stage.status()
    assert seen["profile"] == "first"
    assert seen["generation"] == seen["accepted_generation"] == 1
    assert seen["unit_state"] == "active"
    assert seen["enabled"] == "enabled"
    assert seen["ready"] is True
    assert seen["drift"] == []
    target = stage.sandbox.run("systemctl", "is-enabled", "kimisvc.target")
    assert target.stdout.strip() == "enabled"


def test_apply_twice_restarts_nothing(stage: Stage) -> None:
    path = stage.profile("same")
    stage.apply(path)
    before = stage.status()
    status, answer = stage.apply(path)
    after = stage.status()
    assert (status, answer["outcome"], answer["restarted"]) == (0, "unchanged", [])
    assert after["main_pid"] == before["main_pid"]
    assert after["invocation_id"] == before["invocation_id"]
    assert after["generation"] == 1
    assert len(stage.history()["verdicts"]) == 1


def test_only_the_gate_changes(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    before = stage.status()
    status, answer = stage.apply(stage.profile("two", gate={"decode_tok_s": ">20~30"}))
    after = stage.status()
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "PASS")
    assert answer["restarted"] == [f"kimisvc-{stage.instance}-gate.service"]
    assert after["main_pid"] == before["main_pid"]
    assert after["invocation_id"] == before["invocation_id"]
    assert after["accepted_generation"] == 2
    assert stage.history()["verdicts"][0]["goal"] == 30


def test_fail_rolls_back(stage: Stage) -> None:
    """Whatever else lies beside the instances: somebody's backup, say."""
    stage.apply(stage.profile("good"))
    stage.sandbox.run("touch", "/var/lib/kimisvc/backup.tar.gz")
    status, answer = stage.apply(stage.profile("bad", WRONG_ANSWER))
    assert (status, answer["outcome"], answer["verdict"]) == (4, "rolled-back", "FAIL")
    assert answer["exit"] == 4
    seen = stage.status()
    assert seen["profile"] == "good"
    assert seen["generation"] == seen["accepted_generation"] == 1
    assert seen["verdict"] == "PASS"
    kept = stage.history()
    assert [v["verdict"] for v in kept["verdicts"]] == ["PASS", "FAIL", "PASS"]
    assert [(r["from_generation"], r["to_generation"]) for r in kept["rollbacks"]] == [(2, 1)]
    assert [a["outcome"] for a in kept["applies"]] == ["rolled-back", "accepted"]


def test_too_slow_rolls_back(stage: Stage) -> None:
    stage.apply(stage.profile("quick"))
    status, answer = stage.apply(stage.profile("slow", {"decode_tok_s": 30.0}))
    assert (status, answer["verdict"]) == (4, "FAIL")
    assert answer["decode_tok_s_high"] < 60
    assert stage.status()["profile"] == "quick"


def test_between_floor_and_goal_is_degraded_and_accepted(stage: Stage) -> None:
    status, answer = stage.apply(stage.profile("middling", {"decode_tok_s": 80.0}))
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "DEGRADED")


def test_a_failed_gate_only_change_rolls_back_without_a_reload(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    before = stage.status()
    status, _ = stage.apply(stage.profile("two", golden={"expect": "London"}))
    after = stage.status()
    assert status == 4
    assert after["main_pid"] == before["main_pid"]
    assert after["generation"] == 1


def test_fail_on_the_first_install(stage: Stage) -> None:
    status, answer = stage.apply(stage.profile("bad", WRONG_ANSWER))
    assert (status, answer["outcome"], answer["verdict"]) == (5, "not-restored", "FAIL")
    seen = stage.status()
    assert seen["unit_state"] == "active"
    assert seen["accepted_generation"] is None


def test_on_fail_keep_keeps(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    status, _ = stage.apply(stage.profile("bad", WRONG_ANSWER, service={"on_fail": "keep"}))
    seen = stage.status()
    assert status == 5
    assert (seen["profile"], seen["accepted_generation"]) == ("bad", 1)


def test_inconclusive(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    status, answer = stage.apply(stage.profile("vague", {"fault": "no_usage"}))
    assert (status, answer["outcome"], answer["verdict"]) == (6, "inconclusive", "INCONCLUSIVE")
    seen = stage.status()
    assert (seen["unit_state"], seen["generation"]) == ("active", 2)
    assert seen["accepted_generation"] == 1


def test_engine_dies_with_status_0_after_acceptance(stage: Stage) -> None:
    stage.apply(stage.profile("mortal"))
    before = stage.status()
    stage.sandbox.run("systemctl", "kill", "--signal=USR1", "--kill-whom=main", stage.service)
    ended = stage.sandbox.run("journalctl", "-u", stage.service, "--no-pager", "-o", "cat")
    after = stage.until(
        lambda s: s["invocation_id"] != before["invocation_id"] and s["verdict"] == "PASS",
        "restarted and proven",
    )
    assert after["generation"] == after["accepted_generation"] == 1
    assert "status=" not in ended.stdout  # status 0 is the one that systemd does not mention
    assert len(stage.history()["verdicts"]) == 2
    assert stage.history()["rollbacks"] == []


def test_never_ready_meets_the_deadline(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    stuck = stage.profile("stuck", {"never_ready": True}, service={"load_timeout": "4s"})
    status, answer = stage.apply(stuck)
    assert (status, answer["outcome"]) == (4, "rolled-back")
    assert "not ready 4 s after its start" in answer["reason"]
    assert "connection refused" in answer["reason"]
    assert stage.status()["verdict"] == "PASS"


def test_start_limit_hit(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    status, answer = stage.apply(
        stage.profile("dying", {"die_during_load": 1, "load_seconds": 2.0})
    )
    assert (status, answer["outcome"]) == (4, "rolled-back")
    assert "gave up after 2 starts" in answer["reason"]
    assert "Engine core initialization failed" in answer["reason"]
    seen = stage.status()
    assert (seen["profile"], seen["verdict"]) == ("good", "PASS")
    starts = [s for s in stage.history()["starts"] if s["profile"] == "dying"]
    assert starts
    assert all(s["ready_at"] is None for s in starts)


def test_a_refused_option_is_not_tried_twice(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    status, answer = stage.apply(stage.profile("typo", {"exit_at_once": 2}))
    assert (status, answer["outcome"]) == (4, "rolled-back")
    assert "gave up after 1 start (" in answer["reason"]
    assert "exit status 2" in answer["reason"]


def test_start_failed_on_the_first_install(stage: Stage) -> None:
    status, answer = stage.apply(stage.profile("dying", {"die_during_load": 1}))
    assert (status, answer["outcome"], answer["verdict"]) == (5, "not-restored", None)
    assert stage.status()["unit_state"] == "failed"


def test_operator_killed_in_the_middle_of_a_load(stage: Stage) -> None:
    path = stage.profile("lonely", {"load_seconds": 3.0})
    begin = f"kimisvc apply {path} & pid=$!"
    loading = f"timeout 30 bash -c 'until systemctl is-active -q {stage.service}; do :; done'"
    end = "kill -KILL $pid; wait $pid"
    stage.sandbox.run("bash", "-c", f"{begin}; {loading}; {end}", check=False)
    seen = stage.until(lambda s: s["verdict"] is not None, "decided")
    assert seen["verdict"] == "PASS"
    assert seen["accepted_generation"] == 1


def test_reboot_brings_it_back_and_proves_it(stage: Stage) -> None:
    stage.apply(stage.profile("durable"))
    before = stage.status()
    stage.sandbox.reboot()
    after = stage.until(lambda s: s["verdict"] is not None, "proven after the reboot")
    assert after["invocation_id"] != before["invocation_id"]
    assert (after["verdict"], after["accepted_generation"]) == ("PASS", 1)


def test_power_cut_in_the_middle_of_a_load(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    path = stage.profile("two", {"load_seconds": 5.0})
    stage.kimisvc("apply", path, "--no-follow")
    stage.sandbox.crash()
    seen = stage.until(lambda s: s["verdict"] is not None, "proven after the power cut")
    assert (seen["profile"], seen["accepted_generation"], seen["drift"]) == ("two", 2, [])


def test_a_hand_edited_unit_is_refused(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    unit = f"/etc/systemd/system/{stage.service}"
    edited = stage.sandbox.read(unit) + "\n# tuned by hand\nNice=5\n"
    stage.sandbox.write(unit, edited)
    path = stage.profile("two", {"load_seconds": 0.1})
    refused = stage.kimisvc("apply", path)
    assert refused.returncode == 7
    assert "edited by hand" in refused.stderr
    assert "+Nice=5" in refused.stderr
    assert stage.sandbox.read(unit) == edited
    assert stage.status()["generation"] == 1
    status, answer = stage.apply(path, "--overwrite")
    assert status == 0
    (copy,) = answer["copies"]
    assert stage.sandbox.read(copy) == edited
    written = stage.sandbox.read(unit)
    assert "Nice=5" not in written

    stage.sandbox.write(unit, edited)  # the first thing that the alert of a drift advises
    done = stage.kimisvc("rollback", "--instance", stage.instance, "--to", "2", "--json")
    assert done.returncode == 0, done.stderr
    (copy,) = json.loads(done.stdout)["copies"]
    assert stage.sandbox.read(copy) == edited
    assert stage.sandbox.read(unit) == written
    assert stage.status()["drift"] == []


def test_drop_ins_are_left_alone_and_listed(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    drop_in = f"/etc/systemd/system/{stage.service}.d/nice.conf"
    stage.sandbox.run("mkdir", "-p", drop_in.rsplit("/", 1)[0])
    stage.sandbox.write(drop_in, "[Service]\nNice=5\n")
    status, _ = stage.apply(stage.profile("two", {"load_seconds": 0.1}))
    assert status == 0
    assert stage.sandbox.read(drop_in) == "[Service]\nNice=5\n"
    assert stage.status()["drop_ins"] == [drop_in]
    nice = stage.sandbox.run("systemctl", "show", "-P", "Nice", stage.service)
    assert nice.stdout.strip() == "5"


def test_a_second_apply_meanwhile_is_turned_away(stage: Stage) -> None:
    path = stage.profile("busy", {"load_seconds": 10.0})
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(stage.apply(path)[0]))
    thread.start()
    stage.until(lambda s: s["progress"] is not None, "loading")
    dry = stage.kimisvc("apply", "--dry-run", path)
    second = stage.kimisvc("apply", path)
    thread.join()
    assert second.returncode == 75
    assert "kimisvc" in second.stderr
    assert (dry.returncode, dry.stderr) == (75, second.stderr)
    assert first == [0]


def test_rollback_by_hand_goes_to_the_accepted_one_before(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    stage.apply(stage.profile("two", {"load_seconds": 0.1}))
    done = stage.kimisvc("rollback", "--instance", stage.instance, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["outcome"], answer["generation"]) == ("accepted", 1)
    assert stage.status()["profile"] == "one"
    to = stage.kimisvc("rollback", "--instance", stage.instance, "--to", "2", "--json")
    assert to.returncode == 0
    assert stage.status()["profile"] == "two"
    actors = [row["actor"] for row in stage.history()["applies"]]
    assert actors == ["root (rollback)", "root (rollback)", "root", "root"]
    nowhere = stage.kimisvc("rollback", "--instance", stage.instance, "--to", "9")
    assert nowhere.returncode == 1
    assert "no generation 9" in nowhere.stderr


def test_not_root_changes_nothing(stage: Stage) -> None:
    path = stage.profile("unprivileged")
    done = stage.sandbox.run(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "kimisvc", "apply", path,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "sudo" in done.stderr
    assert stage.status()["generation"] is None


def test_anyone_may_read_status_and_history(stage: Stage) -> None:
    stage.apply(stage.profile("open"))
    for command in ("status", "history"):
        done = stage.sandbox.run(
            "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
            "kimisvc", command, "--instance", stage.instance, "--json",
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "open" in done.stdout


def test_no_vllm_at_executable(stage: Stage) -> None:
    path = stage.profile("absent", vllm={"executable": "/opt/nowhere/bin/vllm"})
    done = stage.kimisvc("apply", path)
    assert done.returncode == 7
    assert "/opt/nowhere/bin/vllm" in done.stderr
    assert stage.status()["generation"] is None


def test_a_taken_port_is_named(stage: Stage) -> None:
    stage.apply(stage.profile("holder"))
    other = Stage(stage.sandbox, f"{stage.instance}x", port=stage.port)
    done = other.kimisvc("apply", other.profile("late"))
    assert done.returncode == 7
    assert str(stage.port) in done.stderr
    assert stage.service in done.stderr
