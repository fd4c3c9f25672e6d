"""Durations, sizes and speed targets: from what an operator writes to a number, and back.

Durations follow systemd.time(7), so that a value can be carried into a unit
and back; where systemd guesses (`1h30` is one hour and 30 seconds there) this
module refuses and says what was likely meant. Pure; imports nothing of ours
but the record of a target.
"""

from __future__ import annotations

import math
import re

from kimisvc.records.profile import SpeedTarget

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_SPELLINGS = {
    "us": ("usec", "µs", "μs"),  # micro sign and Greek mu: systemd takes both
    "ms": ("msec",),
    "s": ("sec", "second", "seconds"),
    "min": ("m", "minute", "minutes"),
    "h": ("hr", "hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_UNITS = {unit: unit for unit in _MICROSECONDS} | {
    spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings
}
_CALENDAR = {"M", "month", "months", "y", "year", "years"}
_SPAN = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?[ \t]*([^\W\d_]*)[ \t]*")
_HOW = "Write it as systemd does: 45min, 2h 30min, 500ms, or seconds as a plain number"
_LONGEST_US = 2**53
"""Up to here a float of seconds names every microsecond, so nothing is lost on the way back."""

_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SHORT = {"K": "KiB", "M": "MiB", "G": "GiB", "T": "TiB"}
_DECIMAL = {"KB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}
_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,15}))?[ \t]*([A-Za-z]*)")
_LARGEST_BYTES = 2**63 - 1

_TARGET = re.compile(
    r"(?:>[ \t]*(?P<floor>[0-9]+(?:\.[0-9]+)?)[ \t]*(?:~[ \t]*(?P<goal>[0-9]+(?:\.[0-9]+)?))?"
    r"|(?P<both>[0-9]+(?:\.[0-9]+)?))"
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SLOWEST, _FASTEST = 0.01, 1_000_000.0


def parse_span(text: str) -> float:
    """Given a time span as `parse_duration` reads it, return it in seconds.

    Raise ValueError for what is none, and for none at all.
    """
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f'"{text}" is no time at all')
    return seconds


def parse_duration(text: str) -> float:
    """Given a time span as systemd.time(7) writes it, return it in seconds.

    A number alone is seconds, parts add up (`2h 30min`, `1h30min`), fractions
    hold (`1.5h`), and the result is whole microseconds. Raise ValueError for
    anything else, for months and years (nothing here lasts that long, and M is
    too near to m), and for `infinity`: each of our durations is a deadline.
    """
    text = text.strip()
    if not text:
        raise ValueError(f"a duration is empty. {_HOW}")
    if text.startswith("-"):
        raise ValueError(f"{_quoted(text)} is negative; a duration cannot be")
    if text.lower() in {"infinity", "inf", "never"}:
        raise ValueError(f"{_quoted(text)} never ends; a deadline is needed here, such as 45min")
    total = position = 0
    bare = False
    while position < len(text):
        span = _SPAN.match(text, position)
        if span is None or not (text[span.end() :] or "0")[0].isalnum():
            raise ValueError(f"{_quoted(text)} is not a duration. {_HOW}")
        whole, fraction, unit = span.groups()
        if not unit and (bare or position or span.end() < len(text)):
            raise ValueError(
                f"{_quoted(text)}: {whole} has no unit; systemd would take it as seconds. {_HOW}"
            )
        bare = not unit
        scale = _MICROSECONDS[_unit_of_time(text, unit or "s")]
        total += int(whole) * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
        position = span.end()
    if total > _LONGEST_US:
        raise ValueError(f"{_quoted(text)} is too long a time")
    return total / 1_000_000


def _unit_of_time(text: str, unit: str) -> str:
    """Given a unit as written, return its short name. Raise ValueError if there is none."""
    if unit in _UNITS:
        return _UNITS[unit]
    if unit in _CALENDAR:
        meant = " (a minute is min)" if unit == "M" else ""
        raise ValueError(
            f"{_quoted(text)}: {unit} counts months or years{meant}; the longest unit here is w"
        )
    near = next((known for known in (unit.lower(), unit[:-1], unit[:3]) if known in _UNITS), "")
    guess = f" (did you mean {_UNITS[near]}?)" if near else ""
    raise ValueError(f"{_quoted(text)}: {_quoted(unit)} is not a unit of time{guess}. {_HOW}")


