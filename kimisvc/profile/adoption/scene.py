"""What a start has gathered by the time its program runs: environment, folder, user. Mutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimisvc.profile.adoption.draft import Draft, Lookup


@dataclass(slots=True)
class Scene:
    """`variables` are the environment; `origins` say where each is from, where that is told.

    `local` are variables of a script that it does not export, `used` those that a
    command names (the ones without a value, too); `venv` is the
    folder of programs that came first last.
    """

    draft: Draft
    look: Lookup
    variables: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    local: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    user: str = ""
    venv: str = ""
    container: str = ""
    all_exported: bool = False
    used: set[str] = field(default_factory=set)

    def export(self, name: str, value: str, origin: str = "") -> None:
        """Given a variable of the environment, set it."""
        self.variables[name] = value
        self.origins[name] = origin

    def forget(self, name: str) -> None:
        """Given a variable, unset it."""
        self.variables.pop(name, None)
        self.local.pop(name, None)

    def enter(self, folder: str) -> None:
        """Given a folder as `cd` takes it, go there."""
        self.folder = self.absolute(folder)

    def absolute(self, path: str) -> str:
        """Given a path, return it from the root, as far as the folder is known."""
        if path.startswith("/") or not self.folder.startswith("/"):
            return path
        import posixpath

        return posixpath.normpath(posixpath.join(self.folder, path))


@dataclass(frozen=True, slots=True)
class Launch:
    """vLLM as it is started: its program ("" if it cannot be told), and the words after `serve`."""

    program: str
    words: tuple[str, ...]
    comment: str = ""
