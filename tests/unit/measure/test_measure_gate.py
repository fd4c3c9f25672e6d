"""A whole proof: against made-up streams with a clock of ours, and against the stand-in over HTTP."""

from __future__ import annotations

import time
from typing import Any

import pytest
from measure_support import (
    Clock,
    Heard,
    Played,
    counted,
    even_stream,
    profile,
    serving,
    token,
    usage,
)

from kimisvc.errors import KimisvcError
from kimisvc.measure.gate import budget, engine_figure, measure, prove
from kimisvc.measure.gate_rule import decide
from kimisvc.records.profile import GateSettings, GoldenQuestion, Profile, SpeedTarget, Where
from kimisvc.records.progress import Phase
from kimisvc.records.proof import EngineCounters, Proof, Sample, VerdictKind

PARIS = GoldenQuestion("What is the capital of France?", "Paris")
FAST = GateSettings(SpeedTarget(40.0, 50.0))
STREAM = even_stream(32, 55.0)


def proved(served: Profile, *streams: Any, counters: Any = (None,)) -> tuple[Proof, Heard, Played]:
    clock = Clock()
    api = Played(clock, *streams, counters=counters)
    heard = Heard()
    return prove(api, served, heard, seed="s", clock=clock, sleep=clock.sleep), heard, api


def said(text: str) -> list[Any]:
    return [
        (0.1, {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}),
        (0.1, usage(2)),
    ]


# ------------------------------------------------------------------ made-up streams


def test_the_order_is_warm_up_then_questions_then_runs() -> None:
    proof, heard, api = proved(profile(PARIS, gate=FAST), STREAM, said("Paris"), *[STREAM] * 3)
    assert proof.verdict.kind is VerdictKind.PASS
    assert heard.phases == [Phase.WARMING_UP, Phase.GOLDEN, Phase.PROBING]
    assert api.paths == ["/v1/completions", "/v1/chat/completions", *["/v1/completions"] * 3]


def test_the_speed_is_exactly_that_of_the_arrival_times() -> None:
    proof, _, _ = proved(profile(gate=FAST), *[STREAM] * 4)
    assert proof.decode_tok_s is not None
    assert proof.decode_tok_s.mean == pytest.approx(55.0)
    assert proof.ttft_s == pytest.approx(0.5)
    assert len(proof.samples) == 3


def test_the_warm_up_is_no_run() -> None:
    cold = even_stream(32, 10.0)
    proof, _, _ = proved(profile(gate=FAST), cold, *[STREAM] * 3)
    assert [round(sample.decode_tok_s, 6) for sample in proof.samples] == [55.0] * 3


def test_each_request_has_a_prompt_of_its_own() -> None:
    _, _, api = proved(profile(warmup=2), *[STREAM] * 5)
    prompts = [body["prompt"] for body in api.bodies]
    assert len({prompt.split()[0] for prompt in prompts}) == 5


def test_it_stops_as_soon_as_it_is_certain_and_goes_on_while_it_is_not() -> None:
    wide = [even_stream(32, speed) for speed in (55.0, 45.0, 62.0, 55.0, 55.0, 55.0)]
    proof, heard, _ = proved(profile(gate=FAST, max_runs=5), *wide)
    assert len(proof.samples) == 5
    assert proof.verdict.kind is VerdictKind.DEGRADED
    assert [entry[2:] for entry in heard.said if entry[0] is Phase.PROBING] == [
        (done, 5) for done in range(6)
    ]


def test_the_running_figure_is_told_with_its_interval() -> None:
    _, heard, _ = proved(profile(gate=FAST), *[STREAM] * 4)
    assert [entry[1] for entry in heard.said if entry[0] is Phase.PROBING] == [
        "",
        "55.0 tok/s",
        "55.0 tok/s (55.0 to 55.0)",
        "55.0 tok/s (55.0 to 55.0)",
    ]


def test_a_wrong_answer_fails_before_any_run() -> None:
    proof, _, api = proved(profile(PARIS, gate=FAST), STREAM, said("Rome"))
    assert proof.verdict.kind is VerdictKind.FAIL
    assert "expected 'Paris'" in proof.verdict.reason
    assert proof.golden[0].answer == "Rome"
    assert proof.samples == ()
    assert len(api.bodies) == 2


