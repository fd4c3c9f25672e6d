"""Which generation can be gone back to, and why none can. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.deploy.box import is_installed
from kimisvc.deploy.gaps import lost
from kimisvc.deploy.outcome import Outcome
from kimisvc.deploy.owed import owed
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.records.profile import OnFail

if TYPE_CHECKING:
    from kimisvc.deploy.box import Box
    from kimisvc.deploy.generations import Generation

_FORGOTTEN = "what the history held is lost, so which generations were accepted is not known"


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

    Where its link does not name it, the one that it would name by the history; where it is
    damaged, that of the newest proof among those numbered below the current one.
    """
    try:
        if (accepted := _accepted(box)) is not None:
            return accepted
        whole = (number for number in proven(box) if box.generations.is_whole(number))
        # Only one below it: to and fro between two that both fail there would be no end.
        before = next((number for number in whole if number < current), None)
    except KimisvcError:
        return None  # the history is gone as well
    return None if before is None else box.generations.get(before)


def _accepted(box: Box) -> Generation | None:
    """The accepted generation, if it is whole: as its link names it, or by the history where none does.

    Raise KimisvcError where that cannot be read.
    """
    accepted = box.generations.sound_accepted()
    if accepted is None and box.generations.accepted_number() is None:
        newest = next(iter(proven(box)), None)
        whole = newest is not None and box.generations.is_whole(newest)
        return box.generations.get(newest) if newest is not None and whole else None
    if accepted is None or not box.generations.is_whole(accepted.number):
        return None
    return accepted


def proven_earlier(box: Box, current: int | None) -> Generation:
    """Given the current generation, return the last accepted one, or, where it is that, the one before.

    Raise KimisvcError where there is none.
    """
    if current is not None and (unfinished := unfinished_switch(box, current)) is not None:
        return unfinished
    accepted = _accepted(box)
    if accepted is not None and accepted.number != current:
        return accepted
    earlier = _proven_before(box, current or 0)
    if not earlier:
        raise _none_earlier(box)
    return box.generations.get(earlier[-1])


def obstacle(box: Box, current: int, accepted: Generation | None) -> str:
    """Given the generation that failed and `last_proven`, return why nothing is restored; "" if it can be."""
    if accepted is None:
        return _why_none(box)
    if accepted.number == current and is_installed(box, accepted):
        return f"generation {accepted.label} is itself the last accepted one; left as it is"
    try:
        keep = box.generations.get(current).settings().service.on_fail is OnFail.KEEP
    except KimisvcError:
        keep = False  # damaged: what cannot be read cannot ask to be kept
    return 'the profile says on_fail = "keep"; left as it is' if keep else ""


def proven(box: Box) -> tuple[int, ...]:
    """Given a box, return the generations that were proven by its history, that of the newest proof first.

    What is only recorded rests on a proof. Raise KimisvcError where the history cannot be read.
    """
    recorded = Outcome.RECORDED.value
    rows = [(v.sequence, v.generation) for v in box.history.verdicts() if v.accepted]
    rows += [(a.sequence, a.generation) for a in box.history.applies() if a.outcome == recorded]
    return tuple(dict.fromkeys(generation for _, generation in sorted(rows, reverse=True)))


def _why_none(box: Box) -> str:
    """Why there is no generation to go back to: none was ever accepted, or which was is not known."""
    if files.exists(box.layout.accepted):
        return "the last accepted generation is damaged, so there is nothing to go back to"
    try:
        forgotten, known = lost(box.layout, box.history), proven(box)
    except KimisvcError:
        return "the history cannot be read, so which generations were accepted is not known"
    if known:
        return (
            "no generation that was accepted before it is whole, so there is nothing to go back to"
        )
    if forgotten:
        return f"{forgotten}: {_FORGOTTEN}"
    return "no generation was ever accepted, so there is nothing to go back to"


def _none_earlier(box: Box) -> KimisvcError:
    """The error of who wants another generation where history names none."""
    forgotten = lost(box.layout, box.history)
    name, there = box.layout.instance, ", ".join(map(str, box.generations.numbers()))
    said = f"history tells of no other generation of {name} that was accepted and is whole"
    return KimisvcError(
        "nothing-to-restore",
        f"{forgotten}: {_FORGOTTEN}" if forgotten else said,
        hint=f"--to N takes any of them (generations on disk: {there or 'none'})"
        if forgotten
        else f"kimisvc history --instance {name} shows what there is; --to N takes any of them",
    )


def _proven_before(box: Box, here: int) -> list[int]:
    """The other generations that were proven and are whole, the one to take last.

    Those numbered above `here` come first, and of each the one of the newest proof last.
    """
    known = (number for number in reversed(proven(box)) if number != here)
    whole = [number for number in known if box.generations.is_whole(number)]
    return [n for n in whole if n > here] + [n for n in whole if n < here]
