"""One instance on one box: everything a command needs of the world, in one frozen value.

The command line builds it with the real doors; tests build it with others.
"""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.deploy.generations import Generation, Generations
from kimisvc.deploy.history import History
from kimisvc.deploy.owed import owe, owed, settle_debt
from kimisvc.deploy.plan import Action, Plan, Situation, Standing, make_plan
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.host.journal import Journal
from kimisvc.records.units import UnitFile

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from kimisvc.deploy.layout import Layout
    from kimisvc.host.systemd import Systemd
    from kimisvc.records.units import UnitNames, UnitState

SWITCH_WAIT = 30.0
"""How long a switch waits for another switch of the same instance (s)."""
UNREAD = "# may not be read here: "
"""How the remark begins that stands for the text of a unit which who asks may not read."""
NO_UNIT = "# no unit that can be read: "
"""And of what nobody can read as one: a folder, no text."""
HELD_BACK = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


class AtBoot(Enum):
    """Whether units that are switched to will start at boot."""

    ENABLED = "they are enabled"
    AS_IT_WAS = "not where an operator disabled the service"


@dataclass(frozen=True, slots=True)
class Box:
    """The doors and the state of one instance."""

    layout: Layout
    systemd: Systemd
    journal: Journal = field(default_factory=Journal)
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def generations(self) -> Generations:
        """The generations of this instance."""
        return Generations(self.layout)

    @property
    def history(self) -> History:
        """The history of this instance."""
        return History(self.layout.history)


def installed_units(layout: Layout) -> dict[str, str | None]:
    """Given an instance, return the texts of the units it may have; None where there is none."""
    texts: dict[str, str | None] = {}
    for name in layout.units.all:
        path = layout.installed(name)
        texts[name] = _unit_text(path) if files.exists(path) else None
    return texts


def _unit_text(path: Path) -> str:
    """The text of an installed unit; of what is none, a remark that no generation wrote."""
    if path.is_symlink():
        masked = path.readlink() == Path("/dev/null")
        return (
            f"# masked: it never starts until systemctl unmask {path.name}\n"
            if masked
            else f"# a symlink to {path.readlink()}\n"
        )
    try:
        return files.read_text(path)
    except KimisvcError as error:
        hidden = isinstance(error.__cause__, PermissionError)
        return f"{UNREAD if hidden else NO_UNIT}{error.message}\n"


def survey(box: Box, resolved: str, units: Sequence[UnitFile]) -> Situation:
    """Given the resolved profile and the units that are wanted, read all a plan is made from.

    Another kimisvc can make other units of the same profile: that is another
    generation too, since a generation never changes.
    """
    current = box.generations.sound_current()
    accepted = box.generations.sound_accepted()
    standing = Standing.OTHER
    wanted = {unit.name: unit.text for unit in units}
    if _resolved(current) == resolved and _texts(current) == wanted:
        standing = Standing.SAME
    elif box.generations.current_number() is None:
        standing = Standing.FIRST
    installed = installed_units(box.layout)
    foreign = [
        name
        for name, text in installed.items()
        if text is not None and not box.generations.wrote(UnitFile(name, text))
    ]
    names = box.layout.units
    service = box.systemd.state(names.service)
    return Situation(
        names=names,
        standing=standing,
        installed=installed,
        ours=_texts(current),
        foreign=frozenset(foreign),
        service=service,
        gate=box.systemd.state(names.gate),
        accepted=current is not None and accepted is not None and current.number == accepted.number,
        proven=_proven(box, service),
        owed=owed(box.layout, box.generations.current_number()),
        enabled=not not_enabled(box, service, wanted),
        waiting=service.active_state != "active" or not stopped_beside(box, wanted),
    )


def not_enabled(box: Box, service: UnitState, wanted: Container[str]) -> tuple[str, ...]:
    """Given a box, its service and the units it should have, return which would not start at boot."""
    names = box.layout.units
    units = [service, box.systemd.state(names.target)]
    if names.canary_timer in wanted:
        units.append(box.systemd.state(names.canary_timer))
    return tuple(unit.name for unit in units if unit.enabled == "disabled")


def stopped_beside(box: Box, wanted: Container[str]) -> tuple[str, ...]:
    """Given a box whose service runs and the units it should have, return which do not go on beside it."""
    timer = box.layout.units.canary_timer
    rests = timer in wanted and box.systemd.state(timer).active_state in ("inactive", "failed")
    return (timer,) if rests else ()


def _resolved(generation: Generation | None) -> str | None:
    """The resolved profile of a generation; None where it is damaged."""
    try:
        return generation.resolved() if generation else None
    except KimisvcError:
        return None


def _texts(generation: Generation | None) -> dict[str, str]:
    """The units a generation wrote; none where it is damaged."""
    try:
        return {unit.name: unit.text for unit in generation.units()} if generation else {}
    except KimisvcError:
        return {}


def _proven(box: Box, service: UnitState) -> bool:
    """Whether the last verdict on the start that runs was a good one."""
    try:
        verdicts = box.history.verdicts(limit=50)
    except KimisvcError:
        return True  # `accepted` still tells; a damaged history must not stop an apply
    newest = next((v for v in verdicts if v.invocation == service.invocation_id), None)
    return newest is not None and newest.verdict.kind.accepted


def plan_for(box: Box, resolved: str, units: Sequence[UnitFile]) -> Plan:
    """Given a resolved profile and its units, return what applying it would do."""
    return make_plan(survey(box, resolved, units), units)


def is_installed(box: Box, generation: Generation) -> bool:
    """Given a generation, say whether the service's unit on disk is the one it wrote."""
    name = box.layout.units.service
    return installed_units(box.layout).get(name) == _texts(generation).get(name)


