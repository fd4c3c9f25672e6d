"""Whether the server of a start prints what rules and dashboard lean on: a note beside its verdict, no more.

A start is held against the table here because there may be no exporter, and
because an alert over a series that is no more is silent for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kimisvc.errors import KimisvcError
from kimisvc.host.vllm_contract import SERIES, missing
from kimisvc.host.vllm_metrics import series_names
from kimisvc.profile.knowledge.parallelism import option

if TYPE_CHECKING:
    from kimisvc.records.profile import Profile

SILENT = "disable-log-stats"
"""The option of vllm serve under which the engine keeps no statistics, and so prints none."""
BLIND = "the alerts and panels on them are blind"


class Metrics(Protocol):
    """What is needed of a server; `host.vllm_api` is the real one."""

    def metrics(self) -> str:
        """Return the text of /metrics. Raise KimisvcError when there is none."""


def blind_spots(api: Metrics, profile: Profile) -> tuple[str, ...]:
    """Given a server and its profile, say what of the contract it does not print; nothing if it prints all.

    One page is read. A server that gives none is no worse for it: that is said as well.
    """
    try:
        lacks = missing(series_names(api.metrics()))
    except KimisvcError as error:
        return (f"whether alerts and panels get what they need is not known: {error.message}",)
    if not lacks:
        return ()
    if option(profile.args, SILENT) is True:
        return (f"{SILENT} is set, so vLLM exports no series of its engine: {BLIND}",)
    named = "any series of its engine" if len(lacks) == len(SERIES) else ", ".join(lacks)
    return (f"this vLLM does not export {named}: {BLIND}",)
