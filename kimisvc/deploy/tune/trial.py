"""One start of a candidate: through the same apply and gate as any other, then judged.

A start that was begun before we were cut off (a kill, a reboot) is followed to
its end rather than paid for twice.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.deploy.apply import bring_about
from kimisvc.deploy.follow import Begun, follow
from kimisvc.deploy.outcome import Applied, Outcome
from kimisvc.deploy.tune.begun import applied_since, seconds_taken, was_begun
from kimisvc.deploy.tune.further import Further, Undecided, held_against, measured_on
from kimisvc.deploy.tune.state import TrialRow
from kimisvc.deploy.wish import Reload
from kimisvc.errors import KimisvcError, LeftAtWorkError, PreflightRefusedError
from kimisvc.measure.comparison import start_figure
from kimisvc.measure.tuning import Search
from kimisvc.profile.problems import format_problem
from kimisvc.records.problems import Severity
from kimisvc.records.proof import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.history import StartFigures
    from kimisvc.deploy.outcome import Ending
    from kimisvc.deploy.tune.state import Pending
    from kimisvc.deploy.wish import Checks, Wish
    from kimisvc.measure.stream import Api
    from kimisvc.records.profile import Profile, SpeedTarget

REFUSED = "refused"
"""The outcome of a candidate that the host cannot run: nothing was started."""
BROKE = "broke"
"""The outcome of a start that could not be brought about, for a reason of the box."""
DEATHS = 2
"""Starts that may end while they are measured on, until that is told of the candidate."""
RELOAD = {Search.FIRST_THAT_MEETS: Reload.PROVE, Search.EXPLORE: Reload.ALWAYS}
"""What a start asks for: a comparison needs starts anew, while a model that is loaded already can
tell whether a target is met."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a start is brought about with, and measured. `api_of` opens the door to a profile's server."""

    box: Box
    checks: Checks
    reporter: Reporter
    api_of: Callable[[Profile], Api]


def carry_out(means: Means, wish: Wish, pending: Pending, target: SpeedTarget | None) -> TrialRow:
    """Given a candidate's wish, bring its start about; return the row.

    A candidate that fails, or that the host refuses, is a row too. Raise
    LeftAtWorkError where we are told to leave.
    """
    box = means.box
    try:
        applied = bring_about(box, wish, means.checks, means.reporter)
        return _judged(means, wish, pending, applied, target)
    except LeftAtWorkError:
        raise
    except PreflightRefusedError as error:
        reasons = [p for p in error.reasons if p.severity is Severity.ERROR]
        first = format_problem(reasons[0]) if reasons else error.message
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        why = Verdict(VerdictKind.FAIL, f"this host cannot run it: {first}{more}")
        return _row(box, pending, why, REFUSED)
    except KimisvcError as error:
        return _row(box, pending, Verdict(VerdictKind.INCONCLUSIVE, error.message), BROKE)


def follow_begun(
    means: Means, wish: Wish, pending: Pending, target: SpeedTarget | None
) -> TrialRow | None:
    """Given a start that may have been begun before us, follow it to its end; return the row.

    None where it was not begun or nothing came of it. What passed while nobody
    followed it is not what it took: the box may have been off for hours. Raise
    LeftAtWorkError where we are told to leave.
    """
    box = means.box
    try:
        applied = _begun(means, wish, pending)
        if applied is None:
            return None
        here = box.now()
        row = _judged(means, wish, pending, applied, target)
        further = max(0.0, box.now() - here)
        return replace(row, seconds=_took(box, pending, applied.ending) + further)
    except LeftAtWorkError:
        raise
    except KimisvcError as error:
        broke = Verdict(VerdictKind.INCONCLUSIVE, error.message)
        return replace(_row(box, pending, broke, BROKE), seconds=0.0)


