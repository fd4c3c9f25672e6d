"""Asks the questions whose answers are known, and judges the answers.

Speed is not correctness: a wrong data type or a broken collective gives fast
nonsense. Asked as a chat at temperature 0, as a user would.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kimisvc.records.profile import GateSettings, GoldenQuestion, Where
from kimisvc.records.proof import GoldenResult

if TYPE_CHECKING:
    from kimisvc.measure.stream import Answered

PATH = "/v1/chat/completions"
KEPT = 2000
"""So much of an answer is kept (characters): all of them go into one record of bounded size."""
ANY_REASONING = GoldenQuestion("What is 17 + 25? Think first.", "", Where.REASONING)
"""What is asked when reasoning is required and the profile asks no question of its own."""


def questions(golden: tuple[GoldenQuestion, ...], gate: GateSettings) -> tuple[GoldenQuestion, ...]:
    """Given a profile's questions and its gate, return what is to be asked."""
    return (ANY_REASONING,) if gate.require_reasoning and not golden else golden


def body(model: str, question: GoldenQuestion) -> dict[str, Any]:
    """Given a question, return the request that asks it."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def judge(
    question: GoldenQuestion, answered: Answered, gate: GateSettings
) -> tuple[GoldenResult, str]:
    """Given a question and its answer, return the result and why it does not hold ("" if it does)."""
    said = answered.reasoning if question.where is Where.REASONING else answered.content
    why = ""
    if gate.require_reasoning and not answered.reasoning.strip():
        why = (
            f"no reasoning came with the answer to {question.prompt!r} (is --reasoning-parser set?)"
        )
    elif not found(question.expect, said):
        cut = f", cut at {question.max_tokens} tokens" if answered.finish_reason == "length" else ""
        why = (
            f"golden answer wrong: asked {question.prompt!r}, expected {question.expect!r} in the "
            f"{question.where.value}, got {_short(said)!r}{cut}"
        )
    return GoldenResult(question.prompt, question.expect, _short(said, KEPT), holds=not why), why


def found(expect: str, said: str) -> bool:
    """Given an expectation and a text, return whether it holds: a substring, or /a regex/ anywhere.

    Raise re.error if the regex is none; a checked profile holds none of these.
    """
    if len(expect) > 1 and expect.startswith("/") and expect.endswith("/"):
        return re.search(expect[1:-1], said) is not None
    return expect in said


def _short(text: str, length: int = 120) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
