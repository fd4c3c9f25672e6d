"""Fetches vLLM's /metrics for one who looks at it every few seconds, for good.

`vllm_api` speaks to vLLM for all else. It would cost a small process memory
that this does not need. The page is open to all, so no key is sent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.errors import HostError
from kimisvc.host.http_once import Question, asked

if TYPE_CHECKING:
    from collections.abc import Callable

OK = 200


@dataclass(frozen=True, slots=True)
class Page:
    """What /metrics said, and when its head came, by the caller's clock (s)."""

    at: float
    text: str


def metrics_page(
    host: str, port: int, timeout: float, clock: Callable[[], float] = time.monotonic
) -> Page:
    """Given where vLLM listens, return its /metrics, within `timeout` seconds all in all.

    Raise HostError: connection-refused, timeout, connection-lost, bad-stream, http-STATUS.
    """
    question = Question(host, port, "/metrics", {"Accept": "text/plain"})
    with asked(question, timeout) as answer:
        at = clock()  # the page is made just before it is sent
        body = answer.whole()
    if answer.status != OK:
        raise HostError(
            f"http-{answer.status}", f"{question.where}/metrics: HTTP status {answer.status}"
        )
    return Page(at, body.decode("utf-8", "replace"))
