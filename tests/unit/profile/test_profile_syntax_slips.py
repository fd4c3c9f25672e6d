"""A line that is no TOML is told with its place, its key and what was likely meant."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimisvc.profile.loader import check
from kimisvc.profile.problems import format_problem
from kimisvc.profile.syntax_slips import syntax_fault

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "the correct horse 1"  # by no looks of its own
TOKEN = "hf_" + "AbCdEfGh12345678"


def told(text: str) -> str:
    """The fault of a text as an operator sees it, without the file."""
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    fault = syntax_fault(str(caught.value), text)
    return ": ".join(part for part in (str(fault.line), fault.key, fault.message) if part)


MEANT = [
    (
        '[env]\nA: "b c=d"',
        "2: env.A: TOML joins key and value by =, not by ':': A = \"b c=d\"",
    ),
    (
        "[env]\nexport HF_HOME=/x VLLM_CACHE_ROOT=/y",
        ("2: env.HF_HOME: export belongs to a shell. Each KEY = VALUE stands on a line of its own"),
    ),
    (
        "[env]\nNCCL_PROTO=LL; NCCL_ALGO=Ring",
        (
            "2: env.NCCL_PROTO: LL; NCCL_ALGO=Ring holds more than one setting. Each KEY = VALUE"
            " stands on a line of its own"
        ),
    ),
    (
        '[vllm]\nmodel = /models/m"',
        '2: vllm.model: /models/m is text and needs quotes: model = "/models/m"',
    ),
    ("vllm:\n", "1: vllm: begins a table: write [vllm]"),
    ("args:\n  max-model-len: 1024\n", "1: args: begins a table: write [args]"),
    ("env:\n", "1: env: begins a table: write [env]"),
    ("[vllm]\nargs:\n", "2: vllm.args: begins a table: write [args]"),
    ('"golden":\n', "1: golden: begins a table: write [[golden]]"),
    (
        "[args]\nx = 10.0.0.1",
        '2: args.x: 10.0.0.1 is text and needs quotes: x = "10.0.0.1"',
    ),
    ("golden:\n", "1: golden: begins a table: write [[golden]]"),
    (
        '[args]\nport = 1\ncompilation-config.level = 3\ncompilation-config = "x"\n',
        (
            "4: args.compilation-config: is set as a whole, and line 3 has set a part of it."
            " Write it in one way"
        ),
    ),
    (
        "[args]\ngpu-memory-utilization = +.9",
        (
            "2: args.gpu-memory-utilization: +.9 is no number of TOML: digits only, no 0 before"
            " them, and digits on both sides of a point, as in 0.9"
        ),
    ),
    (
        "[args]\nenforce-eager = yes",
        (
            "2: args.enforce-eager: yes is no TOML: write true or false for a flag, and quotes"
            " around a word"
        ),
    ),
    (
        "[args]\ngpu-memory-utilization = 90%",
        (
            "2: args.gpu-memory-utilization: 90% is no number of TOML: digits only, no 0 before"
            " them, and digits on both sides of a point, as in 0.9"
        ),
    ),
    (
        "[args]\nmax-model-len = 32,768",
        (
            "2: args.max-model-len: 32,768 is no number of TOML: digits only, no 0 before them,"
            " and digits on both sides of a point, as in 0.9"
        ),
    ),
    (
        "[args]\nmax-model-len = None",
        "2: args.max-model-len: None is no value. Leave the line out",
    ),
    (
        "[args]\nx = 1\n[args.x.y]\n",
        "3: args.x.y: is set within what line 2 has set to something else",
    ),
    (
        '[env]\nA = "1"\n[env.A]\n',
        "3: env.A: is set within what line 2 has set to something else",
    ),
    (
        "[env]\nHF_TOKEN =\n",
        ("2: env.HF_TOKEN: has no value behind its =. Write one in quotes, or leave the line out"),
    ),
    (
        "[gate]\ndecode_tok_s = >20~25\nmax_ttft = 2",
        '2: gate.decode_tok_s: >20~25 is text and needs quotes: decode_tok_s = ">20~25"',
    ),
    (
        "[hardware]\nlink = pcie  # no NVLink",
        '2: hardware.link: pcie is text and needs quotes: link = "pcie"',
    ),
    (
        "[vllm]\nexecutable = /opt/x\r\n",
        '2: vllm.executable: /opt/x is text and needs quotes: executable = "/opt/x"',
    ),
    (
        "[service]\nload_timeout = 10min",
        '2: service.load_timeout: 10min is text and needs quotes: load_timeout = "10min"',
    ),
    (
        "[service]\nmemory_max = 200 GiB\n",
        '2: service.memory_max: 200 GiB is text and needs quotes: memory_max = "200 GiB"',
    ),
    (
        "[service]\nsecrets_file = /etc/kimisvc/secrets\n",
        (
            "2: service.secrets_file: /etc/kimisvc/secrets is text and needs quotes: "
            'secrets_file = "/etc/kimisvc/secrets"'
        ),
    ),
    (
        "allow_risky = NCCL_P2P_LEVEL",
        (
            "1: allow_risky: NCCL_P2P_LEVEL is text and needs quotes: allow_risky = "
            '["NCCL_P2P_LEVEL"]'
        ),
    ),
    (
        "[vllm]\nport = 80x",
        "2: vllm.port: 80x is no TOML: port takes a whole number from 1 to 65535",
    ),
    (
        "[[golden]]\n[[golden]]\nprompt = x",
        '3: golden[1].prompt: x is text and needs quotes: prompt = "x"',
    ),
    (
        "[gate]\nrequire_reasoning = True",
        (
            "2: gate.require_reasoning: True is refused, a flag is written in lower case: "
            "require_reasoning = true"
        ),
    ),
    (
        "[gate]\nrequire_reasoning = no",
        (
            "2: gate.require_reasoning: no is refused, a flag is true or false: "
            "require_reasoning = false"
        ),
    ),
    (
        "[args]\nenforce-eager = False",
        (
            "2: args.enforce-eager: False is refused, a flag is written in lower case: "
            "enforce-eager = false"
        ),
    ),
    (
        "[env]\nVLLM_USE_V1 = True",
        (
            "2: env.VLLM_USE_V1: True is no value of a variable: write 0 or 1 as a string: "
            'VLLM_USE_V1 = "1"'
        ),
    ),
    ("[vllm]\nport: 8100", "2: vllm.port: TOML joins key and value by =, not by ':': port = 8100"),
    (
        "[vllm]\nport == 8100",
        "2: vllm.port: TOML joins key and value by =, not by '==': port = 8100",
    ),
    (
        "[env]\nexport NCCL_PROTO=LL",
        '2: env.NCCL_PROTO: export belongs to a shell: NCCL_PROTO = "LL"',
    ),
    (
        "[vllm]\nport =\n",
        (
            "2: vllm.port: has no value behind its =. Write port = 8000, for example, or "
            "leave the line out"
        ),
    ),
    (
        "[vllm]\nmodel = \u201cx\u201d",
        (
            "2: vllm.model: \u201cx\u201d stands in typographic quotes; TOML takes straight ones: "
            'model = "x"'
        ),
    ),
    (
        '[args]\nspeculative-config = {"method": "mtp"}',
        (
            '2: args.speculative-config: {"method": "mtp"} is JSON, and stands in single '
            'quotes: speculative-config = \'{"method": "mtp"}\''
        ),
    ),
    (
        '[vllm]\nmodel = "/srv/m\nport = 1\n',
        '2: vllm.model: the string "/srv/m is never closed: model = "/srv/m"',
    ),
    (
        "[vllm]\nmodel = '/srv/m\nport = 1\nstarts = 2\n",
        '2: vllm.model: the string \'/srv/m is never closed: model = "/srv/m"',
    ),
    (
        "[vllm]\nmodel = '/srv/m\nhost = '::1'\n",
        '2: vllm.model: the string \'/srv/m is never closed: model = "/srv/m"',
    ),
    (
        '[vllm]\nmodel = """/srv/m\nport = 1\n',
        (
            '2: vllm.model: the text that begins with """ here is never closed. A value is a '
            'single line: write it between " and "'
        ),
    ),
    (
        "[vllm]\nport = 1\nhost = 2\nport = 2",
        "4: vllm.port: is set a second time; the first is on line 2. Keep one of the two",
    ),
    (
        "[vllm]\n[gate]\n[vllm]\n",
        "3: vllm: [vllm] is declared a second time; the first is on line 1. Join the two",
    ),
    (
        "[golden]\n[golden]\n",
        ("2: golden: is a second table of questions; the first is on line 1. Each is [[golden]]"),
    ),
    (
        "--port 1",
        ("1: --port 1 is no line of a profile; those are KEY = VALUE, [table], or # and a comment"),
    ),
]


