from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.golden import ANY_REASONING, body, found, judge, questions
from kimisvc.measure.stream import Answered
from kimisvc.records.profile import GateSettings, GoldenQuestion, Where

PARIS = GoldenQuestion("What is the capital of France?", "Paris")
REASONING = GateSettings(require_reasoning=True)


def said(content: str = "", reasoning: str = "", finish: str = "stop") -> Answered:
    return Answered(10, 5, finish, 0.1, 1.0, 2.0, 1, 5, content, reasoning)


@pytest.mark.parametrize(
    ("expect", "text", "holds"),
    [
        ("Paris", "The capital of France is Paris.", True),
        ("Paris", "the capital is paris", False),
        ("Paris", "", False),
        ("/[Pp]aris/", "paris", True),
        ("/(?i)PARIS/", "It is Paris!", True),
        ("/^42$/", "42", True),
        ("/^42$/", "142", False),
        ("/", "a/b", True),
        ("a/b", "a/b", True),
        ("", "", True),
    ],
)
def test_an_expectation_is_a_substring_or_a_regex_in_slashes(
    expect: str, text: str, *, holds: bool
) -> None:
    assert found(expect, text) is holds


@given(st.text(), st.text(), st.text(min_size=1).filter(lambda s: not s.startswith("/")))
def test_what_was_said_contains_what_was_said(before: str, after: str, word: str) -> None:
    assert found(word, before + word + after)


def test_a_right_answer_holds() -> None:
    result, why = judge(PARIS, said("The capital of France is Paris."), GateSettings())
    assert result.holds
    assert result.answer == "The capital of France is Paris."
    assert why == ""


def test_a_wrong_answer_says_what_was_asked_expected_and_got() -> None:
    result, why = judge(PARIS, said("!!!!!!!!"), GateSettings())
    assert not result.holds
    assert why == (
        "golden answer wrong: asked 'What is the capital of France?', "
        "expected 'Paris' in the content, got '!!!!!!!!'"
    )


def test_an_answer_cut_at_its_length_says_so() -> None:
    _, why = judge(PARIS, said("", "The user asks", "length"), GateSettings())
    assert why.endswith("got '', cut at 64 tokens")


def test_a_long_answer_is_judged_whole_and_kept_in_part() -> None:
    result, why = judge(PARIS, said("x" * 1500), GateSettings())
    assert len(why) < 400
    assert result.answer == "x" * 1500
    result, why = judge(PARIS, said("x" * 9000 + "Paris"), GateSettings())
    assert (result.holds, why) == (True, "")
    assert (len(result.answer), result.answer[-2:]) == (2000, "x…")


def test_reasoning_is_judged_where_asked() -> None:
    question = GoldenQuestion("q", "France", Where.REASONING)
    assert judge(question, said("Paris", "of France it is"), GateSettings())[0].holds
    assert not judge(question, said("France", "hm"), GateSettings())[0].holds


def test_required_reasoning_fails_an_answer_without_it() -> None:
    result, why = judge(PARIS, said("Paris"), REASONING)
    assert not result.holds
    assert "no reasoning came" in why
    assert judge(PARIS, said("Paris", "Hm."), REASONING)[0].holds


def test_required_reasoning_asks_something_even_without_questions() -> None:
    assert questions((), REASONING) == (ANY_REASONING,)
    assert questions((PARIS,), REASONING) == (PARIS,)
    assert questions((), GateSettings()) == ()


def test_a_question_is_asked_as_a_chat_at_temperature_zero() -> None:
    assert body("kimi", PARIS) == {
        "model": "kimi",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 64,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
