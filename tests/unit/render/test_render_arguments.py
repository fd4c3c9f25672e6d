"""The command line of vLLM: one item a token, in the order of the profile."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.errors import KimisvcError
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.render.arguments import argv, option

VLLM = VllmSettings("/opt/vllm/bin/vllm", "/srv/model")


@pytest.mark.parametrize(
    ("key", "value", "tokens"),
    [
        ("max-model-len", 2048, ["--max-model-len", "2048"]),
        ("max_model_len", "256k", ["--max-model-len", "256k"]),
        ("compilation_config.cache_dir", "/c", ["--compilation-config.cache_dir", "/c"]),
        ("compilation_config.cache_dir", "80g", ["--compilation-config.cache_dir", '"80g"']),
        ("compilation_config.cache_dir", "1", ["--compilation-config.cache_dir", '"1"']),
        ("eplb-config.use_async", True, ["--eplb-config.use_async", "true"]),
        ("eplb-config.use_async", False, ["--eplb-config.use_async", "false"]),
        (
            "compilation-config.compile_sizes",
            [1, 2],
            ["--compilation-config.compile_sizes", "[1,2]"],
        ),
        ("eplb-config.window_size", -1, ["--eplb-config.window_size=-1"]),
        ("enforce-eager", True, ["--enforce-eager"]),
        ("enable_prefix_caching", False, ["--no-enable-prefix-caching"]),  # case 23
        ("gpu-memory-utilization", 0.92, ["--gpu-memory-utilization", "0.92"]),
        ("seed", -1, ["--seed=-1"]),
        ("scale", -1e-05, ["--scale=-1e-05"]),
        ("chat-template", "", ["--chat-template", ""]),
        ("chat-template", "-x", ["--chat-template=-x"]),
        ("hf-overrides", {"b": 1, "a": "x y"}, ["--hf-overrides", '{"b":1,"a":"x y"}']),
        ("hf-overrides", {}, ["--hf-overrides", "{}"]),
        ("cudagraph-capture-sizes", (1, 2, 4), ["--cudagraph-capture-sizes", "1", "2", "4"]),
        ("served-model-name", ["a", "b c"], ["--served-model-name", "a", "b c"]),
        ("device-ids", ["-1"], ["--device-ids=-1"]),
        ("lora-modules", [{"name": "l"}], ["--lora-modules", '{"name":"l"}']),
        ("lora-modules", [{"a": 1}, {"b": "x y"}], ["--lora-modules", '{"a":1}', '{"b":"x y"}']),
        ("allowed-origins", [{"a": 1}], ["--allowed-origins", '[{"a":1}]']),
        ("nested", [[1], [2]], ["--nested", "[[1],[2]]"]),
        ("allowed-origins", ["*"], ["--allowed-origins", '["*"]']),
        ("allowed_methods", [], ["--allowed-methods", "[]"]),
        ("middleware", ["a.B", "c.D"], ["--middleware", "a.B", "--middleware", "c.D"]),
    ],
)
def test_an_option_becomes_tokens(key: str, value: ArgValue, tokens: list[str]) -> None:
    assert option(key, value) == tokens


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", "/etc/vllm.yaml"),
        ("lora-modules", []),
        ("stop", ["a", "-b"]),
        ("x", float("nan")),
        ("x", float("inf")),
        ("x", {"y": float("nan")}),
    ],
)
def test_what_no_command_line_can_carry_is_refused(key: str, value: ArgValue) -> None:
    with pytest.raises(KimisvcError) as caught:
        option(key, value)
    assert caught.value.code == "bad-option"


def test_a_model_that_looks_like_an_option_is_refused() -> None:
    with pytest.raises(KimisvcError, match="option"):
        argv(Profile("p", VllmSettings("/opt/vllm/bin/vllm", "--help")))


def test_case_24_each_token_is_an_item_and_the_order_is_the_profile_s() -> None:
    profile = Profile(
        "p",
        VllmSettings("/v", "/m", host="::1", port=9000, served_model_name="kimi"),
        args={"tensor-parallel-size": 8, "a": True},
    )
    assert argv(profile) == (
        "serve", "/m", "--host", "::1", "--port", "9000", "--served-model-name", "kimi",
        "--tensor-parallel-size", "8", "--a",
    )  # fmt: skip


def test_no_name_means_that_vllm_serves_under_the_model_s() -> None:
    assert "--served-model-name" not in argv(Profile("p", VLLM))


SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES: st.SearchStrategy[ArgValue] = st.one_of(
    st.booleans(),
    SCALARS,
    st.lists(SCALARS, min_size=1),
    st.dictionaries(st.text(), st.recursive(SCALARS, st.lists, max_leaves=4)),
)


@given(st.dictionaries(st.sampled_from(["alpha", "beta-x", "gamma"]), VALUES))
def test_argparse_reads_back_what_was_written(args: Mapping[str, ArgValue]) -> None:
    profile = Profile("p", VLLM, args=args)
    if any(_has_option_like_item(value) for value in args.values()):
        with pytest.raises(KimisvcError):
            argv(profile)
        return
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("serve", "model", "--host", "--port"):
        parser.add_argument(name)
    for key, value in args.items():
        if isinstance(value, bool):
            parser.add_argument(f"--{key}", action=argparse.BooleanOptionalAction)
        elif isinstance(value, Mapping):
            parser.add_argument(f"--{key}", type=json.loads)
        else:
            parser.add_argument(f"--{key}", nargs="+" if _is_list(value) else None)
    read = vars(parser.parse_args(list(argv(profile))))
    assert {key: read[key.replace("-", "_")] for key in args} == {
        key: _as_read(value) for key, value in args.items()
    }


def _is_list(value: ArgValue) -> TypeGuard[list[ArgValue]]:
    return isinstance(value, list)


def _has_option_like_item(value: ArgValue) -> bool:
    return _is_list(value) and len(value) > 1 and any(str(item).startswith("-") for item in value)


def _as_read(value: ArgValue) -> object:
    if isinstance(value, bool | Mapping):
        return value
    return [str(item) for item in value] if _is_list(value) else str(value)