def _judged(
    means: Means, wish: Wish, pending: Pending, applied: Applied, target: SpeedTarget | None
) -> TrialRow:
    """Given a start that has ended, return its row, measuring on where its gate's runs do not tell.

    One that runs no more is followed like any start: systemd brings it back or not, and
    a gate tells what it is worth then.
    """
    ending = applied.ending
    for _ in range(DEATHS):
        found = _figures(means.box, ending)
        judged = judge(ending, found, wish.profile, target)
        if isinstance(judged, Verdict):
            return _known(means.box, pending, applied, ending, found, Further(judged, 0))
        further = measured_on(means.box, means.reporter, means.api_of, wish.profile, judged)
        if further is not None:
            return _known(means.box, pending, applied, ending, found, further)
        means.reporter.step("that start runs no more; following what comes of it")
        decided = judged.decided
        ending = _followed(means, Begun(applied.generation, decided.sequence, decided.invocation))
    why = Verdict(VerdictKind.FAIL, f"it ended {DEATHS} times before its speed was known")
    return _known(means.box, pending, applied, ending, None, Further(why, 0))


def _known(
    box: Box, pending: Pending, applied: Applied, ending: Ending, found: StartFigures | None,
    further: Further,
) -> TrialRow:  # fmt: skip
    """Given how a start ended, the runs of its gate and what was measured after it, return its row."""
    row = _row(box, pending, further.verdict, ending.outcome.value)
    row = replace(row, started=True, generation=applied.generation, further_runs=further.runs)
    if further.decode_tok_s is not None:
        return replace(row, decode_tok_s=further.decode_tok_s, error=further.error)
    decided = ending.verdict
    if decided is None or decided.decode_tok_s is None:
        return row
    spread = start_figure(found.runs).error if found else 0.0
    return replace(row, decode_tok_s=decided.decode_tok_s, error=spread)


def _followed(means: Means, begun: Begun) -> Ending:
    """Follow what was begun to its end. Raise LeftAtWorkError where we are told to leave."""
    try:
        return follow(means.box, begun, means.reporter)
    except KeyboardInterrupt:
        raise LeftAtWorkError(means.box.layout.instance) from None


def _took(box: Box, pending: Pending, ending: Ending) -> float:
    """Given how a start ended, return what it and the one restored after it took (s)."""
    decided = [row for row in (ending.verdict, ending.restored) if row is not None]
    return seconds_taken(box, pending, decided)


def judge(
    ending: Ending, found: StartFigures | None, profile: Profile, target: SpeedTarget | None
) -> Verdict | Undecided:
    """Given how a start ended and its runs, return the verdict against the target of the search.

    What the gate refused is refused, whatever this target: it does not run any
    more. What it accepted is judged anew by the rule of the gate, since the
    profile's own target may be another. Undecided where these runs do not tell
    yet: the gate stopped when its own target was.
    """
    if ending.outcome in (Outcome.ROLLED_BACK, Outcome.NOT_RESTORED):
        return Verdict(VerdictKind.FAIL, ending.reason)
    good = (Outcome.ACCEPTED, Outcome.UNCHANGED, Outcome.RECORDED)
    if ending.outcome not in good or ending.verdict is None:
        return Verdict(VerdictKind.INCONCLUSIVE, ending.reason)
    if target is None or target == profile.gate.decode_tok_s:
        return ending.verdict.verdict
    return held_against(ending.verdict, found, profile, target)


def _begun(means: Means, wish: Wish, pending: Pending) -> Applied | None:
    """Given a start that may have been begun before us, follow it to its end; None if there is none."""
    box = means.box
    ours = applied_since(box, pending)
    if not ours or not was_begun(box, ours[0], wish.resolved, pending):
        return None
    number = ours[0].generation
    means.reporter.step(f"following the start of {wish.profile.name} that was begun before")
    ending = _followed(means, Begun(number, pending.since))
    if ending.outcome is Outcome.STOPPED:
        return None  # cut off with us, and nothing came of it: it is begun anew
    with contextlib.suppress(KimisvcError):
        outcome = ending.outcome
        box.history.close_applies(number, box.now(), outcome.value, outcome.exit_status)
    return Applied(ending, number)


def _figures(box: Box, ending: Ending) -> StartFigures | None:
    """Given how a start ended, return its runs; None where nothing was measured."""
    if ending.verdict is None:
        return None
    return box.history.verdict_figures(ending.verdict.record)


def _row(box: Box, pending: Pending, verdict: Verdict, outcome: str) -> TrialRow:
    now = box.now()
    return TrialRow(
        pending.candidate, now, max(0.0, now - pending.at), verdict.kind, verdict.reason, outcome,
        started=False,
    )  # fmt: skip
