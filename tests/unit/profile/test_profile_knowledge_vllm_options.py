"""Names in [args], judged by a made-up vLLM and by the table that ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import load

from kimisvc.profile.knowledge.vllm.history import REMOVED
from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.knowledge.vllm.variables import vllm_variable_findings
from kimisvc.profile.loader import check
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import KnownFrom, OptionKind, VllmKnowledge, VllmOption

if TYPE_CHECKING:
    from kimisvc.profile.problems import Finding

PROFILES = Path(__file__).parents[3] / "profiles"
NEWEST = shipped_knowledge()
ASKED = replace(NEWEST, known_from=KnownFrom.ASKED)
OLD = VllmKnowledge(
    "0.15.1",
    KnownFrom.ASKED,
    {
        "swap-space": VllmOption("swap-space", OptionKind.NUMBER),
        "enable-x": VllmOption("enable-x", OptionKind.FLAG, negatives=("no-enable-x",)),
    },
    frozenset(),
)


def found(vllm: VllmKnowledge, **args: ArgValue) -> list[Finding]:
    profile = Profile("p", VllmSettings("/v/bin/vllm", "/m"), args=named(args))
    return list(option_findings(profile, vllm))


def named(args: dict[str, ArgValue]) -> dict[str, ArgValue]:
    return {key.replace("__", ".").replace("_", "-"): value for key, value in args.items()}


def only(vllm: VllmKnowledge, **args: ArgValue) -> Finding:
    (finding,) = found(vllm, **args)
    return finding


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda p: p.stem)
def test_no_shipped_profile_has_an_unknown_setting(path: Path) -> None:
    profile = load(path, PROFILES)
    findings = [*option_findings(profile, NEWEST), *vllm_variable_findings(profile, NEWEST)]
    assert [f for f in findings if f.severity is Severity.ERROR] == []


def test_a_misspelled_option_is_told_with_the_right_one() -> None:
    finding = only(ASKED, tensor_paralel_size=8)
    assert finding.path == ("args", "tensor-paralel-size")
    assert finding.message.endswith("Did you mean tensor-parallel-size?")
    assert finding.severity is Severity.ERROR
    assert only(NEWEST, tensor_paralel_size=8) == replace(finding, severity=Severity.WARNING)


@pytest.mark.parametrize("name", sorted(set(NEWEST.options) - set(OWNED_OPTIONS)))
def test_what_the_next_vllm_brings_is_never_refused(name: str) -> None:
    """Each option in turn is one that the shipped table does not know yet."""
    options = {key: option for key, option in NEWEST.options.items() if key != name}
    told = found(replace(NEWEST, options=options), **{name: 1})
    fatal = [finding.message for finding in told if finding.severity is Severity.ERROR]
    assert [words for words in fatal if "would be read as --" not in words] == []


def test_an_option_like_no_other_is_doubted_where_no_vllm_could_be_asked() -> None:
    assert only(NEWEST, zzz_quux=1).severity is Severity.WARNING
    assert only(ASKED, zzz_quux=1).severity is Severity.ERROR


def test_an_option_of_a_newer_vllm_is_told_to_be_one() -> None:
    message = only(OLD, moe_backend="marlin").message
    assert "installed vLLM 0.15.1" in message
    assert f"vLLM {NEWEST.version} has it" in message


def test_case_25_swap_space_is_named_with_the_version_that_lost_it() -> None:
    finding = only(NEWEST, swap_space=12)
    assert "removed in vLLM 0.18" in finding.message
    assert finding.severity is Severity.ERROR
    assert found(OLD, swap_space=12) == []


def test_an_option_that_an_older_vllm_may_still_have_is_doubted() -> None:
    def severity(min_version: str, vllm: VllmKnowledge) -> Severity:
        settings = VllmSettings("/v/bin/vllm", "/m", min_version=min_version)
        profile = Profile("p", settings, args={"calculate-kv-scales": True})
        (finding,) = option_findings(profile, vllm)
        assert "was removed in vLLM 0.28" in finding.message
        return finding.severity

    assert severity("0.19.1", NEWEST) is Severity.WARNING
    assert severity("0.28.0", NEWEST) is Severity.ERROR
    assert severity("0.28", NEWEST) is Severity.ERROR
    assert severity("", NEWEST) is Severity.ERROR  # then the newest is meant
    assert severity("0.19.1", ASKED) is Severity.ERROR


def test_what_was_removed_and_came_back_is_known() -> None:
    assert found(NEWEST, disable_log_requests=True) == []
    assert "removed in vLLM 0.17" in only(OLD, disable_log_requests=True).message


@pytest.mark.parametrize("name", sorted(n for n in REMOVED if not n.isupper()))
def test_a_removed_option_is_refused_and_what_it_became_is_known(name: str) -> None:
    gone = REMOVED[name]
    if name != "disable-log-requests":
        assert f"was removed in vLLM {gone.removed_in}. {gone.instead}" in [
            finding.message for finding in found(NEWEST, **{name: 1})
        ]
    meant = gone.instead.removeprefix("Write ").split(" ")[0]
    if gone.instead.startswith("Write "):
        assert meant in NEWEST.options


@pytest.mark.parametrize(
    ("short", "full"),
    [("tp", "tensor-parallel-size"), ("sc", "speculative-config"), ("q", "quantization")],
)
def test_short_forms_take_one_dash_and_are_refused(short: str, full: str) -> None:
    assert (
        only(NEWEST, **{short: 8}).message == f"is the short form -{short} of {full}. Write {full}"
    )


@pytest.mark.parametrize("vllm", [NEWEST, ASKED], ids=["shipped", "asked"])
def test_every_short_form_of_the_newest_is_refused_with_the_full_name(vllm: VllmKnowledge) -> None:
    """vLLM reads none of them after two dashes: --tp ends it."""
    forms = {one: option.name for option in vllm.options.values() for one in option.short}
    assert {"tp", "pp", "dp", "dpn", "dcp", "q", "cc", "ep"} <= forms.keys()
    for short, full in forms.items():
        finding = only(vllm, **{short: 8})
        assert finding.message.endswith(f"Write {full}")
        assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(("written", "write"), [("O", ""), ("O3", " = 3"), ("O0", " = 0")])
def test_the_level_of_optimization_is_no_list_of_options_but_a_short_form(
    written: str, write: str
) -> None:
    """vLLM makes --optimization-level of -O3 and -O 3 before it looks at its options."""
    for vllm in (NEWEST, ASKED):
        finding = only(vllm, **{written: 3})
        assert finding.message == (
            f"is the short form -{written} of optimization-level. Write optimization-level{write}"
        )
        assert finding.severity is Severity.ERROR
    assert "no option of the installed" in only(OLD, O=3).message
    assert "no option of vLLM" in only(NEWEST, O4=True).message


@pytest.mark.parametrize(
    ("written", "owned"),
    [("served-model", "--served-model-name"), ("api-ke", "--api-key"), ("por", "--port")],
)
def test_an_abbreviation_of_what_kimisvc_sets_is_refused(written: str, owned: str) -> None:
    finding = only(NEWEST, **{written: "x"})
    assert finding.message.startswith(f"would be read as {owned}, which ")
    assert finding.severity is Severity.ERROR


def test_an_abbreviation_is_refused_by_the_vllm_that_reads_it() -> None:
    assert only(ASKED, max_model="8k").severity is Severity.ERROR
    assert only(NEWEST, max_model="8k").severity is Severity.WARNING


def test_any_other_abbreviation_is_told_in_full() -> None:
    assert only(NEWEST, max_model="8k").message.endswith("Write max-model-len")
    message = only(NEWEST, max_num=1).message
    assert "max-num-seqs" in message
    assert "max-num-batched-tokens" in message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("gpu-memory-utilization", "device-memory-utilization"),
        ("enable-prefix-caching", "disable-prefix-caching"),
    ],
)
def test_two_names_of_one_option_are_one_too_many(first: str, second: str) -> None:
    flag = NEWEST.options[first].kind is OptionKind.FLAG
    value: ArgValue = True if flag else 0.9
    message = only(NEWEST, **{first: value, second: value}).message
    assert message == f"is the same option as {first}. Keep one of the two"


def test_x_and_no_x_have_been_refused_before() -> None:
    assert found(NEWEST, enable_prefix_caching=True, no_enable_prefix_caching=True) == []


def test_two_fields_of_a_table_are_fine_but_not_beside_the_whole() -> None:
    fields: dict[str, ArgValue] = {
        "eplb-config.window-size": 1000,
        "eplb-config.step-interval": 10,
    }
    profile = Profile("p", VllmSettings("/v", "/m"), args={
        "eplb-config.window_size": 1000, "eplb-config.step_interval": 10,
    })  # fmt: skip
    assert list(option_findings(profile, NEWEST)) == []
    both = replace(profile, args={"eplb-config": {"window_size": 1}, **profile.args})
    first, second = option_findings(both, NEWEST)
    assert "vLLM would take the fields alone" in first.message
    assert second.path == ("args", "eplb-config.step_interval")
    assert len(found(NEWEST, **fields)) == 2  # the fields have underscores


def test_a_field_of_what_is_no_table() -> None:
    message = only(NEWEST, **{"max-model-len.x": 1}).message
    assert message.startswith("has a dot, but max-model-len takes a whole number")


def test_a_misspelled_field() -> None:
    args: dict[str, ArgValue] = {"speculative-config": {"num_speculativ_tokens": 3}}
    assert only(NEWEST, **args).message.endswith("Did you mean num_speculative_tokens?")
    misspelled: dict[str, ArgValue] = {"compilation-config.cudagraph_mod": "NONE"}
    assert "Did you mean" in only(NEWEST, **misspelled).message
    assert only(NEWEST, **misspelled).severity is Severity.WARNING
    assert only(ASKED, **misspelled).severity is Severity.ERROR


def test_a_flag_without_a_negative_cannot_be_false() -> None:
    assert "no --no-disable-log-stats" in only(NEWEST, disable_log_stats=False).message
    assert found(NEWEST, disable_log_stats=True) == []
    assert found(NEWEST, enable_prefix_caching=False) == []  # case 23


def test_a_negative_cannot_be_false() -> None:
    assert only(OLD, no_enable_x=False).message == (
        "would be written --no-no-enable-x. Write enable-x = true"
    )
    assert found(OLD, no_enable_x=True) == []


def test_true_is_for_flags_only() -> None:
    assert only(NEWEST, max_num_seqs=True).message == "takes a whole number, not true"


def test_an_option_that_will_go_is_told() -> None:
    finding = only(NEWEST, disable_cascade_attn=True)
    assert finding.severity is Severity.WARNING
    assert "deprecated" in finding.message
    assert found(NEWEST, show_hidden_metrics_for_version="0.30") == []


def test_case_24_an_option_and_its_value_are_two_things(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        'schema = 1\n[vllm]\nexecutable = "/v"\nmodel = "/m"\n[args]\n"--seed 1" = true\n'
    )
    (problem,) = check(file, PROFILES).problems
    assert (problem.line, problem.severity) == (6, Severity.ERROR)
    assert "not the name of an option" in problem.message