def format_duration(seconds: float) -> str:
    """Given seconds, return them as systemd writes a time span: 2700 is "45min".

    Rounded to whole microseconds. Raise ValueError if negative or not finite.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds} is not a duration")
    rest = round(seconds * 1_000_000)
    parts = []
    for unit, scale in reversed(_MICROSECONDS.items()):
        count, rest = divmod(rest, scale)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0"


def parse_size(text: str) -> int:
    """Given a size with its unit (`16 GiB`, `512M`), return it in bytes.

    K, M, G, T count in powers of 1024, as systemd counts them. Raise ValueError
    for anything else, for GB and its like (they may mean either), and for a
    number without a unit, except 0.
    """
    text = text.strip()
    if text == "0":
        return 0
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ValueError(f"{_quoted(text)} is not a size. Write a number and a unit: 16 GiB, 512M")
    whole, fraction, unit = size.groups()
    if not unit:
        raise ValueError(
            f"{_quoted(text)} has no unit. Write {whole} GiB, {whole} MiB or {whole} B"
        )
    if unit.upper() in _DECIMAL:
        meant = _DECIMAL[unit.upper()]
        raise ValueError(
            f"{_quoted(text)}: {unit} is read as powers of 1000 by some and of 1024 by others. "
            f"Write {meant} (1024)"
        )
    scale = _BYTES.get(_SHORT.get(unit, unit))
    if scale is None:
        raise ValueError(
            f"{_quoted(text)}: {_quoted(unit)} is not a unit of size. Use {', '.join(_BYTES)}"
        )
    total, left = int(whole) * scale, 0
    if fraction:
        more, left = divmod(int(fraction) * scale, 10 ** len(fraction))
        total += more
    if left:
        raise ValueError(f"{_quoted(text)} is not a whole number of bytes")
    if total > _LARGEST_BYTES:
        raise ValueError(f"{_quoted(text)} is more than a machine can have")
    return total


def format_size(size: int) -> str:
    """Given bytes, return them in the largest unit that leaves no fraction: "16 GiB".

    Raise ValueError if negative.
    """
    if size < 0:
        raise ValueError(f"{size} is not a size")
    if size == 0:
        return "0"
    unit, scale = next((u, s) for u, s in reversed(_BYTES.items()) if size % s == 0)
    return f"{size // scale} {unit}"


def parse_target(text: str) -> SpeedTarget:
    """Given `>40~50` (floor 40, goal 50), `>50` or `50` (both), return the target in tok/s.

    Strict: the notation is the owner's, and the gate's rule (at or over) is not
    for the profile to choose. Raise ValueError for anything else.
    """
    match = _TARGET.fullmatch(text.strip())
    if match is None:
        numbers = _NUMBER.findall(text)
        low, high = (numbers[0], numbers[-1]) if numbers else ("40", "50")
        meant = f">{low}~{high}" if low != high else f">{low}"
        raise ValueError(
            f'{_quoted(text)} is not a speed target. Write "{meant}" '
            f"(> floor ~ goal, in tokens per second; a floor or goal that is just reached counts)"
        )
    floor = float(match["floor"] or match["both"])
    goal = float(match["goal"] or floor)
    if floor > goal:
        raise ValueError(
            f'{_quoted(text)}: the floor is over the goal. Did you mean ">{match["goal"]}~'
            f'{match["floor"]}"?'
        )
    if not (floor >= _SLOWEST and goal <= _FASTEST):
        raise ValueError(f"{_quoted(text)}: a target lies from {_SLOWEST} to {_FASTEST:.0f} tok/s")
    return SpeedTarget(floor, goal)


def format_target(target: SpeedTarget) -> str:
    """Given a target, return it as a profile writes it: ">40~50", or ">50" for both."""
    floor, goal = (repr(x).removesuffix(".0") for x in (target.floor, target.goal))
    return f">{floor}" if floor == goal else f">{floor}~{goal}"


def _quoted(text: str) -> str:
    return f'"{text[:60]}{"..." if len(text) > 60 else ""}"'  # noqa: PLR2004 - one line of text
