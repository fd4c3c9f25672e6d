"""How a setting is judged: what it may cost, why, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.records.profile import Risk


@dataclass(frozen=True, slots=True)
class Judgement:
    """The risk of one setting with its value: one sentence of why, and its source."""

    risk: Risk
    why: str
    source: str