@pytest.mark.parametrize(("text", "message"), MEANT, ids=lambda words: words[:40])
def test_a_slip_is_told_with_what_was_meant(text: str, message: str) -> None:
    assert told(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[vllm\n",
            "1: TOML syntax: Expected ']' at the end of a table declaration (column 6): [vllm",
        ),
        (
            '[env]\nA = "\\q"\n',
            "2: env.A: TOML syntax: Unescaped '\\' in a string (column 8): A = \"\\q\"",
        ),
        (
            "[args]\nx = [\n1,\ny\n]",
            "4: args.x: TOML syntax: Invalid value (column 1), in what begins on line 2: y",
        ),
    ],
)
def test_whatever_else_keeps_the_words_of_the_parser_and_the_line(text: str, message: str) -> None:
    assert told(text) == message


LEAKS = [
    f"[env]\nHF_TOKEN={SECRET}",
    f"[env]\nexport HF_TOKEN={SECRET}",
    f"[env]\nHF_TOKEN: {SECRET}",
    f"[env]\nsetenv HF_TOKEN {SECRET}",
    f"[env]\nENV HF_TOKEN {SECRET}",
    f"[env]\ndeclare -x HF_TOKEN {SECRET}",
    f"[env]\nHF_TOKEN {SECRET}",
    f'[env]\nHF_TOKEN = "{SECRET}\nA = "1"\n',
    f"[env]\nHF_TOKEN = '{SECRET}",
    f'[env]\nHF_TOKEN = """{SECRET}\nA = 1',
    f"[env]\nHF_TOKEN = \u201c{SECRET}\u201d",
    f'[env]\nHF_TOKEN = "{SECRET}"\nHF_TOKEN = "{SECRET}"',
    f"[args]\napi-key = {SECRET}",
    f"[args]\n--api-key {SECRET}",
    f'[args]\napi-key = [\n"a",\n{SECRET}\n]',
    f'[args]\nx = {{"api_key": "{SECRET}"}}',
    f"[args]\nx = {{api_key = {SECRET}}}",
    f"[env]\nA = {TOKEN}",
    f"[env]\nA: {TOKEN}",
    f"[env]\n{TOKEN}",
    f"[env]\n{TOKEN} = 1\n{TOKEN} = 2",
    f"[env]\n[{TOKEN}]\n[{TOKEN}]",
    f'[env]\nA = "https://me:{TOKEN}@host"x',
    f"[vllm]\nport = x # HF_TOKEN={TOKEN}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_is_not_shown(text: str) -> None:
    message = told(text)
    assert SECRET not in message
    assert "correct horse" not in message
    assert TOKEN not in message


def test_a_secret_is_told_where_it_belongs() -> None:
    assert "secrets_file" in told(f"[env]\nexport HF_TOKEN={SECRET}")
    assert "secrets_file" in told(f"[env]\nHF_TOKEN={SECRET}")


@given(
    st.sampled_from(["HF_TOKEN", "API_KEY", "MYSQL_PWD", "api-key", "DB_PASSWORD"]),
    st.sampled_from(["{}={}", "{}: {}", "export {}={}", "{} = '{}", '{} = "{}', "{} == {}", "{} {}",
                     "{} = [{}", "{} = {{a = {}", '{} = "x" {}', "x = {{ {} = {}", '"{}": "{}"']),
    st.text(st.sampled_from("QZJX%&!~"), min_size=6, max_size=12),
)  # fmt: skip
def test_nothing_behind_the_name_of_a_secret_is_shown(name: str, form: str, value: str) -> None:
    assert value not in told(f"[env]\n{form.format(name, value)}\n")


WORDS = [
    "[vllm]",
    "[[golden]]",
    "[env]",
    "port",
    "a.b",
    "=",
    ":",
    " ",
    "\n",
    "\r\n",
    '"',
    "'",
    '"""',
    "'''",
    "[",
    "]",
    "{",
    "}",
    "#",
    "True",
    "10min",
    "1",
    ",",
    "\\",
    "export ",
    "\u201c",
    "\x00",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=30).map("".join)))
