"""The resident memory of the exporter as `make bench` tells it, and what its child takes besides, in MB."""

from __future__ import annotations

from dataclasses import dataclass

MB = 10**6
AIM_MB = 45.0
"""Of the exporter itself, as its own process_resident_memory_bytes has it."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of memory that the exporter has, its child, and both: what they share is held once."""

    main: int
    apart: int
    both: int


def told(now: Resident, later: Resident) -> tuple[str, str]:
    """Given both processes before and after very many scrapes, return what is said of their memory."""
    most = max(now.main, later.main) / MB
    judged = f"missed by {most - AIM_MB:.1f} MB" if most > AIM_MB else "met"
    together = max(now.both, later.both) / MB
    memory = (
        f"resident {most:.1f} MB at most, aim {AIM_MB:g} MB: {judged};"
        f" with the process apart that asks systemd {together:.1f} MB, what they share counted once"
    )
    growth = (
        f"after 100,000 scrapes {later.main / MB:.1f} MB, and {later.both / MB:.1f} MB together,"
        f" aim no growth: {(later.both - now.both) / MB:+.1f}"
    )
    return memory, growth
