"""What systemd answers becomes our words; the real bus is met in tests/system."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pystemd.dbusexc import DBusError
from pystemd.dbuslib import path_decode

from kimisvc.errors import HostError
from kimisvc.host.systemd import Systemd
from kimisvc.host.systemd_words import object_path, translated, unit_state, was_cut

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = b"/org/freedesktop/systemd1/unit"
BUS = "org.freedesktop.DBus.Error."
SYSTEMD = "org.freedesktop.systemd1."


@pytest.mark.parametrize(
    ("unit", "label"),
    [
        ("kimisvc-kimi.service", b"kimisvc_2dkimi_2eservice"),
        ("8gpus.service", b"_38gpus_2eservice"),
        ("gpu8.service", b"gpu8_2eservice"),
        ("a@b_c.service", b"a_40b_5fc_2eservice"),
        ("modèle.service", b"mod_c3_a8le_2eservice"),
        ("", b"_"),
    ],
)
def test_a_unit_name_becomes_its_object_path(unit: str, label: bytes) -> None:
    assert object_path(unit) == PREFIX + b"/" + label


@given(st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_libsystemd_reads_every_object_path_back(unit: str) -> None:
    assert path_decode(object_path(unit), PREFIX) == unit.encode()


def test_properties_become_a_state() -> None:
    general = {
        "LoadState": b"loaded", "ActiveState": b"active", "SubState": b"running",
        "InvocationID": [0x23, 0x35, 0x95, 0x0E], "Job": (0, b"/"),
        "InactiveExitTimestamp": 1_000_000, "InactiveExitTimestampMonotonic": 500_000,
        "FragmentPath": b"/etc/systemd/system/x.service",
        "DropInPaths": [b"/etc/systemd/system/x.service.d/a.conf"],
        "UnitFileState": b"enabled", "NeedDaemonReload": True,
    }  # fmt: skip
    service = {
        "Result": b"success", "MainPID": 86, "NRestarts": 2, "ExecMainCode": 1,
        "ExecMainStatus": 203, "ExecMainStartTimestamp": 61_500_000,
        "ExecMainStartTimestampMonotonic": 61_000_000,
    }  # fmt: skip
    state = unit_state("x.service", general, service)
    assert (state.load_state, state.active_state, state.sub_state) == (
        "loaded", "active", "running",
    )  # fmt: skip
    assert state.invocation_id == "2335950e"
    assert (state.main_pid, state.restarts, state.result) == (86, 2, "success")
    assert (state.exec_main_code, state.exec_main_status) == (1, 203)
    assert state.fragment == "/etc/systemd/system/x.service"
    assert state.drop_ins == ("/etc/systemd/system/x.service.d/a.conf",)
    assert (state.enabled, state.needs_reload, state.job) == ("enabled", True, 0)
    # An automatic restart moves the start of the main process only.
    assert (state.started_at, state.started_monotonic) == (61.5, 61.0)
    assert (state.main_started_at, state.main_started_monotonic) == (61.5, 61.0)


def test_a_start_whose_main_process_is_still_to_come_began_when_it_left_inactive() -> None:
    general = {"InactiveExitTimestamp": 9_000_000, "InactiveExitTimestampMonotonic": 8_000_000}
    before = {"ExecMainStartTimestamp": 5_000_000, "ExecMainStartTimestampMonotonic": 4_000_000}
    state = unit_state("x.service", general, before)
    assert (state.started_at, state.started_monotonic) == (9.0, 8.0)
    assert (state.main_started_at, state.main_started_monotonic) == (5.0, 4.0)


def test_a_unit_that_is_not_there_has_a_state_all_the_same() -> None:
    general = {
        "LoadState": b"not-found", "ActiveState": b"inactive", "SubState": b"dead",
        "InvocationID": [], "Job": (0, b"/"),
    }  # fmt: skip
    state = unit_state("nope.service", general, {})
    assert (state.load_state, state.active_state) == ("not-found", "inactive")
    assert (state.main_pid, state.invocation_id, state.started_at) == (0, "", 0.0)


@pytest.mark.parametrize(
    ("number", "name", "code", "hint"),
    [
        (-13, f"{BUS}InteractiveAuthorizationRequired", "not-allowed", "sudo"),
        (-13, f"{BUS}AccessDenied", "not-allowed", "sudo"),
        (-13, None, "not-allowed", "sudo"),
        (-2, f"{SYSTEMD}NoSuchUnit", "no-such-unit", "applied"),
        (-132, f"{SYSTEMD}UnitMasked", "unit-masked", "systemctl unmask x.service"),
        (-110, None, "systemd-timeout", "busy"),
        (-110, f"{BUS}Timeout", "systemd-timeout", "busy"),
        (-110, f"{BUS}NoReply", "systemd-timeout", "busy"),
        (-107, None, "systemd-lost", "try again"),
        (-32, f"{BUS}Disconnected", "systemd-lost", "try again"),
        (-35, f"{SYSTEMD}TransactionIsDestructive", "job-in-the-way", "shutting down"),
        (-22, f"{BUS}InvalidArgs", "systemd-refused", ""),
        (-1, f"{SYSTEMD}NeverHeardOf", "systemd-refused", ""),
    ],
)
def test_errors_of_the_bus_have_our_codes_and_hints(
    number: int, name: str | None, code: str, hint: str
) -> None:
    error = DBusError(number, name and name.encode(), b"its own words")
    ours = translated(error, "x.service")
    assert ours.code == code
    assert hint in ours.hint
    assert ours.message == "systemd: x.service: its own words"


def test_pystemds_own_remarks_do_not_reach_the_operator() -> None:
    ours = translated(DBusError(-13, None, "Could not open a bus to DBus"), "")
    assert ours.message == "Could not open a bus to DBus (EACCES)"


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE])
def test_a_cut_connection_is_told_from_a_refusal(number: int) -> None:
    assert was_cut(DBusError(-number, None, ""))
    assert not was_cut(DBusError(-13, b"org.freedesktop.DBus.Error.AccessDenied", b""))


def test_without_systemd_the_door_says_so_plainly(tmp_path: Path) -> None:
    with (
        pytest.raises(HostError, match="systemd does not run here") as caught,
        Systemd(running=tmp_path / "system"),
    ):
        pass
    assert caught.value.code == "no-systemd"
