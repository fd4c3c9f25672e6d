"""What every unit holds, whatever the profile."""

from __future__ import annotations

import stat
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from systemd_reading import assignments, command, environment, specifiers, words

from kimisvc.errors import KimisvcError
from kimisvc.records.profile import (
    CanarySettings,
    GateSettings,
    GoldenQuestion,
    OnFail,
    ProbeSettings,
    Profile,
    ServiceSettings,
    SpeedTarget,
    VllmSettings,
    Where,
)
from kimisvc.render.arguments import argv
from kimisvc.render.units import gate_settings, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimisvc.records.units import Installation

PLAIN = Profile("plain", VllmSettings("/opt/vllm/bin/vllm", "/srv/model"))
PRINTABLE = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="\u2028\u2029")
)

Templates = dict[str, str]
Asked = ProbeSettings | GateSettings | GoldenQuestion


class Unit:
    """One rendered unit, as systemd reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._found = assignments(text)

    def all(self, key: str, section: str = "Service") -> list[str]:
        return [value for where, name, value in self._found if (where, name) == (section, key)]

    def one(self, key: str, section: str = "Service") -> str:
        (value,) = self.all(key, section)
        return value

    def has(self, key: str, section: str = "Service") -> bool:
        return bool(self.all(key, section))

    @property
    def environment(self) -> dict[str, str]:
        sets = [environment(value) for value in self.all("Environment")]
        names = [name for each in sets for name in each]
        assert len(names) == len(set(names)), "a variable is written twice"
        return {name: value for each in sets for name, value in each.items()}


def units(profile: Profile, templates: Templates, place: Installation) -> dict[str, Unit]:
    return {unit.name: Unit(unit.text) for unit in render(profile, templates, place)}


def service(profile: Profile, templates: Templates, place: Installation) -> Unit:
    return units(profile, templates, place)[f"kimisvc-{profile.service.instance}.service"]


# ------------------------------------------------------------------------ the whole


def test_an_instance_has_three_units_and_the_target(
    templates: Templates, place: Installation
) -> None:
    profile = replace(PLAIN, service=ServiceSettings(instance="a-1"))
    assert [unit.name for unit in render(profile, templates, place)] == [
        "kimisvc-a-1.service", "kimisvc-a-1-gate.service", "kimisvc-a-1-rollback.service",
        "kimisvc.target",
    ]  # fmt: skip


def test_a_canary_adds_a_service_and_its_timer_and_changes_no_other_unit(
    templates: Templates, place: Installation
) -> None:
    plain = render(PLAIN, templates, place)
    canary = render(replace(PLAIN, canary=CanarySettings(600.0)), templates, place)
    assert canary[: len(plain)] == plain
    assert [unit.name for unit in canary[len(plain) :]] == [
        "kimisvc-kimi-canary.service", "kimisvc-kimi-canary.timer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("every", "written", "spread"),
    [(10, "10s", "1s"), (90.5, "1min 30s 500ms", "9s 50ms"), (600, "10min", "30s"),
     (7 * 86400, "168h", "30s")],
)  # fmt: skip
def test_a_timer_waits_as_long_as_the_profile_says(
    templates: Templates, place: Installation, every: float, written: str, spread: str
) -> None:
    profile = replace(PLAIN, canary=CanarySettings(every))
    timer = units(profile, templates, place)["kimisvc-kimi-canary.timer"]
    assert timer.one("OnActiveSec", "Timer") == written
    assert timer.one("OnUnitActiveSec", "Timer") == written
    assert timer.one("RandomizedDelaySec", "Timer") == spread
    assert timer.one("AccuracySec", "Timer") == "1s"
    assert timer.one("WantedBy", "Install") == "kimisvc-kimi.service"


def test_neither_canary_nor_timer_can_start_the_service_or_call_a_rollback(
    templates: Templates, place: Installation
) -> None:
    """Requires= and BindsTo= ask for a start of what they name; Requisite= only looks."""
    found = units(replace(PLAIN, canary=CanarySettings(600.0)), templates, place)
    for name in ("kimisvc-kimi-canary.service", "kimisvc-kimi-canary.timer"):
        for key in ("Requisite", "PartOf", "After"):
            assert found[name].one(key, "Unit") == "kimisvc-kimi.service", (name, key)
        for key in ("Requires", "BindsTo", "Wants", "Upholds", "OnFailure"):
            assert not found[name].has(key, "Unit"), (name, key)


def test_the_canary_is_unprivileged_as_the_gate_is(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    found = units(everything, templates, place)
    gate, canary = found["kimisvc-box-2-gate.service"], found["kimisvc-box-2-canary.service"]
    gate_text, canary_text = (u.text.split("# Hardening.")[1] for u in (gate, canary))
    assert canary_text == gate_text
    assert canary.one("User") == gate.one("User") == place.user
    assert not canary.has("SupplementaryGroups")
    assert canary.one("RuntimeDirectory") == "kimisvc/box-2/canary"
    assert canary.one("EnvironmentFile") == gate.one("EnvironmentFile")
    kept = "+/usr/bin/kimisvc settle --of canary --instance box-2"
    assert canary.one("ExecStopPost") == kept


def test_the_target_is_the_same_for_every_instance(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    texts = {units(p, templates, place)["kimisvc.target"].text for p in (PLAIN, everything)}
    assert len(texts) == 1
    assert Unit(texts.pop()).one("WantedBy", "Install") == "multi-user.target"


def test_every_unit_says_who_made_it_and_where_edits_belong(
    templates: Templates, place: Installation
) -> None:
    for name, unit in units(PLAIN, templates, place).items():
        head = unit.text.split("[Unit]")[0]
        assert "Made by kimisvc" in head, name
        assert "Do not edit" in head, name
        assert "drop-in" in head, name


def test_the_same_profile_gives_the_same_texts(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    assert render(everything, templates, place) == render(everything, templates, place)


def test_a_missing_template_value_is_an_error_and_not_an_empty_line(place: Installation) -> None:
    from jinja2 import UndefinedError

    from kimisvc.render import units as module

    names = (module.SERVICE, module.GATE, module.ROLLBACK, module.TARGET)
    with pytest.raises(UndefinedError, match="'nothing' is undefined"):
        render(PLAIN, dict.fromkeys(names, "User={{ nothing }}\n"), place)


# ---------------------------------------------------------------------- the service


def test_every_value_of_a_profile_reaches_vllm(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    unit = service(everything, templates, place)
    assert command(unit.one("ExecStart")) == [everything.vllm.executable, *argv(everything)]
    assert dict(everything.env).items() <= unit.environment.items()
    assert specifiers(unit.one("EnvironmentFile")) == "/etc/kimisvc/secrets 50%"
    assert specifiers(unit.one("WorkingDirectory")) == "/srv/work here"
    assert (unit.one("User"), unit.has("DynamicUser")) == ("vllm", False)
    assert (unit.one("MemoryMax"), unit.one("CPUQuota")) == ("68719476736", "350%")
    assert (unit.one("LimitNOFILE"), unit.one("RestartSec")) == ("65536", "250ms")


def test_what_is_not_set_is_not_written(templates: Templates, place: Installation) -> None:
    unit = service(PLAIN, templates, place)
    for key in ("User", "MemoryMax", "CPUQuota", "EnvironmentFile", "WorkingDirectory"):
        assert not unit.has(key), key
    assert unit.one("DynamicUser") == "yes"
    assert not unit.has("ExecStartPre")


def test_env_keeps_its_order_after_what_kimisvc_sets_and_wins(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    variables = service(everything, templates, place).environment
    assert variables["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    assert list(variables)[-3:] == ["ZULU", "PASS_THROUGH", "ALPHA"]
    assert service(PLAIN, templates, place).environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@given(env=st.dictionaries(st.from_regex("[A-Z][A-Z0-9_]{0,9}", fullmatch=True), PRINTABLE))
def test_any_env_reaches_vllm_and_nothing_else_changes(
    templates: Templates, place: Installation, env: Mapping[str, str]
) -> None:
    unit = service(replace(PLAIN, env=env), templates, place)
    assert dict(env).items() <= unit.environment.items()
    plain = service(PLAIN, templates, place)
    without = [a for a in assignments(unit.text) if a[1] != "Environment"]
    assert without == [a for a in assignments(plain.text) if a[1] != "Environment"]


def test_the_program_finds_its_environment_and_its_caches(
    templates: Templates, place: Installation
) -> None:
    unit = service(PLAIN, templates, place)
    variables = unit.environment
    assert variables["PATH"].startswith("/opt/vllm/bin:/usr/local/cuda/bin:")
    assert unit.one("CacheDirectory") == "kimisvc/kimi"
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR",
                 "TORCHINDUCTOR_CACHE_DIR"):  # fmt: skip
        assert Path(variables[name]).is_relative_to("/var/cache/kimisvc/kimi"), name
    assert (variables["VLLM_NO_USAGE_STATS"], variables["DO_NOT_TRACK"]) == ("1", "1")


def test_case_1_a_dead_engine_is_started_again_whatever_its_status(
    templates: Templates, place: Installation
) -> None:
    unit = service(PLAIN, templates, place)
    assert unit.one("Restart") == "always"
    assert unit.one("RestartPreventExitStatus") == "2"
    assert unit.one("Type") == "exec"
    assert unit.one("KillMode") == "mixed"


def test_case_5_the_start_limit_stands_in_the_unit_section(
    templates: Templates, place: Installation
) -> None:
    for unit in units(PLAIN, templates, place).values():
        assert not unit.has("StartLimitIntervalSec")
        assert not unit.has("StartLimitBurst")
    unit = service(PLAIN, templates, place)
    assert unit.one("StartLimitIntervalSec", "Unit") == "1h 36min 30s"
    assert unit.one("StartLimitBurst", "Unit") == "2"


def test_every_waiting_unit_has_a_deadline(templates: Templates, place: Installation) -> None:
    for name, unit in units(PLAIN, templates, place).items():
        if name.endswith(".service"):
            assert unit.one("TimeoutStartSec") not in ("0", "infinity"), name


def test_gpus_stay_reachable(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    unit = service(everything, templates, place)
    for key in ("PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow",
                "MemoryDenyWriteExecute", "PrivateNetwork"):  # fmt: skip
        assert not unit.has(key), key
    assert unit.one("ExecStartPre") == "-+/usr/bin/nvidia-modprobe -u -c 0 -c 1"


def test_settle_reaches_the_gpus_for_their_clocks_and_the_gate_has_no_node_of_them(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    found = units(everything, templates, place)
    gate, canary = found["kimisvc-box-2-gate.service"], found["kimisvc-box-2-canary.service"]
    assert gate.one("DeviceAllow") == "char-nvidia* rw"
    assert gate.one("PrivateDevices") == "yes"  # a /dev of its own, for all but ExecStopPost=+
    assert gate.one("ExecStopPost").startswith("+")
    assert not canary.has("DeviceAllow")


def test_the_mounts_of_program_and_model_are_needed_but_not_those_of_a_hub_id(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    needed = words(service(everything, templates, place).one("RequiresMountsFor", "Unit"))
    assert [specifiers(word) for word in needed] == [
        "/opt/vllm 100%/bin/vllm", "/srv/models/K 2.5", "/srv/work here"
    ]  # fmt: skip
    hub = replace(PLAIN, vllm=VllmSettings("/opt/vllm/bin/vllm", "moonshotai/Kimi-K2.5"))
    assert service(hub, templates, place).one("RequiresMountsFor", "Unit") == "/opt/vllm/bin/vllm"


def test_a_folder_that_is_written_is_mounted_first_where_a_start_needs_it(
    templates: Templates, place: Installation
) -> None:
    env = {"VLLM_CACHE_ROOT": "/mnt/nvme/cache", "NCCL_DEBUG_FILE": "/mnt/logs/nccl"}
    unit = service(replace(PLAIN, env=env), templates, place)
    assert words(unit.one("RequiresMountsFor", "Unit"))[-1] == "/mnt/nvme/cache"
    assert words(unit.one("ReadWritePaths")) == ["-/mnt/logs", "/mnt/nvme/cache"]
    hub = replace(PLAIN, vllm=VllmSettings("/opt/vllm/bin/vllm", "moonshotai/Kimi-K2.5"))
    offline = {"HF_HOME": "/mnt/hub", "HF_HUB_OFFLINE": "1"}  # read, and not written
    unit = service(replace(hub, env=offline), templates, place)
    assert words(unit.one("RequiresMountsFor", "Unit")) == ["/opt/vllm/bin/vllm", "/mnt/hub"]


@pytest.mark.parametrize(
    "profile",
    [
        replace(PLAIN, env={"X": "a\nExecStartPre=/bin/touch /tmp/pwned"}),
        replace(PLAIN, args={"x": "a\nExecStartPre=/bin/touch /tmp/pwned"}),
        replace(PLAIN, name="a\n[Service]\nExecStartPre=/bin/touch /tmp/pwned"),
        replace(PLAIN, vllm=VllmSettings("/bin/a\nUser=root", "/m")),
        replace(PLAIN, vllm=VllmSettings("/bin/a", "/m\nUser=root")),
        replace(PLAIN, vllm=VllmSettings("vllm", "/m")),
        replace(PLAIN, service=ServiceSettings(secrets_file="/etc/a\nUser=root")),
        replace(PLAIN, service=ServiceSettings(secrets_file="etc/a")),
        replace(PLAIN, service=ServiceSettings(working_directory="/a\nUser=root")),
    ],
)
def test_case_18_nothing_can_be_slipped_into_a_unit(
    templates: Templates, place: Installation, profile: Profile
) -> None:
    with pytest.raises(KimisvcError):
        render(profile, templates, place)


# --------------------------------------------------------------- gate and rollback


def test_the_gate_follows_every_start_and_a_failed_one_calls_the_rollback(
    templates: Templates, place: Installation
) -> None:
    found = units(PLAIN, templates, place)
    main, gate = found["kimisvc-kimi.service"], found["kimisvc-kimi-gate.service"]
    assert "kimisvc-kimi-gate.service" in main.one("Wants", "Unit").split()
    for key in ("Requisite", "PartOf", "After"):
        assert gate.one(key, "Unit") == "kimisvc-kimi.service", key
    assert not gate.has("RemainAfterExit")
    for unit in (main, gate):
        assert unit.one("OnFailure", "Unit") == "kimisvc-kimi-rollback.service"
    assert command(gate.one("ExecStart")) == ["/usr/bin/kimisvc", "gate", "--instance", "kimi"]
    assert gate.one("ExecStopPost") == "+/usr/bin/kimisvc settle --instance kimi"
    assert gate.one("SuccessExitStatus") == "6 SIGTERM"


def test_the_gate_is_unprivileged_and_writes_one_folder(
    templates: Templates, place: Installation
) -> None:
    gate = units(PLAIN, templates, place)["kimisvc-kimi-gate.service"]
    assert (gate.one("User"), gate.one("SupplementaryGroups")) == ("kimisvc", "systemd-journal")
    assert (gate.one("ProtectSystem"), gate.one("CapabilityBoundingSet")) == ("strict", "")
    assert gate.one("RuntimeDirectory") == "kimisvc/kimi/gate"
    assert gate.one("RuntimeDirectoryPreserve") == "yes"
    assert not gate.has("ReadWritePaths")


def test_the_key_of_the_api_reaches_the_probe(
    templates: Templates, place: Installation, everything: Profile
) -> None:
    gate = units(everything, templates, place)["kimisvc-box-2-gate.service"]
    assert specifiers(gate.one("EnvironmentFile")) == "-/etc/kimisvc/secrets 50%"
    assert not units(PLAIN, templates, place)["kimisvc-kimi-gate.service"].has("EnvironmentFile")


def test_the_rollback_is_not_tied_to_what_it_restarts(
    templates: Templates, place: Installation
) -> None:
    rollback = units(PLAIN, templates, place)["kimisvc-kimi-rollback.service"]
    for key in (
        "BindsTo",
        "Requisite",
        "PartOf",
        "Requires",
        "After",
        "Before",
        "Conflicts",
        "Wants",
    ):
        assert not rollback.has(key, "Unit"), key
    assert rollback.one("StartLimitIntervalSec", "Unit") == "0"
    assert not rollback.has("User")


# -------------------------------------------------------------- the gate's settings

OTHER: list[Profile] = [
    replace(PLAIN, probe=replace(PLAIN.probe, max_tokens=257)),
    replace(PLAIN, probe=replace(PLAIN.probe, prompt_tokens=129)),
    replace(PLAIN, probe=replace(PLAIN.probe, warmup=2)),
    replace(PLAIN, probe=replace(PLAIN.probe, min_runs=4)),
    replace(PLAIN, probe=replace(PLAIN.probe, max_runs=11)),
    replace(PLAIN, probe=replace(PLAIN.probe, precision=0.03)),
    replace(PLAIN, probe=replace(PLAIN.probe, timeout=121)),
    replace(PLAIN, gate=GateSettings(SpeedTarget(40, 50))),
    replace(PLAIN, gate=GateSettings(SpeedTarget(40, 51))),
    replace(PLAIN, gate=GateSettings(SpeedTarget(41, 50))),
    replace(PLAIN, gate=GateSettings(max_ttft=1.0)),
    replace(PLAIN, gate=GateSettings(require_reasoning=True)),
    replace(PLAIN, gate=GateSettings(throughput_tok_s=900.0, throughput_concurrency=64)),
    replace(PLAIN, gate=GateSettings(throughput_tok_s=900.0, throughput_concurrency=65)),
    replace(PLAIN, gate=GateSettings(throughput_tok_s=901.0, throughput_concurrency=64)),
    replace(PLAIN, golden=(GoldenQuestion("p", "e"),)),
    replace(PLAIN, golden=(GoldenQuestion("p2", "e"),)),
    replace(PLAIN, golden=(GoldenQuestion("p", "e2"),)),
    replace(PLAIN, golden=(GoldenQuestion("p", "e", Where.REASONING),)),
    replace(PLAIN, golden=(GoldenQuestion("p", "e", max_tokens=65),)),
    replace(PLAIN, golden=(GoldenQuestion("p", "e"), GoldenQuestion("p2", "e"))),
    replace(PLAIN, golden=(GoldenQuestion("p2", "e"), GoldenQuestion("p", "e"))),
]


def test_each_change_of_what_the_gate_asks_changes_the_gate_alone(
    templates: Templates, place: Installation
) -> None:
    profiles = [PLAIN, *OTHER]
    rendered = [units(profile, templates, place) for profile in profiles]
    assert len({r["kimisvc-kimi-gate.service"].text for r in rendered}) == len(profiles)
    for name in ("kimisvc-kimi.service", "kimisvc-kimi-rollback.service", "kimisvc.target"):
        assert len({r[name].text for r in rendered}) == 1, name


def test_every_field_of_the_gate_s_settings_is_tried() -> None:
    """A new field of [probe], [gate] or [[golden]] needs a line in OTHER."""
    blank = GoldenQuestion("p", "e")
    pairs: list[tuple[Asked, Asked]] = []
    for profile in OTHER:
        pairs += [(PLAIN.probe, profile.probe), (PLAIN.gate, profile.gate)]
        pairs += [(blank, question) for question in profile.golden]
    tried = {
        f"{type(old).__name__}.{field.name}"
        for old, new in pairs
        for field in fields(old)
        if getattr(old, field.name) != getattr(new, field.name)
    }
    assert tried == {
        f"{kind.__name__}.{field.name}"
        for kind in (ProbeSettings, GateSettings, GoldenQuestion)
        for field in fields(kind)
    }


def test_what_the_gate_does_not_ask_leaves_its_settings_alone(everything: Profile) -> None:
    other = replace(everything, name="x", description="x", env={}, args={}, allow_risky=("A",))
    other = replace(other, service=replace(everything.service, on_fail=OnFail.KEEP, starts=9))
    assert gate_settings(other) == gate_settings(everything)


# ------------------------------------------------------------------- the templates


def test_templates_explain_themselves(templates: Templates) -> None:
    for name, text in templates.items():
        lines = text.splitlines()
        assert any(line.startswith("# ") for line in lines), name
        assert all(len(line) <= 120 for line in lines), name


def test_templates_are_plain_files() -> None:
    for path in (Path(__file__).parents[3] / "units").iterdir():
        assert not path.stat().st_mode & stat.S_IXUSR, path
