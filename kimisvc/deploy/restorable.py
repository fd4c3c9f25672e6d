"""Which generation can be gone back to, and why none can. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.box import is_installed
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.owed import owed
from kimisvc.errors import KimisvcError
from kimisvc.records.profile import OnFail

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation


def unfinished_switch(box: Box, current: int) -> Generation | None:
    """Given the current generation, return it where it is accepted and its restart is still owed.

    So a rollback that broke in the middle is found by the next try: what failed
    was forgotten when it began, and nothing else would start what was restored.
    """
    accepted = box.generations.sound_accepted()
    if accepted is None or accepted.number != current or owed(box.layout, current) is None:
        return None
    return accepted


def last_proven(box: Box, current: int) -> Generation | None:
    """Given the current generation, return the last accepted one; None: there is none to go back to.

    Where that is damaged, the newest other that was proven.
    """
    accepted = box.generations.sound_accepted()
    if accepted is not None and box.generations.is_whole(accepted.number):
        return accepted
    if not box.layout.accepted.is_symlink():
        return None
    try:
        others = _proven_before(box, current)
    except KimisvcError:
        return None  # the history is gone as well
    # Only one before it: to and fro between two that both fail there would be no end.
    before = [number for number in others if number < current]
    return box.generations.get(before[-1]) if before else None


def proven_earlier(box: Box, current: int | None) -> Generation:
    """Given the current generation, return the last accepted one, or, where it is that, the one before.

    Raise KimisvcError where there is none.
    """
    accepted = box.generations.sound_accepted()
    if current is not None and (unfinished := unfinished_switch(box, current)) is not None:
        return unfinished
    if (
        accepted is not None
        and accepted.number != current
        and box.generations.is_whole(accepted.number)
    ):
        return accepted
    earlier = _proven_before(box, current or 0)
    if not earlier:
        raise KimisvcError(
            "nothing-to-restore",
            f"no other generation of {box.layout.instance} was ever accepted and is whole",
            hint="kimisvc history shows what there is; --to N takes any of them",
        )
    return box.generations.get(earlier[-1])


def obstacle(box: Box, current: int, accepted: Generation | None) -> str:
    """Given the generation that failed and `last_proven`, return why nothing is restored; "" if it can be."""
    if accepted is None and box.layout.accepted.is_symlink():
        return "the last accepted generation is damaged, so there is nothing to go back to"
    if accepted is None:
        return "no generation was ever accepted, so there is nothing to go back to"
    if accepted.number == current and is_installed(box, accepted):
        return f"generation {accepted.label} is itself the last accepted one; left as it is"
    try:
        keep = box.generations.get(current).settings().service.on_fail is OnFail.KEEP
    except KimisvcError:
        keep = False  # damaged: what cannot be read cannot ask to be kept
    return 'the profile says on_fail = "keep"; left as it is' if keep else ""


def _proven_before(box: Box, here: int) -> list[int]:
    """The other generations that were proven and are whole: those after `here` first, then newest last."""
    proven = {v.generation for v in box.history.verdicts() if v.accepted}
    recorded = Outcome.RECORDED.value
    proven |= {a.generation for a in box.history.applies() if a.outcome == recorded}
    whole = sorted(number for number in proven - {here} if box.generations.is_whole(number))
    return [n for n in whole if n > here] + [n for n in whole if n < here]
