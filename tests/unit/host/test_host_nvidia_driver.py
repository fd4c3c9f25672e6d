"""The NVIDIA driver as a staged file system shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kimisvc.host import nvidia_driver

if TYPE_CHECKING:
    from pathlib import Path

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)\n"
    "GCC version:  gcc version 15.3.0 (GCC)\n"
)
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 03:22:07 UTC 2024\n"
    "GCC version:  gcc version 12.2.0\n"
)


@pytest.mark.parametrize(
    ("text", "version"), [(OPEN, "580.159.04"), (CLOSED, "550.127.05"), ("NVRM version: ?\n", "")]
)
def test_the_module_that_is_loaded(tmp_path: Path, text: str, version: str) -> None:
    folder = tmp_path / "driver" / "nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(text)
    assert nvidia_driver.loaded_version(tmp_path) == version


def test_no_module_is_loaded(tmp_path: Path) -> None:
    assert nvidia_driver.loaded_version(tmp_path) == ""


def test_libraries_tell_their_version_by_what_their_links_lead_to(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    (folder / "libcuda.so.1").symlink_to("/usr/lib/x86_64-linux-gnu/libcuda.so.580.82.07")
    other = tmp_path / "usr" / "lib64"
    other.mkdir()
    (other / "libcuda.so.1").write_text("a stub, and no link")
    assert nvidia_driver.library_versions(tmp_path) == {
        str(folder / "libnvidia-ml.so.1"): "580.95.05",
        str(folder / "libcuda.so.1"): "580.82.07",
    }


def test_nodes_that_cuda_opens(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia0"):
        (tmp_path / name).touch()
    assert nvidia_driver.missing_nodes((0, 3), tmp_path) == (
        tmp_path / "nvidia-uvm",
        tmp_path / "nvidia3",
    )


def test_the_helper_that_makes_them(tmp_path: Path) -> None:
    assert not nvidia_driver.can_make_nodes(tmp_path)
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "nvidia-modprobe").touch()
    assert nvidia_driver.can_make_nodes(tmp_path)


def test_gpus_are_named_without_a_device_node(tmp_path: Path) -> None:
    texts = {"0000:18:00.0": "Model: \t\t NVIDIA H200\nIRQ:   \t\t 55\n", "0000:2a:00.0": "IRQ: 1\n",
             "0000:3b:00.0": "Model:\t NVIDIA L4 \nGPU UUID: ?\n"}  # fmt: skip
    for address, text in texts.items():
        folder = tmp_path / "driver" / "nvidia" / "gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)
    assert nvidia_driver.gpu_names(tmp_path) == ("NVIDIA H200", "NVIDIA L4")
    assert nvidia_driver.gpu_names(tmp_path / "none") == ()
