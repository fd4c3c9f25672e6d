"""The one unit of the exporter, for all instances. Pure: the caller reads the template."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from kimisvc.records.units import UnitFile
from kimisvc.render.quoting import exec_argument, exec_program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimisvc.records.units import Installation

NAME = "kimisvc-exporter.service"
TEMPLATE = f"{NAME}.j2"
_MARK = re.compile(r"\n# text: sha256:([0-9a-f]{64})\n\Z")


def render_exporter(template: str, place: Installation, arguments: Sequence[str]) -> UnitFile:
    """Given the template and the arguments of `kimisvc exporter`, return the unit.

    Its last line is a digest of the rest, by which an edit by hand is seen.
    Raise KimisvcError for an argument that no unit can hold.
    """
    from jinja2 import Environment, StrictUndefined

    words = [exec_program(str(place.kimisvc)), "exporter", *map(exec_argument, arguments)]
    jinja = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # noqa: S701 - no HTML
    text = jinja.from_string(template).render(name=NAME, user=place.user, command=" ".join(words))
    return UnitFile(NAME, f"{text}\n# text: sha256:{_digest(text)}\n")


def is_as_made(text: str) -> bool:
    """Given the text of an installed unit, say whether it is as some kimisvc made it."""
    mark = _MARK.search(text)
    return mark is not None and _digest(text[: mark.start()]) == mark.group(1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
