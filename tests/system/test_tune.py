"""tune and compare on a real systemd, with stand-ins of known speeds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from stage import POLL, Stage, set_the_stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Box

pytestmark = pytest.mark.system

INSTALLED = "/opt/kimisvc/demo/kimisvc"
"""Frozen for the test: it may be built anew beside it."""
UNDER, OVER = 40.0, 200.0
"""Speeds of stand-ins (tok/s), far from the target of their profiles, which is >60~100."""
NO_GATE = {"decode_tok_s": ">1"}
"""A profile's own target that nobody misses: what decides is that of the search."""


def tune(stage: Stage, *words: str, timeout: float = 300.0) -> tuple[int, dict[str, Any]]:
    """Search, and return the exit status and the JSON answer."""
    done = stage.kimisvc("tune", *words, "--json", timeout=timeout)
    assert done.stdout, f"tune said nothing on stdout; stderr:\n{done.stderr}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def status_of(stage: Stage) -> dict[str, Any]:
    done = stage.kimisvc("tune", "--status", "--instance", stage.instance, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def wait_for(stage: Stage, holds: Callable[[dict[str, Any]], bool], timeout: float = 120.0) -> Any:
    """Look at the search until it holds; fail with what was last seen when it never does."""
    deadline = time.monotonic() + timeout
    while True:
        seen = status_of(stage)
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, f"last seen:\n{seen['summary']}"
        time.sleep(POLL)


def has_ended(seen: dict[str, Any]) -> bool:
    return seen["why"] is not None


def in_second_start(seen: dict[str, Any]) -> bool:
    return len(seen["trials"]) == 1 and seen["pending"] is not None


def loads(seen: dict[str, Any]) -> bool:
    progress = seen["progress"]
    return bool(progress) and progress["phase"] == "loading" and seen["gate_state"] == "activating"


def tried(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(trial["candidate"], trial["verdict"]) for trial in answer["trials"]]


def unit_is_gone(stage: Stage) -> bool:
    unit = f"/etc/systemd/system/kimisvc-{stage.instance}-tune.service"
    return stage.sandbox.run("test", "-e", unit, check=False).returncode != 0


def test_met_by_the_first_costs_one_start(stage: Stage) -> None:
    first, second = stage.profile("first"), stage.profile("second")
    status, answer = tune(stage, first, second)
    assert (status, answer["winner"], answer["why"]) == (0, "first", "the target is met")
    assert tried(answer) == [("first", "PASS")]
    assert answer["target"] == ">60~100"  # the first one's own
    assert stage.status()["profile"] == "first"
    assert [a["profile"] for a in stage.history()["applies"]] == ["first"]
    assert unit_is_gone(stage)

    # It runs already, so it is proven again without a load, and stays.
    before = stage.status()["main_pid"]
    status, answer = tune(stage, first, second)
    assert (status, tried(answer)) == (0, [("first", "PASS")])
    assert stage.status()["main_pid"] == before


def test_a_target_that_its_gate_left_open_is_measured_on_without_a_load(stage: Stage) -> None:
    """Its own target is decided by three runs; one at the very speed is not, and the server wants a key.

    Each stream has a speed of its own, 5 % apart: three equal ones would decide that too, by chance.
    """
    key, secrets = "planted-for-the-search-4c8a", f"/etc/kimisvc/{stage.instance}.secrets"
    stage.sandbox.write(secrets, f"VLLM_API_KEY={key}\n")
    stage.sandbox.run("chmod", "600", secrets)
    path = stage.profile(
        "uneven", {"decode_tok_s": UNDER, "jitter": 0.05}, gate=NO_GATE,
        service={"secrets_file": secrets}, probe={"max_runs": 9},
    )  # fmt: skip
    assert stage.apply(path)[0] == 0
    before = stage.status()
    _, answer = tune(stage, "--target", f">{before['decode_tok_s']:.2f}", path)
    first = answer["trials"][0]
    assert 0 < first["further_runs"] <= 6, answer["summary"]
    assert f"(3 runs of its gate and {first['further_runs']} after it)" in answer["summary"]
    # However it ended: nothing was loaded for it.
    assert stage.status()["main_pid"] == before["main_pid"]
    assert {v["invocation"] for v in stage.history()["verdicts"]} == {before["invocation_id"]}
    where = f"/etc/systemd/system /var/lib/kimisvc/{stage.instance} /run/kimisvc"
    leaked = f"grep -r {key} {where}; journalctl | grep {key}"
    assert stage.sandbox.run("bash", "-c", leaked, check=False).stdout == ""


def test_under_the_floor_then_over(stage: Stage) -> None:
    slow = stage.profile("slow", {"decode_tok_s": UNDER}, gate=NO_GATE)
    quick = stage.profile("quick", {"decode_tok_s": OVER})
    status, answer = tune(stage, "--target", ">60~100", slow, quick)
    assert (status, answer["winner"]) == (0, "quick")
    assert tried(answer) == [("slow", "FAIL"), ("quick", "PASS")]
    seen = stage.status()
    assert (seen["profile"], seen["generation"]) == ("quick", seen["accepted_generation"])
    assert "quick, accepted and running" in answer["summary"]
    assert answer["spent_s"] == pytest.approx(sum(t["seconds"] for t in answer["trials"]), abs=3)


def test_bad_candidates_end_no_search(stage: Stage) -> None:
    good = stage.profile("good", {"decode_tok_s": UNDER}, gate=NO_GATE)
    profiles = [
        stage.profile("garbage", {"default_answer": "I like trains."}),
        stage.profile("dying", {"exit_at_once": 1}),
        stage.profile("missing", vllm={"model": "/opt/standin/nowhere"}),
        stage.profile("slower", {"decode_tok_s": UNDER / 2}),
        stage.profile("quick", {"decode_tok_s": OVER}),
    ]
    missing = profiles.pop(2)
    done = stage.kimisvc("tune", good, missing)
    assert done.returncode == 3  # another model: refused before anything is touched
    assert "vllm.model" in done.stderr
    assert not stage.is_known()
    status, answer = tune(stage, "--target", ">60~100", good, *profiles)
    assert (status, answer["winner"]) == (0, "quick"), answer["summary"]
    assert tried(answer) == [
        ("good", "FAIL"), ("garbage", "FAIL"), ("dying", "FAIL"), ("slower", "FAIL"),
        ("quick", "PASS"),
    ]  # fmt: skip
    outcomes = [trial["outcome"] for trial in answer["trials"]]
    assert outcomes == ["accepted", "rolled-back", "rolled-back", "rolled-back", "accepted"]


def test_none_meets_it_and_what_was_there_comes_back(stage: Stage) -> None:
    before = stage.profile("before", {"decode_tok_s": UNDER}, gate=NO_GATE)
    assert stage.apply(before)[0] == 0
    slow = stage.profile("slow", {"decode_tok_s": UNDER / 2}, gate=NO_GATE)
    wrong = stage.profile("wrong", {"default_answer": "I like trains."})
    status, answer = tune(stage, "--target", ">60~100", slow, wrong)
    assert (status, answer["winner"]) == (4, None), answer["summary"]
    assert answer["left"] == "before, which was accepted before this search, runs"
    seen = stage.status()
    assert (seen["profile"], seen["generation"]) == ("before", seen["accepted_generation"])
    assert answer["restoring_s"] > 0


def test_none_works_and_nothing_was_there(stage: Stage) -> None:
    wrong = stage.profile("wrong", {"default_answer": "I like trains."})
    status, answer = tune(stage, wrong)
    assert (status, answer["winner"]) == (5, None)
    assert "nothing was ever accepted, so nothing is put back" in answer["left"]
    assert "not accepted" in answer["left"]


def test_a_lost_accepted_generation_is_told(stage: Stage) -> None:
    assert stage.apply(stage.profile("before", gate=NO_GATE))[0] == 0
    home = f"/var/lib/kimisvc/{stage.instance}"
    stage.sandbox.run("rm", "-r", f"{home}/generations/0001/units")
    status, answer = tune(stage, stage.profile("wrong", {"default_answer": "I like trains."}))
    assert (status, answer["winner"]) == (5, None), answer["summary"]
    assert "lost" in answer["left"] or "damaged" in answer["left"]
    assert "(wrong), not accepted, is active" in answer["left"]


def test_a_lost_terminal_leaves_it_at_work(stage: Stage) -> None:
    slow = stage.profile("slow", {"load_seconds": 3.0, "decode_tok_s": UNDER}, gate=NO_GATE)
    quick = stage.profile("quick")
    watching = f"exec kimisvc tune --target '>60~100' {slow} {quick}"
    unit = f"watch-{stage.port}"
    stage.sandbox.run("systemd-run", "--quiet", "--unit", unit, "-p", "RemainAfterExit=yes",
                      "sh", "-c", watching)  # fmt: skip
    stage.until(loads, "it loads")
    assert "search" in stage.kimisvc("status", "--instance", stage.instance).stdout
    stage.sandbox.run("systemctl", "kill", "--signal=INT", unit)
    seen = wait_for(stage, has_ended)
    assert (seen["winner"], seen["exit"]) == ("quick", 0)
    said = stage.sandbox.run("journalctl", "-u", unit, "--no-pager", "-o", "cat").stdout
    assert "left; the search goes on without you" in said
    actors = {row["actor"] for row in stage.history()["applies"]}
    assert actors == {"root (tune)"}


def test_a_risky_one_is_never_started(stage: Stage) -> None:
    slow = stage.profile("slow", {"decode_tok_s": UNDER}, gate=NO_GATE)
    risky = stage.profile("risky", {"decode_tok_s": OVER}, env={"NCCL_P2P_LEVEL": "SYS"})
    stage.sandbox.write(
        risky, stage.sandbox.read(risky).replace("schema = 1", 'schema = 1\nmax_risk = "risky"')
    )
    status, answer = tune(stage, "--target", ">60~100", slow, risky)
    assert (status, tried(answer)) == (4, [("slow", "FAIL")]), answer["summary"]
    assert answer["left"].startswith("slow, accepted by its own gate although")
    assert "not tried: risky, it is risky" in answer["summary"]


def test_explore_equal_ones_and_compare(stage: Stage) -> None:
    # Slow ones: what a busy machine adds to a token is little beside its 20 ms.
    base = stage.profile("base", {"decode_tok_s": 50.0}, gate=NO_GATE)
    same = stage.profile("same", {"decode_tok_s": 50.0, "ttft_s": 0.021}, gate=NO_GATE)
    status, answer = tune(stage, "--explore", "--max-starts", "4", base, same)
    assert (status, answer["winner"]) == (0, "base"), answer["summary"]
    assert [name for name, _ in tried(answer)] == ["base", "same", "same", "base"]
    assert {v for _, v in tried(answer)} == {"PASS"}
    assert stage.status()["profile"] == "base"
    pids = {v["invocation"] for v in stage.history()["verdicts"]}
    assert len(pids) == 4  # each a start of its own, the same profile twice in a row too

    done = stage.kimisvc("compare", "base", same, "--instance", stage.instance, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["starts"] == [2, 2]
    # Two starts each leave one degree of freedom: how wide the interval is, chance tells.
    assert found["low"] <= found["ratio"] <= found["high"]
    assert 0.9 < found["ratio"] < 1.11
    assert found["verdict"] in ("equivalent", "inconclusive", "better-within-margin",
                                "worse-within-margin")  # fmt: skip
    differing = {one["key"] for one in found["differences"]}
    assert differing == {"name", "env.FAKE_VLLM_TTFT_S"}


def test_explore_finds_the_faster_and_says_so(stage: Stage) -> None:
    # Far apart, and slow both: with two starts each, even a busy machine leaves no doubt.
    slow = stage.profile("slow", {"decode_tok_s": UNDER / 2}, gate=NO_GATE)
    quick = stage.profile("quick", {"decode_tok_s": OVER / 2}, gate=NO_GATE)
    plan = f"/etc/kimisvc/{stage.instance}-plan.toml"
    names = [path.rpartition("/")[2] for path in (slow, quick)]
    stage.sandbox.write(plan, f"profiles = {json.dumps(names)}\nexplore = true\nmax_starts = 8\n")
    status, answer = tune(stage, "--plan", plan)
    assert (status, answer["winner"]) == (0, "quick"), answer["summary"]
    assert answer["why"] == "the comparison is settled"
    assert len(answer["trials"]) == 4
    assert ": faster" in answer["summary"]


def test_killed_and_rebooted_it_goes_on(another: Box) -> None:
    another.start("--freeze", INSTALLED)
    set_the_stage(another)
    stage = Stage(another, "again")
    slow = stage.profile("slow", {"decode_tok_s": UNDER, "load_seconds": 3.0}, gate=NO_GATE)
    quick = stage.profile("quick", {"decode_tok_s": OVER, "load_seconds": 8.0})
    last = stage.profile("last", {"decode_tok_s": OVER})
    done = stage.kimisvc("tune", "--target", ">60~100", slow, quick, last, "--no-follow")
    assert done.returncode == 0, done.stderr
    unit = "kimisvc-again-tune.service"

    refused = stage.kimisvc("apply", last)
    assert refused.returncode == 75, refused.stderr
    assert stage.kimisvc("apply", last, "--dry-run").returncode == 75

    wait_for(stage, in_second_start)
    stage.until(lambda seen: seen["profile"] == "quick" and loads(seen), "quick loads")
    another.run("systemctl", "kill", "--signal=KILL", unit)
    # A start that a killed search had begun is followed, not begun again.
    seen = wait_for(stage, has_ended)
    assert tried(seen) == [("slow", "FAIL"), ("quick", "PASS")], seen["summary"]
    assert [a["profile"] for a in stage.history()["applies"]] == ["quick", "slow"]

    done = stage.kimisvc("tune", "--explore", "--max-starts", "2", quick, last, "--no-follow")
    assert done.returncode == 0, done.stderr
    wait_for(stage, lambda seen: seen["pending"] == "quick" and not seen["trials"])
    stage.until(loads, "its gate is at work")
    another.reboot()
    seen = wait_for(stage, has_ended)
    assert [name for name, _ in tried(seen)] == ["quick", "last"], seen["summary"]
    assert {verdict for _, verdict in tried(seen)} == {"PASS"}
    assert another.run("systemctl", "is-enabled", unit, check=False).stdout.strip() != "enabled"
    assert seen["exit"] == 0


def test_cancelled_it_leaves_the_start_to_its_gate(stage: Stage) -> None:
    slow = stage.profile("slow", {"load_seconds": 4.0})
    done = stage.kimisvc("tune", "--explore", slow, stage.profile("other"), "--no-follow")
    assert done.returncode == 0, done.stderr
    stage.until(loads, "its gate is at work")
    done = stage.kimisvc("tune", "--cancel", "--instance", stage.instance)
    assert (done.returncode, "cancelled" in done.stdout) == (0, True), done.stderr
    assert unit_is_gone(stage)
    seen = stage.until(lambda seen: seen["verdict"] == "PASS", "the start is proven")
    assert (seen["profile"], seen["accepted_generation"]) == ("slow", 1)
    assert stage.kimisvc("apply", slow).returncode == 0


def test_live_traffic_is_not_cut_off(stage: Stage) -> None:
    long = 4000  # tokens: 20 s, in which all that follows is told that the server is in use
    used = stage.profile(
        "used", {"other_running": 1, "other_during": [9999], "max_model_len": 2 * long}
    )
    stage.apply(used)
    # The stand-in plays others within requests only; a long one of our own is traffic as well.
    stage.use(long)
    done = stage.kimisvc("tune", stage.profile("next"))
    assert done.returncode == 1
    assert "the server is in use" in done.stderr
    assert "--drain" in done.stderr
    dry = stage.kimisvc("tune", "--dry-run", stage.profile("next"))
    assert (dry.returncode, "the server is in use" in dry.stderr) == (1, True)
    assert "would try:" in dry.stdout
    # With --drain it waits for that request to end, and then goes on.
    status, answer = tune(stage, "--drain", "1min", stage.profile("next"))
    assert (status, answer["winner"]) == (0, "next")


def test_dry_run_says_how_long(stage: Stage) -> None:
    one, two = stage.profile("one"), stage.profile("two", {"decode_tok_s": 150.0})
    done = stage.kimisvc("tune", "--dry-run", one, two)
    assert "not known" in done.stdout, done.stderr
    assert "would try:\n  1. one, safe\n  2. two, safe\n" in done.stdout
    assert "cost" not in done.stdout
    stage.apply(two)
    done = stage.kimisvc("tune", "--dry-run", "--explore", one, two)
    assert "it will take" in done.stdout
    assert "a start takes about" in done.stdout
    done = stage.kimisvc("tune", "--status", "--instance", stage.instance)
    assert done.returncode == 1


def test_restart_loads_anew_though_nothing_changed(stage: Stage) -> None:
    path = stage.profile("same")
    stage.apply(path)
    before = stage.status()
    status, answer = stage.apply(path, "--restart")
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "PASS")
    after = stage.status()
    assert after["invocation_id"] != before["invocation_id"]
    assert after["generation"] == before["generation"] == 1
