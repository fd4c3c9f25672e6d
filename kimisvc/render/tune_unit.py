"""The unit that searches for a profile of one instance. Pure: the caller reads the template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.records.units import UnitFile, UnitNames
from kimisvc.render.quoting import exec_program

if TYPE_CHECKING:
    from kimisvc.records.units import Installation

TEMPLATE = "kimisvc-NAME-tune.service.j2"


def render_tune(template: str, place: Installation, instance: str, name: str) -> UnitFile:
    """Given the template, an instance and the unit's name, return the unit."""
    from jinja2 import Environment, StrictUndefined

    names = UnitNames.of(instance)
    jinja = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701 - no HTML
    text = jinja.from_string(template).render(
        name=name,
        service=names.service,
        gate=names.gate,
        kimisvc=exec_program(str(place.kimisvc)),
        instance=instance,
    )
    return UnitFile(name, text)