def test_measuring_asks_no_questions() -> None:
    clock = Clock()
    api = Played(clock, *[STREAM] * 4)
    proof = measure(api, profile(PARIS, gate=FAST), Heard(), clock=clock, sleep=clock.sleep)
    assert proof.verdict.kind is VerdictKind.PASS
    assert proof.golden == ()
    assert set(api.paths) == {"/v1/completions"}


def test_runs_that_were_made_before_count_as_the_first() -> None:
    """Three of another gate, and the rule goes on from there; what they were not asked is not told."""
    clock = Clock()
    target = GateSettings(SpeedTarget(40, 50))
    made = [Sample(8, 32, speed, 9.0) for speed in (49.8, 50.0, 50.6)]
    assert decide(made, profile(precision=0.001).probe, target) is None
    api = Played(clock, *[even_stream(32, 50.4)] * 9)
    wanted = profile(gate=target, precision=0.001)
    proof = measure(api, wanted, Heard(), before=made, clock=clock, sleep=clock.sleep)
    assert proof.samples[:3] == tuple(made)
    assert 3 < len(proof.samples) <= wanted.probe.max_runs
    assert len(api.bodies) == len(proof.samples) - 3 + wanted.probe.warmup
    assert proof.ttft_s == pytest.approx(0.5)
    assert (
        f"{len(proof.samples) - 3} of {len(proof.samples) - 3} runs could not be" in proof.notes[0]
    )
    assert proof.decode_tok_s is not None
    assert decide(proof.samples, wanted.probe, target) == proof.verdict


def test_a_passing_trouble_is_repeated_and_noted() -> None:
    lost = [(0.5, token()), (0.6, KimisvcError("connection-lost", "gone"))]
    proof, _, _ = proved(profile(gate=FAST), STREAM, STREAM, lost, STREAM, STREAM)
    assert proof.verdict.kind is VerdictKind.PASS
    assert "repeated: the connection ended in the middle of an answer: gone" in proof.notes


LATE = [(9.0, token())]
"""Of a server with 5 s for an answer: nothing in time."""
CRAWLING = [(0.5 + n / 1.2, token(ids=[1])) for n in range(20)]
"""1.2 tok/s: not done in 5 s, and far under the floor."""


def loaded(looks: int, others: float = 90_000) -> list[EngineCounters]:
    """What a server counts that is idle at first, and then makes so many tokens between two looks."""
    return [
        counted(),
        *(counted(others * n, 300 * n * bool(others), n, 60) for n in range(1, looks)),
    ]


@pytest.mark.parametrize("slow", [LATE, CRAWLING], ids=["no token", "crawling"])
@pytest.mark.parametrize("sound", [[], [STREAM]], ids=["warm-up", "golden"])
def test_slowness_under_the_load_of_others_fails_nothing(sound: list[Any], slow: list[Any]) -> None:
    """They storm a server that has just come back: it must not be rolled back for their queue."""
    idle = [counted()] * len(sound)
    proof, _, _ = proved(
        profile(PARIS, gate=FAST), *sound, *[slow] * 5, counters=[*idle, *loaded(10)]
    )
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "others used the server" in proof.verdict.reason


@pytest.mark.parametrize("slow", [LATE, CRAWLING], ids=["no token", "crawling"])
def test_a_run_that_others_overtook_is_repeated_once_they_are_gone(slow: list[Any]) -> None:
    counters = [counted(), counted(90_000, 300, 50, 60)]
    counters += [counted(90_000 + 32 * n, 300 + n, n) for n in (0, 1, 1, 2, 2, 3)]
    proof, _, _ = proved(profile(gate=FAST, warmup=0), slow, *[STREAM] * 3, counters=counters)
    assert proof.verdict.kind is VerdictKind.PASS
    assert "repeated: others used the server: 90000 tokens were made meanwhile" in proof.notes[-1]


@pytest.mark.parametrize("slow", [LATE, CRAWLING], ids=["no token", "crawling"])
@pytest.mark.parametrize("warmup", [0, 1])
def test_slowness_while_nobody_was_served_is_the_server_s(warmup: int, slow: list[Any]) -> None:
    proof, _, _ = proved(profile(gate=FAST, warmup=warmup), slow, slow, counters=[counted(9, 9, 9)])
    assert proof.verdict.kind is VerdictKind.FAIL


def test_a_hung_server_fails_however_many_wait_in_it() -> None:
    proof, _, _ = proved(profile(gate=FAST), LATE, LATE, counters=loaded(9, others=0))
    assert proof.verdict.kind is VerdictKind.FAIL
    assert proof.verdict.reason == "accepted, no first token: nothing in 5 s"


