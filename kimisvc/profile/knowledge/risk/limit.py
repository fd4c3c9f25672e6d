"""What the settings of a profile may cost, and which of them it lets pass.

`max_risk` is the most a setting may cost; `allow_risky` names those that may
cost more. Options of [args] are judged by what the caller hands over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.risk.judgement import Judgement
from kimisvc.profile.knowledge.risk.variables import RULES_READ, variable_risk
from kimisvc.profile.knowledge.variables.check import refused
from kimisvc.profile.knowledge.variables.table import VARIABLES
from kimisvc.profile.options import option_name
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, Risk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kimisvc.profile.problems import KeyPath

VariableJudge = Callable[[str, str, Profile], Judgement | None]
"""Given a variable's name and value and the profile, return its risk, or None if unknown."""

OptionJudge = Callable[[str, ArgValue, Profile], Judgement | None]
"""The same for an option of [args], its name as the profile writes it."""

_ORDER = (Risk.SAFE, Risk.SAFE_ISH, Risk.RISKY)


def unjudged(_name: str, _value: ArgValue, _profile: Profile) -> Judgement | None:
    """Given any option, return None: nothing is known of its risk."""
    return None


def risk_findings(
    draft: Profile,
    of_option: OptionJudge = unjudged,
    of_variable: VariableJudge = variable_risk,
    wrong: Collection[KeyPath] = (),
) -> Iterator[Finding]:
    """Given a profile and who judges its settings, yield each that is riskier than it allows.

    A name in allow_risky that allows nothing is a warning. A setting that is
    refused for its value (variables of `refused`, and the paths in `wrong`) is
    not judged as well: leave would not help it.
    """
    told = refused(draft)
    allowed = {_plain(name) for name in draft.allow_risky}
    needed: set[str] = set()
    over: list[tuple[tuple[str, str], ArgValue, Judgement]] = []
    for path, value, judged in _judgements(draft, of_option, of_variable):
        name = _plain(path[1])
        if path[0] == "env" and path[1] not in VARIABLES:
            needed.add(name)  # it may let the name itself pass, which is like another
        if judged is None or not _exceeds(judged.risk, draft.max_risk):
            continue
        needed.add(name)
        if name not in allowed and name not in told and path not in wrong:
            over.append((path, value, judged))
    kept = [name for name in draft.allow_risky if _plain(name) in needed]
    leave = [*kept, *(path[1] for path, _, _ in over)]
    for path, value, judged in over:
        link = (("hardware", "link"),) if path[0] == "env" else ()
        message = _refusal(value, judged, draft, leave)
        reads = (("max_risk",), ("allow_risky",), *link, *RULES_READ.get(path[1], ()))
        yield Finding(path, message, reads=reads)
    for name in draft.allow_risky:
        if _plain(name) not in needed:
            set_at = (("env", name), ("args", _plain(name)), ("max_risk",), ("hardware", "link"))
            message = _needless(name, draft)
            reads = (*set_at, *RULES_READ.get(name, ()))
            yield Finding(("allow_risky",), message, Severity.WARNING, reads=reads)


def _judgements(
    draft: Profile, of_option: OptionJudge, of_variable: VariableJudge
) -> Iterator[tuple[tuple[str, str], ArgValue, Judgement | None]]:
    for name, value in draft.env.items():
        yield ("env", name), value, of_variable(name, value, draft)
    for name, argument in draft.args.items():
        yield ("args", name), argument, of_option(name, argument, draft)


def _plain(name: str) -> str:
    """Given a name of [env], [args] or allow_risky, return it as names are compared."""
    return name if name in VARIABLES else option_name(name.lstrip("-"))


def _exceeds(risk: Risk, most: Risk) -> bool:
    return _ORDER.index(risk) > _ORDER.index(most)


def _refusal(value: ArgValue, judged: Judgement, draft: Profile, leave: list[str]) -> str:
    """Say why a setting is refused; `leave` is the list that lets all of them pass at once."""
    names = ", ".join(f'"{name}"' for name in leave)
    return (
        f"{shown(value)} is {judged.risk.value}, and max_risk is "
        f'"{draft.max_risk.value}": {judged.why} ({judged.source}). Leave it out, or take the '
        f'risk: allow_risky = [{names}], or max_risk = "{judged.risk.value}"'
    )


def _needless(name: str, draft: Profile) -> str:
    set_here = {_plain(written) for written in (*draft.env, *draft.args)}
    if _plain(name) not in set_here:
        return f"{shown(name)} is set neither in [env] nor in [args]. Take it out, or correct it"
    return (
        f'{shown(name)} needs no leave: it is within max_risk = "{draft.max_risk.value}" with its '
        "value. Take it out"
    )
