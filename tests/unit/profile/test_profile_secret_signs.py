"""Secrets are known where they stand, and what only sounds like one is let pass."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimisvc.profile.secret_looks import looks_random
from kimisvc.profile.secret_signs import (
    looks_secret,
    name_says,
    names_a_secret,
    secret_in,
    secrets_held,
    secrets_in_comments,
    secrets_named,
)

RANDOM = "Zk3fQ9xv7LmT2pWb8sHd"
TOKENS = {
    "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3h": "a Hugging Face token",
    "api_org_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3h": "a Hugging Face token",
    "sk-" + RANDOM: "an API key",
    "sk-proj-" + RANDOM: "an API key",
    "sk-ant-api03-" + RANDOM: "an API key",
    "sk_live_" + RANDOM: "an API key",
    "nvapi-" + RANDOM: "an NVIDIA API key",
    "ghp_" + RANDOM: "a GitHub token",
    "github_pat_" + RANDOM: "a GitHub token",
    "glpat-" + RANDOM: "a GitLab token",
    "xoxb-" + RANDOM: "a Slack token",
    "AKIA" + "Q3EGRZ7XK2MNPLWB": "an AWS access key",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv": "a Google API key",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln": "a JSON web token",
    "-----BEGIN RSA PRIVATE KEY-----": "a private key",
    "Bearer " + RANDOM: "an Authorization header",
    "Basic dXNlcjpwYXNzd29yZA==": "an Authorization header",
    "https://user:pass@proxy:3128": "a URL with a password",
    "redis://:pass@cache:6379": "a URL with a password",
    "https://a8F3kQ9zX7mW2pL5@hub.local/": "a URL with a token",
    "https://b.s3/x?X-Amz-Signature=0123456789abcdef&v=1": "a URL with a token",
    "https://hub/x?a=1&access_token=letmein-please": "a URL with a token",
}


@pytest.mark.parametrize(("token", "what"), TOKENS.items(), ids=TOKENS.values())
def test_a_token_is_known_by_its_looks_wherever_it_stands(token: str, what: str) -> None:
    for value in (
        token,
        f"use {token} here",
        ["a", token],
        {"b": {"c": [token]}},
        json.dumps({"headers": {"x": token}}),
        {token: 1},
    ):
        assert secret_in("anything", value) == what
        assert looks_secret(value)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "WANDB_API_KEY", "PGPASSWORD", "MY_SECRET",
        "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "S3_ACCESS_KEY_ID", "apiKey", "hf-token", "X-Api-Key",
        "client_secret", "GPG_PASSPHRASE", "TOKEN_2", "SECRET_B64", "SSH_PRIVATE_KEY", "accessToken",
        "Proxy-Authorization", "TOKEN", "APIKEY", "ENCRYPTION_KEY", "mysql_passwd", "NCCL_PSK", "REDIS_PASS",
        "MYSQL_PWD",
    ],
)  # fmt: skip
def test_a_name_that_only_secrets_have_makes_one_of_any_value(name: str) -> None:
    assert secret_in(name, "hunter2")
    assert secret_in("x", {name: "hunter2"})
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["key", "SERVICE_AUTH", "db_pass", "session", "mysql_pwd", "cookie", "OTLP_HEADERS"]
)
def test_a_name_that_others_have_too_makes_a_secret_of_what_looks_random(name: str) -> None:
    assert secret_in(name, RANDOM)
    assert not secret_in(name, "a plain word")
    assert not secret_in(name, "round_robin_balance")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH", "1"), ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5"),
        ("TOKENIZERS_PARALLELISM", "false"), ("max-num-batched-tokens", 8192),
        ("tokenizer", "moonshotai/Kimi-K2"),
        ("NCCL_P2P_LEVEL", "SYS"), ("HF_TOKEN_PATH", "/etc/hf"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("HF_HUB_ENABLE_HF_TRANSFER", "1"), ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp/key.json"),
        ("SSH_AUTH_SOCK", "/run/ssh.sock"), ("eos_token", "</s>"), ("PWD", "/srv/models/x9/z8/y7q6"),
        ("load-format", "hf_transfer"), ("x", "hf_overrides"), ("PUBLIC_KEY", "c2hvd24gdG8gYWxsMTIz"),
        ("SSL_KEY_FILE", "/etc/ssl/key.pem"), ("chat-template", "sk-learn"), ("y", "https://hub:8443/a"),
        ("compilation-config", {"cache_key": "x9f8e7d6c5b4a3f2e1d0"}), ("REQUIRE_AUTH", "true"),
        ("description", "a Bearer token is asked for by every client of the company"),
        ("HF_TOKEN", ""), ("HF_ENDPOINT", "https://mirror@hub.local/a?page=12345678&sort=key"),
        ("hf-overrides", {"boi_token": "<start_of_image>", "text_config": {"fim_token": "<fim>"}}),
        ("hf-overrides", '{"boi_token": "<start_of_image>"}'),
        ("model", "/srv/models/Kimi-K2.5-INT4"),
        ("digest", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c"),
    ],
)  # fmt: skip
def test_what_only_sounds_like_a_secret_is_let_pass(name: str, value: object) -> None:
    assert secret_in(name, value) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Server=db;Password=hunter;", "Server=db;Uid=sa;Pwd=hunter", "X-Api-Key: hunter2", "{password:x}",
        "DefaultEndpointsProtocol=https;AccountKey=aGFs==;", "SharedAccessKey=aGFs=", "PGPASSWORD=hunter",
        "redis://cache?password=short", "/x --redis-password hunter", "serve m --api_key k1 k2 --port 1",
        "-u bob:hunter2", "--user bob:hunter2 https://hub", "authorization=Basic%20dXNlcg==",
        "{user: a, password: hunter, host: b}", "X-Vault-Token: s.hunter", "X-Auth-Token: hunter",
        "Authorization: Token 9944b09199c62bcf9418ad846dd0e4bb and so on", "Authorization: Token PLANTabc",
        "Authorization: ApiKey VnVhQ2ZHY0JDZGJrUW0=", "Authorization=Api-Token dt0c01.HUNTER",
        "Authorization: Splunk 12345678-1234-1234-1234-1234567890AB", "Authorization: Acme hunter2hunter2",
        'Authorization: Digest username="m", response="6629fae49393a053"', "Authorization: Basic hunter22",
        "host=db user=k password = hunter dbname=x", 'Server=db; Password = "correct horse battery"',
        "password: 'correct horse battery'", "Driver=x;PWD={correct horse};", "--db-password hunter /x",
        "password=${PASSWORD:-hunter2}", "--api-key $KEY hunter2", "api-key = ['$KEY', 'hunter2']",
        "Private-Token: hunter2", "{'api_key': 'hunter'}", "dbPassword=hunter", "SecretAccessKey: hunter2",
    ],
)  # fmt: skip
def test_a_secret_behind_its_name_is_one_within_a_text_too(text: str) -> None:
    for value in (text, ["a", text], {"b": text}, json.dumps({"b": text})):
        assert secret_in("anything", value) == "a key or password behind its name"
    assert secrets_named({"DSN": text})
    assert list(secrets_in_comments(f"a = 1  # {text}"))


@pytest.mark.parametrize(
    "text",
    [
        "password: ask the team of the box", "use --api-key to have clients ask with a key",
        "Password=/run/secrets/db;Server=x", "api_key=${API_KEY}", "api_key = <yours>", "psk=off",
        "--user 1000:1000", "--user vllm:docker", "-u nobody:nogroup", "python -u app:main",
        "authorization", "--max-num-batched-tokens 8192", "eos_token=</s> pad_token_id=2", "KEY=value",
        "PWD=/srv/x", "num_speculative_tokens: 3", '{"properties": {"password": {"type": "string"}}}',
        "Authorization: done by the Authentication-Service", "Authorization: Bearer tokens of clients",
        "HF_TOKEN = see the secrets file", "--hf-token is for those who load from a hub",
        '{"hf_token": null}', '{"boi_token": "<x>"}', "passwords are kept elsewhere", "cache_key=abc",
    ],
)  # fmt: skip
def test_a_text_that_only_speaks_of_secrets_is_let_pass(text: str) -> None:
    assert secret_in("anything", text) == ""


@pytest.mark.parametrize(
    "text",
    [
        'OpenAI(base_url="http://h:8000/v1", api_key="EMPTY")', "password=${DB_PASSWORD}",
        "Password=/run/secrets/db", "HF_TOKEN=<your token>", 'HF_TOKEN="<your token>"', "HF_TOKEN=hf_...",
        "HF_TOKEN=hf_xxxxxxxxxxxxxxxxxxxxxxxx", "NVIDIA_API_KEY=nvapi-xxxxxxxxxxxxxxxxxxxx",
        '--api-key "$(cat /etc/kimisvc/key)"', "--api-key $(cat /etc/kimisvc/key) --port 1",
        "export HF_TOKEN=$(cat /etc/kimisvc/key)", "HF_TOKEN=`cat /etc/key`", "--api-key $A $B",
        "Authorization: Bearer YOUR_API_KEY", "Authorization: Bearer $VLLM_API_KEY",
        'api_key = os.environ["VLLM_API_KEY"]', "api_key=os.environ[KEY]", 'api-key = ["$A", "$B"]',
        "DB_PASSWORD={{ vault.db }}", "api_key=dummy", "password: changeme", "VLLM_API_KEY=%KEY%",
        "https://user:${PASSWORD}@proxy:1", "https://<user>:<password>@proxy:1", "https://u:xxxx@proxy",
        "https://hub/x?access_token=YOUR_ACCESS_TOKEN", "password=${PASSWORD:?not set}",
    ],
)  # fmt: skip
def test_what_stands_for_a_secret_is_none_in_a_value_and_in_a_comment(text: str) -> None:
    assert secret_in("anything", text) == ""
    assert list(secrets_in_comments(f"# {text}")) == []


@pytest.mark.parametrize("number", [2**63, 10**4300, -(16**9000)], ids=["a", "b", "c"])
def test_a_number_without_end_is_looked_at_as_any_other(number: int) -> None:
    for value in (number, [number], {"a": {"b": number}}):
        assert not secret_in("port", value)
    assert secret_in("hf_token", number) == "by its name"
    assert secret_in("x", {"hf_token": number}) == "the value of hf_token"


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_the_words_never_hold_the_value(value: object) -> None:
    what = secret_in("HF_TOKEN", {"token": f"value-{RANDOM}", "more": value})
    assert RANDOM not in what


@pytest.mark.parametrize(
    ("key", "value"),
    [("boi_token", RANDOM), ("boi_token", "hf_" + RANDOM), ("access_token", "x1"), ("token", "x1")],
)
def test_a_token_in_a_table_is_a_persons_by_its_looks_or_its_name(key: str, value: str) -> None:
    assert secret_in("kv-transfer-config", {"extra": {key: value}})


def test_a_value_without_end_is_no_trap() -> None:
    deep: object = "hf_" + RANDOM
    for _ in range(60):
        deep = [deep]
    assert secret_in("x", deep) == ""  # such a value is refused for its depth
    assert secret_in("x", "[" * 100_000) == ""


def test_words_are_not_random_and_keys_are() -> None:
    assert not looks_random("the-quick-brown-fox-jumps")
    assert not looks_random("aaaaaaaaaaaaaaaa1111")
    assert looks_random(RANDOM)
    assert looks_random("9f86d081884c7d65")


def test_a_comment_is_searched_too() -> None:
    text = f'a = 1 # once {RANDOM}\nb = "x" # sk-{RANDOM}\n# https://u:p@h\n'
    assert list(secrets_in_comments(text)) == [(2, "an API key"), (3, "a URL with a password")]


def test_a_secrets_file_holds_secrets_but_for_what_tunes() -> None:
    held = {"VLLM_API_KEY": "k1", "ODD": "anything", "NCCL_DEBUG": "INFO", "HF_HOME": "/srv/hf"}
    assert secrets_held(held) == {"VLLM_API_KEY": "k1", "ODD": "anything"}
    assert secrets_held({"PATH": "/usr/bin", "INVOCATION_ID": "0" * 32}) == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('# VLLM_API_KEY = "correct-horse-battery"', "by its name"),
        ("#HF_TOKEN=letmein", "by its name"),
        ("# export OPENAI_API_KEY=a8F3kQ9zX7mW2pL5", "by its name"),
        ("# password = correct", "by its name"),
        ("port = 8000  # api-key = hunter2", "by its name"),
        ("# tensor-parallel-size = 8", ""),
        ("# a token here, a key there = nothing", ""),
        ("# NCCL_PROTO = LL", ""),
        ("# HF_TOKEN: set in the secrets file", ""),
        ("# HF_TOKEN = see secrets_file", ""),
        ("# secrets: see /etc/kimisvc/kimi.env", ""),
        ("# token: 81.4 a second", ""),
        ("# Authorization: done by nginx", ""),
        ("# api_key: a8F3kQ9zX7mW2pL5 is the old one", "by its name"),
    ],
)
def test_a_secret_that_was_put_into_a_comment_is_one_still(line: str, what: str) -> None:
    assert list(secrets_in_comments(line)) == ([(1, what)] if what else [])


def test_the_password_within_a_url_is_a_secret_of_its_own() -> None:
    held = secrets_held({"HTTPS_PROXY": "http://user:p%40ss-word@proxy:1"})
    assert set(held.values()) == {"http://user:p%40ss-word@proxy:1", "p%40ss-word", "p@ss-word"}


def test_of_an_operators_environment_only_what_is_sure_counts() -> None:
    environment = {"VLLM_API_KEY": "k1", "ODD": "anything", "URL": "http://u:p@h", "LANG": "C"}
    assert set(secrets_named(environment)) >= {"VLLM_API_KEY", "URL"}
    assert "ODD" not in secrets_named(environment)


def test_a_name_says_nothing_where_it_is_none() -> None:
    for name in ("", "_", "9", "\n"):
        assert name_says(name).value == "plain"
