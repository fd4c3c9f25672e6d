"""The canary on a real systemd: it comes and goes with profile and service, and disturbs neither."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stage import Finished, Stage

pytestmark = pytest.mark.system

UNITS = "/etc/systemd/system"
SLOWLY: Mapping[str, Any] = {"every": "1h", "max_tokens": 64}
"""A canary that only flies when the test calls it."""
DIES = ("systemctl", "kill", "--signal=USR1", "--kill-whom=main")
HANGS = ("systemctl", "kill", "--signal=USR2", "--kill-whom=main")


def timer(stage: Stage) -> str:
    return f"kimisvc-{stage.instance}-canary.timer"


def canary(stage: Stage) -> str:
    return f"kimisvc-{stage.instance}-canary.service"


def fly(stage: Stage) -> Finished:
    """Call the canary and wait for its end, as the timer would."""
    return stage.sandbox.run("systemctl", "start", canary(stage), check=False)


def newest(stage: Stage) -> dict[str, Any]:
    """What history keeps of the newest canary."""
    found: dict[str, Any] = stage.history()["canaries"][0]
    return found


def shown(stage: Stage, unit: str, *properties: str) -> list[str]:
    """What systemd says of a unit's properties, in the order asked for."""
    return [
        stage.sandbox.run("systemctl", "show", "-P", name, unit).stdout.strip()
        for name in properties
    ]


def quiet(stage: Stage) -> None:
    """Nothing is out of place, and nothing that runs was started anew."""
    assert stage.status()["drift"] == []


def test_a_canary_comes_changes_and_goes(stage: Stage) -> None:
    assert stage.apply(stage.profile("plain"))[0] == 0
    pid, verdicts = stage.status()["main_pid"], len(stage.history()["verdicts"])
    for name, settings in (("with", SLOWLY), ("later", {**SLOWLY, "every": "2h"})):
        path = stage.profile(name, canary=settings)
        status, answer = stage.apply(path)
        assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer
        assert shown(stage, timer(stage), "ActiveState", "UnitFileState") == ["active", "enabled"]
        assert shown(stage, timer(stage), "NeedDaemonReload") == ["no"]
        quiet(stage)
        assert stage.apply(path)[1]["outcome"] == "unchanged"
    assert "OnUnitActiveUSec=2h" in shown(stage, timer(stage), "TimersMonotonic")[0]
    assert fly(stage).returncode == 0
    assert newest(stage)["result"] == "measured"
    path = stage.profile("plain")
    status, answer = stage.apply(path)
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer
    left = stage.sandbox.run(
        "find", UNITS, "-name", f"kimisvc-{stage.instance}-canary*", "-o",
        "-path", f"*{stage.service}.wants/*",
    )  # fmt: skip
    assert left.stdout == ""
    assert shown(stage, timer(stage), "LoadState", "ActiveState") == ["not-found", "inactive"]
    quiet(stage)
    assert stage.apply(path)[1]["outcome"] == "unchanged"
    assert stage.status()["canary"] is None
    assert stage.status()["main_pid"] == pid
    assert len(stage.history()["verdicts"]) == verdicts


def test_a_canary_measures_with_the_key_and_without_power(stage: Stage) -> None:
    secrets = f"/etc/kimisvc/{stage.instance}.secrets"
    stage.sandbox.write(secrets, "VLLM_API_KEY=q8Zr-planted-key-5f2cT1\n")
    stage.sandbox.run("chmod", "600", secrets)
    path = stage.profile("keyed", service={"secrets_file": secrets}, canary=SLOWLY)
    assert stage.apply(path)[0] == 0
    assert fly(stage).returncode == 0
    row = newest(stage)
    assert (row["result"], row["generation"]) == ("measured", 1), row
    assert 60 < row["low"] <= row["decode_tok_s"] <= row["high"]
    assert 0 < row["ttft_s"] < 5
    seen = stage.status()
    assert seen["canary"]["decode_tok_s"] == row["decode_tok_s"]
    assert row["invocation"] == seen["invocation_id"]
    text = stage.kimisvc("status", "--instance", stage.instance).stdout
    assert "canary" in text
    assert "measured" in text
    assert "canary" in stage.kimisvc("history", "--instance", stage.instance).stdout
    folder = f"/run/kimisvc/{stage.instance}/canary"
    assert stage.sandbox.run("stat", "-c", "%U", folder).stdout == "kimisvc\n"
    assert stage.sandbox.run("ls", "-A", folder).stdout == ""


def test_the_timer_flies_it_and_lives_with_the_service(stage: Stage) -> None:
    path = stage.profile("often", canary={"every": "10s", "max_tokens": 64})
    assert stage.apply(path)[0] == 0
    measured = "measured"  # one may still find the gate at work
    stage.until(
        lambda s: s["canary"] is not None and s["canary"]["result"] == measured,
        "a canary flew", timeout=90.0,
    )  # fmt: skip
    assert shown(stage, timer(stage), "ActiveState") == ["active"]
    stage.sandbox.run("systemctl", "stop", stage.service)
    assert shown(stage, timer(stage), "ActiveState") == ["inactive"]
    for unit in (timer(stage), canary(stage)):
        assert stage.sandbox.run("systemctl", "start", unit, check=False).returncode != 0
        assert shown(stage, unit, "ActiveState") == ["inactive"]
        assert shown(stage, stage.service, "ActiveState") == ["inactive"]
    stage.sandbox.run("systemctl", "start", stage.service)
    assert shown(stage, timer(stage), "ActiveState") == ["active"]


