"""The schema that editors get says of a file what `kimisvc check` says of it."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.profile.options import OWNED_OPTIONS
from kimisvc.profile.schema import schema, text
from kimisvc.profile.settings import SETTINGS, TABLES, Setting
from kimisvc.records.vllm import KnownFrom, OptionKind, VllmKnowledge, VllmOption

TOP = Path(__file__).parents[3]
BAD = Path(__file__).parent / "bad"
SHIPPED = sorted((TOP / "profiles").glob("*.toml"))
FILE = TOP / "docs" / "profile.schema.json"

BEYOND = {
    # what no schema of one file can say, and why
    "context_too_short": "two keys together",
    "throughput_alone": "two keys together",
    "executable_with_arguments": "blanks may be in a path: which are too many, two patterns tell",
    "extends_a_folder": "another file",
    "extends_a_file_with_problems": "another file",
    "extends_and_contradicts": "another file",
    "extends_and_mends_one_to_break_another": "another file",
    "extends_in_a_circle": "another file",
    "extends_itself": "another file",
    "extends_missing": "another file",
    "extends_without_ending": "another file",
    "golden_patterns": "a regular expression inside a value",
    "instance_ending": "a rule over the pattern",
    "instance_of_the_exporter": "a rule over the pattern",
    "secrets_file_pattern": "a rule over the pattern",
    "executable_unwritable": "the rules of systemd for the first word of a command",
    "not a tidy name": "the name of the file",
    "ready_timeout": "two keys together",
    "ready_timeout_text": "two keys together",
    "runs": "two keys together",
    "runs_more_than_the_default": "a key and a default",
    "target_order": "two numbers of one value",
    "twice_the_same_key": "not TOML",
    "twice_the_same_table": "not TOML",
    "syntax": "not TOML",
    "syntax_at_the_end": "not TOML",
    "warnings": "legal, with a warning",
}
KNOWLEDGE = VllmKnowledge(
    "0.33.0",
    KnownFrom.SHIPPED,
    {
        option.name: option
        for option in (
            VllmOption("max-model-len", OptionKind.INTEGER, help="Longest context."),
            VllmOption("enforce-eager", OptionKind.FLAG, default="False"),
            VllmOption("dtype", OptionKind.TEXT, choices=("auto", "bfloat16", "float32")),
            VllmOption("cudagraph-capture-sizes", OptionKind.INTEGER, many=True),
            VllmOption("speculative-config", OptionKind.JSON),
            VllmOption("host", OptionKind.TEXT),
        )
    },
    frozenset({"VLLM_LOG_STATS_INTERVAL"}),
)
IDS = ["alone", "with a vLLM", "with the newest"]
GOOD = {"schema": 1, "vllm": {"executable": "/opt/vllm/bin/vllm", "model": "/srv/m"}}


def problems(document: object, knowledge: VllmKnowledge | None = None) -> list[str]:
    validator = jsonschema.Draft7Validator(schema(knowledge))
    return [error.message for error in validator.iter_errors(document)]


@pytest.mark.parametrize("knowledge", [None, KNOWLEDGE, shipped_knowledge()], ids=IDS)
def test_the_schema_is_one(knowledge: VllmKnowledge | None) -> None:
    jsonschema.Draft7Validator.check_schema(schema(knowledge))
    jsonschema.Draft4Validator.check_schema(schema(knowledge))


@pytest.mark.parametrize("knowledge", [None, KNOWLEDGE, shipped_knowledge()], ids=IDS)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_is_valid(path: Path, knowledge: VllmKnowledge | None) -> None:
    assert problems(tomllib.loads(path.read_text()), knowledge) == []


def bad_profiles() -> list[Path]:
    return [path for path in sorted(BAD.glob("*.toml")) if path.stem not in BEYOND]


@pytest.mark.parametrize("path", bad_profiles(), ids=lambda path: path.stem)
def test_a_bad_profile_is_not(path: Path) -> None:
    assert problems(tomllib.loads(path.read_text()))


def test_the_exceptions_are_still_needed() -> None:
    for path in BAD.glob("*.toml"):
        if path.stem not in BEYOND or BEYOND[path.stem] == "not TOML":
            continue
        assert problems(tomllib.loads(path.read_text())) == [], path.stem


@pytest.mark.parametrize(
    "row",
    [row for row in SETTINGS if row.key != "schema"],
    ids=lambda row: f"{row.table}.{row.key}",
)
def test_the_example_of_every_key_is_valid_and_a_date_is_not(row: Setting) -> None:
    properties = schema()["properties"]
    table: dict[str, Any] = properties[row.table] if row.table else {"properties": properties}
    node = table.get("items", table)["properties"][row.key]
    validator = jsonschema.Draft7Validator(node)
    assert validator.is_valid(tomllib.loads(f"x = {row.example}")["x"])
    if row.default is not None:
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        assert node["default"] == default
        assert validator.is_valid(default)
    assert not validator.is_valid(tomllib.loads("x = 1979-05-27")["x"])
    assert row.help[1:] in node["description"]


@pytest.mark.parametrize(
    ("table", "key", "value", "fits"),
    [
        ("args", "max-model-len", 4096, True),
        ("args", "max-model-len", "256k", True),
        ("args", "max-model-len", True, False),
        ("args", "enforce-eager", True, True),
        ("args", "enforce-eager", "yes", False),
        ("args", "dtype", "bfloat16", True),
        ("args", "dtype", "float17", False),
        ("args", "cudagraph-capture-sizes", [1, 2], True),
        ("args", "speculative-config", {"method": "mtp"}, True),
        ("args", "of-another-version", "x", True),
        ("args", "host", "::1", False),
        ("args", "--dashes", "x", False),
        ("env", "VLLM_LOG_STATS_INTERVAL", 5, True),
        ("env", "VLLM_LOG_STATS_INTERVAL", True, False),
        ("env", "NCCL_ALGO", "Ring", True),
        ("env", "VLLM_API_KEY", "x", False),
        ("env", "NOT-A-NAME", "x", False),
    ],
)
def test_options_and_variables(table: str, key: str, value: object, fits: bool) -> None:  # noqa: FBT001
    assert (problems(GOOD | {table: {key: value}}, KNOWLEDGE) == []) is fits


def test_what_a_vllm_says_of_an_option_is_shown() -> None:
    options = schema(KNOWLEDGE)["properties"]["args"]["properties"]
    assert options["max-model-len"]["description"] == "Longest context."
    assert options["enforce-eager"]["description"] == "Default of vLLM: False"
    assert "description" not in options["dtype"]


def test_options_of_kimisvc_are_not_offered() -> None:
    options = schema(KNOWLEDGE)["properties"]["args"]["properties"]
    assert all(options[name]["x-taplo"] == {"hidden": True} for name in OWNED_OPTIONS)


def test_every_table_and_key_is_there() -> None:
    properties = schema()["properties"]
    assert set(properties) == {*TABLES[""], *(t for t in TABLES if t), "args", "env"}


def test_patterns_are_those_that_every_language_reads() -> None:
    for pattern in re.findall(r'"pattern": "([^"]*)"', text()):
        assert "(?" not in pattern


def test_the_file_for_editors_is_made_from_the_table() -> None:
    if os.environ.get("KIMISVC_REGENERATE_DOCS") == "yes" and "CI" not in os.environ:
        FILE.write_text(text())
        pytest.fail(f"{FILE.name} is written anew; run again without the variable")
    assert FILE.read_text() == text()
