"""What doctor says of the condition of GPUs and of what connects them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from good_host import write
from staged_host import CALLS, Card, Nvml, NvmlError, pci_device

from kimisvc.deploy.checks.condition import conditions
from kimisvc.deploy.checks.inspection import Finding, Looked
from kimisvc.host import gpu

if TYPE_CHECKING:
    from good_host import Host


def found(host: Host) -> dict[str, Finding]:
    survey = gpu.survey(host.nvml)
    assert isinstance(survey, gpu.Survey)
    return {one.check: one for one in conditions(survey, host.root)}


def only(host: Host, check: str) -> str:
    """The one problem of all findings: a warning, of that check."""
    problems = [(one.check, problem) for one in found(host).values() for problem in one.problems]
    ((where, problem),) = problems
    assert (where, problem.severity.value) == (check, "warning")
    return problem.message


def test_a_good_box(host: Host) -> None:
    rows = found(host)
    assert [problem for one in rows.values() for problem in one.problems] == []
    assert rows["GPU 0"].said == (
        "NVIDIA H200, 95.6 GiB, NUMA node 0, PCIe 5 x16 of 5 x16, 700 W, persistence on,"
        " clocks: idle"
    )
    assert rows["P2P"].said == "28 of 28 pairs, 0 over NVLink"
    assert (rows["IOMMU"].said, rows["ACS"].said) == ("off", "no bridge redirects")
    assert {one.looked for one in rows.values()} == {Looked.YES}


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"nvmlDeviceGetCurrPcieLinkWidth": 8}, "GPU 2 runs over 8 PCIe lanes of 16"),
        (
            {"nvmlDeviceGetMaxPcieLinkGeneration": 3, "nvmlDeviceGetCurrPcieLinkGeneration": 3},
            "GPU 2 could do PCIe generation 5, its slot does 3",
        ),
        (
            {
                "nvmlDeviceGetCurrPcieLinkGeneration": 1,
                "nvmlDeviceGetCurrentClocksEventReasons": 0,
            },
            "GPU 2 runs at PCIe generation 1 of 5 though it is not idle",
        ),
        ({"nvmlDeviceGetPersistenceMode": 0}, "GPU 2 has persistence mode off"),
        (
            {"nvmlDeviceGetCurrentClocksEventReasons": 0xC4},
            "GPU 2 is slowed down: too hot (hardware), power brake",
        ),
        ({"nvmlDeviceGetEnforcedPowerLimit": 400_000}, "GPU 2 is limited to 400 W of 700"),
        ({"nvmlDeviceGetTotalEccErrors": 3}, "GPU 2 had 3 uncorrected memory errors since boot"),
        ({"nvmlDeviceGetRemappedRows": (0, 1, 1, 0)}, "at its next reset: reboot"),
        ({"nvmlDeviceGetRemappedRows": (0, 9, 1, 1)}, "have it exchanged"),
    ],
)
def test_a_card_in_a_bad_condition(host: Host, says: dict[str, Any], words: str) -> None:
    host.card(2, says=says)
    assert words in only(host, "GPU 2")


def test_a_link_that_is_slow_while_idle_is_no_fault(host: Host) -> None:
    host.card(0, says={"nvmlDeviceGetCurrPcieLinkGeneration": 1})
    rows = found(host)
    assert rows["GPU 0"].problems == ()
    assert "PCIe 1 x16 of 5 x16" in rows["GPU 0"].said


def test_a_card_that_tells_nothing_but_its_memory(host: Host) -> None:
    nothing = NvmlError("Not Supported")
    needed = {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    needed |= {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName"}
    host.nvml = Nvml(
        Card(1 << 30), Card(1 << 30), says={n: nothing for n in CALLS if n not in needed}
    )
    rows = found(host)
    assert [problem for one in rows.values() for problem in one.problems] == []
    assert rows["GPU 1"].said == "NVIDIA H200, 1.0 GiB"
    assert rows["P2P"] == Finding(
        "P2P",
        said="0 of 1 pairs (NVML does not tell of 1), NVML does not tell of NVLink",
        looked=Looked.NO,
    )


NEEDED = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"}
"""Without these there is no GPU."""


@pytest.mark.parametrize("call", sorted(c for c in CALLS if "DeviceGet" in c and c not in NEEDED))
def test_what_one_call_does_not_tell_is_no_fault(host: Host, call: str) -> None:
    host.nvml.says = {call: NvmlError("Not Supported")}
    rows = found(host)
    assert [problem for one in rows.values() for problem in one.problems] == []
    assert "None" not in rows["GPU 0"].said


def test_a_slow_link_is_not_judged_where_nobody_tells_whether_the_card_is_idle(host: Host) -> None:
    unknown = NvmlError("Not Supported")
    clocks = "nvmlDeviceGetCurrentClocks"
    says = {f"{clocks}EventReasons": unknown, f"{clocks}ThrottleReasons": unknown}
    host.card(0, says={"nvmlDeviceGetCurrPcieLinkGeneration": 1, **says})
    assert found(host)["GPU 0"].problems == ()


def test_a_lost_card_is_shown_among_the_others(host: Host) -> None:
    host.card(6, says={"nvmlDeviceGetHandleByIndex": NvmlError("GPU is lost")})
    assert only(host, "GPU 6").startswith("GPU is lost: a GPU fell off the bus")
    assert found(host)["P2P"].said == "21 of 21 pairs, 0 over NVLink"


def test_gpus_that_do_not_reach_each_other(host: Host) -> None:
    host.nvml.p2p |= {(0, 4, 0): 3, (1, 4, 0): 3}
    assert only(host, "P2P") == (
        "GPUs 0-4, 1-4 do not reach each other's memory: the way between their sockets does not"
        " support it"
    )


def test_what_nvml_does_not_tell_of_a_pair_is_not_called_in_order(host: Host) -> None:
    host.nvml.p2p |= {(0, 1, cap): 6 for cap in (0, 1)}
    assert found(host)["P2P"] == Finding(
        "P2P",
        said="27 of 28 pairs (NVML does not tell of 1), 0 over NVLink",
        looked=Looked.NO,
    )


def test_a_pair_of_which_nvml_tells_half_is_judged_by_that(host: Host) -> None:
    host.nvml.p2p |= {(0, 1, 0): 6, (0, 1, 1): 1}
    assert only(host, "P2P") == (
        "GPUs 0-1 do not reach each other's memory: the chipset does not support it"
    )


def test_what_hides_its_acs_is_not_said_to_redirect_nothing(host: Host) -> None:
    bridge = host.root / "sys" / "bus" / "pci" / "devices" / "0000:00:01.0"
    (bridge / "config").write_bytes(bytes(64))
    said = "1 of 1 bridges hide their ACS; root sees it on most boxes"
    assert found(host)["ACS"] == Finding("ACS", said=said, looked=Looked.NO)
    (bridge / "class").write_text("0x030000")
    said = "no bridges shown; those of a virtual machine's host are not"
    assert found(host)["ACS"] == Finding("ACS", said=said, looked=Looked.NO)


def test_bridges_that_redirect_beside_one_that_hides_it(host: Host) -> None:
    test_bridges_that_redirect(host)
    bridge = host.root / "sys" / "bus" / "pci" / "devices" / "0000:00:01.0"
    (bridge / "config").write_bytes(bytes(64))
    assert "0000:40:01.1 redirects" in only(host, "ACS")
    assert found(host)["ACS"].said.startswith("1 bridges redirect, 1 of 2 bridges hide their ACS")


def test_groups_that_do_not_tell_are_not_said_to_be_in_order(host: Host) -> None:
    for number, kind in enumerate(("", "identity")):
        write(host.root / "sys" / "kernel" / "iommu_groups" / str(number) / "type", kind)
    assert found(host)["IOMMU"] == Finding(
        "IOMMU", said="2 groups, 0 translated, 1 do not tell", looked=Looked.NO
    )


def test_an_iommu_that_translates(host: Host) -> None:
    for number, kind in enumerate(("DMA-FQ", "identity")):
        write(host.root / "sys" / "kernel" / "iommu_groups" / str(number) / "type", kind)
    write(host.root / "proc" / "cmdline", "quiet amd_iommu=on")
    assert "the IOMMU translates 1 of 2 groups" in only(host, "IOMMU")
    assert found(host)["IOMMU"].said == "2 groups, 1 translated, amd_iommu=on"


def test_bridges_that_redirect(host: Host) -> None:
    space = bytearray(4096)
    struct.pack_into("<IHH", space, 0x100, 0x000D, 0, 0x1D)
    bridge = pci_device(
        host.root / "sys", "0000:40:01.1", driver="pcieport", **{"class": "0x060400"}
    )
    (bridge / "config").write_bytes(bytes(space))
    assert "ACS of the PCIe bridges 0000:40:01.1 redirects" in only(host, "ACS")


def test_one_card_alone_has_no_peers(host: Host) -> None:
    host.nvml = Nvml(Card())
    assert list(found(host)) == ["GPU 0"]
