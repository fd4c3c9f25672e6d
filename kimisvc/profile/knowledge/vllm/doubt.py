"""Words for a refusal that is sure, and for one that only the shipped table makes.

The vLLM that will run may be another: who reads `is refused` beside `sound`
cannot tell which of them holds.
"""

from __future__ import annotations

from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity


def refused(doubt: Severity) -> str:
    """Given how bad it is what the table does not take, return the words for its refusal."""
    if doubt is Severity.ERROR:
        return "is refused"
    return f"would be refused by vLLM {shipped_knowledge().version}"


def newest(doubt: Severity, word: str) -> str:
    """Given the same and a word before it, return whose choices or fields these are; "" if sure."""
    return "" if doubt is Severity.ERROR else f" {word} vLLM {shipped_knowledge().version}"
