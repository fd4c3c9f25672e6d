from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimisvc.measure.prompts import WORDS, fresh_prompt

seeds = st.text(max_size=12)
FIRST_BLOCK = 16
"""The smallest block vLLM's prefix cache keeps, in tokens."""


@given(seeds, st.integers(0, 500), st.integers(1, 300))
def test_a_prompt_has_as_many_words_as_tokens_asked_for(seed: str, run: int, tokens: int) -> None:
    assert len(fresh_prompt(seed, run, tokens).split()) == tokens


@given(seeds, st.integers(0, 500))
def test_the_same_seed_and_run_give_the_same_prompt(seed: str, run: int) -> None:
    assert fresh_prompt(seed, run, 40) == fresh_prompt(seed, run, 40)


@given(seeds)
def test_runs_of_one_seed_differ_in_their_first_word(seed: str) -> None:
    first = {fresh_prompt(seed, run, 1) for run in range(len(WORDS))}
    assert len(first) == len(WORDS)


def test_more_runs_than_words_still_differ_within_the_first_block() -> None:
    prompts = {fresh_prompt("s", run, FIRST_BLOCK) for run in range(2000)}
    assert len(prompts) == 2000


def test_measurements_of_one_server_differ_within_the_first_block() -> None:
    prompts = {fresh_prompt(f"seed {n}", 0, FIRST_BLOCK) for n in range(2000)}
    assert len(prompts) == 2000
