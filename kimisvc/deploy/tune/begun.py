"""A start of a candidate that was begun: which generation it became, and what is told if it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.owed import owed
from kimisvc.deploy.tune.state import TrialRow, kept_profile
from kimisvc.deploy.unkept import rollbacks_after
from kimisvc.errors import KimisvcError
from kimisvc.profile.resolved import to_toml
from kimisvc.records.proof import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.history import ApplyRow, VerdictRow
    from kimisvc.deploy.tune.state import Pending

LEFT = "begun, left to its gate"


def applied_since(box: Box, pending: Pending) -> list[ApplyRow]:
    """Given a start that may have been begun, return what was applied since, newest first."""
    return [row for row in box.history.applies(limit=5) if row.sequence > pending.since]


def was_begun(box: Box, row: ApplyRow, resolved: str, pending: Pending) -> bool:
    """Given what was applied and what a candidate is, resolved, say whether its start was begun by it.

    Its generation became the current one, and no restart for it is owed.
    """
    number = row.generation
    try:
        if box.generations.get(number).resolved() != resolved:
            return False
    except KimisvcError:
        return False
    switched = (
        box.generations.current_number() == number
        or any(back.from_generation == number for back in rollbacks_after(box, pending.since))
        or any(
            later.previous == number and later.sequence > row.sequence
            for later in applied_since(box, pending)
        )
    )
    return switched and owed(box.layout, number) is None


def seconds_taken(box: Box, pending: Pending, decided: Sequence[VerdictRow]) -> float:
    """Given a start and the verdicts on it and on the one restored after it, return what both took (s).

    Up to their verdicts; where there is none: since the service was last started.
    """
    if not decided:
        service = box.systemd.state(box.layout.units.service)
        return max(0.0, box.now() - max(pending.at, service.started_at))
    seconds = 0.0
    for verdict in decided:
        start = box.history.start(verdict.invocation)
        # A gate that was run again over an old start began with us.
        began = max(pending.at, start.started_at) if start else verdict.at
        seconds += max(0.0, verdict.at - began)
    return seconds


def left_to_its_gate(box: Box, pending: Pending) -> TrialRow | None:
    """Given a start that was to be made in a search that is given up, return its row; None: not begun.

    It is not judged, for its gate may be at work still. Where nothing can be
    known of it any more, it counts as begun: a start is not denied.
    """
    try:
        profile, _ = kept_profile(box.layout, pending.candidate)
        resolved = to_toml(profile)
        ours = [
            row for row in applied_since(box, pending) if was_begun(box, row, resolved, pending)
        ]
        if not ours:
            return None
        number = ours[0].generation
        decided = [row for row in box.history.verdicts(pending.since) if row.generation == number]
        seconds = seconds_taken(box, pending, decided[-1:])
    except KimisvcError:
        number, decided, seconds = None, [], max(0.0, box.now() - pending.at)
    said = f", which said {decided[-1].verdict.kind.value}" if decided else ""
    return TrialRow(
        pending.candidate, box.now(), seconds, VerdictKind.INCONCLUSIVE, f"{LEFT}{said}",
        Outcome.STARTED.value, started=True, generation=number,
    )  # fmt: skip
