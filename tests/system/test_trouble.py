"""What fails around kimisvc: terminals, operators, disk, D-Bus, journal; each has its outcome."""

from __future__ import annotations

import json
import signal
import time

import pytest
from stage import EXECUTABLE, Stage

pytestmark = pytest.mark.system
RETRY_S = 60.0
"""RestartSec= of the rollback unit, which is tried until history can take what waits."""


SIGNALLED = """
import signal, subprocess, sys
path, unit, number = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open("/tmp/said", "w") as said:
    apply = subprocess.Popen(["kimisvc", "apply", path], stdout=said, stderr=said)
wait = "until systemctl is-active -q $0; do :; done"
subprocess.run(["timeout", "30", "bash", "-c", wait, unit], check=True)
apply.send_signal(int(number))
print(apply.wait())
print(open("/tmp/said").read())
"""


def signalled(stage: Stage, path: str, number: signal.Signals) -> tuple[int, str]:
    """Apply, send apply a signal once vLLM loads; return its status and what it said."""
    done = stage.sandbox.run("python3", "-c", SIGNALLED, path, stage.service, str(number.value))
    status, _, said = done.stdout.partition("\n")
    return int(status), said


def test_ctrl_c_leaves_the_gate_at_work(stage: Stage) -> None:
    status, said = signalled(stage, stage.profile("left", {"load_seconds": 3.0}), signal.SIGINT)
    assert status == 130, said
    assert f"kimisvc status --follow --instance {stage.instance}" in said
    assert "Traceback" not in said
    followed = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
    assert followed.returncode == 0, followed.stderr
    answer = json.loads(followed.stdout)
    assert (answer["outcome"], answer["verdict"], answer["generation"]) == ("accepted", "PASS", 1)
    assert [a["outcome"] for a in stage.history()["applies"]] == ["accepted"]


IN_THE_SWITCH = """
import os, signal, subprocess, sys, time
path, owed, delay = sys.argv[1], sys.argv[2], float(sys.argv[3])
signal.signal(signal.SIGINT, signal.SIG_DFL)
with open("/tmp/said", "w") as said:
    apply = subprocess.Popen(["kimisvc", "apply", path], stdout=said, stderr=said)

def waits():
    with open(f"/proc/{apply.pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"

while not os.path.exists(owed) and apply.poll() is None:
    pass
time.sleep(delay)
while os.path.exists(owed) and not waits():
    pass  # until it waits for an answer of systemd
print(int(os.path.exists(owed)))
apply.send_signal(signal.SIGINT)
print(apply.wait())
print(open("/tmp/said").read())
"""


def test_ctrl_c_in_the_middle_of_the_switch_breaks_nothing(stage: Stage) -> None:
    """However far it is: no call to systemd fails, and the gate that apply speaks of is at work."""
    owed = f"/run/kimisvc/{stage.instance}/owed.json"
    within = 0
    for turn, delay in enumerate((0.0, 0.004, 0.008, 0.016, 0.03, 0.05), start=1):
        path = stage.profile(f"turn{turn}", {"seed": turn})
        done = stage.sandbox.run("python3", "-c", IN_THE_SWITCH, path, owed, str(delay))
        switching, status, said = done.stdout.split("\n", 2)
        within += int(switching)
        assert status == "130", said
        assert "the gate goes on" in said
        assert stage.sandbox.run("test", "-e", owed, check=False).returncode == 1, said
        followed = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
        assert followed.returncode == 0, f"{said}\n{followed.stdout}{followed.stderr}"
        answer = json.loads(followed.stdout)
        assert (answer["outcome"], answer["generation"]) == ("accepted", turn), said
        status_now = stage.status()
        assert (status_now["accepted_generation"], status_now["drift"]) == (turn, [])
    assert within >= 2, "the switch was over each time before the signal was sent"


def test_a_lost_terminal_leaves_the_gate_at_work(stage: Stage) -> None:
    status, _ = signalled(stage, stage.profile("lost", {"load_seconds": 2.0}), signal.SIGHUP)
    assert status == -signal.SIGHUP
    assert stage.until(lambda s: s["verdict"] is not None, "decided")["accepted_generation"] == 1


def test_follow_when_nothing_is_at_work_shows_the_status(stage: Stage) -> None:
    stage.apply(stage.profile("calm"))
    done = stage.kimisvc("status", "--follow", "--instance", stage.instance)
    assert done.returncode == 0
    assert "calm" in done.stdout


