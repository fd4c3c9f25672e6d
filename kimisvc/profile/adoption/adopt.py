"""The way in: a command line or a unit, to the text of a profile and what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.errors import KimisvcError
from kimisvc.profile.adoption.draft import Draft, Fate
from kimisvc.profile.adoption.launch import ASSIGNMENT
from kimisvc.profile.adoption.scene import Scene
from kimisvc.profile.adoption.script import run_text, run_words
from kimisvc.profile.adoption.shell_words import HINT
from kimisvc.profile.adoption.to_profile import (
    profile_name,
    refuse_unwritable,
    take_launch,
)
from kimisvc.profile.adoption.unit_settings import take_unit
from kimisvc.profile.adoption.vllm_words import Options
from kimisvc.profile.adoption.writer import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimisvc.profile.adoption.draft import Lookup, Note
    from kimisvc.profile.adoption.scene import Launch
    from kimisvc.profile.adoption.unit_file import Unit
    from kimisvc.records.vllm import VllmKnowledge


@dataclass(frozen=True, slots=True)
class Adopted:
    """A profile's text and its name, what of the original to look at, and the secrets to move.

    `secrets` are names of variables and where each stood, never values.
    """

    name: str
    text: str
    unclear: tuple[Note, ...]
    secrets: Mapping[str, str]


def adopt_command(
    words: Sequence[str], look: Lookup, knowledge: VllmKnowledge | None, instance: str = ""
) -> Adopted:
    """Given a command line (one text as typed in a shell, or its words), return the profile.

    `knowledge` tells which options take nothing, one value or several; without
    it the words that follow do.
    Raise KimisvcError where it does not serve a model, or cannot be told
    without running it.
    """
    refuse_unwritable(words)
    scene = Scene(Draft(), look)
    rest = list(words)
    if len(rest) == 1:
        launch = run_text(rest[0], scene)
    else:
        while rest and (assignment := ASSIGNMENT.fullmatch(rest[0])):
            scene.export(assignment[1], assignment[2])
            rest.pop(0)
        found = run_words(rest, scene)
        if found is None:
            raise KimisvcError("no-vllm", "the command does not start vLLM", hint=HINT)
        launch = found
    _take(launch, scene, knowledge)
    return _adopted(scene, "a command line", instance)


def adopt_unit(
    unit: Unit, look: Lookup, knowledge: VllmKnowledge | None, instance: str = ""
) -> Adopted:
    """Given a merged unit, return the profile. Raise KimisvcError as `adopt_command` does."""
    scene = Scene(Draft(), look)
    launch = take_unit(unit, scene)
    _take(launch, scene, knowledge)
    return _adopted(scene, ", ".join((unit.name, *unit.files)), instance)


def _take(launch: Launch, scene: Scene, knowledge: VllmKnowledge | None) -> None:
    known = Options(knowledge.options if knowledge else {})
    take_launch(launch, scene, known, knowledge.variables if knowledge else frozenset())


def _adopted(scene: Scene, source: str, instance: str) -> Adopted:
    draft = scene.draft
    name = profile_name(draft.value("vllm", "model"), source)
    draft.put("", "schema", 1)
    draft.put("", "name", name)
    if instance:
        draft.put("service", "instance", instance)
    text = written(draft, source)
    unclear = tuple(note for note in draft.notes if note.fate is Fate.UNCLEAR)
    return Adopted(name, text, unclear, dict(draft.secrets))