def test_a_canary_is_there_again_after_a_boot(stage: Stage) -> None:
    assert stage.apply(stage.profile("booted", canary=SLOWLY))[0] == 0
    stage.sandbox.reboot()
    stage.until(lambda s: s["verdict"] is not None, "proven again", timeout=90.0)
    assert shown(stage, timer(stage), "ActiveState") == ["active"]
    quiet(stage)


def test_a_canary_spends_no_try_of_its_service(stage: Stage) -> None:
    """Never accepted, two tries: the first start is one, the one after the crash the other."""
    path = stage.profile(
        "vague", {"fault": "no_usage"}, service={"starts": 2, "restart_delay": "8s"}, canary=SLOWLY
    )
    assert stage.apply(path)[0] == 6
    before = stage.status()
    stage.sandbox.run(*DIES, stage.service)
    stage.until(lambda s: s["unit_sub_state"] == "auto-restart", "between two starts")
    for unit in (canary(stage), timer(stage)):
        stage.sandbox.run("systemctl", "start", "--no-block", unit)
    after = stage.until(
        lambda s: s["verdict"] is not None and s["main_pid"] not in (0, before["main_pid"]),
        "started and judged again",
    )
    assert (after["unit_state"], after["restarts"]) == ("active", 1)
    assert shown(stage, timer(stage), "ActiveState") == ["active"]
    assert stage.history()["rollbacks"] == []


def test_no_timer_is_left_when_systemd_gives_up(stage: Stage) -> None:
    path = stage.profile("often", service={"on_fail": "keep", "starts": 1}, canary=SLOWLY)
    assert stage.apply(path)[0] == 0
    assert shown(stage, timer(stage), "ActiveState") == ["active"]
    stage.sandbox.run("systemctl", "stop", stage.service)
    broken = stage.profile(
        "broken", {"die_during_load": 3}, service={"on_fail": "keep", "starts": 1}, canary=SLOWLY
    )
    assert stage.apply(broken)[0] == 5
    assert shown(stage, stage.service, "ActiveState") == ["failed"]
    assert shown(stage, timer(stage), "ActiveState") == ["inactive"]


def test_a_server_others_use_is_left_alone(stage: Stage) -> None:
    """Its gate takes five to seven requests, a canary three: those after the seventh are disturbed."""
    script = {"other_requests": 1, "other_tokens": 5, "other_during": list(range(8, 200))}
    assert stage.apply(stage.profile("shared", script, canary=SLOWLY))[0] == 0
    assert fly(stage).returncode == 0
    row = newest(stage)
    assert (row["result"], row["decode_tok_s"]) == ("skipped_busy", None), row
    assert "others used the server" in row["reason"]


def test_a_hung_engine_is_a_failed_canary_and_no_rollback(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    assert stage.apply(stage.profile("two", env={"OMP_NUM_THREADS": "2"}, canary=SLOWLY))[0] == 0
    before = stage.status()
    stage.sandbox.run(*HANGS, stage.service)
    assert fly(stage).returncode != 0
    row = newest(stage)
    assert row["result"] == "failed", row
    assert row["reason"].startswith("accepted, no first token"), row
    after = stage.status()
    assert (after["main_pid"], after["generation"]) == (before["main_pid"], 2)
    assert shown(stage, canary(stage), "ActiveState", "Result") == ["failed", "exit-code"]
    assert stage.history()["rollbacks"] == []
    assert (
        stage.apply(stage.profile("two", env={"OMP_NUM_THREADS": "2"}))[1]["outcome"] == "recorded"
    )
    assert canary(stage) not in stage.sandbox.run("systemctl", "--failed", "--plain").stdout


def test_a_gate_keeps_canaries_away(stage: Stage) -> None:
    path = stage.profile("loads", {"load_seconds": 6.0}, canary=SLOWLY)
    assert stage.kimisvc("apply", path, "--no-follow").returncode == 0
    stage.until(lambda s: s["progress"] is not None, "loading")
    assert fly(stage).returncode == 0
    row = newest(stage)
    assert (row["result"], row["reason"]) == ("skipped_not_ready", "its gate is at work")
    done = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
    assert json.loads(done.stdout)["outcome"] == "accepted", done.stderr


def test_a_rollback_takes_the_canary_back_too(stage: Stage) -> None:
    assert stage.apply(stage.profile("one"))[0] == 0
    wrong = {"default_answer": "I like trains."}
    assert stage.apply(stage.profile("two", wrong, canary=SLOWLY))[0] == 4
    assert shown(stage, timer(stage), "LoadState", "ActiveState") == ["not-found", "inactive"]
    quiet(stage)


def test_an_edited_timer_is_not_overwritten(stage: Stage) -> None:
    assert stage.apply(stage.profile("one", canary=SLOWLY))[0] == 0
    stage.sandbox.run("sed", "-i", "s/1h/3h/", f"{UNITS}/{timer(stage)}")
    for settings in ({"canary": {**SLOWLY, "every": "2h"}}, {}):
        status, answer = stage.apply(stage.profile("two", **settings))
        assert status == 7, answer
        assert timer(stage) in answer["problems"][0]["file"]
    status, answer = stage.apply(stage.profile("two"), "--overwrite")
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer
    quiet(stage)


def test_a_timer_that_was_switched_off_is_switched_on_by_apply(stage: Stage) -> None:
    path = stage.profile("one", canary=SLOWLY)
    assert stage.apply(path)[0] == 0
    stage.sandbox.run("systemctl", "disable", "--now", timer(stage))
    assert len(stage.status()["drift"]) == 2
    status, answer = stage.apply(path)
    assert (status, answer["outcome"], answer["restarted"]) == (0, "recorded", []), answer
    assert shown(stage, timer(stage), "ActiveState", "UnitFileState") == ["active", "enabled"]
    quiet(stage)
