"""The whole loop with the real vLLM (CPU build) and a real model, on a real systemd."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agreement import together
from loading import load
from stage import Sandbox, Stage

from kimisvc.errors import KimisvcError
from kimisvc.host.vllm_binary import knowledge
from kimisvc.profile.knowledge.model.rules import model_findings
from kimisvc.profile.knowledge.vllm.contradictions import contradictions
from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.variables import vllm_variable_findings
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.records.problems import Severity
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import FieldKind, OptionKind, VllmKnowledge
from kimisvc.render.arguments import argv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.system, pytest.mark.vllm]

PROFILES = Path(__file__).parents[2] / "profiles"

PARSE = """
import contextlib, io, json, sys
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
root = FlexibleArgumentParser()
cmd_init()[0].subparser_init(root.add_subparsers())
answers = []
for line in json.loads(sys.stdin.read()):
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            root.parse_args(line)
        answers.append("")
    except SystemExit:
        answers.append(said.getvalue()[-300:] or "refused")
    except Exception as error:
        answers.append(repr(error))
print()
print(json.dumps(answers))
"""
"""Has vLLM's own parser judge command lines; it builds it as `vllm serve` does."""

ENGINE = """
import contextlib, io, json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
root = FlexibleArgumentParser()
cmd_init()[0].subparser_init(root.add_subparsers())
answers = []
for line in json.loads(sys.stdin.read()):
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            args = root.parse_args(line)
        args.model = args.model_tag
        cmd_init()[0].validate(args)
        AsyncEngineArgs.from_cli_args(args).create_engine_config()
        answers.append("")
    except (Exception, SystemExit) as error:
        answers.append(repr(error))
print()
print(json.dumps(answers))
"""
"""Has vLLM make the whole configuration of an engine, which ends where it ends for `vllm serve`."""

STRICTER = (
    "abbreviation", "beginning of several", "would be read as", "short form",  # never a good idea
    "not a list", "not a table", "no fields", "takes a table", "Write a table",  # odd, if harmless
    "not false",  # --no-x, which it takes for the beginning of another name
    "has no field",  # speculative-config: found out after the options are read
    "is refused: ",  # numbers out of range and fields of speculative-config: found out then, too
    "not among the choices",  # attention-backend: found out then, too
)  # fmt: skip
"""What we say of command lines that this parser lets through, all with reason."""

WRONG = """schema = 1
extends = "cpu_smollm2.toml"
name = "wrong_answer"

[[golden]]
prompt = "What is the capital of France?"
expect = "Atlantis"
"""


def test_load_answer_measure_keep_fail_restore(sandbox: Sandbox) -> None:
    stage = Stage(sandbox, "kimi", port=8000)
    status, answer = stage.apply("cpu_smollm2")
    assert (status, answer["outcome"], answer["verdict"]) == (0, "accepted", "PASS"), answer
    proof = json.loads(stage.kimisvc("probe", "--instance", "kimi", "--json").stdout)
    client = together([run["decode_tok_s"] for run in proof["runs"]])
    assert proof["engine_decode_tok_s"] == pytest.approx(client, rel=0.05)
    first = stage.status()
    assert (first["ready"], first["vllm_version"]) == (True, "0.32.0")
    assert first["load_s"] > 1

    status, answer = stage.apply("cpu_smollm2")
    assert (status, answer["outcome"]) == (0, "unchanged")
    assert stage.status()["main_pid"] == first["main_pid"]

    sandbox.write("/etc/wrong.toml", WRONG)
    status, answer = stage.apply("/etc/wrong.toml")
    assert (status, answer["outcome"], answer["verdict"]) == (4, "rolled-back", "FAIL")
    assert "Atlantis" in answer["reason"]
    last = stage.status()
    assert (last["profile"], last["verdict"]) == ("cpu_smollm2", "PASS")
    assert last["main_pid"] == first["main_pid"]
    assert [v["verdict"] for v in stage.history()["verdicts"]] == ["PASS", "FAIL", "PASS"]
    stage.leave()


# ---------------------------------------------------------------- what it knows


@pytest.fixture(scope="module")
def executable() -> Path:
    return Path(load(PROFILES / "cpu_smollm2.toml", PROFILES).vllm.executable)


