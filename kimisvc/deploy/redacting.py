"""Knows the secrets of an instance, and takes them out of what vLLM said before it is kept or shown.

History, progress and reasons may be read by every user of the box; vLLM's own
words in the journal may not. So whatever crosses that line goes through here,
at the place where it is written down, not where it is shown.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.foreign_text import printable
from kimisvc.host import files
from kimisvc.host.journal import LOOK_BACK, cause
from kimisvc.profile.secret_signs import secrets_held, secrets_named
from kimisvc.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimisvc.deploy.box import Box
    from kimisvc.deploy.gate.record import GateRecord
    from kimisvc.records.profile import Profile
    from kimisvc.records.proof import Proof
    from kimisvc.records.units import UnitState


READ_BEFORE = 0.5
"""How long before its process is noted to have started a file of variables may have been read (s).

systemd reads it, forks, and then notes the time; and a file's own times are those of the
kernel's last tick, which may be 10 ms old. Half a second is plenty, and less than an apply takes.
"""


def of_unit() -> Redactor:
    """Return what knows the secrets that systemd gave this process from the secrets file."""
    return Redactor.of(secrets_held(os.environ))


def of_profile(*profiles: Profile) -> Redactor:
    """Given profiles, return what knows the secrets of their files and of our own environment.

    A file that may not be read, by others than root as a rule, adds nothing:
    who may not read it finds nothing of it in what he may read either.
    """
    from kimisvc.host import secrets_file

    held = secrets_named(os.environ)
    for path in {p.service.secrets_file for p in profiles if p.service.secrets_file}:
        held |= secrets_held(secrets_file.everything(secrets_file.contents(Path(path))))
    return Redactor.of(held)


def of_box(box: Box) -> Redactor:
    """Given a box, return what knows the secrets of its current and its accepted generation."""
    profiles = []
    for ask in (box.generations.current, box.generations.accepted):
        try:
            generation = ask()
            profiles += [generation.settings()] if generation else []
        except KimisvcError:
            continue  # damaged: its file cannot be known, its shapes still are
    return of_profile(*profiles)


def last_words(box: Box, unit: UnitState) -> str:
    """Given a unit, return why its start ended in its own words, fit to be kept; "" if it is silent.

    The keys it was given are known from the secrets file; where that was changed
    since its last process was started, or is gone, they are not, and its words
    are not quoted.
    """
    words = box.journal.tail(unit.name, unit.invocation_id, LOOK_BACK)
    redact = of_box(box)
    # Asked after the file was read: what is changed in between is seen.
    if changed := _changed_since(box, given_at(box, unit)):
        return f"not quoted here, as {changed} was changed since that start: see journalctl -u {unit.name}"
    return redact(printable(cause(words)))


def given_at(box: Box, unit: UnitState) -> float:
    """Return when the newest process of a unit was given its settings, by the clock of files.

    A clock that was set back since has given later times to what was changed before, and
    earlier ones to what is changed now: so the earlier of what was noted and of what the
    clock of today makes of it.
    """
    today = box.now() - (box.clock() - unit.main_started_monotonic)
    return min(unit.main_started_at, today) - READ_BEFORE


def _changed_since(box: Box, moment: float) -> str:
    """The secrets file of the current generation, where it is not the one that was read then."""
    try:
        current = box.generations.current()
        name = current.settings().service.secrets_file if current else ""
    except KimisvcError:
        return ""  # damaged; what it named cannot be known
    if not name:
        return ""
    try:
        return name if files.changed_since(Path(name), moment) else ""
    except KimisvcError:
        return name


def redacted_proof(proof: Proof, redact: Callable[[str], str]) -> Proof:
    """Given what a gate or probe found, return it without secrets in what the server said."""
    return replace(
        proof,
        verdict=replace(proof.verdict, reason=redact(proof.verdict.reason)),
        golden=tuple(replace(one, answer=redact(one.answer)) for one in proof.golden),
        notes=tuple(redact(note) for note in proof.notes),
    )


def redacted_record(record: GateRecord, redact: Callable[[str], str]) -> GateRecord:
    """Given a gate's record, return it without secrets. What is ours in it stays as it is."""
    proof = redacted_proof(record.proof, redact) if record.proof else None
    return replace(record, vllm_version=redact(record.vllm_version), proof=proof)
