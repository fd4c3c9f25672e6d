"""Writes a plan for people and programs: the same for `diff` and `apply --dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimisvc.cli.output import hushed

if TYPE_CHECKING:
    from kimisvc.deploy.plan import Plan
    from kimisvc.records.profile import Profile
    from kimisvc.records.units import UnitState


def plan_json(plan: Plan) -> dict[str, Any]:
    """Given a plan, return its JSON object."""
    return {
        "action": plan.action.name.lower(),
        "why": plan.why,
        "units": [
            {"name": u.name, "change": u.change.value, "diff": hushed(u.diff)} for u in plan.units
        ],
        "hand_edits": [edit.unit for edit in plan.hand_edits],
    }


def plan_text(plan: Plan, before: Profile | None, wanted: Profile, service: UnitState) -> str:
    """Given a plan, two profiles and the service now, return what would happen to all of them."""
    from kimisvc.profile.differences import differences
    from kimisvc.render.compare import Change

    lines = [f"would do: {_deed(plan, service)} ({plan.why})"]
    if before is not None:
        settings = [f"  {key}: {old} -> {new}" for key, old, new in differences(before, wanted)]
        if settings:
            lines += [f"settings, from {before.name} to {wanted.name}:", *settings]
    for unit in plan.units:
        if unit.change is Change.NEW:
            lines.append(f"{unit.name}: new (kimisvc render shows its text)")
        elif unit.diff:
            lines += [f"{unit.name}: {unit.change.value}", unit.diff.rstrip("\n")]
    for edit in plan.hand_edits:
        if edit.diff:
            # The edit itself stands in the difference above, and in what apply refuses with.
            lines.append(f"{edit.unit} was edited by hand; apply refuses unless --overwrite")
        else:
            lines.append(
                f"{edit.unit}: no current generation tells whether kimisvc wrote it so; apply"
                " refuses unless --overwrite"
            )
    return hushed("\n".join(lines))


def _deed(plan: Plan, service: UnitState) -> str:
    """What the plan does to processes; where nothing runs, nothing is started *again*."""
    words = plan.action.value
    return words if service.goes_on else words.replace("restart vLLM", "start vLLM")
