"""Which parsers a family of models needs, and what vLLM makes of a wrong one.

A tool parser of another family finds no calls in the text, and a reasoning
parser of another one leaves the thinking in the answer: both without a word.
An unknown name ends vLLM before it loads (validate_api_server_args).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kimisvc.profile.knowledge.vllm.words import meant
from kimisvc.profile.problems import Finding
from kimisvc.profile.values import shown
from kimisvc.records.problems import Severity
from kimisvc.records.vllm import KnownFrom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimisvc.records.profile import Profile
    from kimisvc.records.vllm import VllmKnowledge

_TOOLS, _REASONING = "tool-call-parser", "reasoning-parser"


@dataclass(frozen=True, slots=True)
class Family:
    """Models alike: how they are known by name or model_type, and the parsers that fit them.

    No parser named: not judged.
    """

    name: str
    pattern: str
    tools: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()


FAMILIES = (
    Family("Kimi-K2", "kimi-?k2", ("kimi_k2",), ("kimi_k2",)),
    Family("Kimi-K3", "kimi-?k3", ("kimi_k3",), ("kimi_k3",)),
    Family("MiniMax-M2", "minimax-?m2", ("minimax_m2",), ("minimax_m2", "minimax_m2_append_think")),
    Family("MiniMax-M3", "minimax-?m3", ("minimax_m3",), ("minimax_m3",)),
    Family("GLM-4.5 to 5", "glm-?(4.[5-9]|5|4-moe|moe)", ("glm47", "glm45"), ("glm45", "glm47")),
    Family("gpt-oss", "gpt-?oss", ("openai",), ("openai_gptoss",)),
    Family("DeepSeek-V3.1", "deepseek-?v3.1", ("deepseek_v31",), ("deepseek_v3",)),
    Family("DeepSeek-V3.2", "deepseek-?v3.2", ("deepseek_v32",), ("deepseek_v3",)),
    Family("DeepSeek-R1", "deepseek-?r1", ("deepseek_v3",), ("deepseek_r1",)),
    Family("Qwen3-Coder", "qwen3-?coder", ("qwen3_coder", "qwen3_xml")),
)
"""The families judged, from the vendors' cards and vLLM's recipes (recipes.vllm.ai)."""


def family_of(model: str, model_type: str) -> Family | None:
    """Given a model's name or path and the model_type of its config, return its family, or None."""
    text = f"{model} {model_type}".lower().replace("_", "-")
    return next((row for row in FAMILIES if re.search(row.pattern, text)), None)


def parser_findings(draft: Profile, model_type: str, vllm: VllmKnowledge) -> Iterator[Finding]:
    """Given a profile, the model's type ("" unknown) and its vLLM, yield what its parsers break."""
    args = draft.args
    family = family_of(draft.vllm.model, model_type)
    for option, plugin, fitting in (
        (_TOOLS, "tool-parser-plugin", family.tools if family else ()),
        (_REASONING, "reasoning-parser-plugin", family.reasoning if family else ()),
    ):
        parser = args.get(option)
        if not isinstance(parser, str) or not parser or _is_none(option, parser, vllm):
            continue
        fault = None if plugin in args else _unknown(option, parser, fitting, vllm)
        if fault:
            yield replace(fault, reads=(("args", plugin),))
        elif family and fitting and parser not in fitting:
            yield Finding(
                ("args", option),
                f"{shown(parser)} is not for {family.name}, which the model seems to be. Write "
                + " or ".join(f'"{name}"' for name in fitting),
                Severity.WARNING,
            )
    yield from _tool_choice(draft)
    yield from _reasoning(draft)


def _is_none(option: str, parser: str, vllm: VllmKnowledge) -> bool:
    """Whether a word stands for no parser. vLLM looks for a reasoning parser "none" (0.32)."""
    known = vllm.options.get(option)
    unset = known is None or known.unset
    return parser.lower() == "none" if option == _TOOLS else unset and parser == "None"


def _unknown(
    option: str, parser: str, fitting: tuple[str, ...], vllm: VllmKnowledge
) -> Finding | None:
    known = vllm.options[option].choices if option in vllm.options else ()
    if not known or parser in known:
        return None
    family_has = next((name for name in fitting if name in known), "")
    hint = f"Did you mean {family_has}?" if family_has else meant(parser, known)
    sure = vllm.known_from is KnownFrom.ASKED
    message = f"vLLM {vllm.version} has no parser {shown(parser)}. {hint}"
    return Finding(("args", option), message, Severity.ERROR if sure else Severity.WARNING)


def _tool_choice(draft: Profile) -> Iterator[Finding]:
    automatic = draft.args.get("enable-auto-tool-choice") is True
    parser = draft.args.get(_TOOLS)
    if automatic and not parser:
        yield Finding(
            ("args", "enable-auto-tool-choice"),
            "needs tool-call-parser, and vLLM ends without it",
            or_at=(("args", _TOOLS),),
        )
    elif parser and not automatic:
        yield Finding(
            ("args", _TOOLS),
            "is not used for tool_choice = auto, which clients send. Write "
            "enable-auto-tool-choice = true as well",
            Severity.WARNING,
            or_at=(("args", "enable-auto-tool-choice"),),
        )


def _reasoning(draft: Profile) -> Iterator[Finding]:
    if draft.gate.require_reasoning and _REASONING not in draft.args:
        yield Finding(
            ("gate", "require_reasoning"),
            "needs reasoning-parser in [args]: without it most models think within the answer, "
            "and the gate would fail after the load",
            Severity.WARNING,
        )
