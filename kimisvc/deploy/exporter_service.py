"""Installs the exporter's unit and removes it. It belongs to no instance and has no generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.host import files, processes
from kimisvc.render.exporter_unit import NAME, is_as_made

if TYPE_CHECKING:
    from kimisvc.host.systemd import Systemd
    from kimisvc.records.units import Installation, UnitFile

START = 60.0
"""How long a start or stop of the exporter may take (s)."""


def install(unit: UnitFile, place: Installation, systemd: Systemd) -> None:
    """Given the unit, write, enable and start it; one that runs is started anew.

    Raise KimisvcError where a unit stands in its place that was edited by hand,
    or the exporter does not start.
    """
    path = place.units / unit.name
    _refuse_edits(place)
    processes.ensure_system_user(place.user)
    for folder in (place.state, place.runtime):
        files.make_folder(folder)
    files.write_atomic(path, unit.text, mode=0o644)
    systemd.reload()
    systemd.enable((unit.name,))
    systemd.reset_failed(unit.name)
    ended = systemd.wait_for_job(systemd.restart(unit.name), START)
    if ended != "done":
        raise KimisvcError(
            "exporter-not-started",
            f"{unit.name} did not start ({ended})",
            hint=f"journalctl -u {unit.name} -n 20 says why",
        )


def uninstall(place: Installation, systemd: Systemd) -> None:
    """Stop, disable and remove the unit; drop-ins are left. Not being there is fine."""
    _refuse_edits(place)
    systemd.disable((NAME,))
    job = systemd.stop(NAME)
    if job:
        systemd.wait_for_job(job, START)
    files.remove(place.units / NAME)
    systemd.reload()


def _refuse_edits(place: Installation) -> None:
    path = place.units / NAME
    if files.exists(path) and not is_as_made(files.read_text(path)):
        raise KimisvcError(
            "edited-by-hand",
            f"{path} was edited by hand; kimisvc does not overwrite that",
            hint=f"to keep the edit, put it into a drop-in first (systemctl edit {NAME}); then remove the"
            " file",
        )
