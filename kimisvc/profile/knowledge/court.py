"""All judges of the free tables, asked in one order: what `check` adds to a profile's own rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.model.rules import model_findings
from kimisvc.profile.knowledge.risk.limit import risk_findings
from kimisvc.profile.knowledge.risk.options import option_risk
from kimisvc.profile.knowledge.risk.variables import variable_risk
from kimisvc.profile.knowledge.variables.check import variable_findings
from kimisvc.profile.knowledge.vllm.contradictions import contradictions
from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.variables import vllm_variable_findings
from kimisvc.records.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kimisvc.profile.problems import Finding
    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge


@dataclass(frozen=True, slots=True)
class Sight:
    """What the judges may see of the box: the vLLM that will run, and its model's config.json.

    Both are doors that a caller opens; `config` gives None where there is none to read.
    """

    vllm: Callable[[Path], VllmKnowledge]
    config: Callable[[str], Mapping[str, object] | None]


def judged(draft: Profile, sight: Sight) -> Iterator[Finding]:
    """Given a profile and what may be seen, yield all that NCCL, CUDA or vLLM would make of it.

    Keys that are spoiled already are missing in the draft, so they are not judged twice.
    """
    vllm = sight.vllm(Path(draft.vllm.executable))
    found = [
        *variable_findings(draft),
        *vllm_variable_findings(draft, vllm),
        *option_findings(draft, vllm),
        *contradictions(draft, vllm),
        *model_findings(draft, sight.config(draft.vllm.model), vllm),
    ]
    yield from found
    wrong = {finding.path for finding in found if finding.severity is Severity.ERROR}
    of_variable = partial(variable_risk, vllm=vllm)
    yield from risk_findings(draft, option_risk, of_variable, wrong=wrong)
