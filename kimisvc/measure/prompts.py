"""Makes prompts that no prefix cache has seen. Pure.

vLLM keeps the computed prefix of earlier prompts in blocks and finds a block by
all tokens up to its end; a prompt that differs in its first words therefore
shares no block with another. Prefill time is not part of the speed, but a
cached prefix would make the time to first token of all runs but one too good.
"""

from __future__ import annotations

import random

_TEXT = """
time year people way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work
number night point home water room mother area money story fact month lot right study
book eye job word business issue side kind head house service friend father power hour
game line end member
"""
WORDS = tuple(_TEXT.split())
"""Common words: one token each, with the space before, in the vocabularies in use."""


def fresh_prompt(seed: str, run: int, tokens: int) -> str:
    """Given a seed of this measurement and a run's number, return a prompt of about `tokens` tokens.

    The same arguments give the same prompt. Two runs of one seed differ in the
    first word (of any 62 in a row); two seeds differ within a dozen words but for odds of 1 in 2^60.
    How many tokens it is in truth is for the server to say (`usage`).
    """
    count = max(1, tokens)
    rest = random.Random(f"{seed}/{run}")  # noqa: S311 - repeatable words, not a secret
    words = _number(run, random.Random(seed)) + rest.choices(WORDS, k=count)  # noqa: S311 - as above
    return " ".join(words[:count])


def _number(run: int, order: random.Random) -> list[str]:
    """Given a run's number, return it in words, lowest digit first: no two runs begin alike."""
    digits = order.sample(WORDS, len(WORDS))
    words = [digits[run % len(WORDS)]]
    while run := run // len(WORDS):
        words.append(digits[run % len(WORDS)])
    return words
