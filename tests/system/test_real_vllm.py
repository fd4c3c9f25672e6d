"""The whole loop with the real vLLM (CPU build) and a real model, on a real systemd."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loading import load
from stage import Sandbox, Stage

from kimisvc.errors import KimisvcError
from kimisvc.host.vllm_binary import knowledge
from kimisvc.profile.knowledge.model.rules import model_findings
from kimisvc.profile.knowledge.vllm.options import option_findings
from kimisvc.profile.knowledge.vllm.variables import vllm_variable_findings
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.records import ArgValue, OptionKind, Profile, Severity, VllmKnowledge, VllmSettings
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

STRICTER = (
    "abbreviation", "beginning of several", "would be read as", "short form",  # never a good idea
    "not a list", "not a table", "no fields", "takes a table", "Write a table",  # odd, if harmless
    "not false",  # --no-x, which it takes for the beginning of another name
    "has no field",  # speculative-config: found out after the options are read
    "is refused: ",  # numbers out of range: found out then, too
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
    client, engine = answer["decode_tok_s"], answer["engine_decode_tok_s"]
    assert engine == pytest.approx(client, rel=0.05)
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
    stage.stop()


# ---------------------------------------------------------------- what it knows


@pytest.fixture(scope="module")
def executable() -> Path:
    return Path(load(PROFILES / "cpu_smollm2.toml", PROFILES).vllm.executable)


@pytest.fixture(scope="module")
def known(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> VllmKnowledge:
    cache = tmp_path_factory.mktemp("cache")
    asked = knowledge(executable, cache)
    assert asked is not None
    assert knowledge(executable, cache, timeout=0.0) == asked  # no time to ask: it was kept
    return asked


def test_what_the_real_one_tells(known: VllmKnowledge) -> None:
    assert known.version == "0.32.0"
    assert known.options["tensor-parallel-size"].aliases == ("tp",)
    assert known.options["max-model-len"].kind is OptionKind.SIZE
    assert "kimi_k2" in known.options["reasoning-parser"].choices
    assert "TRITON_MLA" in known.options["attention-backend"].choices
    assert "num_speculative_tokens" in known.options["speculative-config"].fields
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
    lines, judged = [], []
    for args in _cases(known):
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
    assert len(answers) == len(lines) > 5000
    pairs = list(zip(lines, judged, answers, strict=True))
    assert [(line, answer) for line, ours, answer in pairs if answer and not ours] == []
    stricter = [(line, ours) for line, ours, answer in pairs if ours and not answer]
    assert [s for s in stricter if not any(words in s[1][0] for words in STRICTER)] == []


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
