"""The words after `vllm serve` become [args], and what kimisvc renders comes back."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.adoption.vllm_words import Options, joined, read, uncarried, value_of
from kimisvc.profile.knowledge.vllm.shipped import shipped_knowledge
from kimisvc.records.profile import ArgValue, Profile, VllmSettings
from kimisvc.records.vllm import OptionKind, VllmOption
from kimisvc.render.arguments import argv

KNOWN = {
    row.name: row
    for row in (
        VllmOption("enforce-eager", OptionKind.FLAG, negatives=("no-enforce-eager",)),
        VllmOption("tensor-parallel-size", OptionKind.INTEGER, aliases=("tp",), short=("tp",)),
        VllmOption("max-model-len", OptionKind.SIZE),
        VllmOption("gpu-memory-utilization", OptionKind.NUMBER, aliases=("device-memory",)),
        VllmOption("revision", OptionKind.TEXT),
        VllmOption("lora-modules", OptionKind.JSON_OR_TEXT, many=True),
        VllmOption("cudagraph-capture-sizes", OptionKind.INTEGER, many=True),
        VllmOption("compilation-config", OptionKind.JSON, aliases=("cc",)),
        VllmOption("allowed-origins", OptionKind.JSON),
        VllmOption("middleware", OptionKind.TEXT, many=True),
        VllmOption("disable-old", OptionKind.FLAG),
    )
}


def taken(words: list[str], known: dict[str, VllmOption]) -> tuple[dict[str, ArgValue], list[str]]:
    options = Options(known)
    written, loose = read(words, options)
    found: dict[str, ArgValue] = {}
    for one in written:
        key, value = value_of(one, options)
        found[key] = joined(key, found.get(key), value)
    return found, loose


@pytest.mark.parametrize("known", [KNOWN, {}], ids=["with knowledge", "without"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("-tp 8", {"tensor-parallel-size": 8}),
        ("-tp=8", {"tensor-parallel-size": 8}),
        ("--tensor_parallel_size 8", {"tensor-parallel-size": 8}),
        ("--enforce-eager --max-model-len 256k", {"enforce-eager": True, "max-model-len": "256k"}),
        ("--no-enforce-eager", {"enforce-eager": False}),
        ("--gpu-memory-utilization 0.90", {"gpu-memory-utilization": 0.9}),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph-capture-sizes": (1, 2, 4)}),
        ("--lora-modules a=/x b=/y", {"lora-modules": ("a=/x", "b=/y")}),
        ('--compilation-config {"mode":3}', {"compilation-config": {"mode": 3}}),
        ('-cc {"mode":3}', {"compilation-config": {"mode": 3}}),
        ("-cc.mode 3", {"compilation-config.mode": 3}),
        ("-O.mode 3", {"compilation-config.mode": 3}),
        ("--compilation_config.cache_dir /x", {"compilation-config.cache_dir": "/x"}),
        ("-O3", {"optimization-level": 3}),
        ("-q awq", {"quantization": "awq"}),
        ("-dp 2 -pp 2 -ep", {"data-parallel-size": 2, "pipeline-parallel-size": 2,
                             "enable-expert-parallel": True}),
        ("--middleware a --middleware b", {"middleware": ("a", "b")}),
        ('--allowed-origins ["a"]', {"allowed-origins": ["a"]}),
        ("--seed -1", {"seed": -1}),
        ("--seed=-1 --x 0123", {"seed": -1, "x": "0123"}),
        ("--x 1_000 --y inf --z 1e400 --w nan", {"x": "1_000", "y": "inf", "z": "1e400", "w": "nan"}),
        ("--x=", {"x": ""}),
        ("--x=a=b", {"x": "a=b"}),
        ('--x {"a":null} --y {"a":1,"a":2} --z {bad', {"x": '{"a":null}', "y": '{"a":1,"a":2}',
                                                    "z": "{bad"}),
        ('--x [{"a":1}] --y [1,2]', {"x": [{"a": 1}], "y": "[1,2]"}),
        ("--x 99999999999999999999", {"x": "99999999999999999999"}),
        # vLLM reads the word behind a dotted option as JSON, and as it is where it is none
        ("--x.think false", {"x.think": False}),
        ("--x.think=true", {"x.think": True}),
        ("--x.think False", {"x.think": "False"}),
        ('--x.names ["X"] --x.sizes=[1,2]', {"x.names": ["X"], "x.sizes": [1, 2]}),
        ('--x.y {"a":{"b":1.5}}', {"x.y": {"a": {"b": 1.5}}}),
        ('--x.y "8" --x.z 8', {"x.y": "8", "x.z": 8}),
        ("--x.y 80g --x.z [bad --x.w=", {"x.y": "80g", "x.z": "[bad", "x.w": ""}),
        ('--x.y {"a":1,"a":2}', {"x.y": {"a": 2}}),
        # and what looks like an option, too
        ("--x.y --z", {"x.y": "--z"}),
        ("-cc.custom_ops+ -a -cc.custom_ops+=+b,c", {"compilation-config.custom_ops": ["-a", "+b", "c"]}),
        ('-cc.ops+ a -cc.ops ["b"]', {"compilation-config.ops": ["a", "b"]}),
        ('--x.y {"a":1,"b":{"c":[1]}} --x.y {"b":{"c":[2],"d":3}}',
         {"x.y": {"a": 1, "b": {"c": [1, 2], "d": 3}}}),
        ("--x.y [1] --x.y 2", {"x.y": 2}),
    ],
)  # fmt: skip
def test_options(line: str, found: dict[str, ArgValue], known: dict[str, VllmOption]) -> None:
    got, loose = taken(line.split(" "), known)
    assert got == found
    assert [type(value) for value in got.values()] == [type(value) for value in found.values()]
    assert loose == []


@pytest.mark.parametrize(
    ("line", "found", "loose"),
    [
        ("--enforce-eager org/model", {"enforce-eager": True}, ["org/model"]),
        ("org/model -tp 8 extra", {"tensor-parallel-size": 8}, ["org/model", "extra"]),
        ("--revision 12", {"revision": "12"}, []),
        ("--device-memory 0.5", {"gpu-memory-utilization": 0.5}, []),
        ("--gpu-memory-utilization 1e-1", {"gpu-memory-utilization": 0.1}, []),
        ("--cudagraph-capture-sizes 1", {"cudagraph-capture-sizes": (1,)}, []),
        ("--no-disable-old", {"disable-old": False}, []),
        ("--enforce-eager=true", {"enforce-eager": "true"}, []),
        ("--max-model-len --enforce-eager", {"max-model-len": True, "enforce-eager": True}, []),
        ("-- -x", {}, ["-x"]),
    ],
)
def test_what_is_known_of_an_option_tells_its_values(
    line: str, found: dict[str, ArgValue], loose: list[str]
) -> None:
    assert taken(line.split(" "), KNOWN) == (found, loose)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--tensor-par 8", {"tensor-parallel-size": 8}),
        ("--tensor_par=8", {"tensor-parallel-size": 8}),
        ("--enforce org/model", {"enforce-eager": True}),  # known to take no word
        ("--no-enf", {"enforce-eager": False}),
        ("--device-mem 0.5", {"gpu-memory-utilization": 0.5}),
        ("--compilation-conf.mode 3", {"compilation-config.mode": 3}),
        ("--c 3", {"c": 3}),  # begins two
        ("--t 3", {"tensor-parallel-size": 3}),
        ("--tensor-parallel-size-of 8", {"tensor-parallel-size-of": 8}),
        ("-tensor-par 8", {"tensor-par": 8}),  # one dash: another rule of argparse
        ("--model m", {"model": "m"}),
        ("--disable-log-requests", {"disable-log-requests": True}),  # was an option once
    ],
)
def test_an_abbreviation_is_written_out(line: str, found: dict[str, ArgValue]) -> None:
    known = KNOWN | {
        name: VllmOption(name, OptionKind.FLAG)
        for name in ("model-impl", "disable-log-requests-of-all")
    }
    assert taken(line.split(" "), known)[0] == found


@pytest.mark.parametrize(
    ("word", "carried"),
    [("null", False), ('{"a":[null]}', False), ("NaN", False), ("-Infinity", False),
     ("1e400", False), (str(2**63), False), ('"\\ud800"', False), ("[" * 40 + "]" * 40, False),
     (str(2**63 - 1), True), ("None", True), ("nan", True), ("[" * 9 + "]" * 9, True)],
)  # fmt: skip
def test_a_field_that_no_profile_can_carry_is_told(word: str, *, carried: bool) -> None:
    (written,), _ = read([f"--x.y={word}"], Options(KNOWN))
    assert (uncarried(written) == "") is carried
    (written,), _ = read([f"--x={word}"], Options(KNOWN))  # a whole option is a string
    assert uncarried(written) == ""


JSON = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(JSON)
def test_a_field_that_kimisvc_renders_comes_back(value: ArgValue) -> None:
    tokens = argv(Profile("x", VllmSettings("/v", "org/m"), args={"x.y": value}))
    assert taken(list(tokens[1:]), {})[0]["x.y"] == value


NAMES = st.text(string.ascii_lowercase + "-", min_size=2, max_size=8).filter(
    lambda name: name.strip("-") == name and not name.startswith("no-") and name
    not in ("middleware", "model", "config", "host", "port")
    and Options({}).full_name(name) == name
)  # fmt: skip
# Words that are no numbers: without knowledge `8` could have been "8" or 8.
WORDS = st.text(max_size=12).filter(
    lambda text: not text[:1].isdigit() and text[:1] not in (".", "{", "[")
    and not text[1:2].isdigit() and text[1:2] != "."
)  # fmt: skip
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6).filter(
    lambda number: "e" not in repr(number)
)
INNER = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGS = st.dictionaries(
    NAMES,
    st.booleans() | NUMBERS | WORDS | st.dictionaries(st.text(max_size=5), INNER, max_size=3)
    | st.lists(WORDS.filter(lambda word: not word.startswith("-")), min_size=2, max_size=4).map(tuple),
    max_size=5,
)  # fmt: skip


@given(ARGS)
def test_what_kimisvc_renders_comes_back(args: dict[str, ArgValue]) -> None:
    tokens = argv(Profile("x", VllmSettings("/v", "org/m"), args=args))
    assert tokens[:4] == ("serve", "org/m", "--host", "127.0.0.1")
    found, loose = taken(list(tokens[1:]), {})
    assert loose == ["org/m"]
    del found["host"], found["port"]
    assert found == args


@given(st.lists(st.text('-ab=.{}[]"1 ,:', max_size=8), max_size=6))
def test_any_words_are_read(words: list[str]) -> None:
    taken(words, KNOWN)
    taken(words, {})


def test_every_short_name_the_newest_vllm_has_is_read() -> None:
    known = dict(shipped_knowledge().options)
    for row in known.values():
        for alias in row.aliases:
            dashes = "-" if alias in row.short else "--"
            words = [f"{dashes}{alias}"] + ([] if row.kind is OptionKind.FLAG else ["7"])
            found, _ = taken(words, known)
            assert list(found) == [row.name], alias
