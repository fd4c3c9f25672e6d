"""One instance on one box: everything a command needs of the world, in one frozen value.

The command line builds it with the real doors; tests build it with others.
"""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.deploy.generations import Generation, Generations
from kimisvc.deploy.history import History
from kimisvc.deploy.owed import BOOT_ID, owe, owed, settle_debt
from kimisvc.deploy.plan import Action, Plan, Situation, Standing, make_plan
from kimisvc.errors import KimisvcError
from kimisvc.host import files
from kimisvc.host.journal import Journal
from kimisvc.records import UnitFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kimisvc.deploy.layout import Layout
    from kimisvc.host.systemd import Systemd
    from kimisvc.records import UnitNames, UnitState

SWITCH_WAIT = 30.0
"""How long a switch waits for another switch of the same instance (s)."""


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
    def boot(self) -> str:
        """The id of this boot (random(4))."""
        return files.read_text(Path(BOOT_ID)).strip()

    @property
    def generations(self) -> Generations:
        """The generations of this instance."""
        return Generations(self.layout)

    @property
    def history(self) -> History:
        """The history of this instance."""
        return History(self.layout.history)


def installed_units(layout: Layout) -> dict[str, str | None]:
    """Given an instance, return the texts of its installed units; None where there is none."""
    units = layout.units
    names = (units.service, units.gate, units.rollback, units.target)
    texts: dict[str, str | None] = {}
    for name in names:
        path = layout.installed(name)
        texts[name] = files.read_text(path) if files.exists(path) else None
    return texts


def survey(box: Box, resolved: str, units: Sequence[UnitFile]) -> Situation:
    """Given the resolved profile and the units that are wanted, read all a plan is made from.

    Another kimisvc can make other units of the same profile: that is another
    generation too, since a generation never changes.
    """
    current = box.generations.sound_current()
    accepted = box.generations.accepted()
    standing = Standing.OTHER
    wanted = {unit.name: unit.text for unit in units}
    if current is not None and current.resolved() == resolved and _texts(current) == wanted:
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
        owed=owed(box.layout, box.boot),
    )


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
    """Given a plan, copy each hand-edited unit aside; return the copies."""
    copies = []
    for edit in plan.hand_edits:
        text = files.read_text(box.layout.installed(edit.unit))
        copy = box.layout.overwritten / f"{edit.unit}.{int(box.now())}"
        files.make_folder(copy.parent)
        files.write_atomic(copy, text, mode=0o600)  # what was written by hand may be a secret
        copies.append(copy)
    return tuple(copies)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, a lost terminal and a polite kill until the switch is done."""
    held = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def switch(
    box: Box, plan: Plan, generation: Generation, units: Sequence[UnitFile]
) -> tuple[str, ...]:
    """Given a plan, make the generation the installed one and restart what the plan says.

    Return what was restarted. Whatever ends us in between, what is owed is
    written down first and cleared last.
    """
    with uninterrupted():
        if restarts(plan, box.layout.units):
            owe(box.layout, plan.action, box.boot)
        _install(box, generation, units)
        restarted = _set_going(box, plan)
        settle_debt(box.layout)
    return restarted


def _install(box: Box, generation: Generation, units: Sequence[UnitFile]) -> None:
    """Units first: where they cannot be written, the generation that runs stays the current one."""
    names = box.layout.units
    there = installed_units(box.layout)
    for unit in units:
        if there.get(unit.name) != unit.text:
            files.write_atomic(box.layout.installed(unit.name), unit.text, mode=0o644)
    box.generations.make_current(generation)
    box.systemd.reload()
    box.systemd.enable((names.service, names.target))


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
    for name in (names.service, names.gate, names.rollback):
        box.systemd.reset_failed(name)
    # The first brings the gate with it, where both are named.
    box.systemd.restart(restarted[0])
    return restarted