@example('a = "x')
@example("\n\n'")
@example("x = [\n" * 500)
@example("a" * 5000 + " b")
def test_any_text_is_told_on_one_line_with_its_place(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        fault = syntax_fault(str(error), text)
        assert 1 <= fault.line <= text.count("\n") + 1
        assert fault.message.strip() == fault.message != ""
        assert "\n" not in fault.key + fault.message


def test_a_string_that_is_open_is_found_above_whatever_it_swallows() -> None:
    more = "a = 1\n" * 20
    assert told(f"name = 'x\n{more}").startswith("1: name: the string 'x is never closed")
    for mark in ('"""', "'''"):
        assert told(f"name = {mark}x\n{more}").startswith("1: name: the text that begins with")


def test_a_string_that_is_closed_is_not_taken_for_the_open_one() -> None:
    assert told('name = """x"""\nuser = "y').startswith('2: user: the string "y is never closed')


def test_words_of_a_parser_that_nobody_knows_are_kept() -> None:
    assert syntax_fault("Something new", "a").message == "TOML syntax: Something new"


def test_the_file_and_the_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("schema = 1\n[vllm]\nport: 8100\n")
    (problem,) = check(file, tmp_path).problems
    assert problem.key == "vllm.port"
    assert format_problem(problem).startswith(f"{file}:3: vllm.port: TOML joins")
