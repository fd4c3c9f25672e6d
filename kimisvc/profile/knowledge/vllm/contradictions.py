"""Numbers in [args] that are legal one by one and refused together.

vLLM compares them once it has read its options, and ends (SchedulerConfig and
LoRAConfig in vllm/config; seen with 0.32.0). Only what is written down is
compared: what vLLM chooses itself always fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.parallelism import option
from kimisvc.profile.knowledge.vllm.doubt import refused
from kimisvc.profile.knowledge.vllm.fields import number_fault
from kimisvc.profile.knowledge.vllm.release import release
from kimisvc.profile.knowledge.vllm.values import WITH_LORA, number_in
from kimisvc.profile.problems import Finding
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import KnownFrom

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimisvc.records.profile import ArgValue, Profile
    from kimisvc.records.vllm import VllmKnowledge


@dataclass(frozen=True, slots=True)
class _Order:
    """Two options of which `less` may not be more than `more`.

    It holds where the option `where` has the value `when`, and of vLLMs from
    `since` on.
    """

    less: str
    more: str
    where: str = ""
    when: bool = True
    since: tuple[int, ...] = ()


_ORDERS = (
    _Order("max-num-seqs", "max-num-batched-tokens"),
    _Order("max-model-len", "max-num-batched-tokens", "enable-chunked-prefill", when=False,
           since=(0, 12)),  # the engine before prefilled in chunks whatever this said
    _Order("max-loras", "max-cpu-loras", "enable-lora"),
    _Order("long-prefill-token-threshold", "max-model-len",
           since=(0, 27)),  # looked at for partial prefills only, before
)  # fmt: skip
_UNSET_MORE = (-1, 0)
"""Values of the greater option that stand for vLLM's own choice, or are refused by themselves."""


def contradictions(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    """Given a profile and what its vLLM knows, yield the numbers it refuses together."""
    yield from _lora(draft, vllm)
    for order in _ORDERS:
        less, more = (_number(draft.args, name) for name in (order.less, order.more))
        if less is None or more is None or more in _UNSET_MORE or less <= more:
            continue
        if order.where and option(draft.args, order.where) is not order.when:
            continue
        if release(vllm.version) < order.since:
            continue
        with_it = f" with {order.where} = {str(order.when).lower()}" if order.where else ""
        yield Finding(
            ("args", _written(draft.args, order.less)),
            f"{less:.0f} is more than {order.more} {more:.0f}, which vLLM refuses{with_it}. "
            f"Lower {order.less}, or raise {order.more}",
            or_at=(("args", _written(draft.args, order.more)),),
        )


def _lora(draft: Profile, vllm: VllmKnowledge) -> Iterator[Finding]:
    for name in WITH_LORA:
        number, known = _number(draft.args, name), vllm.options.get(name)
        if number is None or known is None or option(draft.args, "enable-lora") is not True:
            continue
        fault = number_fault(known.value, number)
        if fault:
            sure = vllm.known_from is KnownFrom.ASKED
            doubt = Severity.ERROR if sure else Severity.WARNING
            message = f"{number:.0f} {refused(doubt)}: {fault}"
            yield Finding(("args", _written(draft.args, name)), message, doubt)


def _number(args: Mapping[str, ArgValue], name: str) -> float | None:
    value = option(args, name)
    return None if value is None or isinstance(value, bool) else number_in(value)


def _written(args: Mapping[str, ArgValue], name: str) -> str:
    """How the profile spells an option."""
    return next((key for key in args if key.replace("_", "-") == name), name)