def keep_copies(box: Box, plan: Plan) -> tuple[Path, ...]:
    """Given a plan, copy each unit aside that is no generation's; return the copies."""
    copies = []
    for edit in plan.hand_edits:
        copy = box.layout.overwritten / f"{edit.unit}.{int(box.now())}"
        files.make_folder(copy.parent)
        # What was written by hand may be a secret.
        files.set_aside(box.layout.installed(edit.unit), copy, mode=0o600)
        copies.append(copy)
    return tuple(copies)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, a lost terminal and a polite kill until the switch is done.

    By a mask: a handler that interrupts this thread, whatever it does, makes the
    call to systemd in progress fail with EINTR (signal(7): poll(2) is never
    restarted). And by handlers, for a mask holds for one thread: where another
    does not block the signal, as the one that draws the progress, it takes it.
    The call here goes on then, for the kernel interrupts only who takes it, and
    Python runs the handler in this thread once the call has returned.

    What came in between is raised anew afterwards. Not so Ctrl-C where the switch
    failed: that error ends the command, too, and would not be seen. Start no
    program within: it would inherit the mask and not end when told to.
    """
    came: set[int] = set()
    outranked: set[int] = set()
    before: dict[signal.Signals, Any] = {}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        for held in HELD_BACK:
            before[held] = signal.signal(held, lambda number, _: came.add(number))
        # After the handlers: setting a mask runs what is due, and must not raise by then.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        yield
    except BaseException:
        outranked.add(signal.SIGINT)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what is pending is collected here
        for held, handler in reversed(before.items()):
            signal.signal(held, handler if handler is not None else signal.SIG_DFL)
        for held in reversed(HELD_BACK):  # Ctrl-C last: its exception would hide the others
            if held in came - outranked:
                signal.raise_signal(held)


def switch(
    box: Box,
    plan: Plan,
    generation: Generation,
    units: Sequence[UnitFile],
    at_boot: AtBoot = AtBoot.ENABLED,
) -> tuple[str, ...]:
    """Given a plan, make the generation the installed one and restart what the plan says.

    Return what was restarted. Whatever ends us in between, what is owed is
    written down first and cleared last. What is only recorded is accepted at
    once: the start that runs was proven, and nothing of it changes.
    """
    with uninterrupted():
        if restarts(plan, box.layout.units):
            owe(box.layout, plan.action, generation.number)
        _install(box, plan, generation, units, at_boot)
        restarted = _set_going(box, plan)
        _set_going_beside(box, plan, units)
        settle_debt(box.layout)
        if plan.action is Action.RECORD:
            box.generations.accept(generation)
    return restarted


def _install(
    box: Box, plan: Plan, generation: Generation, units: Sequence[UnitFile], at_boot: AtBoot
) -> None:
    """Units first: where they cannot be written, the generation that runs stays the current one."""
    names = box.layout.units
    # Asked before units are written: systemd must not yet know what it will hold.
    starts = at_boot is AtBoot.ENABLED or box.systemd.state(names.service).enabled != "disabled"
    _remove(box, plan.removed)
    there = installed_units(box.layout)
    for unit in units:
        if there.get(unit.name) != unit.text:
            files.write_atomic(box.layout.installed(unit.name), unit.text, mode=0o644)
    box.generations.make_current(generation)
    if starts:
        timers = [unit.name for unit in units if unit.name == names.canary_timer]
        box.systemd.enable((names.service, names.target, *timers))
    # Last, for what a unit pulls in by being enabled counts from here on.
    box.systemd.reload()


def _remove(box: Box, names: Sequence[str]) -> None:
    """Given units that are not wanted any more, stop them and take them off the disk.

    Timers first, or one would start its service again meanwhile.
    """
    for name in sorted(names, key=lambda name: not name.endswith(".timer")):
        box.systemd.stop(name)
        box.systemd.disable((name,))
        box.systemd.reset_failed(name)
        files.remove(box.layout.installed(name))


def restarts(plan: Plan, names: UnitNames) -> tuple[str, ...]:
    """Given a plan, return the units that it starts anew."""
    return {
        Action.RESTART: (names.service, names.gate),
        Action.GATE: (names.gate,),
    }.get(plan.action, ())


def _set_going(box: Box, plan: Plan) -> tuple[str, ...]:
    """Given a plan whose units are installed, restart what it says; return what was restarted.

    `reset_failed` comes first: a start by hand counts against the start limit too.
    """
    names = box.layout.units
    restarted = restarts(plan, names)
    if not restarted:
        return ()  # and no failure is forgotten that a rollback is about to look at
    # One that waits to be tried again is not "failed"; what it was called for is over. The
    # rollback unit that we may be run by is at work, and goes on.
    if box.systemd.state(names.rollback).sub_state == "auto-restart":
        box.systemd.stop(names.rollback)
    for name in (names.service, names.gate, names.rollback):
        box.systemd.reset_failed(name)
    # The first brings the gate with it, where both are named.
    box.systemd.restart(restarted[0])
    return restarted


def _set_going_beside(box: Box, plan: Plan, units: Sequence[UnitFile]) -> None:
    """Start the canary's timer where the service goes on and it does not, or not with these times.

    A service that is started anew brings its timer with it; one that does not run gets none.
    """
    timer = box.layout.units.canary_timer
    wanted = [unit.name for unit in units]
    if timer not in wanted or plan.action is Action.RESTART:
        return
    if timer in plan.written or stopped_beside(box, wanted):
        box.systemd.restart(timer)
