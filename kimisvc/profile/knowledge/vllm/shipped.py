"""What the newest vLLM knows, from a table that ships with kimisvc: for where there is none to ask.

packaging/vllm_table.py writes the table, by asking that vLLM itself.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kimisvc.records.vllm import KnownFrom, VllmKnowledge

_TABLE = Path(__file__).with_name("table.json")


@cache
def shipped_knowledge() -> VllmKnowledge:
    """Return what the newest vLLM knows. Read when first wanted, in a few ms."""
    return VllmKnowledge.of(json.loads(_TABLE.read_text(encoding="utf-8")), KnownFrom.SHIPPED)
