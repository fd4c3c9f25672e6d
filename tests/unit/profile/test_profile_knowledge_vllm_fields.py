"""Fields of tables in [args], and bounds of plain numbers: what vLLM refuses, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import FieldKind, KnownFrom, VllmField, VllmKnowledge, VllmOption

if TYPE_CHECKING:
    from kimisvc.profile.problems import Finding

NEWEST = shipped_knowledge()
ASKED = replace(NEWEST, known_from=KnownFrom.ASKED)
GRAPHS, STRUCTURED, DRAFT = "compilation-config", "structured-outputs-config", "speculative-config"


def found(option: str, value: ArgValue, vllm: VllmKnowledge = ASKED) -> list[Finding]:
    profile = Profile("p", VllmSettings("/v/bin/vllm", "/m"), args={option: value})
    return list(option_findings(profile, vllm))


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (GRAPHS, {"cudagraph_mode": "PIECWISE"}, "Did you mean PIECEWISE?"),
        (GRAPHS, '{"cudagraph_mode": "PIECWISE"}', 'cudagraph_mode: "PIECWISE" is not among'),
        (
            GRAPHS,
            {"pass_config": {"fuse_allreduce_rmss": True}},
            "Did you mean fuse_allreduce_rms?",
        ),
        (GRAPHS, {"pass_config": {"fuse_minimax_qk_norm": True}}, 'qk_norm". There are: elim'),
        (GRAPHS, {"pass_config": {"enable_fi_allreduce_fusion": True}}, 'fusion". There are:'),
        (GRAPHS, {"pass_config": {"fuse_allreduce_rms": "perhaps"}}, "takes true or false"),
        (GRAPHS, {"pass_config": 3}, "3 is refused: pass_config takes a table, not a number"),
        (GRAPHS, {"mode": 7}, "mode: 7 is not among the choices"),
        (GRAPHS, {"custom_ops": "all"}, "custom_ops takes a list, not a string"),
        (GRAPHS, {"debug_dump": "/x"}, "has no field"),
        (GRAPHS, 3, "3 is refused: compilation-config takes a table"),
        (GRAPHS + ".mode", "VLM_COMPILE", "Did you mean VLLM_COMPILE?"),
        (GRAPHS + ".pass_config.fuse_rms", True, 'pass_config has no field "fuse_rms"'),
        (GRAPHS + ".cudagraph_capture_sizes", "[1,2,4,8]", "Write it without the quotes"),
        (DRAFT, {"method": "ngrm", "num_speculative_tokens": 2}, "Did you mean ngram"),
        (DRAFT, {"method": "ngram", "num_speculative_tokens": 0}, "0 is refused: more than 0"),
        (DRAFT, {"num_speculative_tokens": 1.5}, "takes a whole number"),
        (DRAFT, {"num_speculative_tokens": "two"}, "takes a whole number, not a string"),
        (DRAFT, {"model": ("/m",)}, "is refused: model takes a string, not a list"),
        (STRUCTURED, {"backend": "xgramar"}, "Did you mean xgrammar?"),
        ("kv-transfer-config", {"kv_role": "both"}, 'kv_role: "both" is not among the choices'),
        ("optimization-level", 4, "There are: 0, 1, 2, 3"),
        ("optimization-level", -1, "-1 is not among the choices"),
        ("optimization-level", "O2", "Did you mean 2?"),
        ("max-model-len", 0, "at least 1, or -1"),
        ("stream-interval", 0, "0 is refused: at least 1"),
        ("cpu-offload-gb", -1, "at least 0"),
        ("max-logprobs", -2, "at least -1"),
        ("data-parallel-rpc-port", 65536, "at most 65535"),
        ("watermark", 1.0, "less than 1"),
    ],
)
def test_what_vllm_refuses(option: str, value: ArgValue, words: str) -> None:
    (fault,) = found(option, value)
    assert words in fault.message
    assert fault.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (GRAPHS, {"cudagraph_mode": "full_and_piecewise", "mode": 3}),
        (
            GRAPHS,
            {"mode": "VLLM_COMPILE", "custom_ops": ("none",), "cudagraph_capture_sizes": (1,)},
        ),
        (
            GRAPHS,
            {"pass_config": {"fuse_allreduce_rms": True}, "inductor_compile_config": {"x": 1}},
        ),
        (GRAPHS, {"cudagraph_num_of_warmups": "2", "max_cudagraph_capture_size": 8.0}),
        (GRAPHS, '{"pass_config": null, "cudagraph_mode": null}'),
        (GRAPHS + ".cudagraph_capture_sizes", (1, 2)),
        (GRAPHS + ".custom_ops+", "none"),
        (DRAFT, {"method": "eagle3", "model": "/m", "num_speculative_tokens": 3}),
        (DRAFT, {"quantization": "of-a-plug-in"}),
        ("kv-transfer-config", {"kv_connector": "Of.A.Plugin", "kv_connector_extra_config": {}}),
        ("kv-transfer-config", '{"kv_port": 14k}'),
        (STRUCTURED, {"backend": "xgrammar", "disable_any_whitespace": "true"}),
        ("optimization-level", 3),
        ("optimization-level", "0"),
        ("max-logprobs", -1),
        ("max-model-len", "auto"),
        ("max-loras", 0),  # looked at with enable-lora only
        ("max-num-queued-tokens", 0),
    ],
)
def test_what_vllm_takes(option: str, value: ArgValue) -> None:
    assert found(option, value) == []


def test_a_text_that_holds_json_is_warned_of() -> None:
    (fault,) = found("hf-overrides.rope_parameters", '{"factor": 4.0}')
    assert "vLLM gets the string" in fault.message
    assert fault.severity is Severity.WARNING
    assert found("hf-overrides.rope_parameters.rope_type", "yarn") == []


def test_a_number_of_models_of_more_than_text_is_warned_of() -> None:
    (fault,) = found("mm-processor-cache-gb", -1)
    assert fault.message == "-1 is refused for models of more than text: at least 0"
    assert fault.severity is Severity.WARNING


def test_the_shipped_table_is_not_sure_of_another_vllm() -> None:
    doubted: tuple[tuple[str, ArgValue, str], ...] = (
        (GRAPHS, {"mode": 7}, "of"), (GRAPHS, {"pass_config": {"fuse_rms": True}}, "in"),
        (GRAPHS, {"pass_config": 3}, "by"), (DRAFT, {"num_speculative_tokens": 0}, "by"),
        ("stream-interval", 0, "by"), ("optimization-level", 4, "of"), ("max-model-len", 0, "by"),
        ("mm-processor-cache-gb", -1, "by"),
    )  # fmt: skip
    for option, value, word in doubted:
        (fault,) = found(option, value, NEWEST)
        assert fault.severity is Severity.WARNING
        assert f" {word} vLLM {NEWEST.version}" in fault.message
        assert "is refused" not in fault.message
        (sure,) = found(option, value)
        assert f"vLLM {NEWEST.version}" not in sure.message


def test_a_table_without_bounds_is_read() -> None:
    row = {"name": "stream-interval", "kind": "INTEGER"}
    told = {"version": "0.20.0", "options": [row], "variables": {}}
    old = VllmKnowledge.of(told, KnownFrom.ASKED)
    assert old.options["stream-interval"].value == VllmField()
    assert found("stream-interval", 0, old) == []


@pytest.mark.parametrize(
    "value", [{"kind": "NO_SUCH"}, {"ge": "1"}, {"fields": ["a"]}, {"choice_rule": "NO_SUCH"}]
)
def test_what_is_told_in_another_form_is_no_knowledge(value: object) -> None:
    row = {"name": "x", "kind": "INTEGER", "value": value}
    with pytest.raises((KeyError, TypeError, AttributeError)):
        VllmKnowledge.of({"version": "1", "options": [row], "variables": {}}, KnownFrom.ASKED)


def test_older_ones_took_a_level_for_compilation_config() -> None:
    old = replace(ASKED.options[GRAPHS], aliases=("O",), short=("O",))
    assert found(GRAPHS, 3, replace(ASKED, options={GRAPHS: old})) == []


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from(sorted(ASKED.options)), st.sampled_from(FieldKind), VALUES)
def test_nothing_breaks_the_judge(name: str, kind: FieldKind, value: ArgValue) -> None:
    option: VllmOption = ASKED.options[name]
    inner = VllmField(kind, choices=("a",), ge=0, fields={"b": VllmField(kind, lt=1)})
    known = replace(option, fields=("a",), value=replace(option.value, fields={"a": inner}))
    vllm = replace(ASKED, options={**ASKED.options, name: known})
    for key, one in (
        (name, value),
        (name, {"a": value}),
        (f"{name}.a", value),
        (f"{name}.a.b", value),
    ):
        assert all(fault.message for fault in found(key, one, vllm))