def test_a_server_that_crawls_for_many_is_not_judged_by_our_share() -> None:
    """Others fill it and have no token yet, so that nothing but the requests in work tells of them."""
    busy = [counted(9000, 30, 5, 60)]
    proof, _, _ = proved(profile(gate=FAST), *[CRAWLING] * 5, counters=busy)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE


def test_a_lasting_trouble_keeps_the_runs_so_far() -> None:
    error = [(0.5, token()), (0.6, {"error": {"message": "EngineCore is dead"}})]
    proof, _, _ = proved(profile(gate=FAST), STREAM, STREAM, error, error)
    assert proof.verdict.kind is VerdictKind.FAIL
    assert proof.verdict.reason == "an error inside the stream: EngineCore is dead"
    assert len(proof.samples) == 1


def test_a_refused_request_is_not_sent_twice() -> None:
    refused = [(0.0, KimisvcError("http-400", "max_tokens cannot be greater"))]
    proof, _, api = proved(profile(gate=FAST), refused)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert proof.verdict.reason == "the request was refused: max_tokens cannot be greater"
    assert len(api.bodies) == 1


def test_a_question_that_cannot_be_asked_says_which() -> None:
    refused = [(0.0, KimisvcError("http-400", "no chat template"))]
    proof, _, _ = proved(profile(PARIS, gate=FAST), STREAM, refused)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert proof.verdict.reason.startswith("golden question 'What is the capital of France?'")


def test_a_warm_up_that_is_no_sample_is_warm_enough() -> None:
    short = even_stream(5, 55.0)
    proof, _, _ = proved(profile(gate=FAST), short, short, *[STREAM] * 3)
    assert proof.verdict.kind is VerdictKind.PASS


def test_client_and_engine_that_disagree_are_noted() -> None:
    # 31 tokens in 1 s by the engine, at 55 tok/s by the client's clock.
    steps = [counted(32.0 * n, n, float(n)) for n in range(5)]
    counters = [step for n in range(3) for step in (steps[n], steps[n + 1])]
    proof, _, _ = proved(profile(gate=FAST, warmup=0), *[STREAM] * 3, counters=counters)
    assert proof.engine_decode_tok_s == pytest.approx(31.0)
    assert proof.notes == (
        "client and engine disagree: 55.00 tok/s seen here, 31.00 tok/s by the engine's own counters",
    )


def test_unequal_runs_on_which_both_agree_are_no_disagreement() -> None:
    # 55 and 11 tok/s: their mean is 33, of both together it is 18.3.
    streams = [even_stream(32, speed) for speed in (55.0, 11.0)]
    seconds = [0.0, 31 / 55, 31 / 55 + 31 / 11]
    steps = [counted(32.0 * n, n, seconds[n]) for n in range(3)]
    counters = [steps[0], steps[1], steps[1], steps[2]]
    served = profile(warmup=0, min_runs=2, max_runs=2)
    proof, _, _ = proved(served, *streams, counters=counters)
    assert proof.engine_decode_tok_s == pytest.approx(62 / seconds[2])
    assert proof.notes == ()


def test_runs_without_counters_are_noted() -> None:
    proof, _, _ = proved(profile(gate=FAST), *[STREAM] * 4)
    assert proof.notes == (
        (
            "3 of 3 runs could not be checked against the server's counters: "
            "whether they were alone is not known"
        ),
    )
    assert proof.engine_decode_tok_s is None


def test_the_engines_figure_is_tokens_over_seconds_of_all_runs() -> None:
    fast, slow = Sample(8, 101, 50, 0.1, 101, 100.0), Sample(8, 101, 50, 0.1, 101, 25.0)
    assert engine_figure([fast, slow]) == pytest.approx(200 / 5)
    assert engine_figure([Sample(8, 101, 50, 0.1)]) is None


def test_the_whole_is_bounded() -> None:
    served = profile(PARIS, gate=FAST, timeout=10.0, max_runs=10)
    assert budget(served) == (1 + 1 + 10 + 5) * 10.0
    clock = Clock()
    api = Played(clock, STREAM, said("Paris"), counters=[counted(running=1)])
    proof = prove(api, served, Heard(), clock=clock, sleep=clock.sleep)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert clock.now - 1000.0 <= budget(served) + 31.0


