"""The variables of a profile's [env], judged by what NCCL, CUDA and the libraries beside them make of them.

Of VLLM_* only values with a row's grammar are judged here (VLLM_NCCL_SO_PATH);
what the vLLM that will run makes of a name or a value, knowledge.vllm.variables says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.variables.conflicts import conflicts
from kimisvc.profile.knowledge.variables.effects import effect_findings
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.profile.knowledge.variables.row import Variable
    from kimisvc.records.profile import Profile

_VLLM = "VLLM_"


def variable_findings(draft: Profile) -> Iterator[Finding]:
    """Given a profile, yield what is wrong with its [env], and what is idle in it.

    Illegal values, near misses and contradictions are errors; unknown and old
    names and values without effect are warnings. A variable with an illegal
    value is told of once.
    """
    illegal = dict(_illegal(draft))
    for name, value in draft.env.items():
        row = VARIABLES.get(name)
        if name in illegal:
            yield Finding(("env", name), illegal[name])
        elif row is None:
            yield from _unknown(name, draft)
        elif value:
            yield from _old(row)
    for finding in conflicts(draft):
        if illegal.keys().isdisjoint(str(path[-1]) for path in (finding.path, *finding.or_at)):
            yield finding
    yield from effect_findings(draft, illegal)


def refused(draft: Profile) -> frozenset[str]:
    """Given a profile, return the variables that an error speaks of already."""
    contradicting = {
        str(finding.path[-1]) for finding in conflicts(draft) if finding.severity is Severity.ERROR
    }
    return frozenset(contradicting.union(name for name, _ in _illegal(draft)))


def _illegal(draft: Profile) -> Iterator[tuple[str, str]]:
    """Yield each variable whose value its grammar refuses, and what is wrong with it."""
    for name, value in draft.env.items():
        row = VARIABLES.get(name)
        if row and row.syntax and (message := row.syntax(value)):
            yield name, message


def _unknown(name: str, draft: Profile) -> Iterator[Finding]:
    if name in draft.allow_risky:
        return  # it is meant
    from kimisvc.profile.knowledge.variables.near_names import (  # only a wrong name pays
        leave,
        like_variable,
        near_variable,
    )

    if name.startswith(_VLLM):
        return
    near = near_variable(name)
    if near:
        message = (
            f"is read by nothing, and nothing says so. Did you mean {near}? {leave(name, draft)}"
        )
        yield Finding(("env", name), message, reads=(("allow_risky",),))
    elif name.startswith("NCCL_"):
        message = (
            "is no variable that NCCL up to 2.32 is known to read, and NCCL ignores "
            "unknown names without a word. Leave it out, unless a plugin reads it"
        )
        yield Finding(("env", name), message, Severity.WARNING)
    elif like := like_variable(name):
        message = f"is read by nothing known here. Did you mean {like}? {leave(name, draft)}"
        yield Finding(("env", name), message, Severity.WARNING, reads=(("allow_risky",),))


def _old(row: Variable) -> Iterator[Finding]:
    version = row.removed or row.deprecated
    if version:
        library = "" if " " in version else "NCCL "
        what = "has no effect" if row.removed else "is deprecated"
        message = f"{what} since {library}{version}. Use {row.instead}"
        yield Finding(("env", row.name), message, Severity.WARNING)