def test_follow_ends_as_the_apply_would_have(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    bad = stage.profile("bad", {"load_seconds": 2.0, "default_answer": "I like trains."})
    assert stage.kimisvc("apply", bad, "--no-follow").returncode == 0
    done = stage.kimisvc("status", "--follow", "--instance", stage.instance, "--json")
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["outcome"] == "rolled-back"


def kept_ending(stage: Stage) -> tuple[str, int]:
    """How the newest apply ended, as the history has it once it does."""
    deadline = time.monotonic() + 60.0
    while (newest := stage.history()["applies"][0])["outcome"] is None:
        assert time.monotonic() < deadline, f"it never ends: {newest}"
        time.sleep(0.2)
    return newest["outcome"], newest["exit"]


def test_an_apply_that_nobody_follows_is_rolled_back_once_what_was_restored_is_proven(
    stage: Stage,
) -> None:
    stage.apply(stage.profile("good", {"load_seconds": 5.0}))
    bad = stage.profile("bad", {"default_answer": "I like trains."})
    assert stage.kimisvc("apply", bad, "--no-follow").returncode == 0
    stage.until(lambda s: (s["generation"], s["unit_state"]) == (1, "active"), "restored")
    assert stage.history()["applies"][0]["outcome"] is None  # it loads, and has proven nothing
    assert kept_ending(stage) == ("rolled-back", 4)
    assert stage.status()["verdict"] == "PASS"


def test_an_apply_that_nobody_follows_is_not_restored_where_what_was_restored_fails_too(
    stage: Stage,
) -> None:
    script = f"/etc/script-{stage.instance}.json"
    wrong = {"default_answer": "I like trains."}
    stage.sandbox.write(script, "{}")
    assert stage.apply(stage.profile("good", {"script": script}))[0] == 0
    stage.sandbox.write(script, json.dumps(wrong))
    assert stage.kimisvc("apply", stage.profile("bad", wrong), "--no-follow").returncode == 0
    assert kept_ending(stage) == ("not-restored", 5)
    back = [(r["from_generation"], r["to_generation"]) for r in stage.history()["rollbacks"]]
    assert back == [(1, None), (2, 1)]


def test_another_profile_during_a_load_is_judged_by_a_gate_of_its_own(stage: Stage) -> None:
    slow = {"load_seconds": 4.0}
    stage.kimisvc("apply", stage.profile("one", slow), "--no-follow")
    before = stage.status()
    longer = stage.profile("two", slow, service={"load_timeout": "30s"})
    status, answer = stage.apply(longer)
    after = stage.status()
    assert (status, answer["outcome"], answer["generation"]) == (0, "accepted", 2)
    assert after["main_pid"] == before["main_pid"]
    assert after["accepted_generation"] == 2


def test_an_inconclusive_start_of_an_accepted_profile_is_proven_by_applying_it(
    stage: Stage,
) -> None:
    script = f"/etc/script-{stage.instance}.json"
    path = stage.profile("vague", {"script": script})
    stage.sandbox.write(script, "{}")
    stage.apply(path)
    before = stage.status()
    # It counts no tokens for a while: nothing can be known.
    stage.sandbox.write(script, json.dumps({"fault": "no_usage"}))
    stage.sandbox.run("systemctl", "restart", stage.service)
    seen = stage.until(
        lambda s: s["invocation_id"] != before["invocation_id"] and s["verdict"] is not None,
        "judged after a restart by hand",
    )
    assert seen["verdict"] == "INCONCLUSIVE"
    stage.sandbox.write(script, "{}")
    stage.sandbox.run("systemctl", "kill", "--signal=HUP", "--kill-whom=main", stage.service)
    status, answer = stage.apply(path)
    assert (status, answer["outcome"]) == (0, "accepted")
    assert stage.status()["main_pid"] == seen["main_pid"]


def test_an_operators_stop_is_respected(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    path = stage.profile("two", {"load_seconds": 20.0})
    stage.kimisvc("apply", path, "--no-follow")
    stage.sandbox.run("systemctl", "stop", stage.service)
    seen = stage.status()
    assert seen["unit_state"] in ("inactive", "failed")
    assert (seen["profile"], seen["accepted_generation"]) == ("two", 1)


def test_dry_run_and_diff_change_nothing(stage: Stage) -> None:
    path = stage.profile("dry")
    for command in (("apply", "--dry-run", path), ("diff", path)):
        done = stage.kimisvc(*command)
        assert done.returncode == 0, done.stderr
        assert "would do: start vLLM, then run the gate (first install)" in done.stdout
    lies = stage.sandbox.run("ls", "/etc/systemd/system", "/var/lib").stdout
    assert f"kimisvc-{stage.instance}" not in lies
    assert not stage.is_known()


def test_probe_measures_what_runs_and_records_nothing(stage: Stage) -> None:
    # Slow, and so a token that a busy machine brings late says little.
    stage.apply(stage.profile("probed", {"decode_tok_s": 50.0}, gate={"decode_tok_s": ">10~20"}))
    done = stage.kimisvc("probe", "--instance", stage.instance, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "PASS"
    assert answer["decode_tok_s"] == pytest.approx(50, rel=0.25)
    assert answer["engine_decode_tok_s"] == pytest.approx(answer["decode_tok_s"], rel=0.1)
    assert 3 <= len(answer["runs"]) <= 5
    assert len(stage.history()["verdicts"]) == 1


def test_doctor_says_what_is_in_the_way(stage: Stage) -> None:
    sound = stage.kimisvc("doctor", stage.profile("sound"))
    assert sound.returncode == 0, sound.stdout
    taken = stage.profile("gone", vllm={"executable": EXECUTABLE + "x"})
    done = stage.kimisvc("doctor", taken)
    assert done.returncode == 7
    assert EXECUTABLE + "x" in done.stdout


def test_a_key_in_the_secrets_file_reaches_the_probe_and_nothing_else(stage: Stage) -> None:
    key = "planted-for-the-probe-7d1e"
    secrets = f"/etc/kimisvc/{stage.instance}.secrets"
    stage.sandbox.write(secrets, f"VLLM_API_KEY={key}\n")
    stage.sandbox.run("chmod", "600", secrets)
    status, _ = stage.apply(stage.profile("guarded", service={"secrets_file": secrets}))
    assert status == 0
    by_hand = stage.kimisvc("probe", "--instance", stage.instance)
    assert by_hand.returncode == 0, by_hand.stdout + by_hand.stderr
    assert key not in by_hand.stdout + by_hand.stderr
    stage.sandbox.run("systemctl", "stop", stage.service)
    stopped = stage.kimisvc("probe", "--instance", stage.instance)
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert f"{stage.service} is inactive" in stopped.stderr
    where = f"/etc/systemd/system /var/lib/kimisvc/{stage.instance} /run/kimisvc"
    found = stage.sandbox.run(
        "bash", "-c", f"grep -r {key} {where}; journalctl | grep {key}", check=False
    )
    assert found.stdout == ""
    stage.sandbox.run("chmod", "644", secrets)
    path = stage.profile("open", {"load_seconds": 0.1}, service={"secrets_file": secrets})
    refused = stage.kimisvc("apply", path)
    assert refused.returncode == 7
    assert "chmod 600" in refused.stderr
    assert key not in refused.stderr


def test_a_full_disk_touches_nothing_that_runs(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    before = stage.status()
    state = f"/var/lib/kimisvc/{stage.instance}"
    small = f"cp -a {state} /var/kept; mount -t tmpfs -o size=300k tmpfs {state}; cp -a /var/kept/. {state}/"
    stage.sandbox.run(
        "bash", "-c", f"{small}; dd if=/dev/zero of={state}/filler bs=4k", check=False
    )
    try:
        done = stage.kimisvc("apply", stage.profile("two", {"load_seconds": 0.1}))
        after = stage.status()
    finally:
        stage.sandbox.run("umount", state)
        stage.sandbox.run("rm", "-r", "/var/kept")
    assert done.returncode in (1, 7), done.stderr
    assert "disk" in done.stderr or "full" in done.stderr
    assert "Traceback" not in done.stderr
    assert after["main_pid"] == before["main_pid"]
    assert after["generation"] == 1


def test_a_full_disk_stops_no_rollback_by_hand(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    stage.apply(stage.profile("two", {"load_seconds": 0.1}))
    state = f"/var/lib/kimisvc/{stage.instance}"
    small = f"cp -a {state} /var/kept; mount -t tmpfs -o size=300k tmpfs {state}; cp -a /var/kept/. {state}/"
    stage.sandbox.run(
        "bash", "-c", f"{small}; dd if=/dev/zero of={state}/filler bs=4k", check=False
    )
    try:
        began = time.monotonic()
        done = stage.kimisvc("rollback", "--instance", stage.instance, "--json")
        took = time.monotonic() - began
        after = stage.status()
    finally:
        stage.sandbox.run("umount", state)
        stage.sandbox.run("rm", "-r", "/var/kept")
    assert "this rollback is not kept in history" in done.stderr
    told = json.loads(done.stdout)
    assert (done.returncode, told["outcome"]) == (0, "accepted"), done.stderr
    # Its own verdict, and not the one of its first start, which history holds.
    assert told["reason"].endswith("; not kept in history: it could not be written"), told
    assert took < RETRY_S, "it waited for the disk to have room"
    assert (after["generation"], after["unit_state"]) == (1, "active")


def test_without_dbus_root_reaches_systemd_all_the_same(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    stage.sandbox.run("systemctl", "stop", "dbus.socket", "dbus.service")
    try:
        seen = stage.status()
    finally:
        stage.sandbox.run("systemctl", "start", "dbus.socket", "dbus.service")
    assert seen["unit_state"] == "active"


def test_without_a_journal_a_load_is_proven_all_the_same(stage: Stage) -> None:
    sockets = ("systemd-journald.socket", "systemd-journald-dev-log.socket")
    stage.sandbox.run("systemctl", "stop", *sockets, "systemd-journald.service", check=False)
    try:
        status, answer = stage.apply(stage.profile("mute", {"load_seconds": 0.5}))
    finally:
        stage.sandbox.run("systemctl", "start", *sockets, "systemd-journald.service", check=False)
    assert (status, answer["verdict"]) == (0, "PASS")


def test_a_damaged_history_is_named_and_stops_no_rollback(stage: Stage) -> None:
    stage.apply(stage.profile("good"))
    bad = stage.profile("bad", {"load_seconds": 2.0, "default_answer": "I like trains."})
    stage.kimisvc("apply", bad, "--no-follow")
    file = f"/var/lib/kimisvc/{stage.instance}/history.sqlite"
    damage = f"rm -f {file}*; head -c 20000 /dev/urandom > {file}"
    stage.sandbox.run("bash", "-c", damage)
    restored = f"readlink /var/lib/kimisvc/{stage.instance}/current"
    wait = f"timeout 30 bash -c 'until [ $({restored}) = generations/0001 ]; do sleep 0.1; done'"
    assert stage.sandbox.run("bash", "-c", wait, check=False).returncode == 0
    done = stage.kimisvc("status", "--instance", stage.instance)
    assert done.returncode == 0
    stage.until(lambda s: s["verdict"] == "PASS", "proven again, in a history begun anew")
    kept = stage.sandbox.run("bash", "-c", f"ls {file}.damaged-*")
    assert kept.stdout


def test_a_damaged_generation_stops_no_rollback_and_no_apply(stage: Stage) -> None:
    good = stage.profile("good")
    stage.apply(good)
    bad = stage.profile("bad", {"load_seconds": 2.0, "default_answer": "I like trains."})
    stage.kimisvc("apply", bad, "--no-follow")
    state = f"/var/lib/kimisvc/{stage.instance}"
    stage.sandbox.run("bash", "-c", f"rm -r {state}/generations/0002")
    assert "damaged" in stage.kimisvc("status", "--instance", stage.instance).stdout
    # Nothing tells any more that kimisvc wrote these units, so they count as somebody's own.
    status, answer = stage.apply(good, "--overwrite")
    assert (status, answer["verdict"]) == (0, "PASS"), answer
    assert stage.status()["profile"] == "good"


def test_an_apply_cut_off_in_the_middle_of_the_switch_accepts_nothing(stage: Stage) -> None:
    stage.apply(stage.profile("one"))
    before = stage.status()
    path = stage.profile("two", {"load_seconds": 0.1})
    cut = (
        "import os, sys; from kimisvc.deploy import box;"
        " box.settle_debt = lambda _: None;"
        " box._set_going = lambda *_: os.kill(os.getpid(), 9);"
        " from kimisvc.cli.main import run; run(sys.argv[1:])"
    )
    python = "/opt/kimisvc/demo/kimisvc/bin/python"
    killed = stage.sandbox.run(python, "-c", cut, "apply", path, check=False)
    assert killed.returncode == 128 + 9
    # The old process runs under the new units; its gate proves it, and that counts for nothing.
    stage.sandbox.run("systemctl", "start", f"kimisvc-{stage.instance}-gate.service")
    between = stage.status()
    assert between["main_pid"] == before["main_pid"]
    assert (between["generation"], between["accepted_generation"]) == (2, 1)
    status, answer = stage.apply(path)
    after = stage.status()
    assert (status, answer["outcome"]) == (0, "accepted")
    assert after["main_pid"] != before["main_pid"]
    assert after["accepted_generation"] == 2
