"""Profiles become candidates: how risky each is, how far from the first, and what must be alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.deploy.tune.begin import Entry
from kimisvc.deploy.tune.state import Contender
from kimisvc.errors import ProfileRefusedError
from kimisvc.profile.differences import differences
from kimisvc.profile.knowledge.risk.options import option_risk
from kimisvc.profile.knowledge.risk.variables import variable_risk
from kimisvc.profile.resolved import flattened, to_toml
from kimisvc.records.problems import Problem
from kimisvc.records.profile import Profile, Risk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALIKE = ("service.instance", "vllm.model", "probe.max_tokens", "probe.prompt_tokens")
"""What must not differ between candidates: another service, or figures that mean something else."""
_COUNTED = ("service", "vllm", "args", "env")
"""The tables whose differences make a profile less simple; the others change nothing that runs."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A profile offered as a candidate: its file, its text as written, and what it says."""

    file: str
    written: str
    profile: Profile


def entries(offered: Sequence[Offered]) -> tuple[Entry, ...]:
    """Given the profiles offered, the first of them the base, return the candidates.

    Raise ProfileRefusedError with all that keeps them from being held against each other.
    """
    problems = list(_unlike(offered))
    if problems:
        raise ProfileRefusedError(problems)
    base = offered[0].profile
    return tuple(
        Entry(
            Contender(
                one.profile.name, risk_of(one.profile), distance(base, one.profile), one.file
            ),
            one.written,
            to_toml(one.profile),
        )
        for one in offered
    )


def risk_of(profile: Profile) -> Risk:
    """Given a profile, return the risk of its riskiest setting, also of those it allows itself."""
    judged = [variable_risk(name, value, profile) for name, value in profile.env.items()]
    judged += [option_risk(name, value, profile) for name, value in profile.args.items()]
    order = tuple(Risk)
    risks = [one.risk for one in judged if one is not None]
    return max(risks, key=order.index, default=Risk.SAFE)


def distance(base: Profile, other: Profile) -> int:
    """Given two profiles, return in how many settings of what runs they differ."""
    keys = [key for key, _, _ in differences(base, other)]
    return sum(key.partition(".")[0] in _COUNTED for key in keys)


def _unlike(offered: Sequence[Offered]) -> Iterator[Problem]:
    base = offered[0]
    seen: dict[str, Offered] = {}
    for one in offered:
        twin = seen.setdefault(one.profile.name, one)
        if twin is not one:
            yield Problem(
                f'is called "{one.profile.name}" as {twin.file} is. Give one another name: they'
                " are told apart by it",
                file=one.file,
                key="name",
            )
        there, here = flattened(base.profile), flattened(one.profile)
        for key in ALIKE:
            if there.get(key) != here.get(key):
                yield Problem(
                    f"is {here.get(key)}, and {there.get(key)} in {base.file}: figures of the two"
                    " would say nothing about the profiles. Candidates have this in common",
                    file=one.file,
                    key=key,
                )
