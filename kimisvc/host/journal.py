"""The door to the journal: what the service said in one start, read bit by bit.

Through journalctl, since the journal's own library has no well-kept Python
binding among our dependencies. What is read here is shown and kept, never
judged: a journal that cannot be read yields nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass

TIMEOUT = 10.0
_SHARDS = re.compile(r"(\d+)% Completed \| (\d+)/(\d+)")
_STAGES = (
    ("Starting vLLM server on", "starting the server"),
    ("init engine", "engine initialised"),
    ("torch.compile", "compiling"),
    ("Capturing CUDA graph", "capturing CUDA graphs"),
    ("Loading weights took", "weights loaded"),
    ("Starting to load model", "loading weights"),
    ("Initializing a V1 LLM engine", "initialising the engine"),
)


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far a load has come: `done` of `total` shards (0: not told yet), and what it does."""

    done: int
    total: int
    detail: str


class Journal:
    """The journal of this box."""

    def read(self, invocation: str, cursor: str | None) -> tuple[tuple[str, ...], str | None]:
        """Given a start and where reading ended, return its new lines and the new end."""
        after = ["--after-cursor", cursor] if cursor else []
        entries = self._entries([f"_SYSTEMD_INVOCATION_ID={invocation}", *after])
        if not entries:
            return (), cursor
        lines = tuple(_message(entry) for entry in entries)
        return lines, str(entries[-1].get("__CURSOR") or "") or cursor

    def tail(self, unit: str, invocation: str, count: int = 20) -> tuple[str, ...]:
        """Given a start of a unit, return its last lines, oldest first."""
        match = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else ["-u", unit]
        return tuple(_message(entry) for entry in self._entries([*match, "-n", str(count)]))

    def _entries(self, arguments: list[str]) -> list[dict[str, object]]:
        command = ["journalctl", "--output=json", "--no-pager", "--quiet", *arguments]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return []
        entries = []
        for line in done.stdout.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                entries.append(entry)
        return entries


def load_progress(
    lines: tuple[str, ...], before: ShardProgress | None = None
) -> ShardProgress | None:
    """Given lines that vLLM printed and what was known before, return how far its load has come."""
    done, total, detail = (before.done, before.total, before.detail) if before else (0, 0, "")
    for line in lines:
        for found in _SHARDS.finditer(line):
            done, total = int(found[2]), int(found[3])
            detail = "loading weights"
        for words, meaning in _STAGES:
            if words in line:
                detail = meaning
                break
    return ShardProgress(done, total, detail) if detail else None


def _message(entry: dict[str, object]) -> str:
    """A message is text, or a list of bytes where it holds what is not printable, or null."""
    message = entry.get("MESSAGE")
    if isinstance(message, list):
        return bytes(b for b in message if isinstance(b, int)).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""
