"""The door to the journal: what the service said in one start, read bit by bit.

Through journalctl, since the journal's own library has no well-kept Python
binding among our dependencies; a call that finds nothing new takes 5 ms, so a
look every second over a load of 40 minutes costs 13 s in all, and there is no
`journalctl -f` to keep alive beside it. What is read here is shown and kept,
never judged: a journal that cannot be read yields nothing, and says why in
`trouble`.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT = 10.0
AT_ONCE = 2000
"""So many lines at most come of one look: the last ones of a first, the next ones of a later."""
LOOK_BACK = 400
"""Last words are sought among so many lines."""


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far a load has come: `done` of `total` shards (0: not told yet), and what it does."""

    done: int
    total: int
    detail: str


class Journal:
    """The journal of this box. `trouble`: why the last look found nothing; "" if it could look."""

    def __init__(self, journalctl: str = "journalctl") -> None:
        """Given another program than the one on PATH, call that."""
        self._journalctl = journalctl
        self.trouble = ""

    def read(self, invocation: str, cursor: str | None) -> tuple[tuple[str, ...], str | None]:
        """Given a start and where reading ended, return its new lines and the new end.

        A journal that forgot that end (rotated, vacuumed) is read anew the next time.
        """
        if not invocation:
            return (), cursor  # it would match what no service said
        after = [f"--after-cursor={cursor}"] if cursor else []
        entries = self._entries([*after, f"-n{AT_ONCE}", f"_SYSTEMD_INVOCATION_ID={invocation}"])
        if self.trouble:
            return (), None
        if not entries:
            return (), cursor
        lines = tuple(message_text(entry.get("MESSAGE")) for entry in entries)
        return lines, str(entries[-1].get("__CURSOR") or "") or cursor

    def tail(self, unit: str, invocation: str, count: int = 20) -> tuple[str, ...]:
        """Given a start of a unit, return its last words, oldest first: errors, if there are any."""
        match = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else ["-u", unit]
        entries = self._entries([f"-n{LOOK_BACK}", *match])
        return last_words([message_text(entry.get("MESSAGE")) for entry in entries], count)

    def _entries(self, arguments: list[str]) -> list[dict[str, object]]:
        command = [self._journalctl, "--output=json", "--output-fields=MESSAGE", "--no-pager"]
        try:
            done = subprocess.run(
                [*command, "--quiet", *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except OSError as error:
            self.trouble = f"{self._journalctl}: {error.strerror}"
            return []
        except subprocess.TimeoutExpired:
            self.trouble = f"{self._journalctl} did not end within {TIMEOUT:g} s"
            return []
        self.trouble = ""
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            self.trouble = said or f"{self._journalctl} ended with status {done.returncode}"
        return parse_entries(done.stdout)


# ---------------------------------------------------------------- pure


def parse_entries(output: bytes) -> list[dict[str, object]]:
    """Given what `journalctl --output=json` wrote, return its entries; what is none is skipped."""
    entries = []
    for line in output.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def message_text(message: object) -> str:
    """Given a MESSAGE, return its text.

    journalctl(1): a string; a list of byte values where it is no UTF-8 or holds
    control characters, as every progress bar does; null beyond 4096 bytes; a
    list of these where the field comes twice.
    """
    if isinstance(message, str):
        return message
    if not isinstance(message, list):
        return ""
    if all(isinstance(b, int) and 0 <= b <= 255 for b in message):  # noqa: PLR2004 - a byte
        return bytes(message).decode("utf-8", "replace")
    return " ".join(message_text(part) for part in message)


_SHARDS = re.compile(r"\d+% Completed \| (\d+)/(\d+)")
"""vLLM's progress bar, the same for each of its loaders (safetensors, pt, fastsafetensors, …)."""
_STAGES = (
    ("Initializing a V1 LLM engine", "initialising the engine"),
    ("Starting to load model", "loading weights"),
    ("% Completed |", "loading weights"),
    ("Loading weights took", "weights loaded"),
    ("Model loading took", "weights loaded"),
    ("Dynamo bytecode transform time", "compiling"),
    ("torch.compile took", "compiled"),
    ("KV cache size:", "warming up the engine"),
    ("Capturing CUDA graphs", "capturing CUDA graphs"),
    ("init engine (profile", "engine initialised"),
    ("Starting vLLM server on", "starting the server"),
)
"""What vLLM prints on its way, in that order; 0.24 and 0.32 captured, names stable since 0.15."""
_RANKS = {meaning: rank for rank, (_, meaning) in enumerate(_STAGES)}


def load_progress(
    lines: tuple[str, ...], before: ShardProgress | None = None
) -> ShardProgress | None:
    """Given lines that vLLM printed and what was known before, return how far its load has come.

    None while nothing is known. Several workers may speak at once, so neither
    the count nor the stage ever goes back; only a new set of shards (that of a
    draft model) begins a new count.
    """
    done, total, detail = (before.done, before.total, before.detail) if before else (0, 0, "")
    for line in lines:
        for found in _SHARDS.finditer(line):
            now, of = int(found[1]), int(found[2])
            if of != total:
                done, total, detail = now, of, "loading weights"
            done = max(done, now)
        for words, meaning in _STAGES:
            if words in line and _RANKS[meaning] > _RANKS.get(detail, -1):
                detail = meaning
    return ShardProgress(done, total, detail) if detail else None


_ERROR = re.compile(
    r"\b(ERROR|CRITICAL|FATAL)\b|NCCL WARN|\b\w*(Error|Exception)\b\s*(:|$)|out of memory"
    r"|error: |Killed|core dumped|Value error, "
)
_FRAME = re.compile(r"(?!\s+Value error, )(\s|Traceback \(most recent|$)")
"""The lines of a traceback that are not its last: indented, or its head. Pydantic indents its words."""
_ELSEWHERE = re.compile(
    r"See (root cause|stack trace)|(failed to start|output_handler failed)\.$|^Process \S+:$"
)
"""What vLLM prints on its way out when another of its processes has said why."""
_NCCL_WARN, _NCCL_ERROR = "NCCL WARN", "NCCL error"
_PREFIX = re.compile(
    r"(\(\S+( \S+)*\) )?((?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
_NO_ERROR = ("DEBUG", "INFO", "WARNING")
_TAG = re.compile(r"^\S+?:\d+:\d+ \[\d+\] ")


def last_words(lines: list[str], count: int) -> tuple[str, ...]:
    """Given the lines of a start, return those that say best why it ended, at most `count`.

    The errors, each once however many workers say it, without the frames of
    tracebacks; where nothing looks like an error, simply the last lines.
    """
    split = [part.rstrip() for line in lines for part in re.split(r"[\r\n]+", line)]
    told = [line for line in split if line.strip()]
    errors: dict[str, str] = {}
    for line in told:
        prefix = _PREFIX.match(line)
        level = prefix["level"] if prefix else None
        bare = _TAG.sub("", line[prefix.end() :] if prefix else line)
        if level not in _NO_ERROR and _ERROR.search(line) and not _FRAME.match(bare):
            errors.setdefault(bare, line)
    return tuple(list(errors.values() or told)[-count:]) if count > 0 else ()


def cause(words: Sequence[str]) -> str:
    """Given the last words of a start, return those that say why it ended; "" if there are none.

    vLLM's API server ends with "See root cause above", and above it others have
    pointed to a worker; that one's own are taken. An error of NCCL names no
    reason: its first warning does, where NCCL_DEBUG lets it speak.
    """
    telling = [line for line in words if not _ELSEWHERE.search(line)] or list(words)
    if not telling:
        return ""
    last = telling[-1].strip()
    warning = next((line for line in words if _NCCL_WARN in line), "")
    if _NCCL_ERROR not in last or not warning:
        return last
    return f"{warning[warning.index(_NCCL_WARN) :].strip()}; {last}"