def test_time_that_runs_out_is_not_taken_for_a_silent_server() -> None:
    # Of 70 s, a warm-up and three disturbed runs of 9.9 s with pauses of 8.5 s leave 4.9 s:
    # too little for a first token that comes after 9 s.
    served = profile(gate=FAST, timeout=10.0, min_runs=1, max_runs=1)
    assert budget(served) == 70.0
    clock = Clock()
    api = Played(
        clock,
        *[even_stream(32, 31 / 0.9, ttft=9.0)] * 5,
        counters=[counted(), *[counted(), counted(99, 2, 1)] * 5],  # a look before the warm-up
    )
    proof = prove(api, served, Heard(), clock=clock, sleep=lambda s: clock.sleep(17 * s))
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert proof.verdict.reason.startswith(
        "not decided in the time allowed: 70 s; last trouble: others"
    )
    assert len(api.bodies) == 4


# ------------------------------------------------------------ the stand-in, over HTTP


def briefly(seconds: float) -> None:
    """Pause between two looks at a real server, shorter than the gate would."""
    time.sleep(min(seconds, 0.01))


def proof_of(served: Profile | None = None, **script: Any) -> Proof:
    with serving(**{"decode_tok_s": 400.0, "ttft_s": 0.001, **script}) as api:
        return prove(api, served or profile(PARIS, gate=FAST), Heard(), sleep=briefly)


def test_a_sound_server_passes_and_its_counters_confirm_every_run() -> None:
    proof = proof_of()
    assert proof.verdict.kind is VerdictKind.PASS
    assert proof.golden[0].holds
    assert all(sample.engine_decode_tok_s for sample in proof.samples)
    assert all(sample.prompt_tokens == 8 for sample in proof.samples)
    assert all(sample.completion_tokens == 32 for sample in proof.samples)


def test_a_server_between_floor_and_goal_is_degraded() -> None:
    gate = GateSettings(SpeedTarget(100.0, 9000.0))
    assert proof_of(profile(gate=gate)).verdict.kind is VerdictKind.DEGRADED


def test_a_slow_server_fails() -> None:
    gate = GateSettings(SpeedTarget(9000.0, 9000.0))
    assert proof_of(profile(gate=gate)).verdict.kind is VerdictKind.FAIL


def test_an_unsteady_server_around_the_floor_is_inconclusive() -> None:
    gate = GateSettings(SpeedTarget(400.0, 9000.0))
    proof = proof_of(profile(gate=gate, max_runs=4), jitter=0.3, seed=3)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert len(proof.samples) == 4


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ({"fault": "silent"}, VerdictKind.FAIL, "accepted, no first token"),
        ({"fault": "silent", "keep_alive_s": 0.05}, VerdictKind.FAIL, "accepted, no first token"),
        ({"fault": "stall", "fault_after": 5}, VerdictKind.FAIL, "stopped in the middle"),
        ({"fault": "error", "fault_after": 5}, VerdictKind.FAIL, "EngineCore encountered"),
        ({"fault": "drop", "fault_after": 5}, VerdictKind.FAIL, "the connection ended"),
        ({"fault": "no_done"}, VerdictKind.FAIL, "the stream ended without [DONE]"),
        ({"fault": "not_json", "fault_after": 5}, VerdictKind.INCONCLUSIVE, "not vLLM's"),
        ({"error_status": 500}, VerdictKind.FAIL, "a server error"),
        ({"error_status": 400}, VerdictKind.INCONCLUSIVE, "refused"),
        ({"error_status": 401}, VerdictKind.INCONCLUSIVE, "Unauthorized"),
        ({"error_status": 404}, VerdictKind.INCONCLUSIVE, "refused"),
        ({"error_status": 403}, VerdictKind.INCONCLUSIVE, "refused"),
        ({"error_status": 502}, VerdictKind.FAIL, "a server error"),
        ({"error_status": 302}, VerdictKind.INCONCLUSIVE, "refused"),
    ],
)
def test_a_server_that_answers_otherwise(
    script: dict[str, Any], kind: VerdictKind, reason: str
) -> None:
    proof = proof_of(profile(PARIS, gate=FAST, timeout=1.2), **script)
    assert proof.verdict.kind is kind
    assert reason in proof.verdict.reason


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_turns_away_is_asked_again_and_then_not_judged(status: int) -> None:
    waits: list[float] = []
    with serving(error_status=status) as api:
        proof = prove(api, profile(gate=FAST), Heard(), sleep=waits.append)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "too busy" in proof.verdict.reason
    assert waits == [1.0] * 4


