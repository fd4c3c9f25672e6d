"""The short form of the report: a line for each profile, what the comparisons say, the last rollback."""

from __future__ import annotations

from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Any

from kimisvc.observe.report.words import moment, span, speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.observe.report.story import Story

LONGEST = 24
"""Figures a sparkline shows: the newest."""


class Ramp(Enum):
    """The steps a sparkline is drawn with, for terminals that have blocks and those that do not."""

    BLOCKS = "▁▂▃▄▅▆▇█"
    ASCII = "_.-=+*#@"


def sparkline(values: Sequence[float], ramp: Ramp) -> str:
    """Given figures, oldest first, return one character each, from the least to the greatest."""
    steps = ramp.value
    newest = values[-LONGEST:]
    if not newest:
        return ""
    low, high = min(newest), max(newest)
    if high == low:
        return steps[len(steps) // 2] * len(newest)
    return "".join(steps[round((v - low) / (high - low) * (len(steps) - 1))] for v in newest)


HEAD = ("profile", "starts", "newest", "decode tok/s", "verdicts", "canaries", "load")


def rows(story: Story, ramp: Ramp) -> list[tuple[str, ...]]:
    """Given a story, return a row for each profile, the one used last first."""
    return [_row(story, name, ramp) for name in story.profiles]


def legend(ramp: Ramp) -> str:
    """Given the steps of the sparklines, return what a sign of them means."""
    least, most = ramp.value[0], ramp.value[-1]
    return (
        f"verdicts, canaries: a sign for the decode throughput of each, the newest right, from the"
        f" least ({least}) to the greatest ({most}) of its row; {sparkline([1.0], ramp)} where all are equal"
    )


def remarks(story: Story) -> list[str]:
    """Given a story, return what is said below the rows, a line each."""
    lines = [f"{row.other} against {row.base}: {row.words}" for row in story.contests.rows]
    lines += [f"not compared: {text}" for text in story.contests.apart]
    if story.rollbacks:
        row = story.rollbacks[-1]
        to = f"to {row.to_generation}" if row.to_generation else "nothing restored"
        lines.append(
            f"newest of {len(story.rollbacks)} rollbacks: {moment(row.at)}, generation "
            f"{row.from_generation} {to}: {row.reason}"
        )
    return lines


def as_json(story: Story) -> dict[str, Any]:
    """Given a story, return its short form as programs read it."""
    return {
        "instance": story.instance,
        "memory": story.gaps.memory.value,
        "waiting": story.gaps.waiting,
        "profiles": [_profile_json(story, name) for name in story.profiles],
        "comparisons": [dict(row.json) for row in story.contests.rows],
        "not_compared": list(story.contests.apart),
        "rollbacks": len(story.rollbacks),
    }


def _row(story: Story, profile: str, ramp: Ramp) -> tuple[str, ...]:
    verdicts = [v for v in story.verdicts if v.profile == profile]
    starts = [s for s in story.starts if s.profile == profile]
    loads = [s.load_s for s in starts if s.load_s is not None]
    canaries = [c.decode_tok_s for c in story.canaries
                if c.profile == profile and c.decode_tok_s is not None]  # fmt: skip
    newest = verdicts[-1] if verdicts else None
    return (
        profile,
        str(len(starts)),
        newest.verdict.kind.value if newest else "-",
        speed(newest.decode_tok_s) if newest and newest.decode_tok_s else "-",
        sparkline([v.decode_tok_s.mean for v in verdicts if v.decode_tok_s], ramp) or "-",
        sparkline(canaries, ramp) or "-",
        span(median(loads)) if loads else "-",
    )


def _profile_json(story: Story, profile: str) -> dict[str, Any]:
    verdicts = [v for v in story.verdicts if v.profile == profile]
    starts = [s for s in story.starts if s.profile == profile]
    loads = [s.load_s for s in starts if s.load_s is not None]
    newest = verdicts[-1] if verdicts else None
    seen = newest.decode_tok_s if newest else None
    return {
        "profile": profile,
        "starts": len(starts),
        "verdict": newest.verdict.kind.value if newest else None,
        "decode_tok_s": seen and seen.mean,
        "decode_tok_s_low": seen and seen.low,
        "decode_tok_s_high": seen and seen.high,
        "load_s": median(loads) if loads else None,
        "canaries": sum(c.profile == profile for c in story.canaries),
    }
