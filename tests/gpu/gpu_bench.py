"""What the steps work with: commands with a bound, pages of vLLM and the exporter, GPUs, processes.

Standard library only: it runs with the plain Python of a host that has nothing of ours.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_place import Place

MIB = 1 << 20
TIMED_OUT = 124
KEPT = 6000
"""So many letters of an output are kept with the record of a command."""
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")


class NotSo(Exception):  # noqa: N818 - what a step found is not as it was said to be
    """A step cannot go on, and why; what it found until then is kept."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    def answer(self) -> dict[str, Any]:
        """The JSON object it printed; an empty one if it printed none."""
        try:
            found = json.loads(self.stdout)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {"list": found}


@dataclass
class Bench:
    """The machine during a run: the place, where results go, and until when there is time."""

    place: Place
    folder: Path
    kimisvc: str
    gpus: int
    ends_at: float
    figures: dict[str, float] = field(default_factory=dict)
    """Decode throughputs measured so far, by profile (tok/s): later steps choose targets by them."""

    def left(self) -> float:
        """Seconds until the run has to be over."""
        return self.ends_at - time.monotonic()

    def call(
        self, *argv: str, bound: float, env: Mapping[str, str] | None = None, text: str = ""
    ) -> Done:
        """Run a command for `bound` seconds at most, write down what it did, return it."""
        begun, at = time.monotonic(), time.time()
        try:
            ran = subprocess.run(
                argv, capture_output=True, text=True, errors="replace", check=False, env=env,
                input=text, timeout=max(1.0, min(bound, self.left())),
            )  # fmt: skip
            done = Done(ran.returncode, ran.stdout, ran.stderr, time.monotonic() - begun)
        except subprocess.TimeoutExpired as late:
            told = [_text(late.stdout), _text(late.stderr)]
            done = Done(TIMED_OUT, told[0], told[1], time.monotonic() - begun)
        except OSError as error:
            done = Done(127, "", f"{argv[0]}: {error.strerror}", 0.0)
        self._write_down({
            "at": round(at, 3), "seconds": round(done.seconds, 3), "argv": list(argv),
            "status": done.status, "stdout": done.stdout[-KEPT:], "stderr": done.stderr[-KEPT:],
        })  # fmt: skip
        return done

    def ask(self, *words: str, bound: float) -> tuple[Done, dict[str, Any]]:
        """Call kimisvc with --json; return what it left, and its answer."""
        done = self.call(self.kimisvc, *words, "--json", bound=bound)
        return done, done.answer()

    def status(self) -> dict[str, Any]:
        """Return the status of the instance as kimisvc tells it."""
        return self.ask("status", "--instance", self.place.instance, bound=30)[1]

    def until(
        self, holds: Callable[[], bool], what: str, bound: float, pause: float = 1.0
    ) -> float:
        """Wait until it holds; return the seconds that took. Raise NotSo when `bound` is over."""
        begun = time.monotonic()
        end = begun + min(bound, self.left())
        while not holds():
            if time.monotonic() > end:
                raise NotSo(f"not within {bound:.0f} s: {what}")
            time.sleep(pause)
        return time.monotonic() - begun

    def page(self, url: str) -> dict[str, list[tuple[str, float]]]:
        """Given the URL of metrics, return labels and value of each sample, by name."""
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - of this box
            text = answer.read().decode("utf-8", "replace")
        found: dict[str, list[tuple[str, float]]] = {}
        for line in text.splitlines():
            if sample := _SAMPLE.match(line):
                found.setdefault(sample[1], []).append((sample[2] or "", float(sample[3])))
        return found

    def engine(self) -> Counters:
        """Return the engine's own counters now."""
        page, at = self.page(f"{self.place.url}/metrics"), time.monotonic()
        return Counters(
            at,
            total(page, "vllm:generation_tokens_total"),
            total(page, "vllm:request_generation_tokens_count"),
            total(page, "vllm:request_decode_time_seconds_sum"),
        )

    def memory(self) -> list[int]:
        """Return the used memory of each GPU (MiB); nothing without GPUs."""
        if not self.gpus:
            return []
        query = "--query-gpu=memory.used"
        done = self.call("nvidia-smi", query, "--format=csv,noheader,nounits", bound=30)
        return [int(line) for line in done.stdout.split() if line.isdigit()]

    def processes(self) -> dict[int, str]:
        """Return the processes of the service: their command lines by id."""
        group = Path("/sys/fs/cgroup/system.slice", self.place.service, "cgroup.procs")
        try:
            ids = [int(word) for word in group.read_text().split()]
        except OSError:
            return {}
        return {pid: command_line(pid) for pid in ids}

    def _write_down(self, record: dict[str, Any]) -> None:
        with (self.folder / "commands.jsonl").open("a") as file:
            file.write(f"{json.dumps(record)}\n")


@dataclass(frozen=True, slots=True)
class Counters:
    """The engine's counters at a moment of the monotonic clock (s)."""

    at: float
    tokens: float
    requests: float
    decode_seconds: float

    def decode_since(self, before: Counters) -> float:
        """Decode throughput of what was finished in between: the first token of each is prefill's."""
        seconds = self.decode_seconds - before.decode_seconds
        tokens = self.tokens - before.tokens - (self.requests - before.requests)
        return tokens / seconds if seconds > 0 else 0.0


def total(page: Mapping[str, list[tuple[str, float]]], name: str) -> float:
    """Given a page, return the sum of the samples of a name. Raise NotSo if there are none."""
    if name not in page:
        raise NotSo(f"no {name} on the page")
    return sum(value for _, value in page[name])


def command_line(pid: int) -> str:
    """Given a process, return its title or command line; "" if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def off_by(one: float, other: float) -> float:
    """Return by how much one differs from the other, as a share of that."""
    return abs(one / other - 1) if other else float("inf")


def _text(raw: str | bytes | None) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""
