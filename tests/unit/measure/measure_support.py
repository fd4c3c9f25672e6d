"""What the tests of measuring share: a clock that only tests move, made-up streams, real servers."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kimisvc.host.vllm_api import VllmApi
from kimisvc.records.profile import (
    GateSettings,
    GoldenQuestion,
    ProbeSettings,
    Profile,
    VllmSettings,
)
from kimisvc.records.proof import EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kimisvc.errors import KimisvcError
    from kimisvc.records.progress import Phase

DATA = Path(__file__).parent / "data"
STAND_IN = Path(__file__).parents[2] / "fake_vllm" / "fake_vllm_server.py"


def load_stand_in() -> Any:
    """Return the stand-in server as a module; it is a program, in no package."""
    if "fake_vllm_server" not in sys.modules:
        spec = importlib.util.spec_from_file_location("fake_vllm_server", STAND_IN)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["fake_vllm_server"] = module
        spec.loader.exec_module(module)
    return sys.modules["fake_vllm_server"]


@contextmanager
def serving(api_key: str | None = None, **script: Any) -> Iterator[VllmApi]:
    """Given a script's fields, run the stand-in within this process and give the door to it."""
    stand_in = load_stand_in()
    options = stand_in.Options("/models/m", port=0, served="kimi", api_key=api_key or "")
    server = stand_in.FakeVllm(options, stand_in.Script(**script))
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield VllmApi(f"http://127.0.0.1:{server.server_address[1]}", api_key)
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def profile(*golden: GoldenQuestion, gate: GateSettings | None = None, **probe: Any) -> Profile:
    """Given what matters of a profile, return one for the stand-in; quick unless told otherwise."""
    settings = {"max_tokens": 32, "prompt_tokens": 8, "timeout": 5.0} | probe
    return Profile(
        name="t",
        vllm=VllmSettings("/opt/vllm/bin/vllm", "/models/m", served_model_name="kimi"),
        probe=ProbeSettings(**settings),
        gate=gate or GateSettings(),
        golden=golden,
    )


class Clock:
    """Time that passes only by sleeping, and where a stream says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Played:
    """An API that plays streams made of (seconds since the request, chunk), one a request.

    `counters` are read one after the other, the last for ever. A KimisvcError in
    place of a chunk is raised.
    """

    def __init__(
        self,
        clock: Clock,
        *streams: Sequence[tuple[float, Mapping[str, Any] | KimisvcError]],
        counters: Sequence[EngineCounters | KimisvcError | None] = (None,),
    ) -> None:
        self.clock = clock
        self.bodies: list[Mapping[str, Any]] = []
        self.paths: list[str] = []
        self._streams = list(streams)
        self._counters = list(counters)

    def stream(
        self, path: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        assert timeout > 0
        self.paths.append(path)
        self.bodies.append(body)
        sent_at = self.clock.now
        for after, chunk in self._streams.pop(0):
            self.clock.now = sent_at + after
            if isinstance(chunk, Exception):
                raise chunk
            yield self.clock.now, chunk

    def counters(self) -> EngineCounters | None:
        first = self._counters[0]
        if len(self._counters) > 1:
            self._counters.pop(0)
        if isinstance(first, Exception):
            raise first
        return first


class Heard:
    """A report that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[Phase, str, int, int]] = []

    def __call__(self, phase: Phase, detail: str, done: int = 0, total: int = 0) -> None:
        self.said.append((phase, detail, done, total))

    @property
    def phases(self) -> list[Phase]:
        """The phases in order, each once."""
        return list(dict.fromkeys(phase for phase, *_ in self.said))


def token(
    text: str = " x", finish: str | None = None, ids: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return a chunk of /v1/completions."""
    choice = {"index": 0, "text": text, "finish_reason": finish, "token_ids": ids}
    return {"object": "text_completion", "choices": [choice]}


def usage(completion: int, prompt: int = 8) -> dict[str, Any]:
    """Return the chunk that ends a stream."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"choices": [], "usage": {**counts, "total_tokens": prompt + completion}}


def even_stream(tokens: int, speed: float, ttft: float = 0.5) -> list[tuple[float, dict[str, Any]]]:
    """Return a stream of so many tokens, one a chunk, at an even speed."""
    chunks: list[tuple[float, dict[str, Any]]] = [
        (ttft + i / speed, token(finish="length" if i == tokens - 1 else None))
        for i in range(tokens)
    ]
    return [*chunks, (chunks[-1][0], usage(tokens))]


def counted(
    tokens: float = 0, finished: float = 0, seconds: float = 0, running: float = 0
) -> EngineCounters:
    """Return counters with these values."""
    return EngineCounters(tokens, finished, seconds, tokens, running, 0)


def events(name: str, step: float = 0.1) -> list[tuple[float, Any]]:
    """Given a captured stream, return its chunks, `step` seconds apart, the first after one step."""
    lines = (DATA / name).read_text().splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [((i + 1) * step, chunk) for i, chunk in enumerate(chunks)]
