"""NVIDIA cards on a staged bus, the IOMMU of a staged kernel, and ACS registers byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from staged_host import pci_device

from kimisvc.host import pci
from kimisvc.host.pci import Bridges, Iommu, PciGpu


def config(acs: int, before: int = 1) -> bytes:
    """The configuration space of a bridge whose extended list has ACS after `before` others."""
    space = bytearray(4096)
    at = 0x100
    for _ in range(before):
        struct.pack_into("<I", space, at, 0x0001 | 1 << 16 | (at + 0x40) << 20)
        at += 0x40
    struct.pack_into("<IHH", space, at, 0x000D | 1 << 16, 0x1F, acs)
    return bytes(space)


def test_cards_with_and_without_a_driver(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:c1:00.0", driver="", numa_node="-1", current_link_width="8")
    pci_device(tmp_path, "0000:01:00.0", driver="vfio-pci", **{"class": "0x030000"})
    pci_device(tmp_path, "0000:01:00.1", driver="snd_hda_intel", **{"class": "0x040300"})
    pci_device(tmp_path, "0000:02:00.0", vendor="0x1a03", driver="ast")
    assert pci.gpus(tmp_path) == (
        PciGpu("0000:01:00.0", "vfio-pci", 0, 16, 16, "32.0 GT/s PCIe", "32.0 GT/s PCIe"),
        PciGpu("0000:c1:00.0", "", -1, 8, 16, "32.0 GT/s PCIe", "32.0 GT/s PCIe"),
    )
    assert pci.numa_nodes(tmp_path) == {"0000:01:00.0": 0}


def test_a_card_that_tells_nothing_of_its_link(tmp_path: Path) -> None:
    card = pci_device(tmp_path, "0000:01:00.0", max_link_width="Unknown")
    (card / "current_link_width").unlink()
    (card / "numa_node").unlink()
    assert pci.numa_nodes(tmp_path) == {}
    assert (pci.gpus(tmp_path)[0].width, pci.gpus(tmp_path)[0].width_max) == (None, None)


def test_a_box_without_pci(tmp_path: Path) -> None:
    assert pci.gpus(tmp_path) == ()
    assert pci.bridges(tmp_path) == Bridges()
    assert pci.iommu(tmp_path, tmp_path) == Iommu((), 0, 0)


def test_what_the_iommu_does(tmp_path: Path) -> None:
    for number, kind in enumerate(("DMA-FQ", "identity", "DMA")):
        group = tmp_path / "kernel" / "iommu_groups" / str(number)
        group.mkdir(parents=True)
        (group / "type").write_text(f"{kind}\n")
    (tmp_path / "cmdline").write_text("quiet amd_iommu=on iommu=pt mitigations=off\n")
    assert pci.iommu(tmp_path, tmp_path) == Iommu(("amd_iommu=on", "iommu=pt"), 3, 2)


@pytest.mark.parametrize(
    ("control", "redirects"), [(0, False), (0x01, False), (0x10, False), (0x04, True), (0x1D, True)]
)
@pytest.mark.parametrize("before", [0, 1, 5])
def test_acs_redirects(control: int, redirects: bool, before: int) -> None:  # noqa: FBT001 - a case
    assert pci.redirects(config(control, before)) is redirects


@given(st.binary(max_size=600))
def test_any_register_is_read_to_an_end(space: bytes) -> None:
    assert pci.redirects(bytes(0x100) + space) in (True, False)


def test_a_list_that_leads_in_a_circle() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x140 << 20)
    struct.pack_into("<I", space, 0x140, 0x0001 | 0x100 << 20)
    assert not pci.redirects(bytes(space))


def test_a_list_that_leads_out_of_the_extended_registers() -> None:
    space = bytearray(config(0, 1))
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x40 << 20)
    struct.pack_into("<IHH", space, 0x40, 0x000D, 0, 0x1D)
    assert not pci.redirects(bytes(space))


def bridge(sys: Path, space: bytes) -> None:
    folder = pci_device(sys, "0000:00:01.0", driver="pcieport", **{"class": "0x060400"})
    (folder / "config").write_bytes(space)


@pytest.mark.parametrize("length", [0, 64, 255])
def test_what_a_user_who_is_not_root_sees_of_a_bridge_tells_nothing(
    tmp_path: Path, length: int
) -> None:
    bridge(tmp_path, config(0x1D)[:length])
    assert pci.bridges(tmp_path) == Bridges(hidden=("0000:00:01.0",))


def test_a_bridge_whose_registers_cannot_be_read_at_all(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:00:01.0", driver="pcieport", **{"class": "0x060400"})
    assert pci.bridges(tmp_path) == Bridges(hidden=("0000:00:01.0",))


def standard(*capabilities: int, then: int = 0) -> bytes:
    """256 bytes of a bridge with a list of such capabilities, the last leading to `then`."""
    space = bytearray(256)
    space[0x06], space[0x34] = 0x10, 0x40
    for number, capability in enumerate(capabilities):
        at = 0x40 + 0x10 * number
        space[at : at + 2] = bytes((capability, at + 0x10))
    space[0x40 + 0x10 * (len(capabilities) - 1) + 1] = then
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "hides"),
    [
        (standard(0x01, 0x10), True),
        (standard(0x01, 0x0D), False),
        (standard(0x01, 0x0D, then=0x40), False),
        (bytes(256), False),
    ],
)
def test_without_extended_registers_conventional_pci_hides_nothing(
    tmp_path: Path,
    space: bytes,
    hides: bool,  # noqa: FBT001 - a case
) -> None:
    bridge(tmp_path, space)
    assert bool(pci.bridges(tmp_path).hidden) is hides


@given(st.binary(min_size=256, max_size=256))
def test_any_list_of_capabilities_is_read_to_an_end(space: bytes) -> None:
    with TemporaryDirectory() as folder:
        bridge(Path(folder), space)
        assert pci.bridges(Path(folder)).redirecting == ()


def test_only_bridges_are_asked(tmp_path: Path) -> None:
    for bus, kind, acs in (
        ("0000:00:01.0", "0x060400", 0x1D),
        ("0000:00:02.0", "0x030000", 0x1D),
        ("0000:00:03.0", "0x060400", 0x01),
    ):
        (pci_device(tmp_path, bus, **{"class": kind}) / "config").write_bytes(config(acs))
    assert pci.bridges(tmp_path) == Bridges(
        seen=("0000:00:01.0", "0000:00:03.0"), redirecting=("0000:00:01.0",)
    )
