"""The NVIDIA driver as the file system shows it: what is loaded, installed, and which nodes exist.

NVML refuses to speak when kernel module and library differ, so both versions
are read where they stand.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path("/")
_NVRM = re.compile(r"NVRM version:.*?\s(\d+\.\d[\d.]*)\s")
_MODEL = re.compile(r"^Model:\s*(\S.*?)\s*$", re.MULTILINE)
_LIBRARY = re.compile(r"lib(?:nvidia-ml|cuda)\.so\.(\d+\.\d[\d.]*)")
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib",
)  # fmt: skip
"""Where distributions and NVIDIA's installer put the driver's libraries."""
CONTROL_NODES = ("nvidiactl", "nvidia-uvm")
"""What CUDA opens beside the nodes of the GPUs themselves."""
MODPROBE = "usr/bin/nvidia-modprobe"


def loaded_version(proc: Path = ROOT / "proc") -> str:
    """Return the version of the kernel module that is loaded; "" if none is."""
    try:
        told = (proc / "driver" / "nvidia" / "version").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    found = _NVRM.search(told)
    return found[1] if found else ""


def gpu_names(proc: Path = ROOT / "proc") -> tuple[str, ...]:
    """Return the name of each GPU the loaded driver has, in the order of their PCI addresses.

    From /proc/driver/nvidia/gpus/ADDRESS/information (README of the driver,
    "The /proc/driver/nvidia/ Interface"); no device node is needed for it.
    """
    names = []
    for path in sorted((proc / "driver" / "nvidia" / "gpus").glob("*/information")):
        try:
            found = _MODEL.search(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            names.append(found[1])
    return tuple(names)


def library_versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version of each library of the driver, by its path; none that is not there.

    The name that programs ask for is a link to a name with the version in it.
    """
    versions = {}
    for folder in LIBRARY_FOLDERS:
        for name in LIBRARIES:
            path = root / folder / name
            try:
                found = _LIBRARY.fullmatch(path.readlink().name)
            except OSError:
                continue
            if found:
                versions[str(path)] = found[1]
    return versions


def missing_nodes(minors: tuple[int, ...], dev: Path = ROOT / "dev") -> tuple[Path, ...]:
    """Given the minor numbers of GPUs, return the device nodes that CUDA needs and that are not."""
    return tuple(node for node in nodes(minors, dev) if not node.exists())


def nodes(minors: tuple[int, ...], dev: Path = ROOT / "dev") -> tuple[Path, ...]:
    """Given the minor numbers of GPUs, return the device nodes that CUDA opens."""
    return tuple(dev / name for name in (*CONTROL_NODES, *(f"nvidia{n}" for n in minors)))


def can_make_nodes(root: Path = ROOT) -> bool:
    """Whether the helper is there that the unit calls to have the nodes made."""
    return (root / MODPROBE).is_file()
