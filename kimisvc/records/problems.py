"""What is wrong with a profile or a host, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a problem is: an error refuses the profile, a warning is printed."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a profile or a host: where, what, and what was likely meant."""

    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    severity: Severity = Severity.ERROR
