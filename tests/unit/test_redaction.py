"""Whatever writing a secret comes in, it does not come through; everything else does."""

from __future__ import annotations

import base64
import html
import json
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kimisvc.redaction import HEAD, SHORTEST, Redactor, without_shapes

if TYPE_CHECKING:
    from collections.abc import Callable

ODD = "pa$$ w'ord\"%20\\n&<é=/+"
KEY = "q8Zr-planted-key-5f2cT1"
REDACT = Redactor.of({"VLLM_API_KEY": KEY, "PASSWORD": ODD, "SHORT": "abc"})
SECRETS = st.text(
    st.characters(exclude_categories=("Cc", "Cs")), min_size=SHORTEST, max_size=40
).filter(lambda text: len(text.strip()) >= SHORTEST and len(set(text)) > 3)

WRITINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "repr": repr,
    "ascii": ascii,
    "bytes": lambda s: repr(s.encode()),
    "JSON": json.dumps,
    "JSON in UTF-8": lambda s: json.dumps(s, ensure_ascii=False),
    "URL": quote,
    "URL, all": lambda s: quote(s, safe=""),
    "form": quote_plus,
    "shell": shlex.quote,
    "HTML": html.escape,
    "unit": lambda s: s.replace("%", "%%"),
    "ExecStart": lambda s: s.replace("$", "$$"),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64, with user": lambda s: base64.b64encode(b"u:" + s.encode()).decode(),
    "base64, among others": lambda s: base64.b64encode(b"a" + s.encode() + b"zz").decode(),
    "URL base64": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
}


@pytest.mark.parametrize("write", WRITINGS.values(), ids=WRITINGS)
@pytest.mark.parametrize("secret", [KEY, ODD], ids=["key", "odd"])
def test_a_known_secret_is_found_in_every_writing(write: Callable[[str], str], secret: str) -> None:
    written = write(secret)
    shown = REDACT(f"INFO args: x={written}; ready")
    assert "[redacted" in shown
    assert shown.startswith("INFO args: x=")
    assert written.strip("'\"=")[3:-3] not in shown
    assert secret not in shown


@given(SECRETS, st.sampled_from(sorted(WRITINGS)), st.text(max_size=20), st.text(max_size=20))
@example("aaaa\\'b\"", "repr", "", "")
def test_no_secret_comes_through(secret: str, writing: str, before: str, after: str) -> None:
    written = WRITINGS[writing](secret)
    shown = Redactor.of({"N": secret})(f"{before} {written} {after}")
    assert secret not in shown.replace("[redacted: N]", "").replace("[redacted]", "")


@given(st.text(), st.dictionaries(st.sampled_from(["A_TOKEN", "B"]), SECRETS))
@example("api_key='x' --api-key=y Bearer abcdefgh12345 hf_aaaaaaaaaaaaaaaaaaaa", {})
@example("Authorization: Bearer [redacted: A_TOKEN]", {"B": "redacted"})
def test_twice_is_once(text: str, secrets: dict[str, str]) -> None:
    redact = Redactor.of(secrets)
    once = redact(text)
    if not any(value in "[redacted: A_TOKEN][redacted: B]" for value in secrets.values()):
        assert redact(once) == once


@pytest.mark.parametrize("cut", range(HEAD, len(KEY)))
def test_a_secret_that_was_cut_off_is_known_by_its_beginning(cut: int) -> None:
    assert REDACT(f"HTTP status 500: {KEY[:cut]}; again") == (
        "HTTP status 500: [redacted: VLLM_API_KEY]; again"
    )


