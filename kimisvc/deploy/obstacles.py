"""What stands in the way of a wish, or is only odd about it. Only looks.

The host, units that were edited by hand, a deadline that no load would meet, a profile that was
rejected before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kimisvc.deploy.plan import Action, HandEdit, Plan
from kimisvc.deploy.unkept import rollbacks_after
from kimisvc.deploy.verify import news
from kimisvc.deploy.wish import HandEdits, HostChecks
from kimisvc.errors import KimisvcError, PreflightRefusedError
from kimisvc.profile.problems import format_problem
from kimisvc.profile.quantities import format_duration
from kimisvc.records.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Collection

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.follow import Reporter
    from kimisvc.deploy.wish import Checks, Wish


def refuse(
    box: Box,
    wish: Wish,
    plan: Plan,
    checks: Checks,
    reporter: Reporter,
    told: Collection[Problem] = (),
) -> tuple[Problem, ...]:
    """Raise what stands in the way; tell what is only odd and not `told` yet, and return all of that."""
    if plan.action is Action.RESTART:
        reporter.step("looking at the host")
    reasons = in_the_way(box, wish, plan, checks)
    odd = tuple(one for one in reasons if one.severity is Severity.WARNING)
    for one in odd:
        if one not in told:
            reporter.step(format_problem(one))
    refusing = [one for one in reasons if one.severity is Severity.ERROR]
    if refusing:
        raise PreflightRefusedError(refusing)
    return odd


def in_the_way(box: Box, wish: Wish, plan: Plan, checks: Checks) -> tuple[Problem, ...]:
    """Given a wish and what it would do, return all that is odd, or stands in its way.

    Preflight is for a load: without one the host is not asked. A warning refuses nothing.
    """
    reasons = _too_short(box, wish, plan)
    if wish.hand_edits is HandEdits.REFUSE:
        reasons += [Problem(_about_edit(box, edit), file=edit.unit) for edit in plan.hand_edits]
    if plan.action is Action.RESTART:
        found = checks.preflight(wish.profile)
        if wish.host_checks is HostChecks.OVERRIDE:
            found = tuple(replace(one, severity=Severity.WARNING) for one in found)
        reasons += found
    if plan.written:
        reasons += news(checks.verify(wish.units), reasons)
    return tuple(reasons)


def _about_edit(box: Box, edit: HandEdit) -> str:
    if not box.generations.numbers():
        return (
            f"is there, and no generation in {box.layout.generations} tells whether kimisvc wrote"
            " it so; --overwrite replaces it (a copy is kept)"
        )
    if not edit.diff:
        return (
            f"is there, and {_unknown(box)}, so nobody can tell whether it is as kimisvc wrote it;"
            " --overwrite replaces it (a copy is kept)"
        )
    return (
        f"was edited by hand; kimisvc does not overwrite that:\n{edit.diff}\n"
        f"to keep the edit, put it into a drop-in first (systemctl edit {edit.unit}); then say"
        " --overwrite (a copy is kept)"
    )


def _unknown(box: Box) -> str:
    if box.generations.current_number() is None:
        return "which generation is in force is not known"
    return "the generation that is in force is damaged"


def _too_short(box: Box, wish: Wish, plan: Plan) -> list[Problem]:
    """Say so when no load seen here would have met the deadline: "45s" typed for "45min".

    Where the model is loaded anew it may load faster now, and is only warned of;
    where it is not, the next start of the very same vLLM would be ended.
    """
    if plan.action in (Action.NOTHING, Action.FOLLOW):
        return []
    model, limit = wish.profile.vllm.model, wish.profile.service.load_timeout
    try:
        fastest = min(box.history.loads(model), default=0.0)
    except KimisvcError:
        return []  # a damaged history stops no apply
    if limit > fastest:
        return []
    severity = Severity.WARNING if plan.action is Action.RESTART else Severity.ERROR
    return [
        Problem(
            f"load_timeout is {format_duration(limit)}, but the fastest of the last loads of"
            f" {model} here took {format_duration(round(fastest, 1))}: the next one would be ended"
            " before it is ready",
            key="service.load_timeout",
            severity=severity,
        )
    ]


def warn_of_rejected(box: Box, wish: Wish, reporter: Reporter) -> None:
    """Say so when this very profile was rolled back before: its load may be paid for nothing."""
    accepted = box.generations.sound_accepted()
    for row in rollbacks_after(box, 0)[:5]:
        if row.to_generation is None or (accepted and accepted.number == row.from_generation):
            continue  # it was kept, or has proven itself since
        try:
            before = box.generations.get(row.from_generation).resolved()
        except KimisvcError:
            continue  # removed or damaged: nothing to compare with
        if before == wish.resolved:
            reporter.step(f"warning: this profile was rejected before: {row.reason}")
            return