@pytest.fixture(scope="module")
def known(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> VllmKnowledge:
    cache = tmp_path_factory.mktemp("cache")
    asked = knowledge(executable, (cache,))
    assert isinstance(asked, VllmKnowledge)
    assert knowledge(executable, (cache,), timeout=0.0) == asked  # no time to ask: it was kept
    return asked


def test_what_the_real_one_tells(known: VllmKnowledge) -> None:
    assert known.version == "0.32.0"
    assert known.options["tensor-parallel-size"].aliases == ("tp",)
    assert known.options["max-model-len"].kind is OptionKind.SIZE
    assert "kimi_k2" in known.options["reasoning-parser"].choices
    assert "TRITON_MLA" in known.options["attention-backend"].choices
    assert "num_speculative_tokens" in known.options["speculative-config"].fields
    fields = known.options["compilation-config"].value.fields
    assert "PIECEWISE" in fields["cudagraph_mode"].choices
    assert fields["pass_config"].fields["fuse_allreduce_rms"].kind is FieldKind.SWITCH
    assert known.options["speculative-config"].value.fields["num_speculative_tokens"].gt == 0
    assert known.options["cpu-offload-gb"].value.ge == 0
    assert known.options["optimization-level"].value.choices == ("0", "1", "2", "3")
    assert known.options["enforce-eager"].help
    assert "VLLM_ENGINE_READY_TIMEOUT_S" in known.variables


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.toml")), ids=lambda p: p.stem)
def test_the_real_one_knows_all_settings_of_a_shipped_profile(
    known: VllmKnowledge, path: Path
) -> None:
    profile = load(path, PROFILES)
    findings = [
        *option_findings(profile, known),
        *vllm_variable_findings(profile, known),
        *model_findings(profile, None, known),
    ]
    assert [f for f in findings if f.severity is Severity.ERROR] == []


def test_we_judge_options_as_its_own_parser_does(known: VllmKnowledge, executable: Path) -> None:
    pairs = _compared([*_cases(known)], known, executable)
    assert len(pairs) > 5000
    assert [(line, answer) for line, ours, answer in pairs if answer and not ours] == []
    stricter = [(line, ours) for line, ours, answer in pairs if ours and not answer]
    assert [s for s in stricter if not any(words in s[1][0] for words in STRICTER)] == []


def test_we_refuse_no_field_that_it_takes(known: VllmKnowledge, executable: Path) -> None:
    pairs = _compared([*_field_cases(known)], known, executable)
    assert [(line, ours) for line, ours, answer in pairs if ours and not answer] == []
    assert len([line for line, ours, answer in pairs if ours and answer]) > 3000
    assert len([line for line, ours, answer in pairs if not ours and not answer]) > 1000


def _compared(
    cases: list[Mapping[str, ArgValue]], known: VllmKnowledge, executable: Path
) -> list[tuple[tuple[str, ...], list[str], str]]:
    """Given [args], return each as a command line, with our errors and with its parser's words."""
    lines, judged = [], []
    for args in cases:
        profile = Profile("p", VllmSettings("/v", "m"), args=args)
        try:
            line = argv(profile)
        except KimisvcError:
            continue
        lines.append(line)
        findings = option_findings(profile, known)
        judged.append([f.message for f in findings if f.severity is Severity.ERROR])
    done = subprocess.run(
        [executable.with_name("python3"), "-B", "-c", PARSE], input=json.dumps(lines),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = json.loads(done.stdout.splitlines()[-1])
    return list(zip(lines, judged, answers, strict=True))


ACCEPTED: tuple[Mapping[str, ArgValue], ...] = (
    {},
    {"compilation-config": {"cudagraph_mode": "piecewise", "mode": 0}},
    {"compilation-config": {"pass_config": {"fuse_norm_quant": False}}},
    {"compilation-config.cudagraph_capture_sizes": (1, 2)},
    {"compilation-config.cudagraph_num_of_warmups": "1"},
    {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2,
                            "prompt_lookup_max": 2}},
    {"structured-outputs-config": {"backend": "xgrammar", "disable_any_whitespace": "yes"}},
    {"optimization-level": 2},
    {"max-num-seqs": 8, "max-num-batched-tokens": 8},
    {"max-loras": 2, "max-cpu-loras": 1},
    {"long-prefill-token-threshold": 64},
    {"reasoning-parser": ""},
    {"lora-modules": ({"name": "a", "path": "/x"}, {"name": "b", "path": "/y"})},
)  # fmt: skip
REFUSED: tuple[Mapping[str, ArgValue], ...] = (
    {"compilation-config": 3},
    {"compilation-config": {"cudagraph_mode": "PIECWISE"}},
    {"compilation-config": {"pass_config": {"fuse_allreduce_rmss": True}}},
    {"compilation-config.cudagraph_capture_sizes": "[1,2,4,8]"},
    {"compilation-config": {"custom_ops": "all"}},
    {"speculative-config": {"method": "ngrm", "num_speculative_tokens": 2}},
    {"speculative-config": {"method": "ngram", "num_speculative_tokens": 0}},
    {"structured-outputs-config": {"backend": "xgramar"}},
    {"kv-transfer-config": {"kv_role": "both", "kv_connector": "NixlConnector"}},
    {"optimization-level": 4},
    {"optimization-level": -1},
    {"max-model-len": 0},
    {"enable-lora": True, "max-loras": 0},
    {"max-num-seqs": 512, "max-num-batched-tokens": 256},
    {"max-num-batched-tokens": 1024, "max-model-len": 2048, "enable-chunked-prefill": False},
    {"enable-lora": True, "max-cpu-loras": 1, "max-loras": 2},
    {"long-prefill-token-threshold": 9000, "max-model-len": 8192},
    {"reasoning-parser": "none"},
    {"enable-expert-parallel": True},
)


def test_we_judge_values_as_its_engine_does(known: VllmKnowledge, executable: Path) -> None:
    bounds = [*_at_the_bounds(known)]
    cases = [*ACCEPTED, *REFUSED, *bounds]
    model = load(PROFILES / "cpu_smollm2.toml", PROFILES).vllm.model
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    profiles = [Profile("p", VllmSettings("/v", model), args=args) for args in cases]
    judged = [
        [
            finding.message
            for finding in (
                *option_findings(profile, known),
                *contradictions(profile, known),
                *model_findings(profile, config, known),
            )
            if finding.severity is Severity.ERROR or "enable-expert-parallel" in profile.args
        ]
        for profile in profiles
    ]
    done = subprocess.run(
        [executable.with_name("python3"), "-B", "-c", ENGINE],
        input=json.dumps([argv(profile) for profile in profiles]),
        capture_output=True, text=True, check=True, env={"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    answers = json.loads(done.stdout.splitlines()[-1])
    rows = list(zip(cases, judged, answers, strict=True))
    assert [row for row in rows[: len(ACCEPTED)] if row[1] or row[2]] == []
    assert [row for row in rows[len(ACCEPTED) :][: len(REFUSED)] if not (row[1] and row[2])] == []
    assert len(bounds) > 80
    assert [row for row in rows[-len(bounds) :] if row[1] and not row[2]] == []


def _at_the_bounds(known: VllmKnowledge) -> Iterator[Mapping[str, ArgValue]]:
    """Yield [args] of one number each, at its bounds and beyond them."""
    for option in known.options.values():
        value = option.value
        for bound, step in ((value.ge, -1), (value.gt, 0), (value.le, 1), (value.lt, 0)):
            if bound is not None and option.name not in OWNED_OPTIONS:
                whole = int if option.kind is not OptionKind.NUMBER else float
                yield from ({option.name: whole(bound + by)} for by in (0, step))


def _cases(known: VllmKnowledge) -> Iterator[Mapping[str, ArgValue]]:
    """Yield [args] of one option each: every option with values of every kind, and odd names."""
    values: tuple[ArgValue, ...] = (
        True, False, 8, -1, 0.5, 2.0, "8", "256k", "2.5K", "1_000", "1e3", "auto", "None", "x y",
        "TRITON_MLA", {"a": 1}, '{"a": 1}', "{", ["a", "b"], [1, 2],
    )  # fmt: skip
    for option in known.options.values():
        if option.name in OWNED_OPTIONS or option.name == "lora-modules":
            continue  # refused by kimisvc itself; reads files while it is parsed
        yield from ({option.name: value} for value in (*values, *option.choices))
        yield from ({option.name: choice.upper()} for choice in option.choices)
        for name in (*option.aliases, *option.negatives):
            yield from ({name: value} for value in (True, False, 8))
        yield from ({name: 8} for name in (option.name[:-2], option.name + "x"))
        yield {f"{option.name}.a": 1}


def _field_cases(known: VllmKnowledge) -> Iterator[Mapping[str, ArgValue]]:
    """Yield [args] that set one field of one table, to values of every kind."""
    odd: tuple[ArgValue, ...] = (
        True, 0, 2, -1, 1.5, 2.0, "", "x", "1", "yes", "auto", "[1]", "{}", [], [1], ["a"], {},
        {"a": 1},
    )  # fmt: skip
    for option in known.options.values():
        if option.name == "speculative-config":
            continue  # its fields are looked at after the options are read
        for name, field in option.value.fields.items():
            for value in (*odd, *field.choices):
                yield {option.name: {name: value}}
                yield {f"{option.name}.{name}": value}
            for inner in field.fields:
                yield from ({option.name: {name: {inner: value}}} for value in odd)