@pytest.mark.parametrize("fault", ["no_usage", "early_stop"])
def test_runs_that_cannot_be_measured_are_inconclusive(fault: str) -> None:
    assert proof_of(fault=fault, fault_after=9).verdict.kind is VerdictKind.INCONCLUSIVE


def test_one_bad_request_is_repeated() -> None:
    proof = proof_of(fault="drop", fault_after=3, fault_requests=[4])
    assert proof.verdict.kind is VerdictKind.PASS
    assert [note for note in proof.notes if note.startswith("repeated: the connection")]


def test_runs_that_others_disturbed_are_repeated() -> None:
    proof = proof_of(other_requests=1, other_tokens=7, other_during=[3, 4])
    assert proof.verdict.kind is VerdictKind.PASS
    assert len([note for note in proof.notes if "others used the server" in note]) == 2
    assert all(sample.engine_decode_tok_s for sample in proof.samples)


def test_a_server_that_others_always_use_is_inconclusive() -> None:
    proof = proof_of(profile(gate=FAST, max_tokens=8), other_requests=1, other_tokens=7)
    assert proof.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "others used the server" in proof.verdict.reason


def test_counters_that_lag_are_no_disturbance() -> None:
    proof = proof_of(counter_lag_s=0.1)
    assert proof.verdict.kind is VerdictKind.PASS
    assert not [note for note in proof.notes if note.startswith("repeated")]
    assert all(sample.engine_decode_tok_s for sample in proof.samples)


def test_a_server_without_counters_is_measured_and_that_is_noted() -> None:
    proof = proof_of(log_stats=False)
    assert proof.verdict.kind is VerdictKind.PASS
    assert "could not be checked" in proof.notes[0]


def test_several_tokens_a_chunk_are_counted_by_usage() -> None:
    proof = proof_of(tokens_per_chunk=4)
    assert proof.verdict.kind is VerdictKind.PASS
    assert {(sample.completion_tokens, sample.chunks) for sample in proof.samples} == {(32, 8)}


@pytest.mark.parametrize(
    "script",
    [
        {"continuous_usage": True},
        {"keep_alive_s": 0.1, "empty_choices": True},
        {"reasoning": "France has one capital.", "reasoning_field": "reasoning_content"},
        {"reasoning": "France has one capital.", "reasoning_field": "both"},
    ],
)
def test_what_servers_do_otherwise_changes_nothing(script: dict[str, Any]) -> None:
    proof = proof_of(**script)
    assert proof.verdict.kind is VerdictKind.PASS
    assert proof.golden[0].answer == "The capital of France is Paris."


def test_bytes_that_are_no_utf8_cost_no_verdict() -> None:
    proof = proof_of(profile(gate=FAST), fault="invalid_utf8", fault_after=3)
    assert proof.verdict.kind is VerdictKind.PASS


def test_required_reasoning_is_found_where_it_is_and_missed_where_it_is_not() -> None:
    gate = GateSettings(require_reasoning=True)
    assert proof_of(profile(gate=gate), reasoning="Hm. 42.").verdict.kind is VerdictKind.PASS
    proof = proof_of(profile(gate=gate))
    assert proof.verdict.kind is VerdictKind.FAIL
    assert "no reasoning came" in proof.verdict.reason


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_content"])
def test_an_answer_that_never_leaves_the_reasoning_is_found_there_only(spelling: str) -> None:
    thinks = {
        "reasoning": "The capital is Paris.",
        "default_answer": "",
        "reasoning_field": spelling,
    }
    inside = GoldenQuestion("capital?", "Paris", Where.REASONING)
    assert proof_of(profile(inside, gate=FAST), **thinks).verdict.kind is VerdictKind.PASS
    proof = proof_of(profile(PARIS, gate=FAST), **thinks)
    assert proof.verdict.kind is VerdictKind.FAIL
    assert "expected 'Paris' in the content, got ''" in proof.verdict.reason


def test_a_golden_question_can_look_into_the_reasoning() -> None:
    question = GoldenQuestion("capital?", "/one capital/", Where.REASONING)
    assert proof_of(profile(question), reasoning="France has one capital.").golden[0].holds


def test_an_api_key_is_used() -> None:
    with serving(api_key="hush", decode_tok_s=400.0) as api:
        assert prove(api, profile(PARIS), Heard()).verdict.kind is VerdictKind.PASS
