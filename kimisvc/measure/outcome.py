"""What can go wrong with one request, and what follows: a closed table. Pure.

A row says how often the same request is tried and what the gate decides when no
try succeeds. FAIL means the server showed that it does not serve; INCONCLUSIVE
means the probe could not look, so nothing is known and nothing is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kimisvc.records.proof import Verdict, VerdictKind

if TYPE_CHECKING:
    from kimisvc.records.profile import GateSettings


class Trouble(Enum):
    """Why a request is no sample and no answer."""

    DISTURBED = "others used the server"
    SILENT = "accepted, no first token"
    STALLED = "stopped in the middle of an answer"
    UNFINISHED = "too slow to finish in time"
    STREAM_ERROR = "an error inside the stream"
    CUT_OFF = "the connection ended in the middle of an answer"
    UNREACHABLE = "no connection"
    SERVER_ERROR = "a server error"
    BUSY = "turned away as too busy"
    REFUSED = "the request was refused"
    GARBLED = "an answer that is not vLLM's"
    EARLY_STOP = "ended before max_tokens"
    NO_USAGE = "no usage in the stream"
    NO_SPEED = "all tokens came at once"
    OUT_OF_TIME = "not decided in the time allowed"


@dataclass(frozen=True, slots=True)
class Broken:
    """A request that came to nothing. `decode_tok_s`: how fast it was until then, if known."""

    trouble: Trouble
    detail: str = ""
    decode_tok_s: float | None = None

    def __str__(self) -> str:
        """Return it as one phrase."""
        return f"{self.trouble.value}: {self.detail}" if self.detail else self.trouble.value


@dataclass(frozen=True, slots=True)
class Response:
    """What follows a trouble: tries in all, the pause before the next (s), the verdict in the end."""

    tries: int
    pause: float
    verdict: VerdictKind


_FAIL, _UNKNOWN = VerdictKind.FAIL, VerdictKind.INCONCLUSIVE

RESPONSES = {
    Trouble.DISTURBED: Response(5, 0.5, _UNKNOWN),
    # One more try each: the first request after a load may wait for kernels to be
    # compiled, and a load is dearer than a minute.
    Trouble.SILENT: Response(2, 0.0, _FAIL),
    Trouble.STALLED: Response(2, 0.0, _FAIL),
    Trouble.UNFINISHED: Response(2, 0.0, _UNKNOWN),  # FAIL where it was under the floor
    Trouble.STREAM_ERROR: Response(2, 0.5, _FAIL),
    Trouble.CUT_OFF: Response(2, 0.5, _FAIL),
    Trouble.UNREACHABLE: Response(3, 1.0, _FAIL),
    Trouble.SERVER_ERROR: Response(2, 0.5, _FAIL),
    Trouble.BUSY: Response(5, 1.0, _UNKNOWN),
    Trouble.REFUSED: Response(1, 0.0, _UNKNOWN),
    Trouble.GARBLED: Response(2, 0.5, _UNKNOWN),
    Trouble.EARLY_STOP: Response(2, 0.0, _UNKNOWN),
    Trouble.NO_USAGE: Response(1, 0.0, _UNKNOWN),
    Trouble.NO_SPEED: Response(2, 0.0, _UNKNOWN),
    Trouble.OUT_OF_TIME: Response(1, 0.0, _UNKNOWN),
}


_TROUBLE_OF_CODE = {
    "timeout": Trouble.SILENT,
    "connection-refused": Trouble.UNREACHABLE,
    "connection-lost": Trouble.CUT_OFF,
    "bad-stream": Trouble.GARBLED,
    "stream-error": Trouble.STREAM_ERROR,
}


def trouble_of_code(code: str) -> Trouble:
    """Given the code of an error of the HTTP door, return the trouble it is.

    `http-503` and its like stand for an answer with that status.
    """
    if not code.startswith("http-"):
        return _TROUBLE_OF_CODE.get(code, Trouble.GARBLED)
    status = code.removeprefix("http-")
    if status in ("429", "503"):
        return Trouble.BUSY
    return Trouble.SERVER_ERROR if status.startswith("5") else Trouble.REFUSED


def verdict_of(broken: Broken, gate: GateSettings) -> Verdict:
    """Given what the last try came to, return the verdict it makes."""
    kind = RESPONSES[broken.trouble].verdict
    target, speed = gate.decode_tok_s, broken.decode_tok_s
    if broken.trouble is Trouble.UNFINISHED and target and speed is not None:
        kind = VerdictKind.FAIL if speed < target.floor else kind
    return Verdict(kind, str(broken))
