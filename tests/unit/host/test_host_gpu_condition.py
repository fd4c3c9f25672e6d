"""The condition of a GPU and of its way to the others, call by call."""

from __future__ import annotations

import pynvml
import pytest
from staged_host import Card, Nvml, NvmlError

from kimisvc.host import gpu_condition
from kimisvc.host.gpu_condition import (
    CLOCK_REASONS,
    Clocks,
    Condition,
    Pair,
    clock_reasons,
    clocks,
    condition,
    pairs,
)

GOOD = Condition(0, 5, 5, 5, 16, 16, True, 1, 700.0, 700.0, 0, False, False)  # noqa: FBT003 - a record
EVENT, THROTTLE = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


def test_all_that_a_good_card_tells() -> None:
    assert condition(Nvml(Card()), 0, 0) == GOOD


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        ("nvmlDeviceGetCurrPcieLinkGeneration", ["pcie_generation"]),
        ("nvmlDeviceGetMaxPcieLinkGeneration", ["pcie_generation_max"]),
        ("nvmlDeviceGetGpuMaxPcieLinkGeneration", ["pcie_generation_card"]),
        ("nvmlDeviceGetCurrPcieLinkWidth", ["pcie_width"]),
        ("nvmlDeviceGetMaxPcieLinkWidth", ["pcie_width_max"]),
        ("nvmlDeviceGetPersistenceMode", ["persistence"]),
        ("nvmlDeviceGetEnforcedPowerLimit", ["power_limit"]),
        ("nvmlDeviceGetPowerManagementDefaultLimit", ["power_default"]),
        ("nvmlDeviceGetTotalEccErrors", ["ecc_uncorrected"]),
        ("nvmlDeviceGetRemappedRows", ["rows_pending", "rows_failed"]),
    ],
)
def test_what_one_call_does_not_tell_is_unknown(call: str, unknown: list[str]) -> None:
    found = condition(Nvml(Card(says={call: NvmlError("Not Supported")})), 0, 0)
    assert [name for name in Condition.__slots__ if getattr(found, name) is None] == unknown


def test_an_older_driver_tells_of_clocks_by_another_name() -> None:
    old = Card(says={EVENT: NvmlError("Function Not Found"), THROTTLE: 0x40})
    assert condition(Nvml(old), 0, 0).clock_reasons == 0x40
    neither = Card(says={EVENT: NvmlError("x"), THROTTLE: NvmlError("x")})
    assert condition(Nvml(neither), 0, 0).clock_reasons is None


def test_a_pynvml_without_a_call_is_as_good_as_one_that_does_not_tell() -> None:
    assert gpu_condition.told(Nvml(Card()), "nvmlDeviceGetOfTheFuture", 0) is None


def test_rows_that_wait_and_rows_that_failed() -> None:
    waits = condition(Nvml(Card(says={"nvmlDeviceGetRemappedRows": (0, 1, 1, 0)})), 0, 0)
    failed = condition(Nvml(Card(says={"nvmlDeviceGetRemappedRows": (0, 1, 0, 1)})), 0, 0)
    assert (waits.rows_pending, waits.rows_failed) == (True, False)
    assert (failed.rows_pending, failed.rows_failed) == (False, True)


def test_reasons_for_lower_clocks_as_nvml_numbers_them() -> None:
    names = {
        "idle": "GpuIdle", "clocks set by hand": "ApplicationsClocksSetting",
        "power limit": "SwPowerCap", "hardware slowdown": "HwSlowdown", "sync boost": "SyncBoost",
        "too hot (software)": "SwThermalSlowdown", "too hot (hardware)": "HwThermalSlowdown",
        "power brake: the power supply asks for less": "HwPowerBrakeSlowdown",
        "display clocks": "DisplayClockSetting",
    }  # fmt: skip
    assert {reason.words: reason.bit for reason in CLOCK_REASONS} == {
        words: getattr(pynvml, f"nvmlClocksEventReason{name}") for words, name in names.items()
    }
    assert [reason.words for reason in clock_reasons(0x41)] == ["idle", "too hot (hardware)"]
    assert clock_reasons(0) == ()


def test_the_clocks_of_a_card_and_the_most_they_reach() -> None:
    found = clocks(Nvml(Card()), 0)
    assert found == Clocks(1965, 1980, 3201, 3201)
    assert found.words == "SM 1965 of 1980 MHz, memory 3201 of 3201 MHz"


def test_clocks_that_are_not_told_are_left_out() -> None:
    unknown = NvmlError("Not Supported")
    most = clocks(Nvml(Card(says={"nvmlDeviceGetMaxClockInfo": unknown})), 0)
    assert most.words == "SM 1965 of ? MHz, memory 3201 of ? MHz"
    assert clocks(Nvml(Card(says={"nvmlDeviceGetClockInfo": unknown})), 0).words == ""
    assert Clocks(memory=3201, memory_max=3201).words == "memory 3201 of 3201 MHz"


def test_numbers_are_those_of_nvml() -> None:
    assert pynvml.NVML_CLOCK_SM == gpu_condition.CLOCK_SM
    assert pynvml.NVML_CLOCK_MEM == gpu_condition.CLOCK_MEMORY
    # pynvml has a stray comma behind this one, which makes it a tuple.
    assert pynvml.NVML_P2P_CAPS_INDEX_READ in (gpu_condition.P2P_READ, (gpu_condition.P2P_READ,))
    assert gpu_condition.P2P_WRITE == pynvml.NVML_P2P_CAPS_INDEX_WRITE
    assert gpu_condition.P2P_NVLINK == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    assert gpu_condition.P2P_STATES[pynvml.NVML_P2P_STATUS_OK] == "ok"
    assert "sockets" in gpu_condition.P2P_STATES[pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED]
    assert pynvml.NVML_FEATURE_ENABLED == gpu_condition.ENABLED
    assert pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED == gpu_condition.UNCORRECTED
    assert pynvml.NVML_VOLATILE_ECC == gpu_condition.SINCE_BOOT


def test_pairs_over_pcie_and_nvlink() -> None:
    nvml = Nvml(
        Card(), Card(), Card(), p2p={(0, 1, 2): 5, (0, 2, 0): 3, (0, 2, 2): 6, (1, 2, 1): 77}
    )
    assert pairs(nvml, [(0, 0), (1, 1), (2, 2)]) == (
        Pair(0, 1, nvlink=False, read="ok", write="ok"),
        Pair(0, 2, nvlink=None, read=gpu_condition.P2P_STATES[3], write="ok"),
        Pair(1, 2, nvlink=True, read="ok", write="unknown"),
    )


def test_pairs_that_nvml_does_not_tell_of() -> None:
    nvml = Nvml(Card(), Card(), says={"nvmlDeviceGetP2PStatus": NvmlError("Not Supported")})
    assert pairs(nvml, [(0, 0), (1, 1)]) == (Pair(0, 1, None, "unknown", "unknown"),)
