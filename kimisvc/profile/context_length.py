"""How long a context is asked for, and how long the gate and the canary need it to be. Pure.

vLLM refuses a request whose prompt and `max_tokens` together are longer than its
context (renderers/params.py of 0.32), so a gate that asks for more ends every
start INCONCLUSIVE or FAIL, after the load.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.nearest import header
from kimisvc.records.profile import GoldenQuestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.profile.problems import KeyPath
    from kimisvc.records.profile import Profile

LENGTH = "max-model-len"
AS_THE_MODEL = (None, "auto", "-1", -1)
"""Values of it (None: not written) that leave the length to the model, or to less than it allows."""
CANARY_PROMPT = 16
"""Tokens of a canary's prompt; kimisvc.measure.canary makes them."""
REASONING_PROMPT = 7
"""Words of the question that is asked where reasoning is required and no question is written."""
ASKERS: tuple[KeyPath, ...] = (
    ("probe", "max_tokens"),
    ("probe", "prompt_tokens"),
    ("golden",),
    ("gate", "require_reasoning"),
    ("canary", "max_tokens"),
)
"""The keys that say how much is asked."""
_LONG = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Need:
    """What asks for how many tokens of context at least, and the keys that say so."""

    tokens: int
    asker: str
    keys: tuple[KeyPath, ...]

    @property
    def table(self) -> str:
        """The table to write less in, as a profile heads it."""
        return header(str(self.keys[0][0]))


def tokens(value: object) -> int:
    """Given a max-model-len, return it in tokens; 0 for `AS_THE_MODEL`, and for what is no length.

    As vLLM reads it: 64k is 64000 and 64K is 65536 (human_readable_int).
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    word = value.strip() if isinstance(value, str) else ""
    match = _LONG.fullmatch(word)
    if match:
        base = 1024 if match[2].isupper() else 1000
        return int(float(match[1]) * base ** _POWERS[match[2].lower()])
    return int(word) if re.fullmatch(r"[0-9]+(_[0-9]+)*", word) else 0


def longest_need(profile: Profile) -> Need:
    """Given a profile, return what needs the longest context of all that is asked after a load."""
    return max(_needs(profile), key=lambda need: need.tokens)


def _needs(profile: Profile) -> Iterator[Need]:
    probe, canary = profile.probe, profile.canary
    total = probe.prompt_tokens + probe.max_tokens
    yield Need(
        total,
        f"a probe run needs {total} tokens (prompt_tokens + max_tokens)",
        (("probe", "max_tokens"), ("probe", "prompt_tokens")),
    )
    for number, question in enumerate(profile.golden):
        total = question.max_tokens + _least(question.prompt)
        yield Need(
            total,
            f"golden[{number}] needs {total} tokens at least (the words of its prompt + max_tokens)",
            (("golden", number, "max_tokens"),),
        )
    if profile.gate.require_reasoning and not profile.golden:
        total = GoldenQuestion("", "").max_tokens + REASONING_PROMPT
        asker = f"the question that require_reasoning asks needs {total} tokens at least"
        yield Need(total, asker, (("gate", "require_reasoning"),))
    if canary is not None:
        total = canary.max_tokens + CANARY_PROMPT
        yield Need(
            total,
            f"a canary needs {total} tokens ({CANARY_PROMPT} of prompt + max_tokens)",
            (("canary", "max_tokens"),),
        )


def _least(prompt: str) -> int:
    """The fewest tokens a prompt may be: no token of a vocabulary in use spans two words."""
    return len(prompt.split())
