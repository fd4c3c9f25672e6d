"""The resident memory of the exporter as `make bench` tells it: main process and child together, in MB."""

from __future__ import annotations

from dataclasses import dataclass

MB = 10**6
KIB = 1024
"""In /proc "kB" are 1024 bytes (proc(5))."""
AIM_MB = 45.0
"""Of both processes together; the aim is in MB, which are fewer bytes than MiB."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Rss: of both processes, in the unit of /proc. What they share is in both."""

    main: int
    apart: int

    @property
    def megabytes(self) -> float:
        """Both together (MB)."""
        return (self.main + self.apart) * KIB / MB


def told(now: Resident, later: Resident, shared_once: int) -> tuple[str, str]:
    """Given Rss: before and after very many scrapes, and Pss: of both, return what is said of them."""
    most = now.megabytes
    judged = f"missed by {most - AIM_MB:.1f} MB" if most > AIM_MB else "met"
    parts = (f"{part * KIB / MB:.1f}" for part in (now.main, now.apart))
    memory = (
        f"resident {most:.1f} MB ({' and '.join(parts)} of the process apart; what they share"
        f" counted once: {shared_once * KIB / MB:.1f} MB), aim {AIM_MB:g} MB together: {judged}"
    )
    growth = (
        f"after 100,000 scrapes {later.megabytes:.1f} MB, aim no growth:"
        f" {later.megabytes - most:+.1f}"
    )
    return memory, growth