def test_a_secret_within_another_leaves_nothing_of_it() -> None:
    redact = Redactor.of({"A": "abcdefgh", "B": "abcdefghijkl"})
    assert redact("x abcdefghijkl y abcdefgh z") == "x [redacted: B] y [redacted: A] z"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key='whatever1'", "api_key=[redacted]"),
        ("{'api_key': ['one', 'two'], 'port': 1}", "{'api_key': [redacted], 'port': 1}"),
        ('{"hf_token": "x1y2"}', '{"hf_token": [redacted]}'),
        ("VLLM_API_KEY=s3cret and", "VLLM_API_KEY=[redacted] and"),
        ("Authorization: Bearer abc123", "Authorization: [redacted]"),
        ("vllm serve m --api-key s3cret --port 1", "vllm serve m --api-key [redacted] --port 1"),
        ("'--api-key', 's3cret', '--port'", "'--api-key', '[redacted]', '--port'"),
        ("proxy http://bob:s3cret@proxy:1", "proxy http://bob:[redacted]@proxy:1"),
        ("key sk-abcdefgh12345678 is wrong", "key [redacted] is wrong"),
        ("password: hunter2, next", "password: [redacted], next"),
        ("--ssl-keyfile-password hunter2pw", "--ssl-keyfile-password [redacted]"),
        ("--redis-password hunter2pw --port 1", "--redis-password [redacted] --port 1"),
        ("--redis_password=hunter2pw", "--redis_password=[redacted]"),
        ("--password hunter2pw", "--password [redacted]"),
        ("--api_key hunter2pw", "--api_key [redacted]"),
        ("--hf_token abcdef99 x", "--hf_token [redacted] x"),
        ("--API-KEY\thunter2pw", "--API-KEY\t[redacted]"),
        ("--api-key k1 k2 k3 --port 1\nnext", "--api-key [redacted] --port 1\nnext"),
        ("['--api-key', 'k1', 'k2', '--port']", "['--api-key', '[redacted]', '--port']"),
        ("--api-key [redacted: X] k2 -tp 8", "--api-key [redacted] -tp 8"),
        ("--api-key [redacted: X] -tp 8", "--api-key [redacted: X] -tp 8"),
        ("api_key=['[redacted: X]', 'k2']", "api_key=[redacted]"),
        ("Server=db;Password=hunter2;Port=1", "Server=db;Password=[redacted];Port=1"),
        ("Uid=sa; Pwd=hunter2", "Uid=sa; Pwd=[redacted]"),
        ("AccountName=a;AccountKey=aGFs==;", "AccountName=a;AccountKey=[redacted];"),
        ("-H 'X-Api-Key: hunter2'", "-H 'X-Api-Key: [redacted]'"),
        ("X-Vault-Token: s.hunter", "X-Vault-Token: [redacted]"),
        ("PGPASSWORD=hunter2 vllm", "PGPASSWORD=[redacted] vllm"),
        ("curl -u bob:hunter2 https://h", "curl -u bob:[redacted] https://h"),
        ("NCCL_PSK=hunter2", "NCCL_PSK=[redacted]"),
        ("Authorization: Token 9944b09199c6 x", "Authorization: [redacted] x"),
        ("Authorization=Api-Token dt0c01.ST2E; x", "Authorization=[redacted]; x"),
        ("'Authorization: ApiKey VnVhQ2ZH=='", "'Authorization: [redacted]'"),
        ('Authorization: Digest username="m", response="66f9"', "Authorization: [redacted]"),
        ("Driver=x;PWD={correct horse};A=1", "Driver=x;PWD=[redacted];A=1"),
        ("password = hunter2 dbname=x", "password = [redacted] dbname=x"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_though_nobody_named_it(text: str, shown: str) -> None:
    assert without_shapes(text) == shown
    assert Redactor()(text) == shown
    assert Redactor()(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "(APIServer pid=7) INFO 11-30 08:42:31 [api_server.py:1] api_key=None, hf_token: None",
        "RuntimeError: CUDA error: out of memory; token budget 8192, max_num_batched_tokens=8192",
        "unexpected token: '}' at line 3", "eos_token='</s>' pad_token=None tokenizer=kimi",
        "Write VLLM_API_KEY=... into the file; HF_TOKEN = ... too",
        "Loading safetensors checkpoint shards: 48% Completed | 31/64", "http://127.0.0.1:8000/v1",
        "KeyError: 'model.layers.0.mlp.gate.e_score_correction_bias'", "",
        "ValueError: load_format hf_transfer is not one of auto, safetensors",
        "docker run --user 1000:1000 image", "--max-num-batched-tokens 8192 --tokenizer x",
        "--api-key=None --hf-token None",
    ],
)  # fmt: skip
def test_what_is_none_stays_as_it_is(text: str) -> None:
    assert REDACT(text) == text


def test_a_command_line_loses_the_word_behind_an_option() -> None:
    argv = [
        "vllm",
        "serve",
        "m",
        "--api-key",
        "x",
        "--port",
        "1",
        "--hf-token=y",
        "--password",
        KEY,
    ]
    assert REDACT.words(argv) == (
        "vllm", "serve", "m", "--api-key", "[redacted]", "--port", "1", "--hf-token=[redacted]",
        "--password", "[redacted]",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["--api-key", "--api_key", "-api-key", "--redis-password"])
def test_a_command_line_loses_all_words_behind_it(name: str) -> None:
    argv = ["vllm", name, "first1111", "second2222", "--port", "1"]
    assert REDACT.words(argv) == ("vllm", name, "[redacted]", "[redacted]", "--port", "1")


def test_the_redactor_shows_no_secret_itself() -> None:
    assert repr(REDACT) == "Redactor(PASSWORD, VLLM_API_KEY)" or KEY not in repr(REDACT)
    assert ODD not in repr(REDACT)


def test_a_short_value_is_not_sought_in_other_words() -> None:
    assert REDACT("abc alphabet abcdef") == "abc alphabet abcdef"


def test_a_long_line_takes_no_time() -> None:
    """A line of 60 kB of nothing but underscores and words: no pattern goes back over it."""
    for text in (
        "a_" * 30_000,
        "api_key" * 9_000,
        "://a:" * 12_000,
        "sk-" * 20_000,
        "Bearer " * 9_000,
        "--api-key " * 6_000,
        "--api-key" + " k" * 30_000,
        "--a-" * 15_000,
        "-u " + "a:" * 30_000,
        "x-a-" * 15_000,
        "authorization: a " * 5_000,
        "authorization: a " + "b" * 60_000,
        "authorization: a bbbbbbb1" + ", a=b" * 12_000,
        "password={" * 6_000,
        "api_key=['[redacted" * 3_000,
    ):
        assert REDACT(text) is not None
