"""The resolved form of a profile, and what two profiles do not have in common."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loading import load

from kimisvc.errors import ProfileRefusedError
from kimisvc.profile.differences import differences
from kimisvc.profile.loader import check, restore
from kimisvc.profile.options import OWNED_OPTIONS, OWNED_VARIABLES
from kimisvc.profile.resolved import digest, to_toml
from kimisvc.profile.secret_signs import looks_secret, names_a_secret
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    HardwareSettings,
    Link,
    OnFail,
    ProbeSettings,
    Profile,
    Risk,
    ServiceSettings,
    SpeedTarget,
    VllmSettings,
    Where,
)

SHIPPED = Path(__file__).parents[3] / "profiles"
PLAIN = Profile("plain", VllmSettings("/opt/vllm/bin/vllm", "/srv/models/m"))

TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp"]), min_size=1, max_size=20
).filter(lambda text: bool(text.strip()) and not looks_secret(text))
PATHS = TEXT.map(lambda text: f"/{text}")


def seconds(low: float, high: float) -> st.SearchStrategy[float]:
    return st.integers(round(low * 1e6), round(high * 1e6)).map(lambda us: us / 1e6)


def names(alphabet: str, first: str) -> st.SearchStrategy[str]:
    rest = st.text(st.sampled_from(alphabet), max_size=12)
    return st.tuples(st.sampled_from(first), rest).map("".join)


OPTIONS = names(string.ascii_lowercase + "-", string.ascii_lowercase).filter(
    lambda name: (
        name not in OWNED_OPTIONS and not name.startswith("no-") and name != "max-model-len"
    )
)
VARIABLES = names(string.ascii_uppercase + "_0123456789", string.ascii_uppercase).filter(
    lambda name: name not in OWNED_VARIABLES and not names_a_secret(name)
)
SCALARS = (
    st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.just("")
)
ARG_VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT | st.just(""), inner, max_size=3)
    ),
    max_leaves=6,
)
INSTANCES = names(string.ascii_lowercase + "0123456789_-", string.ascii_lowercase).filter(
    lambda name: name != "exporter" and not name.endswith(("-gate", "-rollback", "-canary"))
)
PROFILES = st.builds(
    Profile,
    name=names(string.ascii_letters + "0123456789._-", string.ascii_letters),
    vllm=st.builds(
        VllmSettings,
        executable=PATHS,
        model=PATHS | st.just("org/name"),
        host=st.sampled_from(["127.0.0.1", "0.0.0.0", "::1", "box-1.example"]),
        port=st.integers(1, 65535),
        served_model_name=TEXT | st.just(""),
        min_version=st.sampled_from(["", "0.19.1"]),
    ),
    description=TEXT | st.just(""),
    max_risk=st.sampled_from(Risk),
    allow_risky=st.lists(TEXT, max_size=3).map(tuple),
    service=st.builds(
        ServiceSettings,
        instance=INSTANCES,
        user=st.sampled_from(["", "vllm"]),
        load_timeout=seconds(1, 86400),
        starts=st.integers(1, 20),
        restart_delay=seconds(0, 3600),
        stop_timeout=seconds(1, 3600),
        on_fail=st.sampled_from(OnFail),
        secrets_file=PATHS | st.just(""),
        working_directory=PATHS | st.just(""),
        memory_max=st.integers(0, 2**50),
        limit_nofile=st.integers(1024, 2**30),
        cpu_quota_percent=st.integers(0, 10000),
    ),
    args=st.dictionaries(OPTIONS, ARG_VALUES, max_size=4),
    env=st.dictionaries(VARIABLES, TEXT | st.just(""), max_size=4),
    hardware=st.builds(
        HardwareSettings,
        gpus=st.integers(0, 1024),
        memory_gib=st.floats(0, 65536),
        link=st.sampled_from(Link),
        shm_gib=st.floats(0, 65536),
        ram_gib=st.floats(0, 65536),
    ),
    probe=st.builds(
        ProbeSettings,
        max_tokens=st.integers(2, 131072),
        prompt_tokens=st.integers(1, 1000),
        warmup=st.integers(0, 100),
        min_runs=st.integers(2, 10),
        max_runs=st.integers(10, 1000),
        precision=st.floats(0.0001, 0.5),
        timeout=seconds(1, 3600),
    ),
    gate=st.builds(
        GateSettings,
        decode_tok_s=st.none()
        | st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 1e6)).map(
            lambda pair: SpeedTarget(min(pair), max(pair))
        ),
        max_ttft=st.none() | seconds(0.001, 3600),
        require_reasoning=st.booleans(),
    )
    | st.builds(
        GateSettings,
        throughput_tok_s=st.floats(0.01, 1e5),
        throughput_concurrency=st.integers(2, 512),
    ),
    golden=st.lists(
        st.builds(
            GoldenQuestion,
            prompt=TEXT,
            expect=TEXT.filter(lambda text: not text.startswith("/")) | st.just("/[Pp]aris/"),
            where=st.sampled_from(Where),
            max_tokens=st.integers(1, 131072),
        ),
        max_size=3,
    ).map(tuple),
    canary=st.none()
    | st.builds(CanarySettings, every=seconds(10, 604800), max_tokens=st.integers(2, 131072)),
)


@given(PROFILES)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_every_profile_is_read_back_from_its_resolved_form(
    tmp_path: Path, profile: Profile
) -> None:
    file = tmp_path / "resolved.toml"
    file.write_text(to_toml(profile))
    assert restore(file) == profile
    assert to_toml(restore(file)) == file.read_text()


def test_what_is_refused_later_is_still_restored(tmp_path: Path) -> None:
    """A newer kimisvc may see a secret, a typo or a contradiction where this one saw none."""
    file = tmp_path / "resolved.toml"
    profile = load(SHIPPED / "baseline.toml", SHIPPED)
    args = {**profile.args, "hf-overrides": {"boi_token": "x9f8e7d6c5b4"}, "tp": 8}
    odd = replace(
        profile,
        args=args,
        env={**profile.env, "VLLM_API_KEY": "x"},
        description="hf_pLantedTokenAbCdEfGh12345678 \u202e",
        vllm=replace(profile.vllm, model="no such form of a model"),
    )
    file.write_text(to_toml(odd))
    assert check(file, tmp_path).profile is None
    assert restore(file) == odd


@pytest.mark.parametrize("damage", ["", "schema = 1\n[vllm\n", 'schema = 1\n[vllm]\nport = "x"\n'])
def test_a_damaged_resolved_form_is_told(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "resolved.toml"
    file.write_text(damage)
    with pytest.raises(ProfileRefusedError):
        restore(file)


@pytest.mark.parametrize("name", ["cpu_smollm2", "baseline", "ll_ring"])
def test_a_shipped_profile_is_read_back_from_its_resolved_form(tmp_path: Path, name: str) -> None:
    profile = load(SHIPPED / f"{name}.toml", SHIPPED)
    file = tmp_path / "other-name.toml"
    file.write_text(to_toml(profile))
    assert load(file, tmp_path) == profile


def test_the_resolved_form_is_flat_and_complete() -> None:
    profile = replace(
        PLAIN,
        args={"z": (1, "two"), "a.b": {"k": 0.5}},
        env={"B": "2", "A": "1"},
        gate=GateSettings(SpeedTarget(40, 50), 1.5),
        golden=(GoldenQuestion('say "hi"', "hi\\"),),
        canary=CanarySettings(600),
    )
    assert to_toml(profile) == (Path(__file__).parent / "resolved.expected.toml").read_text()


def test_the_digest_is_the_same_for_equal_profiles_and_another_for_others() -> None:
    one = replace(PLAIN, env={"A": "1", "B": "2"}, args={"x": 1, "y": {"a": 1, "b": 2}})
    same = replace(PLAIN, env={"B": "2", "A": "1"}, args={"y": {"b": 2, "a": 1}, "x": 1})
    assert digest(one) == digest(same)
    assert len(digest(one)) == 64
    assert digest(one) != digest(replace(one, description="other"))


def test_differences_name_key_and_both_values_as_toml() -> None:
    other = replace(
        PLAIN,
        env={"NCCL_ALGO": "Ring"},
        service=replace(PLAIN.service, load_timeout=90.0),
        golden=(GoldenQuestion("p", "e"),),
    )
    assert differences(PLAIN, other) == (
        ("service.load_timeout", '"45min"', '"1min 30s"'),
        ("env.NCCL_ALGO", "", '"Ring"'),
        ("golden[0].prompt", "", '"p"'),
        ("golden[0].expect", "", '"e"'),
        ("golden[0].where", "", '"content"'),
        ("golden[0].max_tokens", "", "64"),
    )
    assert differences(PLAIN, PLAIN) == ()


def test_ll_ring_differs_from_its_baseline_in_five_variables_and_its_name() -> None:
    found = differences(
        load(SHIPPED / "baseline.toml", SHIPPED), load(SHIPPED / "ll_ring.toml", SHIPPED)
    )
    assert {key: new for key, _, new in found if key not in ("name", "description")} == {
        "env.NCCL_ALGO": '"Ring"',
        "env.NCCL_PROTO": '"LL"',
        "env.NCCL_MAX_NCHANNELS": '"16"',
        "env.NCCL_BUFFSIZE": '"16777216"',
        "env.CUDA_DEVICE_MAX_CONNECTIONS": '"1"',
    }
